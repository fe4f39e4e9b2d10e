//! The ring of stages that a whole CTA drains: each with a barrier that tells when its bytes have landed, and one that
//! tells when every warp has left them.
//!
//! One lane fills the stages in turn, [`Stages::start`] and [`Stages::produce`]; the multiplying warps wait for each,
//! use it, and leave it.
//!
//! CTAs that share x by TMA multicast, a group of neighbours in a cluster, fill their rings in step. Each loads its own
//! weights, and its share of the token tile of x, which lands in the rings of all:
//!
//! ```text
//!            CTA 0's ring                      CTA 1's ring
//!   full ◄── [W of tile 0 | x 0 | x 1]         [W of tile 1 | x 0 | x 1] ──► full   expects a whole stage's bytes
//!                            ▲     ▲                           ▲     ▲
//!   CTA 0's producer ────────┴─────│───── one read of x 0 ─────┘     │
//!   CTA 1's producer ──────────────┴───── one read of x 1 ───────────┘
//!        ▲
//!        └── empty ◄── every multiplying warp of CTA 0 and of CTA 1 has left the stage
//! ```
//!
//! * A producer writes into the other rings: so it waits for the warps of all CTAs, which arrive at the barriers of
//!   all. It writes by TMA alone, so the arrivals need no fence: see [`mbarrier::arrive_in_cluster`].
//! * Its bytes may come before their receiver has announced them, not before the phase that they count for: the
//!   receiver's warps have left the stage, so that the phase before is over.
//! * Nothing is sent to another CTA before the cluster has met, its barriers initialised. The first weights, which are
//!   the CTA's own, go ahead.
//! * When a CTA has seen its last stage full, nobody sends to it any more: its ring's memory is its own again. Others
//!   may still arrive at its barriers, until they arrive at the cluster's: it stays until then.
//!
//! PTX ISA: §9.7.13.15 `mbarrier`, with arrivals from other CTAs (`mapa`) and `complete_tx` by copies; §9.7.13.3
//! `barrier.cluster`; §9.7.9.27 `cp.async.bulk.tensor` with `.multicast::cluster`.

use super::epilogue::Instance;
use core::marker::PhantomData;
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{cluster, mbarrier, pdl, tensor_map, thread, warp};

/// Bytes of an mbarrier.
const BARRIER: u32 = 8;

/// Where a ring of stages stands.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) stage: u32,
    parity: u32,
}

impl Place {
    pub(crate) const START: Self = Place { stage: 0, parity: 0 };

    #[inline(always)]
    pub(crate) fn next(self, stages: u32) -> Self {
        if self.stage + 1 == stages {
            Place {
                stage: 0,
                parity: self.parity ^ 1,
            }
        } else {
            Place {
                stage: self.stage + 1,
                ..self
            }
        }
    }
}

/// The CTA's ring, at the start of its dynamic shared memory.
pub(crate) struct Stages<I: Instance> {
    base: SharedAddr,
    instance: PhantomData<I>,
}

impl<I: Instance> Stages<I> {
    /// Stages.
    pub(crate) const COUNT: u32 = I::GEMM.stages as u32;
    /// Bytes of one.
    pub(crate) const BYTES: u32 = I::GEMM.stage_bytes() as u32;
    /// Whether CTAs share x.
    const SHARED: bool = I::GEMM.multicast > 1;

    #[inline(always)]
    pub(crate) fn new() -> Self {
        Stages {
            base: shared::dynamic_base(),
            instance: PhantomData,
        }
    }

    /// The barrier on which a stage's bytes are counted.
    #[inline(always)]
    pub(crate) fn full(&self, stage: u32) -> SharedAddr {
        self.base + stage * BARRIER
    }

    #[inline(always)]
    fn empty(&self, stage: u32) -> SharedAddr {
        self.base + (Self::COUNT + stage) * BARRIER
    }

    /// Where a stage lies.
    #[inline(always)]
    pub(crate) fn data(&self, stage: u32) -> SharedAddr {
        self.base + const { I::GEMM.tile_offset() as u32 } + stage * Self::BYTES
    }

    /// Readies the barriers. One thread does it, before any other use and ordered before the others'.
    ///
    /// # Safety
    ///
    /// The barriers lie in a part of shared memory that nothing else uses, and one thread calls it, once.
    #[inline(always)]
    unsafe fn init(&self) {
        for stage in 0..Self::COUNT {
            // SAFETY: the barriers lie in a part of shared memory of their own, and nobody has used them yet.
            unsafe {
                mbarrier::init(self.full(stage), 1);
                mbarrier::init(self.empty(stage), const { (I::GEMM.warps * I::GEMM.multicast) as u32 });
            }
        }
        mbarrier::fence_init();
    }

    /// Readies the ring for chunks `first..last`. The whole CTA calls it, each warp with its number, before anything
    /// else of the ring is used.
    ///
    /// # Safety
    ///
    /// `weights` loads what a stage holds beside x. No CTA of the cluster has exited.
    #[inline(always)]
    pub(crate) unsafe fn start(&self, warp: u32, (first, last): (u32, u32), weights: impl Fn(u32, u32)) {
        if warp == const { I::GEMM.warps as u32 } && warp::elect(u32::MAX) {
            // SAFETY: the first use of the barriers.
            unsafe { self.init() };
            if Self::SHARED {
                self.fill(first, last, |stage, chunk| self.announce(stage, chunk, &weights));
            }
        }
        if Self::SHARED {
            // The fence of the barriers' initialisation goes with it.
            cluster::arrive_relaxed();
            cluster::wait();
        } else {
            thread::sync_threads();
        }
    }

