//! The compute part: a warp's products, on the tensor cores (PTX ISA §9.7.14.5 `mma.sync`).

use super::load::Stream;
use super::{Instance, Place, WarpSums};
use crate::args::GemvArgs;
use crate::formats::fragments::Weights;
use crate::layout::{TOKEN_BLOCK, UNIT_K, UNIT_STEPS};
use cuda_std::{cluster, global, mma};

/// Bytes of a BF16 value.
const BF16: u64 = 2;
/// Consecutive x values of a lane: its B fragments of two steps.
const LANE_K: u32 = 8;
/// Columns between a lane's two groups of consecutive x values.
const HALF_UNIT: u32 = UNIT_K as u32 / 2;

/// The B fragments of a lane for one unit and one token block: a pair of registers per step.
type XFragments = [u32; 2 * UNIT_STEPS];

/// One token's x values for this lane: where they start, and how many columns may be read (0 for a token beyond m).
#[derive(Clone, Copy)]
struct XRow {
    address: u64,
    columns: u32,
}

impl XRow {
    /// Loads the lane's values of the unit in which its first column is `k`; columns from the limit on are zeros and
    /// are not read.
    ///
    /// # Safety
    ///
    /// The row holds as many values as it says, 2-byte aligned; 16-byte aligned and a multiple of eight where `X` is 8.
    #[inline(always)]
    unsafe fn load<const X: usize>(&self, k: u32) -> XFragments {
        // SAFETY: what a half reads is predicated on the columns that the row has.
        let ([a, b, c, d], [e, f, g, h]) = unsafe { (self.load_half::<X>(k), self.load_half::<X>(k + HALF_UNIT)) };
        [a, b, c, d, e, f, g, h]
    }

    /// Loads eight consecutive values from column `k` on.
    ///
    /// # Safety
    ///
    /// The row holds as many values as it says, 2-byte aligned; 16-byte aligned and a multiple of eight where `X` is 8.
    #[inline(always)]
    unsafe fn load_half<const X: usize>(&self, k: u32) -> [u32; 4] {
        let at = self.address + u64::from(k) * BF16;
        if X == 8 {
            // SAFETY: predicated on the limit; rows are 16-byte aligned and columns a multiple of 8, so the eight
            // values are either all inside or all outside.
            unsafe { global::load_v4_or_zero(at, k < self.columns) }
        } else {
            // SAFETY: predicated on the limit, value by value.
            let value = |c: u32| unsafe { global::load_u16_or_zero(at + u64::from(c) * BF16, k + c < self.columns) };
            let pair = |p: u32| value(2 * p) | value(2 * p + 1) << 16;
            [pair(0), pair(1), pair(2), pair(3)]
        }
    }
}

/// The products of the warp's slice of K with all tokens of the CTA, the exceptions' among them.
///
/// # Safety
///
/// The whole warp calls it, with a stream that has been started, and with its own `share` of what the units of the
/// CTA's row blocks leave out. What the preceding kernel wrote is visible. x holds `m` tokens of `k` values, aligned as
/// `X` demands.
#[inline(always)]
pub(super) unsafe fn multiply<I: Instance, const G: usize, const R: usize, const N: usize, const X: usize>(
    stream: &Stream<I, G, R>,
    place: Place,
    args: &GemvArgs,
    format: I::Weights,
    share: <I::Weights as Weights>::Share,
) -> WarpSums<R, N> {
    let (g, t) = (place.lane / 4, place.lane % 4);
    let x_rows: [XRow; N] = core::array::from_fn(|q| {
        let token = place.first_token + (TOKEN_BLOCK * q) as u32 + g;
        let columns = if token < args.m { args.k } else { 0 };
        XRow {
            address: args.x + u64::from(token) * args.x_stride * BF16,
            columns,
        }
    });
    let mut acc = [[[0f32; 4]; N]; R];
    // x comes from the L2 cache while the weights are still on their way.
    let load_x = |chunk: u32, is_wanted: bool| -> [[XFragments; N]; G] {
        core::array::from_fn(|u| {
            let k = (chunk * G as u32 + u as u32) * UNIT_K as u32 + t * LANE_K;
            x_rows.map(|row| {
                let columns = if is_wanted { row.columns } else { 0 };
                // SAFETY: x holds m tokens of k values, aligned as X demands, and loads beyond them are predicated off.
                unsafe { XRow { columns, ..row }.load::<X>(k) }
            })
        })
    };
    // SAFETY: x is visible, and the warp is together.
    let pending = unsafe { format.start_exceptions::<N>(&share, place.first_token, args) };
    // A warp without chunks has no use for it, and the question would stand ahead of the wait.
    let mut x = load_x(stream.first, true);
    if const { I::GEMV.cluster > 1 } {
        // The sums of others wait for it, nothing before: it may take its time while x is on its way.
        cluster::arrive_relaxed();
    }
    // While the first weights are on their way.
    // SAFETY: the exceptions are those of these row blocks, x is visible, and the warp is together.
    unsafe { format.add_exceptions(share, pending, &mut acc, place.first_token, args) };
    // Made anew, so that LLVM sees that it stands at stage 0.
    let mut ring = Stream::<I, G, R>::ring(place);
    let mut chunk = stream.first;
    while chunk < stream.last {
        // SAFETY: initialised before the barrier of `Stream::start`.
        let data = unsafe { ring.wait() } + place.lane * 16;
        for (u, x) in x.iter().enumerate() {
            if G == 1 || (u as u32) < stream.groups_of(chunk) {
                for (r, acc) in acc.iter_mut().enumerate() {
                    let unit =
                        data + r as u32 * Stream::<I, G, R>::COPY_BYTES + u as u32 * Stream::<I, G, R>::UNIT_BYTES;
                    for term in 0..I::Weights::TERMS {
                        // SAFETY: inside the chunk that has just landed.
                        let a = unsafe { format.fragments(unit, term) };
                        for (step, &a) in a.iter().enumerate() {
                            for (acc, x) in acc.iter_mut().zip(x) {
                                // SAFETY: the loop is uniform over the warp.
                                unsafe { mma::m16n8k16_bf16(acc, a, [x[2 * step], x[2 * step + 1]]) };
                            }
                        }
                    }
                }
            }
        }
        // SAFETY: the fragments are in registers, and the loop is uniform over the warp.
        unsafe { stream.refill(&ring, chunk) };
        ring.advance();
        chunk += 1;
        x = load_x(chunk, chunk < stream.last);
    }
    acc
}
