//! The weights that `window12` units leave out, added as products or put into fragments.
//!
//! For few tokens, every warp of a cluster takes its share of the exceptions of the cluster's row blocks, up to 32 at a
//! time, and adds their products to its sums while the first units and the first x are on their way. For many, a warp
//! walks the exceptions of its own row block in their order, by column; it holds 32 of them, one per lane, and has the
//! next 32 on their way. Their places in the units decode to +0, so a weight is put there with an `or`.
//!
//! Lanes exchange exceptions by `shfl.sync` and find their place by `vote.sync` (PTX ISA §9.7.9, §9.7.13.9).

use super::device::Window12;
use super::{STARTS_AFTER, TAKEN, taken};
use crate::args::GemvArgs;
use crate::formats::fragments::{HALF_COLUMNS, Half};
use crate::layout::TOKEN_BLOCK;
use cuda_std::warp::{self, WARP_SIZE};
use cuda_std::{global, math};

/// Bytes of a start and of an exception.
const ENTRY: u64 = 8;

/// Lanes that hold a row's accumulators.
const QUAD: u32 = 4;
/// The bit of [`Share::entry`] from which the number of the row block starts: above the row.
const BLOCK_BIT: u32 = 20;
/// The row block and half of an exception that is not there.
const NOWHERE: u32 = u32::MAX;

/// Where the exceptions of each row block of a CTA start, and where the last ones end, as often as there are fewer row
/// blocks.
pub(crate) type Starts = [u64; STARTS_AFTER + 1];

/// A warp's share of the exceptions, of which each lane holds one.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    /// The first of those that the lanes hold.
    first: u64,
    /// How many there are from there on. 2^32 of them would take 34 GB, for one of a GEMV's thousands of warps.
    count: u32,
    /// Where the row blocks behind the CTA's first one start, counted from `first`.
    starts: [u32; STARTS_AFTER - 1],
    /// The lane's exception.
    entry: u64,
}

/// The next exceptions of a quad's rows, with x on its way for the tokens that the lane has accumulators for.
#[derive(Clone, Copy)]
pub(crate) struct Pending<const N: usize> {
    taken: [Taken<N>; TAKEN],
    /// The lanes that hold further exceptions of the quad's rows, a bit each.
    left: u32,
}

/// One of them.
#[derive(Clone, Copy)]
struct Taken<const N: usize> {
    /// Its row block and half, or [`NOWHERE`].
    place: u32,
    /// The weight's bits, as FP32.
    weight: u32,
    x: [[u32; 2]; N],
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

    /// [`Weights::find`](crate::formats::fragments::Weights::find).
    ///
    /// # Safety
    ///
    /// The starts are what the packer made, with ends for `R` row blocks behind the last one.
    #[inline(always)]
    pub(super) unsafe fn starts_of<const R: usize>(self, first_unit: u32) -> Starts {
        const { assert!(R <= STARTS_AFTER) };
        // SAFETY: the packer ends the starts as often as R row blocks may need.
        core::array::from_fn(|r| unsafe { self.start(first_unit + r.min(R) as u32) })
    }

    /// [`Weights::share`](crate::formats::fragments::Weights::share).
    ///
    /// # Safety
    ///
    /// The starts are of [`Window12::starts_of`].
    #[inline(always)]
    pub(super) unsafe fn share_of(self, starts: Starts, (worker, workers): (u32, u32)) -> Share {
        let (begin, end) = (starts[0], starts[STARTS_AFTER]);
        let bound = |i: u32| begin + (end - begin) * u64::from(i) / u64::from(workers);
        let (first, last) = (bound(worker), bound(worker + 1));
        Share {
            first,
            count: (last - first) as u32,
            starts: [starts[1], starts[2], starts[3]].map(|start| (start.max(first).min(last) - first) as u32),
            // SAFETY: the share lies within the exceptions.
            entry: unsafe { self.entry(first, last) },
        }
    }

