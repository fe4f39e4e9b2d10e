//! Objects of the caller's that graphs keep: made, kept and let go.

use crate::codes::{Answer, Code};
use crate::emulated::context::ready;
use crate::emulated::graph::find;
use crate::emulated::graph::user::Counted;
use crate::emulated::state::{STATE, lock, pointer, put};
use crate::types::*;
use std::sync::{Arc, Mutex};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: nobody waits for the destructor. It has to be given.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the references are the caller's, who gives them away.
const MOVE: c_uint = 1;

fn find_object(object: CUuserObject) -> Answer<Arc<Counted>> {
    ready()?;
    STATE.find(object.addr())
}

/// A number of references as the API passes it.
fn references(count: c_uint) -> Answer<usize> {
    c_int::try_from(count)
        .ok()
        .filter(|&count| count > 0)
        .map(|count| count as usize)
        .ok_or(Code::INVALID_VALUE)
}

pub(crate) unsafe fn create(
    out: *mut CUuserObject,
    object: *mut c_void,
    destroy: CUhostFn,
    count: c_uint,
    flags: c_uint,
) -> Answer {
    ready()?;
    if out.is_null() || destroy.is_none() || flags != NO_DESTRUCTOR_SYNC {
        return Err(Code::INVALID_VALUE);
    }
    let made = Arc::new(Counted {
        handle: STATE.fresh(),
        context: 0,
        object: CUDA_HOST_NODE_PARAMS {
            r#fn: destroy,
            userData: object,
        },
        references: Mutex::new(references(count)?),
    });
    STATE.insert(made.handle, made.clone());
    // SAFETY: the caller promises that `out` is valid for a write.
    unsafe { put(out, pointer(made.handle)) }
}

pub(crate) unsafe fn retain(object: CUuserObject, count: c_uint) -> Answer {
    find_object(object)?.retain(references(count)?);
    Ok(())
}

pub(crate) unsafe fn release(object: CUuserObject, count: c_uint) -> Answer {
    find_object(object)?.release(references(count)?)
}

pub(crate) unsafe fn graph_retain(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) -> Answer {
    let (graph, object, count) = (find(graph)?, find_object(object)?, references(count)?);
    match flags {
        0 => object.retain(count),
        // The caller must have so many to give.
        MOVE if *lock(&object.references) >= count => {}
        _ => return Err(Code::INVALID_VALUE),
    }
    graph.users.add(object, count);
    Ok(())
}

pub(crate) unsafe fn graph_release(graph: CUgraph, object: CUuserObject, count: c_uint) -> Answer {
    let (graph, object) = (find(graph)?, find_object(object)?);
    graph.users.take(object.handle, references(count)?)
}
