//! `window12` weights as the kernels take them.

use super::Window12Args;
use super::decode::Window12Lane;
use super::exceptions::{Pending, Share, Starts, Walk};
use super::instances::{for_each_gemv_window12, for_each_window12_packed_gemm};
use crate::args::{GemvArgs, PackedGemmArgs};
use crate::formats::fragments::{Fragments, Half, KOrdered, Weights};
use crate::gemm::packed_entries;
use crate::gemv::{Store, gemv_entries};
use cuda_std::shared::SharedAddr;

/// `window12` weights: a palette of high bytes, looked up by the code words, and where the exceptions lie.
#[derive(Clone, Copy)]
pub(crate) struct Window12 {
    pub(super) palette: [u32; 2],
    pub(super) starts: u64,
    pub(super) exceptions: u64,
}

impl Window12 {
    /// Weights with this palette, whose exceptions lie there, row block by row block as the starts say.
    #[inline(always)]
    fn new(palette: [u32; 2], starts: u64, exceptions: u64) -> Self {
        Window12 {
            palette,
            starts,
            exceptions,
        }
    }
}

impl Weights for Window12 {
    type Place = Starts;
    type Share = Share;
    type Pending<const N: usize> = Pending<N>;
    const TERMS: usize = 1;

    #[inline(always)]
    unsafe fn fragments(self, unit: SharedAddr, _: usize) -> Fragments {
        // SAFETY: a whole unit has landed there.
        unsafe { self.unit_fragments(unit) }
    }

    #[inline(always)]
    unsafe fn find<const R: usize>(self, first_unit: u32) -> Starts {
        // SAFETY: the starts are the packer's, with ends for R row blocks behind the last.
        unsafe { self.starts_of::<R>(first_unit) }
    }

    #[inline(always)]
    unsafe fn share(self, place: Starts, worker: (u32, u32)) -> Share {
        // SAFETY: the starts are those of the CTA's row blocks.
        unsafe { self.share_of(place, worker) }
    }

    #[inline(always)]
    unsafe fn start_exceptions<const N: usize>(self, share: &Share, first_token: u32, args: &GemvArgs) -> Pending<N> {
        // SAFETY: x is as the arguments say, and the warp is together.
        unsafe { share.load_x(share.own(), first_token, args) }
    }

    #[inline(always)]
    unsafe fn add_exceptions<const R: usize, const N: usize>(
        self,
        share: Share,
        pending: Pending<N>,
        acc: &mut [[[f32; 4]; N]; R],
        first_token: u32,
        args: &GemvArgs,
    ) {
        // SAFETY: what is pending is of the share, x is as the arguments say, and the warp is together.
        unsafe { self.add::<R, N>(share, pending, acc, first_token, args) }
    }
}

impl KOrdered for Window12 {
    type Lane = Window12Lane;
    type Walk = Walk;

    #[inline(always)]
    fn lane() -> Window12Lane {
        Window12Lane::of_this_lane()
    }

    #[inline(always)]
    unsafe fn half<const HALF: usize>(self, unit: SharedAddr, lane: Window12Lane) -> Half {
        // SAFETY: a whole unit has landed there, and the warp is together.
        unsafe { self.half_in_k_order::<HALF>(unit, lane) }
    }

    #[inline(always)]
    unsafe fn walk(self, row_block: u32, first_column: u32) -> Walk {
        // SAFETY: the row block has a start and an end in the packer's list, and the warp is together.
        unsafe { self.start_walk(row_block, first_column) }
    }

    #[inline(always)]
    unsafe fn patch(self, walk: &mut Walk, half: &mut Half, end: u32) {
        // SAFETY: the walk is of this row block, and the warp is together.
        unsafe { self.put_in(walk, half, end) }
    }
}

for_each_gemv_window12!(
    gemv_entries |args: Window12Args| Window12,
    (args.gemv, Window12::new(args.palette, args.starts, args.exceptions), Store);
);
for_each_window12_packed_gemm!(
    packed_entries |args: PackedGemmArgs| Window12,
    (args.weights, args.gemm, Window12::new(args.palette, args.starts, args.exceptions));
);
