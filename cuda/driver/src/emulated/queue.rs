//! What streams have still to do: pieces of work that wait for their turn, on a thread of their stream's.

use super::state::lock;
use super::stream::Stream;
use crate::codes::{Answer, Code};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// How many pieces of work wait or run on threads of streams. There is rarely one, and without any no call has to take
/// a lock.
static UNFINISHED: AtomicUsize = AtomicUsize::new(0);

/// What identifies a queue of work: the stream and, for the per-thread default stream, the thread.
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
#[derive(Default)]
pub(super) struct Unfinished(Mutex<HashMap<Key, Busy>>);

struct Busy {
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

    /// Puts a job at the end of the line. Where the line is empty, this starts a thread for it, and fails where the
    /// system has none left.
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

impl Unfinished {
    /// The ends of the unfinished streams for which this holds.
    fn ends(&self, wanted: impl Fn(&Key, &Busy) -> bool) -> Vec<Ticket> {
        let mut unfinished = lock(&self.0);
        unfinished.retain(|_, busy| busy.queue.end().is_some());
        let wanted = unfinished.iter().filter(|(key, busy)| wanted(key, busy));
        wanted.filter_map(|(_, busy)| busy.queue.end()).collect()
    }

    /// What the work that a stream is given now has to wait for: the stream's own, and, between the default stream and
    /// the blocking ones, each other's.
    pub(super) fn before(&self, stream: &Stream) -> Vec<Ticket> {
        if UNFINISHED.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let own = Key::of(stream);
        self.ends(|key, busy| {
            let joined = busy.blocking && stream.is_default() || stream.blocking() && key.stream == Stream::DEFAULT;
            *key == own || joined
        })
    }

    /// Waits for all of them.
    pub(super) fn finish(&self) {
        if UNFINISHED.load(Ordering::Acquire) > 0 {
            self.ends(|_, _| true).iter().for_each(Ticket::wait);
        }
    }

    /// Puts a piece of work at the end of a stream's queue, to be done once `after` is.
    pub(super) fn push(
        &self,
        stream: &Stream,
        after: Vec<Ticket>,
        run: impl FnOnce() + Send + 'static,
    ) -> Answer<Ticket> {
        let mut unfinished = lock(&self.0);
        let busy = unfinished.entry(Key::of(stream)).or_insert_with(|| Busy {
            blocking: stream.blocking(),
            queue: Arc::default(),
        });
        busy.queue.push(Job {
            after,
            run: Box::new(run),
        })
    }
}
