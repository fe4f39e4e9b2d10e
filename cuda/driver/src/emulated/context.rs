//! Contexts, and each thread's stack of current ones.

use super::queue::Unfinished;
use super::state::{Kind, STATE, lock};
use super::stream::Stream;
use crate::codes::{Answer, Code};
use crate::seed;
use crate::types::*;
use ptx_emulator::{Counters, LaunchId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Priorities of streams, as the H200 has them.
pub(super) const LEAST_PRIORITY: c_int = 0;
pub(super) const GREATEST_PRIORITY: c_int = -5;

pub(super) struct Context {
    /// Its own handle.
    pub(super) context: usize,
    /// A number that no other context has or had.
    pub(super) id: u64,
    pub(super) flags: AtomicU32,
    pub(super) settings: Mutex<Settings>,
    fault: Mutex<Option<Fault>>,
    /// Held while work of this context runs: its streams' work is done one piece at a time, in the order of the calls.
    pub(super) work: Mutex<Work>,
    /// The default stream and the per-thread default stream.
    pub(super) default_streams: [Arc<Stream>; 2],
    /// The streams that have work left to do.
    pub(super) unfinished: Unfinished,
}

/// A fault of a kernel, which every later call on the context answers with.
struct Fault {
    code: Code,
    story: String,
}

/// Preferences that are kept and told, and change nothing here.
#[derive(Default)]
pub(super) struct Settings {
    pub(super) limits: HashMap<c_uint, usize>,
    pub(super) cache: c_uint,
    pub(super) shared: c_uint,
}

#[derive(Default)]
pub(super) struct Work {
    pub(super) seed: Option<u64>,
    pub(super) counters: Counters,
    pub(super) counts_lines: bool,
    /// By stream: the launch that is its last piece of work, and whether the stream is a blocking one.
    last_launch: HashMap<usize, (LaunchId, bool)>,
}

impl Work {
    /// Notes that a stream gets another piece of work, so that its next launch does not follow its last one directly.
    /// As the default stream and the blocking streams wait for each other, it does the same to them.
    pub(super) fn interrupt(&mut self, stream: &Stream) {
        self.last_launch.retain(|&other, &mut (_, blocking)| {
            let own = other == stream.handle;
            let joined = blocking && (stream.is_default() || (stream.blocking() && other == Stream::DEFAULT));
            !(own || joined)
        });
    }

    /// The launch that is the stream's last piece of work, if that was a launch.
    pub(super) fn last_launch(&self, stream: &Stream) -> Option<LaunchId> {
        self.last_launch.get(&stream.handle).map(|&(id, _)| id)
    }

    pub(super) fn note_launch(&mut self, stream: &Stream, id: LaunchId) {
        self.last_launch.insert(stream.handle, (id, stream.blocking()));
    }

    /// Notes that the host has waited for all work.
    pub(super) fn settle(&mut self) {
        self.last_launch.clear();
    }
}

impl Kind for Context {
    const WORDS: &'static str = "context";
    const WRONG: Code = Code::INVALID_CONTEXT;
    fn context(&self) -> usize {
        self.context
    }
}

impl Context {
    pub(super) fn new(handle: usize, flags: c_uint) -> Arc<Context> {
        Arc::new(Context {
            context: handle,
            id: LAST_ID.fetch_add(1, Ordering::Relaxed),
            flags: AtomicU32::new(flags),
            settings: Mutex::default(),
            fault: Mutex::default(),
            work: Mutex::new(Work {
                seed: lock(&DEFAULT_SEED).unwrap_or_else(seed::of_environment),
                ..Work::default()
            }),
            default_streams: Stream::defaults(handle),
            unfinished: Default::default(),
        })
    }

    /// Refuses the call where a kernel of this context has faulted.
    pub(super) fn check(&self) -> Answer {
        lock(&self.fault).as_ref().map_or(Ok(()), |fault| Err(fault.code))
    }

    /// Notes a kernel's fault; the first one stays.
    pub(super) fn fail(&self, code: Code, story: String) {
        crate::report::fault(&story);
        lock(&self.fault).get_or_insert(Fault { code, story });
    }

    /// Waits for all that its streams have still to do.
    pub(super) fn finish(&self) {
        self.unfinished.finish();
    }

    pub(super) fn story(&self) -> Option<String> {
        lock(&self.fault).as_ref().map(|fault| fault.story.clone())
    }
}

static LAST_ID: AtomicU64 = AtomicU64::new(1);

/// The seed of contexts made from now on, or that there is none, where a call has said so; else it is the
/// environment's.
pub(super) static DEFAULT_SEED: Mutex<Option<Option<u64>>> = Mutex::new(None);

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function of the caller's, in which no call of the driver's is allowed.
pub(super) fn in_host_function(run: impl FnOnce()) {
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            IN_HOST_FUNCTION.set(self.0);
        }
    }
    let _leave = Leave(IN_HOST_FUNCTION.replace(true));
    run();
}

/// Refuses every call before `cuInit`, and those from within a stream's host function.
pub(crate) fn ready() -> Answer {
    if !STATE.initialised.load(Ordering::Acquire) {
        return Err(Code::NOT_INITIALIZED);
    }
    if IN_HOST_FUNCTION.get() {
        return Err(Code::NOT_PERMITTED);
    }
    Ok(())
}

/// The handle of the thread's current context.
pub(super) fn top() -> Option<usize> {
    STACK.with_borrow(|stack| stack.last().copied())
}

/// Makes a context current.
pub(super) fn push(handle: usize) {
    STACK.with_borrow_mut(|stack| stack.push(handle));
}

/// Makes the context current that was so before; the handle of the one that no longer is.
pub(super) fn pop() -> Option<usize> {
    STACK.with_borrow_mut(Vec::pop)
}

/// The thread's current context, faulted or not.
pub(super) fn current_even_if_faulted() -> Answer<Arc<Context>> {
    ready()?;
    let handle = top().ok_or(Code::INVALID_CONTEXT)?;
    STATE.find(handle).map_err(|_| Code::CONTEXT_IS_DESTROYED)
}

/// The thread's current context, fit for work.
pub(super) fn current() -> Answer<Arc<Context>> {
    let context = current_even_if_faulted()?;
    context.check()?;
    Ok(context)
}

/// A context by its handle; null means the current one.
pub(super) fn named(handle: CUcontext) -> Answer<Arc<Context>> {
    ready()?;
    if handle.is_null() {
        current_even_if_faulted()
    } else {
        STATE.find(handle.addr())
    }
}
