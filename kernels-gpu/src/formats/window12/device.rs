//! `window12` weights as the kernels take them.

use super::Window12Args;
use super::decode::Window12Lane;
use super::exceptions::{Share, Walk};
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
    type Ahead = Share;
    const TERMS: usize = 1;

    #[inline(always)]
    unsafe fn fragments(self, unit: SharedAddr, _: usize) -> Fragments {
        // SAFETY: a whole unit has landed there.
        unsafe { self.unit_fragments(unit) }
    }

    #[inline(always)]
    unsafe fn ahead<const R: usize>(self, first_unit: u32, share: (u32, u32)) -> Share {
        // SAFETY: the starts and the exceptions are the packer's, with ends for R row blocks behind the last.
        unsafe { self.share::<R>(first_unit, share) }
    }

    #[inline(always)]
    unsafe fn exceptions<const R: usize, const N: usize>(
        self,
        ahead: Share,
        acc: &mut [[[f32; 4]; N]; R],
        first_token: u32,
        args: &GemvArgs,
    ) {
        // SAFETY: the share is of the same row blocks, x is as the arguments say, and the warp is together.
        unsafe { self.add_exceptions(ahead, acc, first_token, args) }
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
