//! A CTA: its shared memory and its barriers.

use std::collections::BTreeMap;

use super::clock::Clock;
use super::mbarrier::Mbarrier;
use super::shadow::Shadow;
use super::warpgroup::Warpgroup;
use crate::program::Mask;

/// Barriers of a CTA.
pub(super) const BARRIERS: usize = 16;

#[derive(Default)]
pub(super) struct Cta {
    /// Its index in the grid.
    pub(super) at: [u32; 3],
    pub(super) shared: Vec<u8>,
    pub(super) shadow: Shadow,
    /// Live mbarrier objects, by offset into `shared`.
    pub(super) mbarriers: BTreeMap<u32, Mbarrier>,
    pub(super) barriers: [CtaBarrier; BARRIERS],
    /// Empty until the first `wgmma`.
    pub(super) warpgroups: Vec<Warpgroup>,
    pub(super) live_threads: u32,
    pub(super) live_warps: u32,
    /// Has let its dependents start.
    pub(super) triggered: bool,
    /// What its warps knew when they exited.
    pub(super) exit_clock: Clock,
    /// For each warp of the cluster, the time and site of its last remote access to this CTA's shared memory.
    pub(super) touched: BTreeMap<usize, (u32, u32)>,
}

impl Cta {
    pub(super) fn exited(&self) -> bool {
        self.live_warps == 0
    }
}

/// One of a CTA's sixteen barriers.
#[derive(Clone, Debug, Default)]
pub(super) struct CtaBarrier {
    /// Threads that have arrived, as the barrier counts them.
    pub(super) arrived: u32,
    /// Threads to arrive, where the instructions name a number.
    pub(super) expected: Option<u32>,
    /// Who waits: warp and lanes.
    pub(super) waiting: Vec<(usize, Mask)>,
    /// What those who arrived knew.
    pub(super) clock: Clock,
    /// Threads whose predicate was true, for the reductions.
    pub(super) votes: u32,
    /// Threads that voted.
    pub(super) voters: u32,
    /// Where the first one arrived.
    pub(super) site: u32,
}
