//! How the weights of a format become the A fragments of the tensor cores.

use crate::instances::GemvArgs;
use crate::layout::{BF16_STEP_BYTES, BF16_UNIT_BYTES, TOKEN_BLOCK, UNIT_STEPS, WINDOW12_PLANE_BYTES};
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{bits, global, warp};

/// A lane's A fragments of one unit, step by step.
pub(crate) type Fragments = [[u32; 4]; UNIT_STEPS];

/// A format of weights.
pub(crate) trait Weights: Copy {
    /// What is read ahead of the units: see [`Weights::ahead`].
    type Ahead: Copy;
    /// Terms that add up to a weight.
    const TERMS: usize;

    /// The lane's fragments of one term of a unit; `unit` is where the unit lies, plus 16 bytes per lane.
    unsafe fn fragments(self, unit: SharedAddr, term: usize) -> Fragments;

    /// Starts on what the units leave out: the part of worker `share.0` of `share.1` of the `R` row blocks from `first_unit`
    /// on. Reads weights only, so it may come before the kernel ahead has ended.
    unsafe fn ahead<const R: usize>(self, first_unit: u32, share: (u32, u32)) -> Self::Ahead;

    /// Adds what the units leave out, as exact FP32 products.
    unsafe fn exceptions<const R: usize, const N: usize>(
        self,
        ahead: Self::Ahead,
        acc: &mut [[[f32; 4]; N]; R],
        first_token: u32,
        args: &GemvArgs,
    );
}

/// Weights that are sums of BF16 terms: a term after the other, in each a step after the other, 16 bytes per lane.
#[derive(Clone, Copy)]
pub(crate) struct Bf16<const TERMS: usize>;

impl<const TERMS: usize> Weights for Bf16<TERMS> {
    type Ahead = ();
    const TERMS: usize = TERMS;

    #[inline(always)]
    unsafe fn fragments(self, unit: SharedAddr, term: usize) -> Fragments {
        // SAFETY: as the caller promises.
        let load =
            |step: usize| unsafe { shared::load_v4(unit + (term * BF16_UNIT_BYTES + step * BF16_STEP_BYTES) as u32) };
        [load(0), load(1), load(2), load(3)]
    }

    #[inline(always)]
    unsafe fn ahead<const R: usize>(self, _: u32, _: (u32, u32)) {}

