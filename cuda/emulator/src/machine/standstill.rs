//! Whether a launch stands still, as far as the threads that run it can tell together.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What the workers of a launch tell each other. One that sees nothing happen cannot know a launch that hangs from one
/// whose other workers wait for a core: only all of them together can, however slow some may be.
#[derive(Default)]
pub(crate) struct Standstill {
    /// How often something visible has happened.
    events: AtomicU64,
    /// Workers that may still make something happen.
    workers: AtomicUsize,
    still: Mutex<Still>,
}

/// Workers that have waited for too long.
#[derive(Default)]
struct Still {
    /// Since so many events.
    events: u64,
    workers: usize,
}

impl Standstill {
    /// A worker is about to begin.
    pub(super) fn begin(&self) {
        self.workers.fetch_add(1, Relaxed);
    }

    /// A worker has ended.
    pub(super) fn end(&self) {
        self.workers.fetch_sub(1, Relaxed);
    }
}

/// What one worker has seen.
#[derive(Default)]
pub(super) struct Watch {
    events: u64,
    /// Instructions that it has executed since.
    idle: u64,
    /// Whether it counts among those that have waited for too long.
    told: bool,
}

impl Watch {
    /// Something visible has happened.
    pub(super) fn happened(&mut self, all: &Standstill) {
        let events = all.events.fetch_add(1, Relaxed) + 1;
        *self = Watch {
            events,
            ..Watch::default()
        };
    }

    /// Counts instructions without such a thing, and answers how many there were since the last, of any worker's.
    pub(super) fn idle(&mut self, all: &Standstill, instructions: u64) -> u64 {
        let events = all.events.load(Relaxed);
        if events != self.events {
            *self = Watch {
                events,
                ..Watch::default()
            };
        }
        self.idle += instructions;
        self.idle
    }

    /// Tells the others that this worker has waited for too long, and answers whether all have.
    pub(super) fn stands_still(&mut self, all: &Standstill) -> bool {
        let mut still = all.still.lock().unwrap_or_else(PoisonError::into_inner);
        if all.events.load(Relaxed) != self.events {
            return false;
        }
        if still.events != self.events {
            *still = Still {
                events: self.events,
                workers: 0,
            };
        }
        if !self.told {
            self.told = true;
            still.workers += 1;
        }
        still.workers >= all.workers.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that the system keeps from running holds up no verdict but a wrong one.
    #[test]
    fn only_all_workers_together_stand_still() {
        let all = Standstill::default();
        let [mut a, mut b] = [(); 2].map(|()| Watch::default());
        all.begin();
        all.begin();
        a.happened(&all);
        // However long one waits while the other has not had its turn.
        for round in 1..10 {
            assert_eq!(a.idle(&all, 1000), 1000 * round);
            assert!(!a.stands_still(&all));
        }
        assert_eq!(b.idle(&all, 10), 10);
        b.happened(&all);
        // What was told before counts no more.
        assert!(!a.stands_still(&all));
        assert_eq!((a.idle(&all, 7), b.idle(&all, 8)), (7, 8));
        assert!(!a.stands_still(&all) && b.stands_still(&all) && a.stands_still(&all));
        b.happened(&all);
        all.end();
        assert_eq!(a.idle(&all, 7), 7);
        assert!(a.stands_still(&all), "there is no other any more");
    }
}
