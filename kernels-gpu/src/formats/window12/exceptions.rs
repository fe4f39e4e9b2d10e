//! The weights that `window12` units leave out, added as products or put into fragments.
//!
//! For few tokens, every warp of a cluster takes its share of the exceptions of the cluster's row blocks, and adds
//! their products to its sums while the first units are on their way. For many, a warp walks the exceptions of its own
//! row block in their order, by column; it holds 32 of them, one per lane, and has the next 32 on their way. Their
//! places in the units decode to +0, so a weight is put there with an `or`.
//!
//! Lanes exchange exceptions by `shfl.sync` and find their place by `vote.sync` (PTX ISA §9.7.9, §9.7.13.9).

use super::device::Window12;
use crate::args::GemvArgs;
use crate::formats::fragments::{HALF_COLUMNS, Half};
use crate::layout::TOKEN_BLOCK;
use cuda_std::{global, warp};

/// Bytes of a start and of an exception.
const ENTRY: u64 = 8;

/// A warp's share of the exceptions, and the first of them.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    first_unit: u32,
    at: u64,
    last: u64,
    /// The lane's exception, counted from `at`.
    entry: u64,
}

impl Window12 {
    /// Where the exceptions of a row block start, or the last ones end.
    ///
    /// # Safety
    ///
    /// There is such a row block, or it is one of those whose starts the end repeats.
    #[inline(always)]
    pub(crate) unsafe fn start(self, unit: u32) -> u64 {
        // SAFETY: the host gives a start for every row block of the grid, and one for the end.
        unsafe { global::load_u64(self.starts + u64::from(unit) * ENTRY) }
    }

    /// The exception `at`, where it comes before `last`.
    ///
    /// # Safety
    ///
    /// `last` is no more than the exceptions that there are.
    #[inline(always)]
    pub(crate) unsafe fn exception(self, at: u64, last: u64) -> u64 {
        // SAFETY: predicated on the end, which lies within the exceptions.
        unsafe { global::load_u64_or_zero(self.exceptions + at * ENTRY, at < last) }
    }

    /// The exception `lane` behind `at`, where it comes before `last`: a warp reads 32 of them at once, each once.
    ///
    /// # Safety
    ///
    /// `last` is no more than the exceptions that there are. The whole warp calls it.
    #[inline(always)]
    unsafe fn entry(self, at: u64, last: u64) -> u64 {
        // SAFETY: the lane reads behind `at` only what comes before `last`.
        unsafe { self.exception(at + u64::from(warp::lane_id()), last) }
    }

    /// [`Weights::ahead`](crate::formats::fragments::Weights::ahead).
    ///
    /// # Safety
    ///
    /// The starts and exceptions are what the packer made, with ends for `R` row blocks behind the last one.
    #[inline(always)]
    pub(super) unsafe fn share<const R: usize>(self, first_unit: u32, (worker, workers): (u32, u32)) -> Share {
        // SAFETY: the packer ends the starts as often as R row blocks may need; the share lies within the exceptions of
        // the CTA's row blocks.
        unsafe {
            let (begin, end) = (self.start(first_unit), self.start(first_unit + R as u32));
            let bound = |i: u32| begin + (end - begin) * u64::from(i) / u64::from(workers);
            let (at, last) = (bound(worker), bound(worker + 1));
            let entry = self.entry(at, last);
            Share {
                first_unit,
                at,
                last,
                entry,
            }
        }
    }

    /// [`Weights::exceptions`](crate::formats::fragments::Weights::exceptions).
    ///
    /// # Safety
    ///
    /// `share` is of [`Window12::share`] for the same row blocks. x holds what `args` say, and what the preceding
    /// kernel wrote is visible. The whole warp calls it.
    #[inline(always)]
    pub(super) unsafe fn add_exceptions<const R: usize, const N: usize>(
        self,
        share: Share,
        acc: &mut [[[f32; 4]; N]; R],
        first_token: u32,
        args: &GemvArgs,
    ) {
        let Share {
            first_unit,
            mut at,
            last,
            mut entry,
        } = share;
        let lane = warp::lane_id();
        let (g, t) = (lane / 4, lane % 4);
        let mut turn = 0;
        while at < last {
            let value_and_row = warp::warp_shuffle_idx(u32::MAX, entry as u32, turn);
            let column = warp::warp_shuffle_idx(u32::MAX, (entry >> 32) as u32, turn);
            let weight = f32::from_bits(value_and_row << 16);
            let row = value_and_row >> 16;
            // The starts are read again each time, from L1: exceptions are few, and registers fewer.
            // SAFETY: below `R`, so the packer's starts have it, or the end in its place.
            let begins = |r: u32| unsafe { self.start(first_unit + r) };
            let block = (1..R as u32).fold(0, |block, r| block + u32::from(at >= begins(r)));
            let row_bytes = args.x_stride * 2;
            let first = first_token + 2 * t;
            let mut address = args.x + u64::from(first) * row_bytes + u64::from(column) * 2;
            for q in 0..N {
                for e in 0..2 {
                    let token = first + (TOKEN_BLOCK * q) as u32 + e as u32;
                    // SAFETY: predicated on the token; the packer keeps columns below k.
                    let x = unsafe { global::load_u16_or_zero(address + e as u64 * row_bytes, token < args.m) };
                    let product = weight * f32::from_bits(x << 16);
                    for (r, acc) in acc.iter_mut().enumerate() {
                        for h in 0..2 {
                            let mine = block == r as u32 && row == 8 * h as u32 + g;
                            // Adding -0 changes no sum.
                            acc[q][2 * h + e] += if mine { product } else { -0.0 };
                        }
                    }
                }
                address += TOKEN_BLOCK as u64 * row_bytes;
            }
            at += 1;
            turn += 1;
            if turn == warp::WARP_SIZE {
                turn = 0;
                // SAFETY: the share's end is within the exceptions, and the loop is uniform over the warp.
                entry = unsafe { self.entry(at, last) };
            }
        }
    }
}

