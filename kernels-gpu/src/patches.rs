//! Weights that units leave out, put into A fragments before these are multiplied.
//!
//! The places of `window12` exceptions decode to +0, so a weight is put there with an `or`. A warp walks the exceptions of its row block in
//! their order, by column; it holds 32 of them, one per lane, and has the next 32 on their way.

use crate::format::{Bf16, Weights, Window12};
use crate::natural::Half;
use cuda_std::warp;

/// Columns of half a unit.
const HALF_COLUMNS: u32 = 32;

/// Formats whose units may leave out weights.
pub(crate) trait Patched: Weights {
    /// How far a warp has come.
    type Patches;

    /// Starts at a column of a row block. Reads weights only. The whole warp comes here.
    unsafe fn patches(self, row_block: u32, first_column: u32) -> Self::Patches;

    /// Puts in what is left out of 32 columns, of which `end` is the first behind. The whole warp comes here, from left to right.
    unsafe fn patch(self, patches: &mut Self::Patches, half: &mut Half, end: u32);
}

impl Patched for Bf16<1> {
    type Patches = ();

    #[inline(always)]
    unsafe fn patches(self, _: u32, _: u32) {}

    #[inline(always)]
    unsafe fn patch(self, (): &mut (), _: &mut Half, _: u32) {}
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
    #[inline(always)]
    unsafe fn exception(format: Window12, at: u64, last: u64) -> u64 {
        // SAFETY: as the caller promises.
        let entry = unsafe { format.exception(at, last) };
        if at < last { entry } else { u64::MAX }
    }

    /// The exceptions from `at` on, one per lane.
    #[inline(always)]
    unsafe fn exceptions(format: Window12, at: u64, last: u64) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { Self::exception(format, at + u64::from(warp::lane_id()), last) }
    }

    #[inline(always)]
    fn column_of(exception: u64) -> u32 {
        (exception >> 32) as u32
    }

    /// Goes on to lane `turn`'s exception, or the first one after the lanes'.
    #[inline(always)]
    unsafe fn go_to(&mut self, format: Window12, turn: u32) {
        self.turn = turn;
        if turn == warp::WARP_SIZE {
            let step = u64::from(warp::WARP_SIZE);
            self.at += step;
            self.turn = 0;
            self.entry = self.ahead;
            // SAFETY: as the caller promises.
            self.ahead = unsafe { Self::exceptions(format, self.at + step, self.last) };
        }
        self.column = warp::warp_shuffle_idx(u32::MAX, Self::column_of(self.entry), self.turn);
    }
}

impl Patched for Window12 {
    type Patches = Walk;

    #[inline(always)]
    unsafe fn patches(self, row_block: u32, first_column: u32) -> Walk {
        // SAFETY: as the caller promises.
        let (mut at, last) = unsafe { (self.start(row_block), self.start(row_block + 1)) };
        let mut end = last;
        // The lanes look at the last exceptions of 32 equal pieces, until a piece is no more than they can hold.
        while end - at > u64::from(warp::WARP_SIZE) {
            let piece = (end - at).div_ceil(u64::from(warp::WARP_SIZE));
            let probe = at + (u64::from(warp::lane_id()) + 1) * piece - 1;
            // SAFETY: as the caller promises.
            let column = Walk::column_of(unsafe { Walk::exception(self, probe, end) });
            let before = warp::warp_vote_ballot(u32::MAX, column < first_column).count_ones();
            at += u64::from(before) * piece;
            end = end.min(at + piece);
        }
        // SAFETY: as the caller promises.
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

    #[inline(always)]
    unsafe fn patch(self, walk: &mut Walk, half: &mut Half, end: u32) {
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
            // SAFETY: as the caller promises.
            unsafe { walk.go_to(self, walk.turn + 1) };
        }
    }
}
