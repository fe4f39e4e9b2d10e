//! Objects of the caller's that graphs keep: counted, and destroyed by a function of the caller's with their last reference.

use super::*;
use crate::emulated::context::in_host_function;

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: nobody waits for the destructor. It has to be given.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the references are the caller's, who gives them away.
const MOVE: c_uint = 1;

pub(in crate::emulated) struct Counted {
    handle: usize,
    /// Of no context.
    pub(in crate::emulated) context: usize,
    object: CUDA_HOST_NODE_PARAMS,
    references: Mutex<usize>,
}

// SAFETY: the caller who gave the object and its destructor has promised that any thread may call the one with the other.
unsafe impl Send for Counted {}
// SAFETY: as above.
unsafe impl Sync for Counted {}

impl Counted {
    fn retain(&self, count: usize) {
        *lock(&self.references) += count;
    }

    /// Takes references away, and destroys the object with the last of them.
    fn release(&self, count: usize) -> Answer {
        let mut references = lock(&self.references);
        *references = references.checked_sub(count).ok_or(Code::INVALID_VALUE)?;
        if *references == 0 {
            drop(references);
            // Where two release at once, one of them finds the last reference.
            if STATE.remove::<Counted>(self.handle).is_ok()
                && let Some(destroy) = self.object.r#fn
            {
                // SAFETY: the caller has promised that the destructor takes the object.
                in_host_function(|| unsafe { destroy(self.object.userData) });
            }
        }
        Ok(())
    }
}

/// References that a graph holds, by the object's handle. They go with it.
#[derive(Default)]
pub(super) struct Users(Mutex<BTreeMap<usize, (Arc<Counted>, usize)>>);

impl Users {
    fn add(&self, object: Arc<Counted>, count: usize) {
        lock(&self.0).entry(object.handle).or_insert((object, 0)).1 += count;
    }

    fn take(&self, object: usize, count: usize) -> Answer {
        let mut users = lock(&self.0);
        let (known, held) = users.get_mut(&object).ok_or(Code::INVALID_VALUE)?;
        let (known, left) = (known.clone(), held.checked_sub(count).ok_or(Code::INVALID_VALUE)?);
        *held = left;
        if left == 0 {
            users.remove(&object);
        }
        drop(users);
        known.release(count)
    }

    /// Takes references of its own to all that another one holds.
    pub(super) fn share(&self, with: &Users) {
        for (object, count) in lock(&with.0).values() {
            object.retain(*count);
            self.add(object.clone(), *count);
        }
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        let users = self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (object, count) in std::mem::take(users).into_values() {
            // It holds what it gives back.
            let _ = object.release(count);
        }
    }
}

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
