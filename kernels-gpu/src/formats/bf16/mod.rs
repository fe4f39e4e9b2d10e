//! BF16 weights, single ones and sums of two or three terms.
//!
//! A unit holds a term after the other, in each a step after the other, 16 bytes per lane ([`crate::layout`]): they are
//! the fragments of `mma.m16n8k16` as they lie.

use super::{Decoding, Facts};
use crate::instances::Counts;
use crate::layout::{UNIT_STEPS, UNIT_WEIGHTS};

mod instances;

pub use instances::{BF16_PACKED_GEMM, GEMV_BF16, ROUTE_BF16, ROUTE_BF16X2, ROUTE_BF16X3};

/// Bytes of a BF16 unit.
pub const BF16_UNIT_BYTES: usize = UNIT_WEIGHTS * 2;
/// Bytes of one step of a BF16 unit: 16 per lane.
pub const BF16_STEP_BYTES: usize = BF16_UNIT_BYTES / UNIT_STEPS;

/// The facts of weights that are sums of so many terms.
pub(super) const fn facts(name: &'static str, terms: usize) -> Facts {
    Facts {
        name,
        terms,
        unit_bytes: terms * BF16_UNIT_BYTES,
        few_token_counts: |_| Counts::NONE,
        packed_counts: Counts::NONE,
        few_token_decoding: Decoding {
            at_least: &[],
            integers: None,
        },
        // Pairs are read where they lie, and exchanged between registers.
        packed_decoding: Decoding {
            at_least: &[("LDS.64", 2 * UNIT_STEPS)],
            integers: Some((20 * UNIT_STEPS, 0)),
        },
    }
}

#[cfg(target_arch = "nvptx64")]
mod device {
    use super::instances::{
        for_each_bf16_packed_gemm, for_each_gemv_bf16, for_each_route_bf16, for_each_route_bf16x2,
        for_each_route_bf16x3,
    };
    use super::{BF16_STEP_BYTES, BF16_UNIT_BYTES};
    use crate::args::{GemvArgs, PackedGemmArgs, RouteArgs};
    use crate::formats::fragments::{
        Fragments, Half, KOrdered, LANE_BYTES, QUAD_BYTES, Turned, Weights, in_k_order, turned,
    };
    use crate::gemm::packed_entries;
    use crate::gemv::{Route, Store, gemv_entries};
    use crate::layout::UNIT_STEPS;
    use cuda_std::shared::{self, SharedAddr};
    use cuda_std::warp;

    /// Weights that are sums of BF16 terms.
    #[derive(Clone, Copy)]
    pub(crate) struct Bf16<const TERMS: usize>;

    impl<const TERMS: usize> Weights for Bf16<TERMS> {
        type Place = ();
        type Share = ();
        type Pending<const N: usize> = ();
        const TERMS: usize = TERMS;

        #[inline(always)]
        unsafe fn fragments(self, unit: SharedAddr, term: usize) -> Fragments {
            // SAFETY: the unit has landed, and the terms and steps lie inside it.
            let load = |step: usize| unsafe {
                shared::load_v4(unit + (term * BF16_UNIT_BYTES + step * BF16_STEP_BYTES) as u32)
            };
            [load(0), load(1), load(2), load(3)]
        }

        #[inline(always)]
        unsafe fn find<const R: usize>(self, _: u32) {}

        #[inline(always)]
        unsafe fn share(self, _: (), _: (u32, u32)) {}

        #[inline(always)]
        unsafe fn start_exceptions<const N: usize>(self, _: &(), _: u32, _: &GemvArgs) {}

        #[inline(always)]
        unsafe fn add_exceptions<const R: usize, const N: usize>(
            self,
            _: (),
            _: (),
            _: &mut [[[f32; 4]; N]; R],
            _: u32,
            _: &GemvArgs,
        ) {
        }
    }

    impl KOrdered for Bf16<1> {
        type Lane = Turned;
        type Walk = ();

        #[inline(always)]
        fn lane() -> Turned {
            let (g, t) = (warp::lane_id() / 4, warp::lane_id() % 4);
            // Sixteen lanes load at a time. Of these, two rows and two steps meet.
            let turn = g / 2 % 2 * 2 + t / 2;
            let pair = t / 2 * BF16_STEP_BYTES as u32 + t % 2 * (LANE_BYTES / 2);
            Turned {
                offset: g * QUAD_BYTES + turn * LANE_BYTES + pair,
                turn,
            }
        }

        #[inline(always)]
        unsafe fn half<const HALF: usize>(self, unit: SharedAddr, lane: Turned) -> Half {
            let half = const { (HALF * UNIT_STEPS / 2 * BF16_STEP_BYTES) as u32 };
            // SAFETY: the unit has landed, and the place lies inside its half.
            let pair = |i: u32| unsafe { shared::load_v2(lane.of(unit, i) + half) };
            in_k_order(turned([pair(0), pair(1), pair(2), pair(3)], lane.turn))
        }

        #[inline(always)]
        unsafe fn walk(self, _: u32, _: u32) {}

        #[inline(always)]
        unsafe fn patch(self, (): &mut (), _: &mut Half, _: u32) {}
    }

    for_each_gemv_bf16!(gemv_entries |args: GemvArgs| Bf16<1>, (args, Bf16, Store););
    for_each_route_bf16!(
        gemv_entries |args: RouteArgs| Bf16<1>,
        (args.gemv, Bf16, Route { split_k: args.split_k });
    );
    for_each_route_bf16x2!(
        gemv_entries |args: RouteArgs| Bf16<2>,
        (args.gemv, Bf16, Route { split_k: args.split_k });
    );
    for_each_route_bf16x3!(
        gemv_entries |args: RouteArgs| Bf16<3>,
        (args.gemv, Bf16, Route { split_k: args.split_k });
    );
    for_each_bf16_packed_gemm!(packed_entries |args: PackedGemmArgs| Bf16<1>, (args.weights, args.gemm, Bf16););
}
