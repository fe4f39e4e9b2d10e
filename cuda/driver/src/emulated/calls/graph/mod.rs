//! Graphs: making, copying and destroying them; a file each for their nodes, their edges, and what is made of them.

pub(crate) mod dot;
pub(crate) mod edge;
pub(crate) mod exec;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod user;

use crate::codes::{Answer, Code};
use crate::emulated::context::current;
use crate::emulated::graph::{Graph, find};
use crate::emulated::state::{STATE, pointer, put};
use crate::types::*;

pub(crate) unsafe fn create(graph: *mut CUgraph, flags: c_uint) -> Answer {
    let context = current()?;
    if graph.is_null() || flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises that `graph` is valid for a write.
    unsafe { put(graph, pointer(Graph::new(context.context, false).handle)) }
}

pub(crate) unsafe fn duplicate(clone: *mut CUgraph, graph: CUgraph) -> Answer {
    let original = find(graph)?;
    if clone.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let copy = original.copy(original.context, false)?;
    // SAFETY: the caller promises that `clone` is valid for a write.
    unsafe { put(clone, pointer(copy.handle)) }
}

pub(crate) unsafe fn destroy(graph: CUgraph) -> Answer {
    let graph = find(graph)?;
    graph.check_free()?;
    if graph.embedded {
        return Err(Code::INVALID_VALUE);
    }
    STATE.remove::<Graph>(graph.handle).map(|_| ())
}
