//! What a format is to the kernels: how its units become A fragments of the tensor cores.
//!
//! For `mma.sync`, the units' own order will do, since x is loaded in that order too. `wgmma` takes x from shared
//! memory, where columns lie in their order, so its fragments must be permuted to K order. Within 32 columns, lane t of
//! a row's four has the eight columns from 8·t on ([`crate::layout`]), four pairs; it wants the t-th pair of each of
//! the four. Units lie in shared memory, so a lane reads its pairs where they are, for i = 0..4 from the columns of
//! lane i ^ [`Turned::turn`]. Read in the plain order of i, the eight rows of a unit would meet in a quarter of the
//! banks. With turns that differ between the lanes that would meet, each load has all banks, and two exchanges of
//! registers put right what the turns changed.
//!
//! The fragments are those of the PTX ISA, §9.7.14.5.8 (`mma.m16n8k16`) and §9.7.15.5.1 (`wgmma.m64k16`), 16 rows of
//! which are alike.

use crate::args::GemvArgs;
use crate::layout::UNIT_STEPS;
use cuda_std::shared::SharedAddr;

/// A lane's A fragments of one unit, step by step.
pub(crate) type Fragments = [[u32; 4]; UNIT_STEPS];

/// A lane's A fragments of half a unit permuted to K order: 32 columns, two steps.
pub(crate) type Half = [[u32; 4]; 2];

/// Columns of half a unit.
pub(crate) const HALF_COLUMNS: u32 = 32;
/// Lanes that share a row.
const QUAD: usize = 4;
/// Bytes between the places of two lanes of a quad.
pub(crate) const LANE_BYTES: u32 = 16;
/// Bytes between the places of two quads.
pub(crate) const QUAD_BYTES: u32 = QUAD as u32 * LANE_BYTES;

/// A format of weights, for few tokens.
pub(crate) trait Weights: Copy {
    /// Where a cluster finds what its units leave out: see [`Weights::find`].
    type Place: Copy;
    /// A warp's share of that.
    type Share: Copy;
    /// The next part of a share, with x for `N` token blocks on its way.
    type Pending<const N: usize>: Copy;
    /// Terms that add up to a weight.
    const TERMS: usize;

    /// The lane's fragments of one term of a unit.
    ///
    /// # Safety
    ///
    /// `unit` is where a whole unit of the format has landed, plus 16 bytes per lane.
    unsafe fn fragments(self, unit: SharedAddr, term: usize) -> Fragments;

    /// Looks up where that which the units of the `R` row blocks from `first_unit` on leave out lies. Comes first of
    /// all, so that nothing waits for it. Reads weights only, as [`Weights::share`] does, so both may come before the
    /// preceding kernel has ended.
    ///
    /// # Safety
    ///
    /// The format's own arguments are what the packer made, with ends for `R` row blocks behind the last one.
    unsafe fn find<const R: usize>(self, first_unit: u32) -> Self::Place;

    /// Asks for the part of worker `worker.0` of `worker.1`.
    ///
    /// # Safety
    ///
    /// `place` is of [`Weights::find`].
    unsafe fn share(self, place: Self::Place, worker: (u32, u32)) -> Self::Share;

    /// Asks for x as the first of a share need it.
    ///
    /// # Safety
    ///
    /// `share` is of [`Weights::share`]. x holds what `args` say, and what the preceding kernel wrote is visible. The
    /// whole warp comes here.
    unsafe fn start_exceptions<const N: usize>(
        self,
        share: &Self::Share,
        first_token: u32,
        args: &GemvArgs,
    ) -> Self::Pending<N>;

    /// Adds what the units leave out, as exact FP32 products.
    ///
    /// # Safety
    ///
    /// `pending` is of [`Weights::start_exceptions`] for the same share, `acc` of its row blocks. The whole warp comes
    /// here.
    unsafe fn add_exceptions<const R: usize, const N: usize>(
        self,
        share: Self::Share,
        pending: Self::Pending<N>,
        acc: &mut [[[f32; 4]; N]; R],
        first_token: u32,
        args: &GemvArgs,
    );
}

/// A format whose units can be read permuted to K order, for many tokens.
pub(crate) trait KOrdered: Weights {
    /// Where a lane reads.
    type Lane: Copy;
    /// How far a warp has come with what the units of a row block leave out.
    type Walk;

    /// The place of this lane.
    fn lane() -> Self::Lane;

    /// The fragments of half `HALF` of a unit.
    ///
    /// # Safety
    ///
    /// At `unit`, a multiple of 64, a whole unit of the format has landed. The whole warp calls it in straight line.
    unsafe fn half<const HALF: usize>(self, unit: SharedAddr, lane: Self::Lane) -> Half;

    /// Starts at a column of a row block. Reads weights only, so it may come before the preceding kernel has ended.
    ///
    /// # Safety
    ///
    /// The format's own arguments are what the packer made, and there is such a row block. The whole warp comes here.
    unsafe fn walk(self, row_block: u32, first_column: u32) -> Self::Walk;

    /// Puts in what is left out of 32 columns, of which `end` is the first behind.
    ///
    /// # Safety
    ///
    /// `walk` is of [`KOrdered::walk`], and the halves come from left to right. The whole warp comes here.
    unsafe fn patch(self, walk: &mut Self::Walk, half: &mut Half, end: u32);
}

/// Undoes a turn: value i ^ `turn` comes to place i.
#[inline(always)]
pub(crate) fn turned<T: Copy>(values: [T; QUAD], turn: u32) -> [T; QUAD] {
    let [a, b, c, d] = values;
    let [a, b, c, d] = if turn & 1 != 0 { [b, a, d, c] } else { [a, b, c, d] };
    if turn & 2 != 0 { [c, d, a, b] } else { [a, b, c, d] }
}

/// The fragments of two steps of the pairs of four times eight columns, for rows g and g + 8.
#[inline(always)]
pub(crate) fn in_k_order(pairs: [[u32; 2]; QUAD]) -> Half {
    let [[a, b], [c, d], [e, f], [g, h]] = pairs;
    [[a, b, c, d], [e, f, g, h]]
}

/// Where a lane finds its pairs: in the place of lane i ^ `turn` of its quad, which [`Turned::of`] gives.
#[derive(Clone, Copy)]
pub(crate) struct Turned {
    /// The place for i = 0, from the unit's start.
    pub(crate) offset: u32,
    /// The turn.
    pub(crate) turn: u32,
}

impl Turned {
    /// The place `i` in a unit that starts at a multiple of 64.
    #[inline(always)]
    pub(crate) fn of(self, unit: SharedAddr, i: u32) -> SharedAddr {
        // The turn lies in bits of its own.
        (unit + self.offset) ^ (i * LANE_BYTES)
    }
}
