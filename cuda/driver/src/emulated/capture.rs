//! Stream capture: streams that note their work in a graph instead of doing it.
//!
//! A capture begins on one stream, its origin. A stream that waits for an event of the capture joins it; all must have
//! been joined back when the origin ends it. Whatever breaks a rule invalidates the captures it touches: their streams
//! refuse all work until the capture is ended.

use super::context::Context;
use super::event::{Event, Recorded};
use super::graph::Graph;
use super::graph::edge::Edge;
use super::order;
use super::queue::Key;
use super::state::{STATE, lock, pointer};
use super::stream::Stream;
use super::task::Task;
use crate::codes::{Answer, Code};
use crate::types::{stream_capture_mode as mode, stream_capture_status as status, *};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::thread::{self, ThreadId};

static CAPTURES: LazyLock<Mutex<Captures>> = LazyLock::new(Mutex::default);
/// How many captures are under way. There is rarely one, and without any no call has to take the lock.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How careful the thread is about calls that could disturb captures.
    static MODE: Cell<u32> = const { Cell::new(mode::GLOBAL) };
}

#[derive(Default)]
struct Captures {
    last: u64,
    sequences: BTreeMap<u64, Sequence>,
    streams: HashMap<Key, Member>,
}

/// One capture.
struct Sequence {
    origin: Key,
    mode: u32,
    thread: ThreadId,
    graph: Arc<Graph>,
    /// Whether the graph was the caller's before.
    given: bool,
    valid: bool,
}

/// A stream that is being captured.
struct Member {
    sequence: u64,
    blocking: bool,
    /// What its next piece of work depends on.
    tail: Vec<Edge>,
    /// Whether its last piece of work was a launch.
    follows_launch: bool,
    /// The tail as the caller was last told it; kept here because the caller gets a pointer.
    told: (Vec<usize>, Vec<CUgraphEdgeData>),
}

impl Member {
    fn new(sequence: u64, stream: &Stream, tail: Vec<Edge>) -> Member {
        Member {
            sequence,
            blocking: stream.blocking(),
            tail,
            follows_launch: false,
            told: Default::default(),
        }
    }

    /// Adds dependencies; of two on one node, the first stays.
    fn depend_on(&mut self, more: Vec<Edge>) {
        for edge in more {
            if self.tail.iter().all(|known| known.from != edge.from) {
                self.tail.push(edge);
            }
        }
        self.follows_launch = false;
    }
}

impl Captures {
    fn invalidate(&mut self, sequence: u64) {
        if let Some(sequence) = self.sequences.get_mut(&sequence) {
            sequence.valid = false;
        }
    }

    fn is_valid(&self, sequence: u64) -> bool {
        self.sequences.get(&sequence).is_some_and(|sequence| sequence.valid)
    }

    /// Invalidates the captures that have a stream for which this holds, and says whether there was any.
    fn invalidate_where(&mut self, hit: impl Fn(&Key, &Member) -> bool) -> bool {
        let hit: Vec<u64> = self
            .streams
            .iter()
            .filter(|(key, member)| hit(key, member))
            .map(|(_, member)| member.sequence)
            .collect();
        hit.iter().for_each(|&sequence| self.invalidate(sequence));
        !hit.is_empty()
    }

    /// Whether the default stream is out of use, because it would wait for a blocking stream that is being captured.
    fn blocks_default(&self, stream: &Stream) -> bool {
        let blocks = |(key, member): (&Key, &Member)| member.blocking && key.context == stream.context;
        stream.is_default() && self.streams.iter().any(blocks)
    }

    /// Refuses work on the default stream while it would wait for a captured one.
    fn check_default(&mut self, stream: &Stream) -> Answer {
        if !self.blocks_default(stream) {
            return Ok(());
        }
        self.invalidate_where(|key, member| member.blocking && key.context == stream.context);
        Err(Code::STREAM_CAPTURE_IMPLICIT)
    }

    /// Whether every stream's tail comes before the origin's, so that nothing is left to run after the graph has ended.
    fn is_joined(&self, sequence: u64, tail: &[Edge], graph: &Graph) -> bool {
        let before = graph.all_before(tail);
        self.streams
            .values()
            .filter(|member| member.sequence == sequence)
            .all(|member| member.tail.iter().all(|edge| before.contains(&edge.from)))
    }

    /// Forgets a capture, and returns it with its graph. The graph is dropped with it unless the caller is given one.
    fn remove(&mut self, sequence: u64) -> Option<Sequence> {
        let removed = self.sequences.remove(&sequence)?;
        self.streams.retain(|_, member| member.sequence != sequence);
        UNDER_WAY.fetch_sub(1, Ordering::Release);
        removed.graph.set_capturing(false);
        Some(removed)
    }
}

