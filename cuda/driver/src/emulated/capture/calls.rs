//! The calls that begin, end and ask about captures.

use super::*;
use crate::emulated::context::{current, ready};
use crate::emulated::graph::{self, edges_from};
use crate::emulated::state::{pointer, put, put_if_wanted};
use crate::types::{stream_capture_status as status, *};

/// `CU_STREAM_ADD_CAPTURE_DEPENDENCIES`
const ADD: c_uint = 0;
/// `CU_STREAM_SET_CAPTURE_DEPENDENCIES`
const SET: c_uint = 1;

fn check_mode(given: c_uint) -> Answer {
    if given <= mode::RELAXED {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// Begins a capture on a stream, into a graph of the caller's or, where there is none, a new one.
fn start(stream: CUstream, mode: c_uint, into: Option<(Arc<Graph>, Vec<Edge>)>) -> Answer {
    let (context, stream) = stream::anywhere(stream)?;
    check_mode(mode)?;
    if stream.is_default() {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut captures = lock(&CAPTURES);
    let origin = Key::of(&stream);
    if captures.streams.contains_key(&origin) {
        return Err(Code::ILLEGAL_STATE);
    }
    let given = into.is_some();
    let (graph, tail) = into.unwrap_or_else(|| (Graph::new(context.context, false), Vec::new()));
    if graph.set_capturing(true) {
        return Err(Code::ILLEGAL_STATE);
    }
    captures.last += 1;
    let id = captures.last;
    captures.streams.insert(origin, Member::new(id, &stream, tail));
    let thread = thread::current().id();
    captures.sequences.insert(
        id,
        Sequence {
            origin,
            mode,
            thread,
            graph,
            given,
            valid: true,
        },
    );
    UNDER_WAY.fetch_add(1, Ordering::Release);
    Ok(())
}

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
    let (_, stream) = stream::anywhere(stream)?;
    if graph.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut captures = lock(&CAPTURES);
    let key = Key::of(&stream);
    let member = captures.streams.get(&key).ok_or(Code::ILLEGAL_STATE)?;
    let id = member.sequence;
    let sequence = captures.sequences.get(&id).ok_or(Code::ILLEGAL_STATE)?;
    if sequence.origin != key {
        return Err(Code::STREAM_CAPTURE_UNMATCHED);
    }
    if sequence.mode != mode::RELAXED && sequence.thread != thread::current().id() {
        return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
    }
    let joined = captures.is_joined(id, &member.tail, &sequence.graph);
    let sequence = captures.remove(id).ok_or(Code::ILLEGAL_STATE)?;
    drop(captures);
    let answer = match (sequence.valid, joined) {
        (false, _) => Err(Code::STREAM_CAPTURE_INVALIDATED),
        (true, false) => Err(Code::STREAM_CAPTURE_UNJOINED),
        (true, true) => Ok(()),
    };
    let handle = match answer {
        Ok(()) => pointer(sequence.graph.handle),
        Err(_) => {
            discard(&sequence);
            std::ptr::null_mut()
        }
    };
    // SAFETY: the caller promises that `graph` is valid for a write.
    unsafe { put(graph, handle) }?;
    answer
}

/// What is known of a stream's capture.
struct Told {
    status: c_uint,
    id: u64,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    /// Whether an edge says more than its nodes do.
    with_data: bool,
}

fn tell(stream: CUstream) -> Answer<Told> {
    let (_, stream) = stream::anywhere(stream)?;
    let mut told = Told {
        status: status::NONE,
        id: 0,
        graph: std::ptr::null_mut(),
        nodes: std::ptr::null(),
        edges: std::ptr::null(),
        count: 0,
        with_data: false,
    };
    let Some(mut captures) = under_way() else {
        return Ok(told);
    };
    if captures.blocks_default(&stream) {
        return Err(Code::STREAM_CAPTURE_IMPLICIT);
    }
    let Captures { streams, sequences, .. } = &mut *captures;
    let Some(member) = streams.get_mut(&Key::of(&stream)) else {
        return Ok(told);
    };
    told.status = match sequences.get(&member.sequence) {
        Some(sequence) if sequence.valid => {
            told.graph = pointer(sequence.graph.handle);
            status::ACTIVE
        }
        _ => status::INVALIDATED,
    };
    told.id = member.sequence;
    member.told = member.tail.iter().map(|edge| (edge.from, edge.data)).unzip();
    told.nodes = member.told.0.as_ptr().cast();
    told.edges = member.told.1.as_ptr();
    told.count = member.tail.len();
    told.with_data = member.tail.iter().any(|edge| edge.data != CUgraphEdgeData::default());
    Ok(told)
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
    let (_, stream) = stream::anywhere(stream)?;
    let mut recording = of(&stream)?.ok_or(Code::ILLEGAL_STATE)?;
    if flags != ADD && flags != SET {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises `count` dependencies and, unless it is null, as many edges.
    let more = unsafe { edges_from(dependencies, edges, count) }?;
    recording.graph.check_edges(&more)?;
    let member = recording.member()?;
    if flags == SET {
        member.tail.clear();
    }
    member.depend_on(more);
    Ok(())
}

pub(crate) unsafe fn exchange_mode(mode: *mut c_uint) -> Answer {
    ready()?;
    if mode.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for a read and a write, the caller promises.
    let given = unsafe { mode.read_unaligned() };
    check_mode(given)?;
    // SAFETY: as above.
    unsafe { put(mode, MODE.replace(given)) }
}
