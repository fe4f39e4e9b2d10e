//! `gemm_<format>` over packed units: `y = x · Wᵀ` for many tokens, with the weights as the few-token kernels read them.
//!
//! As in [`crate::gemm`], weight rows are the M side of `wgmma`, 64 to a warpgroup, and tokens its N side; but the weights go through
//! registers, so that each warp decodes its own 16 rows, a row block:
//!
//! ```text
//!   full  ◄── units and x land ── producer ◄────────────────────┐
//!     │                                                         │
//!     ▼    stage 0                    stage 1          …        │
//!   ring  [x | unit 0 | unit 1 | …]  [x | unit 0 | …]           │      a unit: 64 columns of a row block, as it was packed
//!     │                                                         │
//!     └──► warp i: fragments of half of unit i ── sums += fragments · x tileᵀ ── empty
//! ```
//!
//! * A unit's halves have registers of their own: while the tensor cores multiply one, the warp decodes the other.
//! * Some instances have CTAs that share x, as there.
//! * Every weight is exact when it is multiplied, exceptions too. So the format changes no bit of a result, and neither does reading
//!   weights by tensor copies.

use crate::format::{Bf16, Window12};
use crate::instances::{
    BF16_UNIT_GEMM, Gemm, UnitGemmArgs, WINDOW12_GEMM, for_each_bf16_unit_gemm, for_each_window12_gemm, same,
};
use crate::layout::{UNIT_K, units};
use crate::natural::Natural;
use crate::patches::Patched;
use crate::stages::{Place, Stages};
use crate::tile_sum::{Instance, Tile};
use cuda_std::shared::SharedAddr;
use cuda_std::tensor_map::TensorMap;
use cuda_std::wgmma::{self, Accumulator, WARPGROUP_WARPS};
use cuda_std::{bulk_copy, pdl, tensor_map_address, warp};

/// A compiled matrix product over packed units.
trait UnitInstance: Instance {
    /// The weights' format.
    type Weights: Natural + Patched;
    /// A thread's sums.
    type Sums: Accumulator;
}

/// Columns of a stage.
const COLUMNS: u32 = UNIT_K as u32;

/// The packed weights of a CTA's rows.
struct Units<I: UnitInstance> {
    ring: Stages<I>,
    /// Where the row block of this warp starts, or of warp 0 for the producer, and the bytes of a row block.
    weights: u64,
    row_bytes: u64,
    first_block: u32,
    last_block: u32,
}

impl<I: UnitInstance> Units<I> {
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

    /// Sends for the units of a chunk.
    #[inline(always)]
    unsafe fn fetch(&self, stage: u32, chunk: u32) {
        let from = self.weights + u64::from(chunk) * u64::from(Self::BYTES);
        for warp in 0..const { I::GEMM.warps as u32 } {
            let from = from + u64::from(self.row_block(warp)) * self.row_bytes;
            // SAFETY: the packed weights hold all groups of every row block; the stage is announced.
            unsafe { bulk_copy::global_to_shared(self.unit(stage, warp), from, Self::BYTES, self.ring.full(stage)) };
        }
    }
}