    #[inline(always)]
    unsafe fn exceptions<const R: usize, const N: usize>(
        self,
        _: (),
        _: &mut [[[f32; 4]; N]; R],
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

/// The palette indices of a code word; the other bits are signs.
pub(crate) const INDICES: u32 = 0x7777_7777;
/// Bytes of a start and of an exception.
const ENTRY: u64 = 8;

impl Window12 {
    /// Weights with this palette, whose exceptions lie there, row block by row block as the starts say.
    #[inline(always)]
    pub(crate) fn new(palette: [u32; 2], starts: u64, exceptions: u64) -> Self {
        Window12 {
            palette,
            starts,
            exceptions,
        }
    }

    /// Four high bytes: palette entries by the four lowest nibbles of `indices`, and the signs at the tops of the bytes of `signs`.
    #[inline(always)]
    pub(crate) fn high_bytes(self, indices: u32, signs: u32) -> u32 {
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
}

/// Four weights of their low and their high bytes.
#[inline(always)]
pub(crate) fn interleave(low: u32, high: u32) -> [u32; 2] {
    [bits::prmt(low, high, 0x5140), bits::prmt(low, high, 0x7362)]
}

/// A warp's share of the exceptions, and the first of them.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    first_unit: u32,
    at: u64,
    last: u64,
    /// The lane's exception, counted from `at`.
    entry: u64,
}

impl Window12 {
    /// Where the exceptions of a row block start, or the last ones end.
    #[inline(always)]
    pub(crate) unsafe fn start(self, unit: u32) -> u64 {
        // SAFETY: the host gives a start for every row block of the grid, and one for the end.
        unsafe { global::load_u64(self.starts + u64::from(unit) * ENTRY) }
    }

    /// The exception `at`, where it comes before `last`.
    #[inline(always)]
    pub(crate) unsafe fn exception(self, at: u64, last: u64) -> u64 {
        // SAFETY: predicated on the end, which lies within the exceptions.
        unsafe { global::load_u64_or_zero(self.exceptions + at * ENTRY, at < last) }
    }

    /// The exception `lane` behind `at`, where it comes before `last`: a warp reads 32 of them at once, each once.
    #[inline(always)]
    unsafe fn entry(self, at: u64, last: u64) -> u64 {
        // SAFETY: as the caller promises.
        unsafe { self.exception(at + u64::from(warp::lane_id()), last) }
    }
}

impl Weights for Window12 {
    type Ahead = Share;
    const TERMS: usize = 1;

    #[inline(always)]
    unsafe fn fragments(self, unit: SharedAddr, _: usize) -> Fragments {
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
    unsafe fn ahead<const R: usize>(self, first_unit: u32, (worker, workers): (u32, u32)) -> Share {
        // SAFETY: as the caller promises; the share lies within the exceptions of the CTA's row blocks.
        unsafe {
            let (begin, end) = (self.start(first_unit), self.start(first_unit + R as u32));
            let bound = |i: u32| begin + (end - begin) * u64::from(i) / u64::from(workers);
            let (at, last) = (bound(worker), bound(worker + 1));
            let entry = self.entry(at, last);
            Share {
                first_unit,
                at,
                last,
                entry,
            }
        }
    }

    #[inline(always)]
    unsafe fn exceptions<const R: usize, const N: usize>(
        self,
        share: Share,
        acc: &mut [[[f32; 4]; N]; R],
        first_token: u32,
        args: &GemvArgs,
    ) {
        let Share {
            first_unit,
            mut at,
            last,
            mut entry,
        } = share;
        let lane = warp::lane_id();
        let (g, t) = (lane / 4, lane % 4);
        let mut turn = 0;
        while at < last {
            let value_and_row = warp::warp_shuffle_idx(u32::MAX, entry as u32, turn);
            let column = warp::warp_shuffle_idx(u32::MAX, (entry >> 32) as u32, turn);
            let weight = f32::from_bits(value_and_row << 16);
            let row = value_and_row >> 16;
            // The starts are read again each time, from L1: exceptions are few, and registers fewer.
            // SAFETY: as in `ahead`.
            let begins = |r: u32| unsafe { self.start(first_unit + r) };
            let block = (1..R as u32).fold(0, |block, r| block + u32::from(at >= begins(r)));
            let row_bytes = args.x_stride * 2;
            let first = first_token + 2 * t;
            let mut address = args.x + u64::from(first) * row_bytes + u64::from(column) * 2;
            for q in 0..N {
                for e in 0..2 {
                    let token = first + (TOKEN_BLOCK * q) as u32 + e as u32;
                    // SAFETY: predicated on the token; the packer keeps columns below k.
                    let x = unsafe { global::load_u16_or_zero(address + e as u64 * row_bytes, token < args.m) };
                    let product = weight * f32::from_bits(x << 16);
                    for (r, acc) in acc.iter_mut().enumerate() {
                        for h in 0..2 {
                            let mine = block == r as u32 && row == 8 * h as u32 + g;
                            // Adding -0 changes no sum.
                            acc[q][2 * h + e] += if mine { product } else { -0.0 };
                        }
                    }
                }
                address += TOKEN_BLOCK as u64 * row_bytes;
            }
            at += 1;
            turn += 1;
            if turn == warp::WARP_SIZE {
                turn = 0;
                // SAFETY: as in `ahead`.
                entry = unsafe { self.entry(at, last) };
            }
        }
    }
}
