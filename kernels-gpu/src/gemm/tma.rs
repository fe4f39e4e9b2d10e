//! `gemm_<format>` and `route_<format>`: `y = x · Wᵀ` for many tokens, on the tensor cores of whole warpgroups.
//!
//! Weight rows are the M side of `wgmma`, 64 to a warpgroup, and tokens its N side. One warp starts the TMA tile loads
//! of 64 columns, the others multiply:
//!
//! ```text
//!   full  ◄── tiles land ── producer ◄──────────────────────────┐
//!     │                                                         │
//!     ▼    stage 0          stage 1          …                  │
//!   ring  [W 0 | W 1 | x]  [W 0 | W 1 | x]       rows of 128 bytes, swizzled; a weight tile per term
//!     │                                                         │
//!     └──► warpgroups: sums += W tile · x tileᵀ, every term ── empty
//! ```
//!
//! * All terms of a weight meet the same x tile and go into the same sums.
//! * K is split over the CTAs of a cluster and the slices of the grid; [`super::epilogue`] adds the slices.
//! * Some instances multicast x to CTAs with a row tile each: every tile of x comes into all of them by one read
//!   ([`super::pipeline`]).
//! * The loads of the weights start before `griddepcontrol.wait`, as in [`crate::gemv`]; those of x come after.
//!
//! PTX ISA: §9.7.15 `wgmma`, with both operands from shared memory; §9.7.9.27 `cp.async.bulk.tensor`; §9.7.13.13
//! `griddepcontrol`.

use super::epilogue::{Instance, Tile};
use super::pipeline::{Place, Stages};
use crate::args::GemmArgs;
use crate::instances::{Gemm, Loads, for_each_gemm, gemm_name, gemm_row};
use cuda_std::shared::SharedAddr;
use cuda_std::tensor_map::{self, TensorMap};
use cuda_std::wgmma::{self, Accumulator, WARPGROUP_WARPS};
use cuda_std::{pdl, tensor_map_address, warp};

/// A compiled matrix product by TMA tile loads.
pub(super) trait TmaInstance: Instance {
    /// A thread's sums.
    type Sums: Accumulator;
}

/// Columns of a group.
const COLUMNS: u32 = wgmma::TILE_COLUMNS;
/// `wgmma`s that a group of columns takes.
const STEPS: u64 = COLUMNS as u64 / 16;

impl<I: TmaInstance> Stages<I> {
    const GROUPS: u32 = I::GEMM.groups as u32;
    const TERMS: u32 = I::GEMM.terms as u32;
    const WEIGHT_BYTES: u32 = I::GEMM.weight_tile_bytes() as u32;
    const GROUP_BYTES: u32 = Self::BYTES / Self::GROUPS;

    /// The weights' tile of a group and term; x's stands where the term after the last would.
    #[inline(always)]
    fn tile(&self, stage: u32, group: u32, term: u32) -> SharedAddr {
        self.data(stage) + group * Self::GROUP_BYTES + term * Self::WEIGHT_BYTES
    }

    /// Starts the TMA tile loads of a stage's weights: groups from `chunk · GROUPS` on.
    ///
    /// # Safety
    ///
    /// `map` is that of the weights, with this instance's box. The stage is announced, and its readers have left it.
    #[inline(always)]
    unsafe fn fetch_weights(&self, stage: u32, map: u64, chunk: u32, first_row: u32) {
        for group in 0..Self::GROUPS {
            for term in 0..Self::TERMS {
                let at = [(chunk * Self::GROUPS + group) * COLUMNS, first_row, term];
                // SAFETY: the stage is empty and its bytes are announced; the box is the tile.
                unsafe { tensor_map::load_3d(self.tile(stage, group, term), map, at, self.full(stage)) };
            }
        }
    }

    /// Starts the TMA tile loads of a stage's part of x.
    ///
    /// # Safety
    ///
    /// `map` is that of x, with this instance's box. The stage is announced with its weights, and its readers have left
    /// it.
    #[inline(always)]
    unsafe fn fetch_x(&self, stage: u32, map: u64, chunk: u32, first_token: u32) {
        for group in 0..Self::GROUPS {
            let at = [(chunk * Self::GROUPS + group) * COLUMNS, first_token];
            // SAFETY: the map is that of x.
            unsafe { self.fetch_tokens(stage, self.tile(stage, group, Self::TERMS), map, at) };
        }
    }
}

/// The tensor maps of a launch.
#[derive(Clone, Copy)]
struct Maps {
    x: u64,
    weights: u64,
}