    /// [`Weights::add_exceptions`](crate::formats::fragments::Weights::add_exceptions).
    ///
    /// A row's sums are in a quad of lanes, which makes the products of its rows' exceptions itself, in their order.
    ///
    /// # Safety
    ///
    /// `share` is of [`Window12::share_of`] for the same row blocks, `pending` its first. x holds what `args` say, and
    /// what the preceding kernel wrote is visible. The whole warp calls it.
    #[inline(always)]
    pub(super) unsafe fn add<const R: usize, const N: usize>(
        self,
        mut share: Share,
        mut pending: Pending<N>,
        acc: &mut [[[f32; 4]; N]; R],
        first_token: u32,
        args: &GemvArgs,
    ) {
        if share.count == 0 {
            return;
        }
        loop {
            for taken in pending.taken {
                for (r, acc) in acc.iter_mut().enumerate() {
                    for (acc, x) in acc.iter_mut().zip(&taken.x) {
                        for (i, sum) in acc.iter_mut().enumerate() {
                            let product = f32::from_bits(taken.weight) * f32::from_bits(x[i % 2] << 16);
                            math::add_if(sum, product, taken.place == (2 * r + i / 2) as u32);
                        }
                    }
                }
            }
            if warp::warp_vote_ballot(u32::MAX, pending.left != 0) == 0 {
                if share.count <= WARP_SIZE {
                    return;
                }
                // SAFETY: the share's end is within the exceptions, and the loop is uniform over the warp.
                share = unsafe { self.behind(share) };
                pending.left = share.own();
            }
            // SAFETY: x as before, and the loop is uniform over the warp.
            pending = unsafe { share.load_x(pending.left, first_token, args) };
        }
    }

    /// A share without those that the lanes hold.
    ///
    /// # Safety
    ///
    /// There are more. The whole warp calls it.
    #[inline(always)]
    unsafe fn behind(self, share: Share) -> Share {
        let (first, count) = (share.first + u64::from(WARP_SIZE), share.count - WARP_SIZE);
        Share {
            first,
            count,
            starts: share.starts.map(|start| start.saturating_sub(WARP_SIZE)),
            // SAFETY: within the share.
            entry: unsafe { self.entry(first, first + u64::from(count)) },
        }
    }
}

impl Share {
    /// The lanes that hold exceptions of the rows whose sums this lane has, a bit each. The whole warp calls it.
    #[inline(always)]
    pub(super) fn own(&self) -> u32 {
        let lane = warp::lane_id();
        let row = self.entry as u32 >> 16;
        // The lanes whose row agrees with this lane's in a bit.
        let agree = |bit: u32| {
            let set = warp::warp_vote_ballot(u32::MAX, row >> bit & 1 != 0);
            !(set ^ 0u32.wrapping_sub(lane / QUAD >> bit & 1))
        };
        let there = warp::warp_vote_ballot(u32::MAX, lane < self.count);
        there & agree(0) & agree(1) & agree(2)
    }

    /// Asks for x of the first of the quad's exceptions that `left` has.
    ///
    /// # Safety
    ///
    /// x holds what `args` say, and what the preceding kernel wrote is visible. The whole warp calls it.
    #[inline(always)]
    pub(super) unsafe fn load_x<const N: usize>(&self, mut left: u32, first_token: u32, args: &GemvArgs) -> Pending<N> {
        let lane = warp::lane_id();
        let block = self.starts.iter().map(|&start| u32::from(lane >= start)).sum::<u32>();
        let entry = self.entry as u32 | block << BLOCK_BIT;
        let first = first_token + 2 * (lane % QUAD);
        let row_bytes = args.x_stride * 2;
        let address = args.x + u64::from(first) * row_bytes;
        let none = Taken {
            place: NOWHERE,
            weight: 0,
            x: [[0; 2]; N],
        };
        let mut next = |at: usize| {
            if at >= taken(N) {
                return none;
            }
            let (is_there, holder) = (left != 0, left.trailing_zeros());
            left &= left.wrapping_sub(1);
            let of_holder = warp::warp_shuffle_idx(u32::MAX, entry, holder);
            let column = warp::warp_shuffle_idx(u32::MAX, (self.entry >> 32) as u32, holder);
            let address = address + u64::from(column) * 2;
            let x = core::array::from_fn(|q| {
                [0, 1].map(|e| {
                    let further = TOKEN_BLOCK as u32 * q as u32 + e;
                    // Both at once: a branch for each load would take longer.
                    let live = is_there & (first + further < args.m);
                    // SAFETY: predicated on the exception and the token; the packer keeps columns below k.
                    unsafe { global::load_u16_or_zero(address + u64::from(further) * row_bytes, live) }
                })
            });
            Taken {
                place: if is_there {
                    of_holder >> (BLOCK_BIT - 1)
                } else {
                    NOWHERE
                },
                weight: of_holder << 16,
                x,
            }
        };
        let taken = [next(0), next(1), next(2), next(3)];
        Pending { taken, left }
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