/// Drops the graph of a capture that failed, unless it was the caller's before.
fn discard(sequence: &Sequence) {
    if !sequence.given {
        // It is still in the table: a graph cannot be destroyed while a capture adds to it.
        let _ = STATE.remove::<Graph>(sequence.graph.handle);
    }
}

/// The captures, where there are any.
fn under_way() -> Option<MutexGuard<'static, Captures>> {
    (UNDER_WAY.load(Ordering::Acquire) > 0).then(|| lock(&CAPTURES))
}

/// A stream that is being captured, and may take more work.
pub(super) struct Recording {
    captures: MutexGuard<'static, Captures>,
    key: Key,
    sequence: u64,
    graph: Arc<Graph>,
}

/// How a stream's work is captured, if it is. Fails where work on it is not allowed now.
pub(super) fn of(stream: &Stream) -> Answer<Option<Recording>> {
    let Some(mut captures) = under_way() else {
        return Ok(None);
    };
    captures.check_default(stream)?;
    let key = Key::of(stream);
    let Some(member) = captures.streams.get(&key) else {
        return Ok(None);
    };
    let sequence = member.sequence;
    match captures.sequences.get(&sequence) {
        Some(Sequence { valid: true, graph, .. }) => {
            let graph = graph.clone();
            Ok(Some(Recording {
                captures,
                key,
                sequence,
                graph,
            }))
        }
        _ => Err(Code::STREAM_CAPTURE_INVALIDATED),
    }
}

impl Recording {
    fn member(&mut self) -> Answer<&mut Member> {
        self.captures.streams.get_mut(&self.key).ok_or(Code::UNKNOWN)
    }

    /// Notes a piece of work at the stream's end. `overlaps`: it may start before the preceding kernel has ended.
    pub(super) fn add(&mut self, context: &Arc<Context>, task: Task, overlaps: bool) -> Answer {
        if matches!(task, Task::Empty) {
            return Ok(());
        }
        let launch = matches!(task, Task::Kernel(_));
        let member = self.member()?;
        let mut before = member.tail.clone();
        if let ([only], true) = (before.as_mut_slice(), overlaps && member.follows_launch) {
            only.data = CUgraphEdgeData::PROGRAMMATIC;
        }
        let node = self.graph.add(context, task, before)?;
        let member = self.member()?;
        member.tail = vec![Edge::from(node)];
        member.follows_launch = launch;
        Ok(())
    }

    /// Lets the stream's next piece of work depend on more, or on that alone.
    pub(super) fn depend_on(&mut self, more: Vec<Edge>, alone: bool) -> Answer {
        self.graph.check_edges(&more)?;
        let member = self.member()?;
        if alone {
            member.tail.clear();
        }
        member.depend_on(more);
        Ok(())
    }

    /// The handle of the context of the graph that is captured into.
    pub(super) fn graph_context(&self) -> usize {
        self.graph.context
    }

    /// Lets an event stand for the stream's end.
    pub(super) fn mark(&mut self, event: &Event) -> Answer {
        let (sequence, tail) = (self.sequence, self.member()?.tail.clone());
        event.stand_for(Recorded::Captured { sequence, tail });
        Ok(())
    }

    /// Invalidates the capture for a call that cannot be captured.
    pub(super) fn refuse(mut self, code: Code) -> Code {
        self.captures.invalidate(self.sequence);
        code
    }
}

