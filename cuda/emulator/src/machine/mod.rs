//! The machine: warps, clusters and what orders them.

mod access;
mod alu;
mod async_copy;
mod barrier;
mod bulk;
mod call;
mod clock;
mod cluster;
mod collective;
mod cta;
mod descriptor;
mod frames;
mod global;
mod held;
mod lane_books;
mod matrices;
mod mbarrier;
mod order;
mod race;
mod report;
mod schedule;
mod shadow;
mod shared;
mod spare;
mod special;
mod standstill;
mod tensor;
mod warp;
mod warpgroup;
mod wgmma;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

pub(crate) use schedule::run;

use crate::limits::Limits;
use crate::memory::{Allocation, Early};
use crate::program::{Lanes, Program};

/// What all clusters of a launch share.
pub(crate) struct Env<'a> {
    pub(crate) program: &'a Program,
    pub(crate) constants: &'a [Lanes],
    pub(crate) params: &'a [u8],
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) dynamic_shared: u32,
    pub(crate) grid_workspace: u64,
    pub(crate) count_lines: bool,
    pub(crate) allocations: &'a [Arc<Allocation>],
    /// The launch's number, which marks what it writes.
    pub(crate) id: u32,
    /// Decides which lanes are elected; none for the lowest.
    pub(crate) seed: Option<u64>,
    /// The launches that may be unfinished while this one runs.
    pub(crate) early: &'a Early,
    pub(crate) limits: &'a Limits,
    pub(crate) state: State,
}

/// What clusters tell each other and the launch.
#[derive(Default)]
pub(crate) struct State {
    /// Whether anything visible happens.
    pub(crate) standstill: standstill::Standstill,
    /// Instructions executed.
    pub(crate) total: AtomicU64,
    /// Somebody faulted.
    pub(crate) stop: AtomicBool,
    /// Some CTA executed `griddepcontrol.wait`.
    pub(crate) waited: AtomicBool,
    /// Some CTA did so before it let its dependents start.
    pub(crate) waited_first: AtomicBool,
    /// Who wrote what, and who knows of it.
    pub(crate) books: race::Books,
}

impl Env<'_> {
    pub(crate) fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    pub(crate) fn warps_per_cta(&self) -> usize {
        self.threads().div_ceil(32) as usize
    }

    pub(crate) fn ctas_per_cluster(&self) -> usize {
        self.cluster.iter().product::<u32>() as usize
    }

    pub(crate) fn clusters(&self) -> u64 {
        let ctas: u64 = self.grid.iter().map(|&n| u64::from(n)).product();
        ctas / self.ctas_per_cluster() as u64
    }

    /// Whether clusters are there to wait for each other, so that starting them one by one would be slow.
    pub(crate) fn at_once(&self) -> bool {
        self.grid_workspace != 0
    }

    /// Bytes of a CTA's shared memory.
    pub(crate) fn shared_bytes(&self) -> u32 {
        self.program.dynamic_base - crate::program::SHARED_BASE + self.dynamic_shared
    }
}
