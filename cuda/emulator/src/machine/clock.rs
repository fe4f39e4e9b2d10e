//! Vector clocks: who is known to have come after whom.
//!
//! Actors are a cluster's warps and what acts on their behalf: each mbarrier's copies, each warp's reads by bulk copies and its
//! writes by `cp.async`, each warpgroup's matrix products.
//! An actor's own entry counts its releases; an epoch is one such count. "Happened before" is then one comparison
//! (FastTrack, Flanagan and Freund, 2009).

/// Pseudo-actor whose entry is 1 once the cluster is known to have started.
pub(super) const STARTED: usize = 0;
/// Pseudo-actor whose entry is 1 once `griddepcontrol.wait` has returned.
pub(super) const WAITED: usize = 1;
/// Actors from here on are warps, then the bulk reads of warps, then the `cp.async` of warps, then the matrix products of
/// warpgroups, then mbarriers.
pub(super) const FIRST_WARP: usize = 2;

/// A vector clock. Entries beyond its end are zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    entries: Vec<u32>,
    /// What of this also asynchronous copies see, a proxy fence having come after it.
    fenced: Vec<u32>,
}

impl Clock {
    #[inline]
    pub(super) fn get(&self, actor: usize) -> u32 {
        self.entries.get(actor).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, actor: usize, value: u32) {
        if self.entries.len() <= actor {
            self.entries.resize(actor + 1, 0);
        }
        self.entries[actor] = value;
    }

    /// Learns all that the other knows.
    pub(super) fn join(&mut self, other: &Clock) {
        join(&mut self.entries, &other.entries);
        join(&mut self.fenced, &other.fenced);
    }

    /// Makes all that is known visible to asynchronous copies.
    pub(super) fn fence_proxy(&mut self) {
        self.fenced.clone_from(&self.entries);
    }

    /// Whether an epoch is known to have passed.
    #[inline]
    pub(super) fn knows(&self, epoch: Epoch) -> bool {
        self.get(epoch.actor()) >= epoch.count()
    }

    /// Whether asynchronous copies are known to see what was written in an epoch.
    pub(super) fn copies_see(&self, epoch: Epoch) -> bool {
        self.fenced.get(epoch.actor()).copied().unwrap_or(0) >= epoch.count()
    }
}

fn join(mine: &mut Vec<u32>, theirs: &[u32]) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), 0);
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = (*mine).max(*theirs);
    }
}

/// A moment in one actor's life, and whether the access made then was a strong one. The default is "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Epoch(u64);

const STRONG: u64 = 1 << 63;
const SET: u64 = 1 << 62;

impl Epoch {
    pub(super) const NEVER: Epoch = Epoch(0);

    pub(super) fn new(actor: usize, count: u32, strong: bool) -> Epoch {
        let strong = if strong { STRONG } else { 0 };
        Epoch(strong | (actor as u64) << 32 | u64::from(count))
    }

    /// Stands for several epochs, kept elsewhere.
    pub(super) fn set(index: usize) -> Epoch {
        Epoch(SET | index as u64)
    }

    #[inline]
    pub(super) fn as_set(self) -> Option<usize> {
        (self.0 & SET != 0).then_some((self.0 & !SET) as usize)
    }

    #[inline]
    pub(super) fn actor(self) -> usize {
        (self.0 >> 32) as usize & 0xff_ffff
    }

    #[inline]
    pub(super) fn count(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(super) fn strong(self) -> bool {
        self.0 & STRONG != 0
    }
}
