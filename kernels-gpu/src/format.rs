//! How the weights of a format become the A fragments of the tensor cores.

use crate::instances::{GemvArgs, Window12Args};
use crate::layout::{BF16_STEP_BYTES, TOKEN_BLOCK, UNIT_STEPS, WINDOW12_PLANE_BYTES};
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{bits, global, warp};

/// A lane's A fragments of one unit, step by step.
pub(crate) type Fragments = [[u32; 4]; UNIT_STEPS];

/// A format of weights.
pub(crate) trait Weights: Copy {
    /// The lane's fragments of a unit; `unit` is where the unit lies, plus 16 bytes per lane.
    unsafe fn fragments(self, unit: SharedAddr) -> Fragments;

    /// Adds what the units leave out, as exact FP32 products: the part of worker `share.0` of `share.1` of the row blocks
    /// from `first_unit` on.
    unsafe fn exceptions<const R: usize, const N: usize>(
        self,
        acc: &mut [[[f32; 4]; N]; R],
        first_unit: u32,
        units: u32,
        share: (u32, u32),
        first_token: u32,
        args: &GemvArgs,
    );
}

/// BF16 weights: a step after the other, 16 bytes per lane.
#[derive(Clone, Copy)]
pub(crate) struct Bf16;

impl Weights for Bf16 {
    #[inline(always)]
    unsafe fn fragments(self, unit: SharedAddr) -> Fragments {
        // SAFETY: as the caller promises.
        let load = |step: usize| unsafe { shared::load_v4(unit + (step * BF16_STEP_BYTES) as u32) };
        [load(0), load(1), load(2), load(3)]
    }

    #[inline(always)]
    unsafe fn exceptions<const R: usize, const N: usize>(
        self,
        _: &mut [[[f32; 4]; N]; R],
        _: u32,
        _: u32,
        _: (u32, u32),
        _: u32,
        _: &GemvArgs,
    ) {
    }
}

/// `window12` weights: a palette of high bytes, looked up by the code words, and where the exceptions lie.
#[derive(Clone, Copy)]
pub(crate) struct Window12 {
    palette: [u32; 2],
    starts: u64,
    exceptions: u64,
}

/// Bytes of a start and of an exception.
const ENTRY: u64 = 8;

impl Window12 {
    #[inline(always)]
    pub(crate) fn new(args: &Window12Args) -> Self {
        Window12 {
            palette: args.palette,
            starts: args.starts,
            exceptions: args.exceptions,
        }
    }

    /// Eight weights of a step from their low bytes and their code word.
    #[inline(always)]
    fn decode(self, low: [u32; 2], code: u32) -> [u32; 4] {
        const INDICES: u32 = 0x7777_7777;
        const SIGNS: u32 = 0x8080_8080;
        let [table_low, table_high] = self.palette;
        let indices = code & INDICES;
        let high = [
            bits::prmt(table_low, table_high, indices) | code & SIGNS,
            bits::prmt(table_low, table_high, indices >> 16) | code << 4 & SIGNS,
        ];
        // Interleaves low and high bytes: of weights 0 and 1, and of 2 and 3.
        let pair = |half: usize, selector: u32| bits::prmt(low[half], high[half], selector);
        [pair(0, 0x5140), pair(0, 0x7362), pair(1, 0x5140), pair(1, 0x7362)]
    }
}

impl Weights for Window12 {
    #[inline(always)]
    unsafe fn fragments(self, unit: SharedAddr) -> Fragments {
        // SAFETY: as the caller promises.
        let plane = |p: usize| unsafe { shared::load_v4(unit + (p * WINDOW12_PLANE_BYTES) as u32) };
        let ([a, b, c, d], [e, f, g, h], codes) = (plane(0), plane(1), plane(2));
        [
            self.decode([a, b], codes[0]),
            self.decode([c, d], codes[1]),
            self.decode([e, f], codes[2]),
            self.decode([g, h], codes[3]),
        ]
    }

    #[inline(always)]
    unsafe fn exceptions<const R: usize, const N: usize>(
        self,
        acc: &mut [[[f32; 4]; N]; R],
        first_unit: u32,
        units: u32,
        (worker, workers): (u32, u32),
        first_token: u32,
        args: &GemvArgs,
    ) {
        // SAFETY: the packer gives a start per row block and one for the end.
        let start = |unit: u32| unsafe { global::load_u64(self.starts + u64::from(unit.min(units)) * ENTRY) };
        // Boundaries between the row blocks of this CTA.
        let begins: [u64; R] = core::array::from_fn(|r| start(first_unit + r as u32));
        let (begin, end) = (begins[0], start(first_unit + R as u32));
        let bound = |i: u32| begin + (end - begin) * u64::from(i) / u64::from(workers);
        let (mut at, last) = (bound(worker), bound(worker + 1));
        let lane = warp::lane_id();
        let (g, t) = (lane / 4, lane % 4);
        while at < last {
            // SAFETY: within the exceptions of this CTA's row blocks.
            let entry = unsafe { global::load_u64(self.exceptions + at * ENTRY) };
            let weight = f32::from_bits((entry as u32) << 16);
            let (row, column) = ((entry >> 16) as u32 & 0xffff, (entry >> 32) as u32);
            let block = begins[1..]
                .iter()
                .fold(0, |block, &begin| block + u32::from(at >= begin));
            for q in 0..N {
                for e in 0..2 {
                    let token = first_token + (TOKEN_BLOCK * q) as u32 + 2 * t + e as u32;
                    let address = args.x + (u64::from(token) * u64::from(args.k) + u64::from(column)) * 2;
                    // SAFETY: predicated on the token; the packer keeps columns below k.
                    let x = unsafe { global::load_u16_or_zero(address, token < args.m) };
                    let product = weight * f32::from_bits(x << 16);
                    for (r, acc) in acc.iter_mut().enumerate() {
                        for h in 0..2 {
                            let sum = &mut acc[q][2 * h + e];
                            let mine = block == r as u32 && row == 8 * h as u32 + g;
                            *sum = if mine { *sum + product } else { *sum };
                        }
                    }
                }
            }
            at += 1;
        }
    }
}
