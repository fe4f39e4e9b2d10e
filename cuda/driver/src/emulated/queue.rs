//! What streams have still to do. Work is done within the call that asks for it, unless something that it must wait for is unfinished:
//! then it waits for its turn on a thread of its stream's. Functions of the host are what makes streams unfinished: they always run on
//! such a thread, since they may wait for what the caller does next.

use super::context::Context;
use super::state::lock;
use super::stream::Stream;
use crate::codes::{Answer, Code};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// Pieces of work that wait or run on threads of streams: where there are none, which is nearly always, no call has to look further.
static UNFINISHED: AtomicUsize = AtomicUsize::new(0);

/// A stream, as order knows it: of the per-thread default stream, every thread has its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) context: usize,
    pub(super) stream: usize,
    thread: Option<ThreadId>,
}

impl Key {
    pub(super) fn of(stream: &Stream) -> Key {
        Key {
            context: stream.context,
            stream: stream.handle,
            thread: (stream.handle == Stream::PER_THREAD).then(|| thread::current().id()),
        }
    }
}

/// The unfinished streams of a context.
pub(super) type Unfinished = Mutex<HashMap<Key, Busy>>;

pub(super) struct Busy {
    blocking: bool,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Default)]
struct Line {
    issued: u64,
    finished: u64,
    jobs: VecDeque<Job>,
}

struct Job {
    after: Vec<Ticket>,
    run: Box<dyn FnOnce() + Send>,
}

/// A piece of work that was put in a queue.
#[derive(Clone)]
pub(super) struct Ticket {
    queue: Arc<Queue>,
    number: u64,
}

impl Ticket {
    pub(super) fn is_done(&self) -> bool {
        lock(&self.queue.line).finished >= self.number
    }

    pub(super) fn wait(&self) {
        let mut line = lock(&self.queue.line);
        while line.finished < self.number {
            line = self.queue.moved.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Queue {
    /// The last piece of work, unless all are done.
    fn end(self: &Arc<Self>) -> Option<Ticket> {
        let line = lock(&self.line);
        (line.finished < line.issued).then(|| Ticket {
            queue: self.clone(),
            number: line.issued,
        })
    }

    /// Puts work at the end of the line, for a thread of its own where nothing is in line; an error where the system has no thread left.
    fn push(self: &Arc<Self>, job: Job) -> Answer<Ticket> {
        let mut line = lock(&self.line);
        if line.finished == line.issued {
            let queue = self.clone();
            // It looks for work once this call lets go of the line.
            let started = thread::Builder::new().spawn(move || queue.work());
            started.map_err(|_| Code::OPERATING_SYSTEM)?;
        }
        UNFINISHED.fetch_add(1, Ordering::AcqRel);
        line.issued += 1;
        line.jobs.push_back(job);
        Ok(Ticket {
            queue: self.clone(),
            number: line.issued,
        })
    }

    /// Does what is queued, until nothing is left.
    fn work(&self) {
        loop {
            let job = lock(&self.line).jobs.pop_front();
            let Some(job) = job else { return };
            job.after.iter().for_each(Ticket::wait);
            // What panics in there has been told already; the streams must go on.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job.run));
            let mut line = lock(&self.line);
            line.finished += 1;
            UNFINISHED.fetch_sub(1, Ordering::AcqRel);
            self.moved.notify_all();
            // The next push starts another thread when it finds all done, so this one must not look again.
            if line.finished == line.issued {
                return;
            }
        }
    }
}

/// When a piece of work may be done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Within the call, where nothing before it is unfinished.
    Now,
    /// On a thread of the stream's, whatever is before it.
    Later,
}

/// What the work that a stream is given now has to wait for: its own, and, of the default stream and the blocking ones, each other's.
pub(super) fn before(context: &Context, stream: &Stream) -> Vec<Ticket> {
    if UNFINISHED.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    let own = Key::of(stream);
    all(context, |key, busy| {
        let joined = busy.blocking && stream.is_default() || stream.blocking() && key.stream == Stream::DEFAULT;
        *key == own || joined
    })
}

/// The ends of the unfinished streams for which this holds.
fn all(context: &Context, wanted: impl Fn(&Key, &Busy) -> bool) -> Vec<Ticket> {
    let mut unfinished = lock(&context.unfinished);
    unfinished.retain(|_, busy| busy.queue.end().is_some());
    let wanted = unfinished.iter().filter(|(key, busy)| wanted(key, busy));
    wanted.filter_map(|(_, busy)| busy.queue.end()).collect()
}

/// Waits for all that a context's streams have still to do.
pub(super) fn finish(context: &Context) {
    if UNFINISHED.load(Ordering::Acquire) > 0 {
        all(context, |_, _| true).iter().for_each(Ticket::wait);
    }
}

/// Does a piece of work in a stream's order, and after `others`. The ticket, where it is left for later; then a code that it answers
/// with becomes a fault of the context.
pub(super) fn in_order(
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    others: Vec<Ticket>,
    when: When,
    run: impl FnOnce(&Arc<Context>, &Arc<Stream>) -> Answer + Send + 'static,
) -> Answer<Option<Ticket>> {
    let mut after = before(context, stream);
    after.extend(others.into_iter().filter(|ticket| !ticket.is_done()));
    if after.is_empty() && when == When::Now {
        return run(context, stream).map(|()| None);
    }
    let (owner, target) = (context.clone(), stream.clone());
    let job = Job {
        after,
        run: Box::new(move || {
            // A context that has faulted does nothing more.
            if owner.check().is_ok()
                && let Err(code) = run(&owner, &target)
            {
                owner.fail(
                    code,
                    format!("work that was queued on a stream failed with code {}", code.0),
                );
            }
        }),
    };
    let mut unfinished = lock(&context.unfinished);
    let busy = unfinished.entry(Key::of(stream)).or_insert_with(|| Busy {
        blocking: stream.blocking(),
        queue: Arc::default(),
    });
    busy.queue.push(job).map(Some)
}
