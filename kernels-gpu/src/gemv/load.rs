//! The load part: the weights' stream, by bulk copies through a ring of each warp's own (PTX ISA §9.7.9.25
//! `cp.async.bulk`, §9.7.13.15 `mbarrier`).

use super::{Instance, Place};
use crate::args::{GemvArgs, KSlices};
use crate::layout::units;
use crate::ring::Ring;
use core::marker::PhantomData;
use cuda_std::shared::SharedAddr;
use cuda_std::{mbarrier, warp};

/// A warp's slice of K, in chunks of `G` groups of `R` row blocks, which bulk copies bring into the warp's ring.
pub(super) struct Stream<I: Instance, const G: usize, const R: usize> {
    /// Where each row block starts. Row blocks beyond the last are read as the last, and not stored.
    sources: [u64; R],
    /// Groups of all of K.
    groups: u32,
    /// The slice: its first chunk, and the first behind it.
    pub(super) first: u32,
    pub(super) last: u32,
    instance: PhantomData<I>,
}

impl<I: Instance, const G: usize, const R: usize> Stream<I, G, R> {
    const STAGES: u32 = I::GEMV.stages as u32;
    pub(super) const UNIT_BYTES: u32 = I::GEMV.format.unit_bytes() as u32;
    pub(super) const COPY_BYTES: u32 = I::GEMV.copy_bytes() as u32;

    #[inline(always)]
    pub(super) fn of_warp(place: Place, args: &GemvArgs) -> Self {
        let (row_units, groups) = units(args.n as usize, args.k as usize);
        let (worker, workers) = place.worker::<I>();
        let (first, last) = KSlices::new(groups.div_ceil(G) as u32, workers).of(worker);
        let row_bytes = groups as u64 * u64::from(Self::UNIT_BYTES);
        let sources = core::array::from_fn(|r| {
            let unit = (place.row_tile * R as u32 + r as u32).min(row_units as u32 - 1);
            args.weights + u64::from(unit) * row_bytes
        });
        Stream {
            sources,
            groups: groups as u32,
            first,
            last,
            instance: PhantomData,
        }
    }

    /// The warp's mbarriers.
    #[inline(always)]
    fn barriers(place: Place) -> SharedAddr {
        place.base + place.warp * const { 8 * I::GEMV.barriers() as u32 }
    }

    /// The warp's ring, at its first stage.
    #[inline(always)]
    pub(super) fn ring(place: Place) -> Ring {
        let chunk_bytes = const { I::GEMV.chunk_bytes() as u32 };
        Ring::new(Self::barriers(place), place.own_ring::<I>(), chunk_bytes, Self::STAGES)
    }

    /// Groups of a chunk: fewer in the last one of K.
    #[inline(always)]
    pub(super) fn groups_of(&self, chunk: u32) -> u32 {
        (self.groups - chunk * G as u32).min(G as u32)
    }

    /// Starts the bulk copies of a chunk.
    ///
    /// # Safety
    ///
    /// One lane calls it. The ring is initialised, and the whole warp has left the stage.
    #[inline(always)]
    unsafe fn fill(&self, ring: &Ring, stage: u32, chunk: u32) {
        let bytes = self.groups_of(chunk) * Self::UNIT_BYTES;
        // SAFETY: the packed weights hold all groups of every row block; the stage is free.
        unsafe {
            ring.expect(stage, bytes * R as u32);
            for (r, source) in self.sources.iter().enumerate() {
                ring.copy(
                    stage,
                    r as u32 * Self::COPY_BYTES,
                    source + u64::from(chunk) * u64::from(Self::COPY_BYTES),
                    bytes,
                );
            }
        }
    }

    /// Initialises the ring, and the mbarrier of the CTA's sums, and fills all of the ring's stages.
    ///
    /// # Safety
    ///
    /// The whole warp calls it, before anything else of the ring.
    #[inline(always)]
    pub(super) unsafe fn start(&self, place: Place) {
        if warp::elect(u32::MAX) {
            let ring = Self::ring(place);
            // SAFETY: the first use of this warp's barriers, which the other lanes use behind the warp's barrier below.
            unsafe { ring.init_unfenced() };
            for further in Self::STAGES..const { I::GEMV.barriers() as u32 } {
                // SAFETY: nobody else's place. The CTA and others use it behind the cluster's barrier.
                unsafe { mbarrier::init(Self::barriers(place) + further * 8, 1) };
            }
            mbarrier::fence_init();
            for stage in 0..Self::STAGES {
                if self.first + stage < self.last {
                    // SAFETY: nobody has used the stage yet.
                    unsafe { self.fill(&ring, stage, self.first + stage) };
                }
            }
        }
        warp::sync_warp(u32::MAX);
    }

    /// Has the present stage filled for the chunk that comes next in it, if there is one.
    ///
    /// # Safety
    ///
    /// The whole warp calls it, and has read all that it needs of `chunk`, the present stage's.
    #[inline(always)]
    pub(super) unsafe fn refill(&self, ring: &Ring, chunk: u32) {
        warp::sync_warp(u32::MAX);
        if chunk + Self::STAGES < self.last && warp::elect(u32::MAX) {
            // SAFETY: the whole warp has left the stage before the barrier above.
            unsafe { self.fill(ring, ring.stage(), chunk + Self::STAGES) };
        }
    }
}