/// A warp's walk over the exceptions of a row block.
pub(crate) struct Walk {
    /// The first exception of those that the lanes hold, and where the row block's end.
    at: u64,
    last: u64,
    /// This lane's exception, and its next one.
    entry: u64,
    ahead: u64,
    /// The lane whose exception comes next, and that one's column: beyond all columns where there is none.
    turn: u32,
    column: u32,
}

impl Walk {
    /// The exception `at`, or one beyond all columns from `last` on.
    ///
    /// # Safety
    ///
    /// `last` is no more than the exceptions that there are.
    #[inline(always)]
    unsafe fn exception(format: Window12, at: u64, last: u64) -> u64 {
        // SAFETY: read only where it comes before `last`.
        let entry = unsafe { format.exception(at, last) };
        if at < last { entry } else { u64::MAX }
    }

    /// The exceptions from `at` on, one per lane.
    ///
    /// # Safety
    ///
    /// `last` is no more than the exceptions that there are. The whole warp calls it.
    #[inline(always)]
    unsafe fn exceptions(format: Window12, at: u64, last: u64) -> u64 {
        // SAFETY: a lane behind `last` reads nothing.
        unsafe { Self::exception(format, at + u64::from(warp::lane_id()), last) }
    }

    #[inline(always)]
    fn column_of(exception: u64) -> u32 {
        (exception >> 32) as u32
    }

    /// Goes on to lane `turn`'s exception, or the first one after the lanes'.
    ///
    /// # Safety
    ///
    /// `turn` is at most a warp. The whole warp calls it.
    #[inline(always)]
    unsafe fn go_to(&mut self, format: Window12, turn: u32) {
        self.turn = turn;
        if turn == warp::WARP_SIZE {
            let step = u64::from(warp::WARP_SIZE);
            self.at += step;
            self.turn = 0;
            self.entry = self.ahead;
            // SAFETY: `last` is the end of the row block's exceptions, as it was when the walk started.
            self.ahead = unsafe { Self::exceptions(format, self.at + step, self.last) };
        }
        self.column = warp::warp_shuffle_idx(u32::MAX, Self::column_of(self.entry), self.turn);
    }
}

impl Window12 {
    /// [`KOrdered::walk`](crate::formats::fragments::KOrdered::walk).
    ///
    /// # Safety
    ///
    /// The starts and exceptions are what the packer made, and there is such a row block. The whole warp calls it.
    #[inline(always)]
    pub(super) unsafe fn start_walk(self, row_block: u32, first_column: u32) -> Walk {
        // SAFETY: every row block has a start, and the one behind it a start or the end.
        let (mut at, last) = unsafe { (self.start(row_block), self.start(row_block + 1)) };
        let mut end = last;
        // The lanes look at the last exceptions of 32 equal pieces, until a piece is no more than they can hold.
        while end - at > u64::from(warp::WARP_SIZE) {
            let piece = (end - at).div_ceil(u64::from(warp::WARP_SIZE));
            let probe = at + (u64::from(warp::lane_id()) + 1) * piece - 1;
            // SAFETY: `end` is no more than the row block's.
            let column = Walk::column_of(unsafe { Walk::exception(self, probe, end) });
            let before = warp::warp_vote_ballot(u32::MAX, column < first_column).count_ones();
            at += u64::from(before) * piece;
            end = end.min(at + piece);
        }
        // SAFETY: `last` is the end of the row block's exceptions, and the warp is together.
        unsafe {
            let mut walk = Walk {
                at,
                last,
                entry: Walk::exceptions(self, at, last),
                ahead: Walk::exceptions(self, at + u64::from(warp::WARP_SIZE), last),
                turn: 0,
                column: 0,
            };
            let before = Walk::column_of(walk.entry) < first_column;
            walk.go_to(self, warp::warp_vote_ballot(u32::MAX, before).count_ones());
            walk
        }
    }

    /// [`KOrdered::patch`](crate::formats::fragments::KOrdered::patch).
    ///
    /// # Safety
    ///
    /// `walk` is of [`Window12::start_walk`], and the halves come from left to right. The whole warp calls it.
    #[inline(always)]
    pub(super) unsafe fn put_in(self, walk: &mut Walk, half: &mut Half, end: u32) {
        while walk.column < end {
            let column = walk.column % HALF_COLUMNS;
            let value_and_row = warp::warp_shuffle_idx(u32::MAX, walk.entry as u32, walk.turn);
            let row = value_and_row >> 16;
            let mine = warp::lane_id() == row % 8 * 4 + column % 8 / 2;
            let weight = (value_and_row & 0xffff) << (column % 2 * 16);
            let bits = if mine { weight } else { 0 };
            let register = column / 8 * 2 + row / 8;
            for (at, value) in half.as_flattened_mut().iter_mut().enumerate() {
                *value |= if register == at as u32 { bits } else { 0 };
            }
            // SAFETY: the lane's number is below a warp, and the loop is uniform: the column is the same in all lanes.
            unsafe { walk.go_to(self, walk.turn + 1) };
        }
    }
}
