//! How packed units become A fragments in the order of K, as `wgmma` wants them: it takes x from shared memory, where columns lie in
//! their order, and the units' order is another.
//!
//! Within 32 columns, lane t of a row's four has the eight columns from 8·t on ([`crate::layout`]), four pairs; it wants the t-th pair of
//! each of the four. Units lie in shared memory, so a lane reads its pairs where they are, for i = 0..4 from the columns of lane
//! i ^ [`Lane::turn`]. Read in the plain order of i, the eight rows of a unit would meet in a quarter of the banks. With turns that differ
//! between the lanes that would meet, each load has all banks, and two exchanges of registers put right what the turns changed.

use crate::format::{Bf16, INDICES, Weights, Window12, interleave};
use crate::layout::{BF16_STEP_BYTES, UNIT_STEPS, WINDOW12_PLANE_BYTES};
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{matrix, warp};

/// A lane's A fragments of half a unit: 32 columns, two steps.
pub(crate) type Half = [[u32; 4]; 2];

/// Lanes that share a row.
const QUAD: usize = 4;
/// Bytes between the places of two lanes of a quad.
const LANE_BYTES: u32 = 16;
/// Bytes between the places of two quads.
const QUAD_BYTES: u32 = QUAD as u32 * LANE_BYTES;

/// Formats whose units can be read in the order of K.
pub(crate) trait Natural: Weights {
    /// Where a lane reads.
    type Lane: Copy;

    /// The place of this lane.
    fn lane() -> Self::Lane;

    /// The fragments of half `HALF` of a unit, which starts at a multiple of 64. The whole warp calls it in straight line.
    unsafe fn half<const HALF: usize>(self, unit: SharedAddr, lane: Self::Lane) -> Half;
}

/// Undoes a turn: value i ^ `turn` comes to place i.
#[inline(always)]
fn turned<T: Copy>(values: [T; QUAD], turn: u32) -> [T; QUAD] {
    let [a, b, c, d] = values;
    let [a, b, c, d] = if turn & 1 != 0 { [b, a, d, c] } else { [a, b, c, d] };
    if turn & 2 != 0 { [c, d, a, b] } else { [a, b, c, d] }
}

/// The fragments of two steps of the pairs of four times eight columns, for rows g and g + 8.
#[inline(always)]
fn fragments(pairs: [[u32; 2]; QUAD]) -> Half {
    let [[a, b], [c, d], [e, f], [g, h]] = pairs;
    [[a, b, c, d], [e, f, g, h]]
}

/// Where a lane finds its pairs: in the place of lane i ^ `turn` of its quad, which [`Turned::of`] gives.
#[derive(Clone, Copy)]
pub(crate) struct Turned {
    offset: u32,
    turn: u32,
}

impl Turned {
    /// The place `i` in a unit that starts at a multiple of 64.
    #[inline(always)]
    fn of(self, unit: SharedAddr, i: u32) -> SharedAddr {
        // The turn lies in bits of its own.
        (unit + self.offset) ^ (i * LANE_BYTES)
    }
}

impl Natural for Bf16<1> {
    type Lane = Turned;

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
        // SAFETY: as the caller promises.
        let pair = |i: u32| unsafe { shared::load_v2(lane.of(unit, i) + half) };
        fragments(turned([pair(0), pair(1), pair(2), pair(3)], lane.turn))
    }
}

/// Where a lane of `window12` units reads.
#[derive(Clone, Copy)]
pub(crate) struct Window12Lane {
    /// The row of the matrices of low bytes that this lane gives the address of.
    low: u32,
    /// Its code words.
    code: Turned,
    /// Bits by which a code word is shifted for its indices, and for its signs.
    shifts: [u32; 2],
}

impl Natural for Window12 {
    type Lane = Window12Lane;

    #[inline(always)]
    fn lane() -> Window12Lane {
        let lane = warp::lane_id();
        let (g, t) = (lane / 4, lane % 4);
        // Matrix i holds the places of lane i ^ turn of each quad; its rows are 16 bytes, of which lane t gets the t-th pair.
        let (row, i) = (lane % 8, lane / 8);
        let low = row * QUAD_BYTES + (i ^ row / 2 % 4) * LANE_BYTES;
        let turn = g / 2 % 4;
        let step = t / 2 * 4;
        Window12Lane {
            low,
            code: Turned {
                offset: 2 * WINDOW12_PLANE_BYTES as u32 + g * QUAD_BYTES + turn * LANE_BYTES + step,
                turn,
            },
            shifts: [t % 2 * 16, t % 2 * 4],
        }
    }

    #[inline(always)]
    unsafe fn half<const HALF: usize>(self, unit: SharedAddr, lane: Window12Lane) -> Half {
        let plane = const { (HALF * WINDOW12_PLANE_BYTES) as u32 };
        let words = const { (HALF * UNIT_STEPS / 2 * 4) as u32 };
        // SAFETY: as the caller promises.
        let low = unsafe { matrix::load_x4(unit + lane.low + plane) };
        // SAFETY: as the caller promises.
        let code = |i: u32| unsafe { shared::load_u32(lane.code.of(unit, i) + words) };
        let codes = [code(0), code(1), code(2), code(3)];
        let (low, codes) = (turned(low, lane.code.turn), turned(codes, lane.code.turn));
        let [index, sign] = lane.shifts;
        fragments(core::array::from_fn(|i| {
            let high = self.high_bytes((codes[i] & INDICES) >> index, codes[i] << sign);
            interleave(low[i], high)
        }))
    }
}
