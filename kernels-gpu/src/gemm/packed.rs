//! `gemm_<format>` over packed units: `y = x · Wᵀ` for many tokens, with the weights as the few-token kernels read
//! them.
//!
//! As in [`super::tma`], weight rows are the M side of `wgmma`, 64 to a warpgroup, and tokens its N side; but the
//! weights go through registers, so that each warp decodes its own 16 rows, a row block:
//!
//! ```text
//!   full  ◄── units and x land ── producer ◄────────────────────┐
//!     │                                                         │
//!     ▼    stage 0                    stage 1          …        │
//!   ring  [x | unit 0 | unit 1 | …]  [x | unit 0 | …]           │   a unit: 64 columns of a row block, as packed
//!     │                                                         │
//!     └──► warp i: fragments of half of unit i ── sums += fragments · x tileᵀ ── empty
//! ```
//!
//! * A unit's halves have registers of their own: while the tensor cores multiply one, the warp decodes the other.
//! * Some instances multicast x, as there.
//! * Every weight is exact when it is multiplied, exceptions too. So the format changes no bit of a result, and neither
//!   does reading weights by TMA tile loads.
//!
//! PTX ISA: §9.7.15 `wgmma`, with the first operand from registers; §9.7.9.25 `cp.async.bulk`; §9.7.9.27
//! `cp.async.bulk.tensor`.

use super::epilogue::{Instance, Tile};
use super::pipeline::{Place, Stages};
use crate::args::GemmArgs;
use crate::formats::fragments::KOrdered;
use crate::layout::{UNIT_K, units};
use cuda_std::shared::SharedAddr;
use cuda_std::wgmma::{self, Accumulator, WARPGROUP_WARPS};
use cuda_std::{bulk_copy, pdl, warp};

/// A compiled matrix product over packed units.
pub(crate) trait PackedInstance: Instance {
    /// The weights' format.
    type Weights: KOrdered;
    /// A thread's sums.
    type Sums: Accumulator;
}

/// Columns of a stage.
const COLUMNS: u32 = UNIT_K as u32;

/// The packed weights of a CTA's rows.
struct Units<I: PackedInstance> {
    ring: Stages<I>,
    /// Where the row block of this warp starts, or of warp 0 for the producer, and the bytes of a row block.
    weights: u64,
    row_bytes: u64,
    first_block: u32,
    last_block: u32,
}

impl<I: PackedInstance> Units<I> {
    const BYTES: u32 = (I::GEMM.weight_tile_bytes() / I::GEMM.warps) as u32;
    const X_BYTES: u32 = I::GEMM.x_tile_bytes() as u32;

    /// The row block of a warp. Those beyond the last are read as the last, and not stored.
    #[inline(always)]
    fn row_block(&self, warp: u32) -> u32 {
        (self.first_block + warp).min(self.last_block)
    }

    /// Where a warp's unit lies in a stage.
    #[inline(always)]
    fn unit(&self, stage: u32, warp: u32) -> SharedAddr {
        self.ring.data(stage) + Self::X_BYTES + warp * Self::BYTES
    }

    /// Starts the bulk copies of a chunk's units.
    ///
    /// # Safety
    ///
    /// The stage is announced, its readers have left it, and there is such a chunk.
    #[inline(always)]
    unsafe fn fetch(&self, stage: u32, chunk: u32) {
        let first = self.weights + u64::from(self.row_block(0)) * self.row_bytes;
        let mut from = first + u64::from(chunk) * u64::from(Self::BYTES);
        for warp in 0..const { I::GEMM.warps as u32 } {
            // SAFETY: the packed weights hold all groups of every row block; the stage is announced.
            unsafe { bulk_copy::global_to_shared(self.unit(stage, warp), from, Self::BYTES, self.ring.full(stage)) };
            // As `row_block` has it, without a product for each.
            if self.first_block + warp < self.last_block {
                from += self.row_bytes;
            }
        }
    }
}

/// A warp of a multiplying warpgroup: the sums over chunks `first..last`.
///
/// # Safety
///
/// The ring has been started, and is filled for the same chunks. All warps of a multiplying warpgroup call it.
#[inline(always)]
unsafe fn multiply<I: PackedInstance>(
    units: &Units<I>,
    format: I::Weights,
    (first, last): (u32, u32),
    warp: u32,
) -> I::Sums {
    let ring = &units.ring;
    let lane = I::Weights::lane();
    // SAFETY: the host gives the exceptions that the packer made.
    let mut walk = unsafe { format.walk(units.row_block(warp), first * COLUMNS) };
    let mut sums = I::Sums::zeros();
    let mut place = Place::START;
    let mut before = place.stage;
    for chunk in first..last {
        // SAFETY: the barriers were initialised before the CTA's first barrier.
        unsafe { ring.wait(place) };
        let unit = units.unit(place.stage, warp);
        let x = wgmma::tile_descriptor(ring.data(place.stage));
        let end = chunk * COLUMNS;
        // SAFETY: the loop is uniform over the warpgroup, whose warps all come here. The stage has landed, and stays
        // until this warp leaves it. The registers of a half are written again only when all groups but the other
        // half's have been waited for.
        unsafe {
            let mut a = format.half::<0>(unit, lane);
            format.patch(&mut walk, &mut a, end + COLUMNS / 2);
            wgmma::fence();
            sums.multiply_fragment(a[0], x);
            sums.multiply_fragment(a[1], x + wgmma::STEP);
            wgmma::commit();
            wgmma::wait_for_all_but_one();
            if chunk != first {
                ring.leave(before);
            }
            let mut b = format.half::<1>(unit, lane);
            format.patch(&mut walk, &mut b, end + COLUMNS);
            wgmma::fence();
            sums.multiply_fragment(b[0], x + 2 * wgmma::STEP);
            sums.multiply_fragment(b[1], x + 3 * wgmma::STEP);
            wgmma::commit();
            wgmma::wait_for_all_but_one();
        }
        before = place.stage;
        place = place.next(Stages::<I>::COUNT);
    }
    // Nobody waits for the last stage to be empty.
    sums.wait();
    sums
}