/// A warp of a multiplying warpgroup: the sums over chunks `first..last`.
///
/// # Safety
///
/// The ring has been started, and is filled for the same chunks. All warps of a multiplying warpgroup call it.
#[inline(always)]
unsafe fn multiply<I: TmaInstance>(ring: &Stages<I>, (first, last): (u32, u32), warp: u32) -> I::Sums {
    let rows = warp / WARPGROUP_WARPS * const { wgmma::ROWS * I::GEMM.row_bytes() as u32 };
    // SAFETY: called once this warp's `wgmma`s on the stage have been waited for.
    let leave = |stage: u32| unsafe { ring.leave(stage) };
    let mut place = Place::START;
    let mut part = |from: u32, to: u32| {
        let mut sums = I::Sums::zeros();
        let mut before = place.stage;
        for chunk in from..to {
            // SAFETY: the barriers were initialised before the CTA's first barrier. The loop is uniform over the
            // warpgroup, whose warps all come here.
            unsafe { ring.wait(place) };
            wgmma::fence();
            for group in 0..Stages::<I>::GROUPS {
                let x = wgmma::tile_descriptor(ring.tile(place.stage, group, Stages::<I>::TERMS));
                for term in 0..Stages::<I>::TERMS {
                    let weights = wgmma::tile_descriptor(ring.tile(place.stage, group, term) + rows);
                    for step in 0..STEPS {
                        // SAFETY: uniform over the warpgroup, behind its fence; the tiles have landed, and stay until
                        // this warp leaves them.
                        unsafe { sums.multiply(weights + step * wgmma::STEP, x + step * wgmma::STEP) };
                    }
                }
            }
            wgmma::commit();
            wgmma::wait_for_all_but_one();
            if chunk != from {
                leave(before);
            }
            before = place.stage;
            place = place.next(Stages::<I>::COUNT);
        }
        sums.wait();
        // Nobody waits for the last stages of all to be empty.
        if from != to && to != last {
            leave(before);
        }
        sums
    };
    let most = const {
        if I::GEMM.stages_per_part() > u32::MAX as usize {
            0
        } else {
            I::GEMM.stages_per_part() as u32
        }
    };
    if most == 0 {
        return part(first, last);
    }
    let mut sums = I::Sums::zeros();
    let mut at = first;
    while at < last {
        let end = last.min(at + most);
        sums.add(&part(at, end));
        at = end;
    }
    sums
}

/// One CTA.
///
/// # Safety
///
/// The kernel is launched with the grid, block, cluster and shared memory of its row; the maps are those of x and of
/// the weights, with its boxes; the arguments are what the host has checked, and no launch that may still run writes
/// the weights.
#[inline(always)]
unsafe fn gemm<I: TmaInstance>(maps: Maps, args: GemmArgs) {
    const { assert!(I::GEMM.tokens() == I::Sums::COLUMNS && I::GEMM.warps % WARPGROUP_WARPS as usize == 0) };
    pdl::launch_dependents();
    let warp = warp::uniform_warp_id();
    let ring = Stages::<I>::new();
    let tile = Tile::of_cta::<I>(&args);
    tile.prepare::<I>();
    let range = tile.slice();
    let consumers = const { I::GEMM.warps as u32 };
    // SAFETY: the stage is announced and empty, and the map is that of the weights, with this instance's box.
    let weights = |stage, chunk| unsafe { ring.fetch_weights(stage, maps.weights, chunk, tile.first_row) };
    // SAFETY: the stage is announced with its weights, and the map is that of x, with this instance's box.
    let x = |stage, chunk| unsafe { ring.fetch_x(stage, maps.x, chunk, tile.first_token) };
    // SAFETY: the whole CTA comes here.
    unsafe { ring.start(warp, range, weights) };
    let sums = if warp == consumers {
        if warp::elect(u32::MAX) {
            // SAFETY: the ring has been started for the same chunks.
            unsafe { ring.produce(range, weights, x) };
        }
        warp::sync_warp(u32::MAX);
        I::Sums::zeros()
    } else {
        // SAFETY: every warp of every multiplying warpgroup comes here.
        unsafe { multiply(&ring, range, warp) }
    };
    // SAFETY: the whole CTA comes here, and all loads have landed and been multiplied. What the preceding kernel wrote
    // is visible to all behind the barrier that comes first, as the producer has waited for it.
    unsafe { tile.finish::<I>(sums.values()) };
}

macro_rules! entries {
    ($($prefix:literal $op:ident $terms:literal $family:ident {
        $($w:literal $s:literal $g:literal $n:literal $($h:literal)?, $ctas:literal $regs:literal;)*
    })*) => { $($(
        const _: () = {
            enum Row {}
            impl Instance for Row {
                const GEMM: Gemm = gemm_row!($prefix $op $terms $family Loads::Tma; $w $s $g $n $($h)?, $ctas $regs);
            }
            impl TmaInstance for Row {
                type Sums = [f32; 4 * $n];
            }
            /// # Safety
            ///
            /// The launch is what the row and [`crate::args`] say; the host checks it.
            #[unsafe(export_name = gemm_name!($prefix $w $s $g $n $($h)?))]
            unsafe extern "ptx-kernel" fn entry(_x: TensorMap, _weights: TensorMap, args: GemmArgs) {
                let maps = Maps {
                    x: tensor_map_address!(gemm_name!($prefix $w $s $g $n $($h)?), 0),
                    weights: tensor_map_address!(gemm_name!($prefix $w $s $g $n $($h)?), 1),
                };
                // SAFETY: the host checks what it launches.
                unsafe { gemm::<Row>(maps, args) }
            }
        };
    )*)* };
}
for_each_gemm!(entries);
