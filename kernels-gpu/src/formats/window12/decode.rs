//! How `window12` units become fragments: the palette's high bytes, looked up by the code words, beside the low bytes
//! as they are (PTX ISA §9.7.9.7 `prmt`, §9.7.14.5.15 `ldmatrix`).

use super::WINDOW12_PLANE_BYTES;
use super::device::Window12;
use crate::formats::fragments::{Fragments, Half, LANE_BYTES, QUAD_BYTES, Turned, in_k_order, turned};
use crate::layout::UNIT_STEPS;
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{bits, matrix, warp};

/// The palette indices of a code word; the other bits are signs.
const INDICES: u32 = 0x7777_7777;

impl Window12 {
    /// Four high bytes: palette entries by the four lowest nibbles of `indices`, and the signs at the tops of the bytes
    /// of `signs`.
    #[inline(always)]
    fn high_bytes(self, indices: u32, signs: u32) -> u32 {
        const SIGNS: u32 = 0x8080_8080;
        bits::prmt(self.palette[0], self.palette[1], indices) | signs & SIGNS
    }

    /// Eight weights of a step from their low bytes and their code word.
    #[inline(always)]
    fn decode(self, low: [u32; 2], code: u32) -> [u32; 4] {
        let indices = code & INDICES;
        let high = [
            self.high_bytes(indices, code),
            self.high_bytes(indices >> 16, code << 4),
        ];
        let ([a, b], [c, d]) = (interleave(low[0], high[0]), interleave(low[1], high[1]));
        [a, b, c, d]
    }

    /// [`Weights::fragments`](crate::formats::fragments::Weights::fragments).
    ///
    /// # Safety
    ///
    /// `unit` is where a whole unit has landed, plus 16 bytes per lane.
    #[inline(always)]
    pub(super) unsafe fn unit_fragments(self, unit: SharedAddr) -> Fragments {
        // SAFETY: the unit has landed, and holds three planes of 16 bytes per lane.
        let plane = |p: usize| unsafe { shared::load_v4(unit + (p * WINDOW12_PLANE_BYTES) as u32) };
        let ([a, b, c, d], [e, f, g, h], codes) = (plane(0), plane(1), plane(2));
        [
            self.decode([a, b], codes[0]),
            self.decode([c, d], codes[1]),
            self.decode([e, f], codes[2]),
            self.decode([g, h], codes[3]),
        ]
    }

    /// [`KOrdered::half`](crate::formats::fragments::KOrdered::half).
    ///
    /// # Safety
    ///
    /// At `unit`, a multiple of 64, a whole unit has landed. The whole warp calls it in straight line.
    #[inline(always)]
    pub(super) unsafe fn half_in_k_order<const HALF: usize>(self, unit: SharedAddr, lane: Window12Lane) -> Half {
        let plane = const { (HALF * WINDOW12_PLANE_BYTES) as u32 };
        let words = const { (HALF * UNIT_STEPS / 2 * 4) as u32 };
        // SAFETY: the unit has landed, and its plane of low bytes has a row for every lane; the warp is together.
        let low = unsafe { matrix::load_x4(unit + lane.low + plane) };
        // SAFETY: the unit has landed, and its plane of code words has four for every lane.
        let code = |i: u32| unsafe { shared::load_u32(lane.code.of(unit, i) + words) };
        let codes = [code(0), code(1), code(2), code(3)];
        let (low, codes) = (turned(low, lane.code.turn), turned(codes, lane.code.turn));
        let [index, sign] = lane.shifts;
        in_k_order(core::array::from_fn(|i| {
            let high = self.high_bytes((codes[i] & INDICES) >> index, codes[i] << sign);
            interleave(low[i], high)
        }))
    }
}

/// Four weights of their low and their high bytes.
#[inline(always)]
fn interleave(low: u32, high: u32) -> [u32; 2] {
    [bits::prmt(low, high, 0x5140), bits::prmt(low, high, 0x7362)]
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

impl Window12Lane {
    /// The place of this lane.
    #[inline(always)]
    pub(super) fn of_this_lane() -> Self {
        let lane = warp::lane_id();
        let (g, t) = (lane / 4, lane % 4);
        // Matrix i holds the places of lane i ^ turn of each quad; its rows are 16 bytes, of which lane t gets the t-th
        // pair.
        let (row, i) = (lane % 8, lane / 8);
        let low = row * QUAD_BYTES + (i ^ (row / 2 % 4)) * LANE_BYTES;
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
}