/// Notes that a stream waits for an event. False where neither is part of a capture, so that the stream has to wait.
pub(super) fn wait(context: &Arc<Context>, stream: &Stream, event: Arc<Event>, external: bool) -> Answer<bool> {
    let recorded = event.recorded();
    let recording = of(stream)?;
    if external {
        let mut recording = recording.ok_or(Code::INVALID_VALUE)?;
        return recording.add(context, Task::Wait(event), false).map(|()| true);
    }
    let Recorded::Captured { sequence, tail } = recorded else {
        return match recording {
            Some(recording) => Err(recording.refuse(Code::STREAM_CAPTURE_ISOLATION)),
            None => Ok(false),
        };
    };
    let Some(mut recording) = recording else {
        let mut captures = lock(&CAPTURES);
        if !captures.sequences.contains_key(&sequence) {
            return Err(Code::CAPTURED_EVENT);
        }
        if !captures.is_valid(sequence) {
            return Err(Code::STREAM_CAPTURE_INVALIDATED);
        }
        if stream.is_default() {
            captures.invalidate(sequence);
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let joined = Member::new(sequence, stream, tail);
        captures.streams.insert(Key::of(stream), joined);
        return Ok(true);
    };
    if recording.sequence != sequence {
        let under_way = recording.captures.sequences.contains_key(&sequence);
        recording.captures.invalidate(sequence);
        return Err(recording.refuse(if under_way {
            Code::STREAM_CAPTURE_MERGE
        } else {
            Code::CAPTURED_EVENT
        }));
    }
    recording.member()?.depend_on(tail);
    Ok(true)
}

/// Invalidates a capture, if it is still under way.
pub(super) fn invalidate(sequence: u64) {
    if let Some(mut captures) = under_way() {
        captures.invalidate(sequence);
    }
}

/// Refuses a call that synchronises, or may have to, while a capture is under way that the thread's mode protects. It
/// invalidates that capture.
pub(super) fn forbid_unsafe() -> Answer {
    let Some(mut captures) = under_way() else {
        return Ok(());
    };
    let (here, own_mode) = (thread::current().id(), MODE.get());
    let protected = |sequence: &Sequence| match own_mode {
        mode::RELAXED => false,
        _ if sequence.thread == here => sequence.mode != mode::RELAXED,
        mode::THREAD_LOCAL => false,
        _ => sequence.mode == mode::GLOBAL,
    };
    let mut answer = Ok(());
    for sequence in captures.sequences.values_mut().filter(|sequence| protected(sequence)) {
        sequence.valid = false;
        answer = Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    answer
}

/// Refuses a call that does work on the default stream and waits for it.
pub(super) fn forbid_synchronous() -> Answer {
    if UNDER_WAY.load(Ordering::Acquire) > 0 {
        let (_, stream) = order::here(order::DEFAULT)?;
        of(&stream)?;
    }
    forbid_unsafe()
}

/// Refuses to wait for a whole context while one of its streams is being captured.
pub(super) fn forbid_context(context: usize) -> Answer {
    let Some(mut captures) = under_way() else {
        return Ok(());
    };
    if captures.invalidate_where(|key, _| key.context == context) {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    Ok(())
}

/// A stream is being destroyed: a capture that began on it ends, another one cannot go on.
pub(super) fn stream_gone(stream: &Stream) {
    gone(|key| *key == Key::of(stream));
}

/// A context is being destroyed, with its streams and the graphs made in it.
pub(super) fn context_gone(context: usize) {
    gone(|key| key.context == context);
}

fn gone(hit: impl Fn(&Key) -> bool) {
    let Some(mut captures) = under_way() else { return };
    captures.invalidate_where(|key, _| hit(key));
    let ended: Vec<u64> = captures
        .sequences
        .iter()
        .filter(|(_, sequence)| hit(&sequence.origin))
        .map(|(&id, _)| id)
        .collect();
    captures.streams.retain(|key, _| !hit(key));
    let removed: Vec<Sequence> = ended.into_iter().filter_map(|id| captures.remove(id)).collect();
    drop(captures);
    removed.iter().for_each(discard);
}

fn check_mode(given: c_uint) -> Answer {
    if given <= mode::RELAXED {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// Begins a capture on a stream, into a graph of the caller's or, where there is none, a new one.
pub(super) fn start(stream: CUstream, mode: c_uint, into: Option<(Arc<Graph>, Vec<Edge>)>) -> Answer {
    let (context, stream) = order::anywhere(stream)?;
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

/// Ends the capture that began on a stream: its graph, or why there is none.
pub(super) fn end(stream: &Stream) -> Answer<Answer<CUgraph>> {
    let mut captures = lock(&CAPTURES);
    let key = Key::of(stream);
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
        (true, true) => Ok(pointer(sequence.graph.handle)),
    };
    if answer.is_err() {
        discard(&sequence);
    }
    Ok(answer)
}

/// Sets how careful the thread is about calls that could disturb captures; returns how careful it was.
pub(super) fn exchange_mode(given: u32) -> Answer<u32> {
    check_mode(given)?;
    Ok(MODE.replace(given))
}

/// What is known of a stream's capture.
pub(super) struct Told {
    pub(super) status: c_uint,
    pub(super) id: u64,
    pub(super) graph: CUgraph,
    pub(super) nodes: *const CUgraphNode,
    pub(super) edges: *const CUgraphEdgeData,
    pub(super) count: usize,
    /// Whether an edge says more than its nodes do.
    pub(super) with_data: bool,
}

/// Says what is known of a stream's capture; its pointers are good until the stream is asked about again.
pub(super) fn tell(stream: CUstream) -> Answer<Told> {
    let (_, stream) = order::anywhere(stream)?;
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
