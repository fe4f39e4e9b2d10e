//! The calls that begin, end and ask about captures.

use crate::codes::{Answer, Code};
use crate::emulated::capture::{self, start, tell};
use crate::emulated::context::{current, ready};
use crate::emulated::graph;
use crate::emulated::graph::edge::edges_from;
use crate::emulated::order;
use crate::emulated::state::{put, put_if_wanted};
use crate::types::*;

/// `CU_STREAM_ADD_CAPTURE_DEPENDENCIES`
const ADD: c_uint = 0;
/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`
const SET: c_uint = 1;

pub(crate) unsafe fn begin(stream: CUstream, mode: c_uint) -> Answer {
    start(stream, mode, None)
}

/// As it was before there were modes.
pub(crate) unsafe fn begin_for_all(stream: CUstream) -> Answer {
    start(stream, stream_capture_mode::GLOBAL, None)
}

pub(crate) unsafe fn begin_to_graph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    mode: c_uint,
) -> Answer {
    current()?;
    let graph = graph::find(graph)?;
    // SAFETY: the caller promises `count` dependencies and, unless it is null, as many edges.
    let tail = unsafe { edges_from(dependencies, edges, count) }?;
    graph.check_edges(&tail)?;
    start(stream, mode, Some((graph, tail)))
}

pub(crate) unsafe fn end(stream: CUstream, graph: *mut CUgraph) -> Answer {
    let (_, stream) = order::anywhere(stream)?;
    if graph.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let ended = capture::end(&stream)?;
    let handle = ended.unwrap_or(std::ptr::null_mut());
    // SAFETY: the caller promises that `graph` is valid for a write.
    unsafe { put(graph, handle) }?;
    ended.map(|_| ())
}

pub(crate) unsafe fn is_capturing(stream: CUstream, status: *mut c_uint) -> Answer {
    let told = tell(stream)?;
    // SAFETY: the caller promises that `status` is valid for a write.
    unsafe { put(status, told.status) }
}

pub(crate) unsafe fn info(stream: CUstream, status: *mut c_uint, id: *mut u64) -> Answer {
    let told = tell(stream)?;
    // SAFETY: the caller promises that both are null or valid for a write.
    unsafe {
        put(status, told.status)?;
        put_if_wanted(id, told.id);
    }
    Ok(())
}

pub(crate) unsafe fn info_v2(
    stream: CUstream,
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
) -> Answer {
    let edges = std::ptr::null_mut();
    // SAFETY: the caller keeps the same promises.
    unsafe { info_v3(stream, status, id, graph, dependencies, edges, count) }
}

pub(crate) unsafe fn info_v3(
    stream: CUstream,
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    let told = tell(stream)?;
    if !edges.is_null() && dependencies.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if told.with_data && !dependencies.is_null() && edges.is_null() {
        return Err(Code::LOSSY_QUERY);
    }
    // SAFETY: the caller promises that all are null or valid for a write.
    unsafe {
        put(status, told.status)?;
        put_if_wanted(id, told.id);
        put_if_wanted(graph, told.graph);
        put_if_wanted(dependencies, told.nodes);
        put_if_wanted(edges, told.edges);
        put_if_wanted(count, told.count);
    }
    Ok(())
}

pub(crate) unsafe fn update_dependencies(
    stream: CUstream,
    dependencies: *mut CUgraphNode,
    count: usize,
    flags: c_uint,
) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { update_dependencies_v2(stream, dependencies, std::ptr::null(), count, flags) }
}

pub(crate) unsafe fn update_dependencies_v2(
    stream: CUstream,
    dependencies: *mut CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> Answer {
    let (_, stream) = order::anywhere(stream)?;
    let mut recording = capture::of(&stream)?.ok_or(Code::ILLEGAL_STATE)?;
    if flags != ADD && flags != SET {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises `count` dependencies and, unless it is null, as many edges.
    let more = unsafe { edges_from(dependencies, edges, count) }?;
    recording.depend_on(more, flags == SET)
}

pub(crate) unsafe fn exchange_mode(mode: *mut c_uint) -> Answer {
    ready()?;
    if mode.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for a read and a write, the caller promises.
    let given = unsafe { mode.read_unaligned() };
    let before = capture::exchange_mode(given)?;
    // SAFETY: not null, so valid for a write too, the caller promises.
    unsafe { put(mode, before) }
}