/// A warp of a multiplying warpgroup: the sums over chunks `first..last`.
#[inline(always)]
unsafe fn multiply<I: UnitInstance>(
    units: &Units<I>,
    format: I::Weights,
    (first, last): (u32, u32),
    warp: u32,
) -> I::Sums {
    let ring = &units.ring;
    let lane = I::Weights::lane();
    // SAFETY: the host gives the exceptions that the packer made.
    let mut patches = unsafe { format.patches(units.row_block(warp), first * COLUMNS) };
    let mut sums = I::Sums::zeros();
    let mut place = Place::START;
    let mut before = place.stage;
    for chunk in first..last {
        // SAFETY: the barriers were initialised before the CTA's first barrier.
        unsafe { ring.wait(place) };
        let unit = units.unit(place.stage, warp);
        let x = wgmma::tile_descriptor(ring.data(place.stage));
        let end = chunk * COLUMNS;
        // SAFETY: the loop is uniform over the warpgroup, whose warps all come here. The stage has landed, and stays until this warp
        // leaves it. The registers of a half are written again only when all groups but the other half's have been waited for.
        unsafe {
            let mut a = format.half::<0>(unit, lane);
            format.patch(&mut patches, &mut a, end + COLUMNS / 2);
            wgmma::fence();
            sums.multiply_fragment(a[0], x);
            sums.multiply_fragment(a[1], x + wgmma::STEP);
            wgmma::commit();
            wgmma::wait_for_all_but_one();
            if chunk != first {
                ring.leave(before);
            }
            let mut b = format.half::<1>(unit, lane);
            format.patch(&mut patches, &mut b, end + COLUMNS);
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
#[inline(always)]
unsafe fn gemm<I: UnitInstance>(x: u64, args: UnitGemmArgs, format: I::Weights) {
    const {
        assert!(I::GEMM.tokens() == I::Sums::COLUMNS && I::GEMM.warps % WARPGROUP_WARPS as usize == 0);
        assert!(I::GEMM.groups == 1 && COLUMNS == wgmma::TILE_COLUMNS);
    };
    pdl::launch_dependents();
    let warp = warp::warp_id();
    let tile = Tile::of_cta::<I>(&args.gemm);
    let (blocks, groups) = units(args.gemm.n as usize, args.gemm.k as usize);
    let range = tile.slice(groups as u32);
    let consumers = const { I::GEMM.warps as u32 };
    let units = Units::<I> {
        ring: Stages::new(),
        weights: args.weights,
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
    unsafe { units.ring.start(range, weights) };
    let sums = if warp == consumers {
        if warp::lane_id() == 0 {
            // SAFETY: the ring has been started for the same chunks.
            unsafe { units.ring.produce(range, weights, x) };
        }
        warp::sync_warp(u32::MAX);
        I::Sums::zeros()
    } else {
        // SAFETY: every warp of every multiplying warpgroup comes here.
        unsafe { multiply(&units, format, range, warp) }
    };
    // SAFETY: the whole CTA comes here, and all that was sent for has been multiplied. What the kernel ahead wrote is visible to all
    // behind the barrier that comes first, as the producer has waited for it.
    unsafe { tile.finish::<I>(sums.values()) };
}

const fn find(table: &[Gemm], name: &str) -> Gemm {
    let mut at = 0;
    while !same(table[at].name, name) {
        at += 1;
    }
    table[at]
}

macro_rules! entries {
    ($table:ident $weights:ty, $format:expr; $($name:ident: $w:literal $s:literal $g:literal $n:literal $($h:literal)?, $ctas:literal $regs:literal;)*) => { $(
        #[allow(non_camel_case_types)]
        enum $name {}
        impl Instance for $name {
            const GEMM: Gemm = find($table, stringify!($name));
        }
        impl UnitInstance for $name {
            type Weights = $weights;
            type Sums = [f32; 4 * $n];
        }
        #[unsafe(no_mangle)]
        unsafe extern "ptx-kernel" fn $name(_x: TensorMap, args: UnitGemmArgs) {
            // SAFETY: the host checks what it launches.
            unsafe { gemm::<$name>(tensor_map_address!($name, 0), args, $format(&args)) }
        }
    )* };
}
macro_rules! bf16_entries {
    ($($rows:tt)*) => { entries!(BF16_UNIT_GEMM Bf16<1>, |_: &UnitGemmArgs| Bf16; $($rows)*); };
}
for_each_bf16_unit_gemm!(bf16_entries);
macro_rules! window12_entries {
    ($($rows:tt)*) => {
        entries!(WINDOW12_GEMM Window12, |args: &UnitGemmArgs| Window12::new(args.palette, args.starts, args.exceptions); $($rows)*);
    };
}
for_each_window12_gemm!(window12_entries);
