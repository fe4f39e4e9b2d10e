//! Vector clocks: who is known to have come after whom.
//!
//! Actors are a cluster's warps and what acts on their behalf: each mbarrier's copies, each warp's reads by bulk copies
//! and its writes by `cp.async`, each warpgroup's matrix products. An actor's own entry counts its releases; an epoch
//! is one such count. "Happened before" is then one comparison (FastTrack, Flanagan and Freund, 2009).
//!
//! A cluster's actors number themselves. What crosses clusters, by strong accesses to global memory, travels as
//! [`Abroad`].

use std::collections::BTreeMap;
use std::sync::Arc;

/// Pseudo-actor whose entry is 1 once the cluster is known to have started.
pub(super) const STARTED: usize = 0;
/// Pseudo-actor whose entry is 1 once `griddepcontrol.wait` has returned.
pub(super) const WAITED: usize = 1;
/// Actors from here on are warps, then the bulk reads of warps, then the `cp.async` of warps, then the matrix products
/// of warpgroups, then mbarriers.
pub(super) const FIRST_WARP: usize = 2;

/// A vector clock. Entries beyond its end are zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    entries: Vec<u32>,
    /// What of this also asynchronous copies see, a proxy fence having come after it.
    fenced: Vec<u32>,
    /// What is known of other clusters; shared, as few learn anything new of them.
    abroad: Option<Arc<Abroad>>,
}

/// What is known of the actors of each cluster, by the cluster's index.
#[derive(Clone, Debug, Default)]
pub(super) struct Abroad(BTreeMap<u64, Arc<Vec<u32>>>);

impl Abroad {
    /// Learns all that the other knows.
    pub(super) fn join(&mut self, other: &Abroad) {
        for (&cluster, theirs) in &other.0 {
            let mine = self.0.entry(cluster).or_insert_with(|| Arc::clone(theirs));
            if !Arc::ptr_eq(mine, theirs) {
                join(Arc::make_mut(mine), theirs);
            }
        }
    }
}

/// Learns what another knows, where there may be nothing to know.
pub(super) fn join_abroad(mine: &mut Option<Arc<Abroad>>, theirs: &Arc<Abroad>) {
    match mine {
        None => *mine = Some(Arc::clone(theirs)),
        Some(mine) if Arc::ptr_eq(mine, theirs) => {}
        Some(mine) => Arc::make_mut(mine).join(theirs),
    }
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
        if let Some(theirs) = &other.abroad {
            join_abroad(&mut self.abroad, theirs);
        }
    }

    /// All that is known, of the first `actors` actors of the clock's own cluster too, in terms that other clusters
    /// understand.
    pub(super) fn export(&self, cluster: u64, actors: usize) -> Arc<Abroad> {
        let own = Arc::new(self.entries[..actors.min(self.entries.len())].to_vec());
        let mut known = self.abroad.as_deref().cloned().unwrap_or_default();
        known.0.insert(cluster, own);
        Arc::new(known)
    }

    /// Learns what somebody has exported, a member of this cluster perhaps.
    pub(super) fn import(&mut self, cluster: u64, known: &Arc<Abroad>) {
        if let Some(own) = known.0.get(&cluster) {
            join(&mut self.entries, own);
        }
        join_abroad(&mut self.abroad, known);
    }

    /// Whether an epoch of an actor of another cluster is known to have passed.
    pub(super) fn knows_abroad(&self, cluster: u64, epoch: Epoch) -> bool {
        let theirs = self.abroad.as_ref().and_then(|known| known.0.get(&cluster));
        theirs
            .and_then(|entries| entries.get(epoch.actor()))
            .is_some_and(|&count| count >= epoch.count())
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