    /// Waits until the bytes of a stage have landed.
    ///
    /// # Safety
    ///
    /// The ring has been started, and the stage is announced for this turn, or will be.
    #[inline(always)]
    pub(crate) unsafe fn wait(&self, place: Place) {
        // SAFETY: `init` came before.
        unsafe { mbarrier::wait_parity(self.full(place.stage), place.parity) };
    }

    /// This warp has used a stage.
    ///
    /// # Safety
    ///
    /// The whole warp calls it, and its uses of the stage have ended: `wgmma`s that read it have been waited for.
    #[inline(always)]
    pub(crate) unsafe fn leave(&self, stage: u32) {
        if Self::SHARED {
            let lane = warp::lane_id();
            if lane < const { I::GEMM.multicast as u32 } {
                let there = cluster::map_shared(self.empty(stage), self.first_rank() + lane);
                // SAFETY: the warp's uses of the stage have ended, and copies alone write there next; no CTA exits
                // before the cluster has met at `Tile::finish`.
                unsafe { mbarrier::arrive_in_cluster(there) };
            }
        } else if warp::elect(u32::MAX) {
            // SAFETY: the warp's uses of the stage have ended.
            unsafe { mbarrier::arrive(self.empty(stage)) };
        }
    }

    /// The rank of the first of the CTAs that share x with this one, itself perhaps.
    #[inline(always)]
    fn first_rank(&self) -> u32 {
        let (_, part) = I::GEMM.place(cluster::cta_rank());
        I::GEMM.rank(0, part)
    }

    /// Starts the TMA tile load of x at these columns and tokens, to `to` in this CTA's stage: of all of it, or of this
    /// CTA's share, multicast to all CTAs that share it.
    ///
    /// # Safety
    ///
    /// `map` is that of x, with this instance's box. The stage is announced with its weights, its readers in all of
    /// these CTAs have left it, and those CTAs have been started.
    #[inline(always)]
    pub(crate) unsafe fn fetch_tokens(&self, stage: u32, to: SharedAddr, map: u64, [column, token]: [u32; 2]) {
        let full = self.full(stage);
        if !Self::SHARED {
            // SAFETY: announced with the stage's weights; the box is the tile.
            unsafe { tensor_map::load_2d(to, map, [column, token], full) };
            return;
        }
        let member = cluster::cta_rank() - self.first_rank();
        let to = to + member * const { (I::GEMM.x_tile_bytes() / I::GEMM.multicast) as u32 };
        let token = token + member * const { I::GEMM.tokens_loaded() as u32 };
        let group = const { (1u32 << I::GEMM.multicast) - 1 } << self.first_rank();
        // SAFETY: every CTA that shares the tile announces all of it with the stage's weights. The cluster has met
        // before the first; of the others, all warps of these CTAs have left the stage.
        unsafe { tensor_map::load_2d_into(group as u16, to, map, [column, token], full) };
    }

    /// The stage's bytes are expected from now on, and the loads of its weights start.
    #[inline(always)]
    fn announce(&self, stage: u32, chunk: u32, weights: impl Fn(u32, u32)) {
        // SAFETY: the stage is fresh, or its readers have left it.
        unsafe { mbarrier::arrive_expect_tx(self.full(stage), Self::BYTES) };
        weights(stage, chunk);
    }

    /// For each stage that has one, its first chunk.
    #[inline(always)]
    fn fill(&self, first: u32, last: u32, each: impl Fn(u32, u32)) {
        // A loop up to the smaller of two bounds would be unrolled beyond the stages that there are.
        for stage in 0..Self::COUNT {
            if first + stage < last {
                each(stage, first + stage);
            }
        }
    }

    /// One lane loads chunks `first..last`, by two functions of stage and chunk, which together bring [`Stages::BYTES`]
    /// to the stage. `weights` comes as early as there is room, `x` only once what the preceding kernel wrote is
    /// visible.
    ///
    /// # Safety
    ///
    /// The ring has been started for the same chunks and weights, and one lane of the CTA calls it.
    #[inline(always)]
    pub(crate) unsafe fn produce(&self, (first, last): (u32, u32), weights: impl Fn(u32, u32), x: impl Fn(u32, u32)) {
        if !Self::SHARED {
            self.fill(first, last, |stage, chunk| self.announce(stage, chunk, &weights));
        }
        pdl::wait();
        self.fill(first, last, &x);
        let mut place = Place::START;
        for chunk in first + Self::COUNT..last {
            let empty = self.empty(place.stage);
            // SAFETY: `init` came before.
            unsafe { mbarrier::wait_parity(empty, place.parity) };
            self.announce(place.stage, chunk, &weights);
            x(place.stage, chunk);
            place = place.next(Self::COUNT);
        }
    }
}