/// One CTA.
///
/// # Safety
///
/// The kernel is launched with the grid, block, cluster and shared memory of its row; `x` is the map of x, with its
/// box; `weights`, the arguments and what the format takes besides are what the host has checked, and no launch that
/// may still run writes the weights.
#[inline(always)]
pub(crate) unsafe fn packed_gemm<I: PackedInstance>(x: u64, weights: u64, args: GemmArgs, format: I::Weights) {
    const {
        assert!(I::GEMM.tokens() == I::Sums::COLUMNS && I::GEMM.warps % WARPGROUP_WARPS as usize == 0);
        assert!(I::GEMM.groups == 1 && COLUMNS == wgmma::TILE_COLUMNS);
    };
    pdl::launch_dependents();
    let warp = warp::uniform_warp_id();
    let tile = Tile::of_cta::<I>(&args);
    let (blocks, groups) = units(args.n as usize, args.k as usize);
    let range = tile.slice();
    let consumers = const { I::GEMM.warps as u32 };
    let units = Units::<I> {
        ring: Stages::new(),
        weights,
        row_bytes: groups as u64 * u64::from(Units::<I>::BYTES),
        first_block: tile.first_row / const { crate::layout::UNIT_ROWS as u32 },
        last_block: blocks as u32 - 1,
    };
    // SAFETY: the units are what the packer made.
    let weights = |stage, chunk| unsafe { units.fetch(stage, chunk) };
    let x = |stage, chunk| {
        let at = [chunk * COLUMNS, tile.first_token];
        // SAFETY: the map is that of x, with this instance's box.
        unsafe { units.ring.fetch_tokens(stage, units.ring.data(stage), x, at) };
    };
    // SAFETY: the whole CTA comes here.
    unsafe { units.ring.start(warp, range, weights) };
    let sums = if warp == consumers {
        if warp::elect(u32::MAX) {
            // SAFETY: the ring has been started for the same chunks.
            unsafe { units.ring.produce(range, weights, x) };
        }
        warp::sync_warp(u32::MAX);
        I::Sums::zeros()
    } else {
        // SAFETY: every warp of every multiplying warpgroup comes here.
        unsafe { multiply(&units, format, range, warp) }
    };
    // SAFETY: the whole CTA comes here, and all loads have landed and been multiplied. What the preceding kernel wrote
    // is visible to all behind the barrier that comes first, as the producer has waited for it.
    unsafe { tile.finish::<I>(sums.values()) };
}

/// Defines the entries of a list of matrix products over packed units: what they are given, the weights' format, and
/// how the units' address, the common arguments and the format's value are made of that.
macro_rules! packed_entries {
    (|$args:ident: $type:ty| $weights:ty, ($units:expr, $gemm:expr, $decoder:expr);
        $prefix:literal $format:ident $($family:ident {
            $($w:literal $s:literal $g:literal $n:literal $($h:literal)?, $ctas:literal $regs:literal;)*
        })*
    ) => { $($(
        const _: () = {
            enum Row {}
            impl $crate::gemm::Instance for Row {
                const GEMM: $crate::instances::Gemm = $crate::instances::packed_row!(
                    $prefix $format $family; $w $s $g $n $($h)?, $ctas $regs
                );
            }
            impl $crate::gemm::PackedInstance for Row {
                type Weights = $weights;
                type Sums = [f32; 4 * $n];
            }
            /// # Safety
            ///
            /// The launch is what the row and [`crate::args`] say; the host checks it.
            #[unsafe(export_name = $crate::instances::gemm_name!($prefix $w $s $g $n $($h)?))]
            unsafe extern "ptx-kernel" fn entry(_x: cuda_std::tensor_map::TensorMap, $args: $type) {
                let x = cuda_std::tensor_map_address!($crate::instances::gemm_name!($prefix $w $s $g $n $($h)?), 0);
                // SAFETY: the host checks what it launches.
                unsafe { $crate::gemm::packed_gemm::<Row>(x, $units, $gemm, $decoder) }
            }
        };
    )*)* };
}
pub(crate) use packed_entries;
