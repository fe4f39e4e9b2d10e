//! The ring of stages that a whole CTA drains: each with a barrier that tells when its bytes have landed, and one that tells when
//! every warp has left them.
//!
//! One lane fills the stages in turn, [`Stages::produce`]; the multiplying warps wait for each, use it, and leave it.

use crate::tile_sum::Instance;
use core::marker::PhantomData;
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{mbarrier, pdl, warp};

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
    #[inline(always)]
    pub(crate) unsafe fn init(&self) {
        for stage in 0..Self::COUNT {
            // SAFETY: the barriers lie in a part of shared memory of their own, and nobody has used them yet.
            unsafe {
                mbarrier::init(self.full(stage), 1);
                mbarrier::init(self.empty(stage), const { I::GEMM.warps as u32 });
            }
        }
        mbarrier::fence_init();
    }

    /// Waits until the bytes of a stage have landed.
    #[inline(always)]
    pub(crate) unsafe fn wait(&self, place: Place) {
        // SAFETY: `init` came before.
        unsafe { mbarrier::wait_parity(self.full(place.stage), place.parity) };
    }

    /// This warp has used a stage.
    #[inline(always)]
    pub(crate) unsafe fn leave(&self, stage: u32) {
        if warp::lane_id() == 0 {
            // SAFETY: as the caller promises, the warp's uses of the stage have ended.
            unsafe { mbarrier::arrive(self.empty(stage)) };
        }
    }

    /// One lane sends for chunks `first..last`, by two functions of stage and chunk, which together bring [`Stages::BYTES`] to the
    /// stage. `weights` comes as early as there is room, `x` only once what the kernel ahead wrote is visible.
    #[inline(always)]
    pub(crate) unsafe fn produce(&self, (first, last): (u32, u32), weights: impl Fn(u32, u32), x: impl Fn(u32, u32)) {
        let announce = |stage: u32, chunk: u32| {
            // SAFETY: the stage is fresh, or its readers have left it.
            unsafe { mbarrier::arrive_expect_tx(self.full(stage), Self::BYTES) };
            weights(stage, chunk);
        };
        // A loop up to the smaller of two bounds would be unrolled beyond the stages that there are.
        for stage in 0..Self::COUNT {
            if first + stage < last {
                announce(stage, first + stage);
            }
        }
        pdl::wait();
        for stage in 0..Self::COUNT {
            if first + stage < last {
                x(stage, first + stage);
            }
        }
        let mut place = Place::START;
        for chunk in first + Self::COUNT..last {
            // SAFETY: `init` came before.
            unsafe { mbarrier::wait_parity(self.empty(place.stage), place.parity) };
            announce(place.stage, chunk);
            x(place.stage, chunk);
            place = place.next(Self::COUNT);
        }
    }
}
