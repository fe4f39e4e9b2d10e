//! Scores of logits, and the weights of the chosen experts.

use super::score::{self, Scores};
use super::{Scratch, WORD};
use crate::args::{GateArgs, RENORMALIZE, SOFTMAX_OVER_TOPK, Score};
use cuda_std::warp::{self, WARP_SIZE};
use cuda_std::{math, shared};

/// The scores of logits, whose kind is the same for the whole launch; `scores(i)` is what softmax needs for the i-th.
#[inline(always)]
pub(super) fn score_all<const COUNT: usize>(
    gate: &GateArgs,
    logits: [f32; COUNT],
    scores: impl Fn(usize) -> Scores,
) -> [f32; COUNT] {
    let is = |score: Score| gate.score == score as u32;
    if is(Score::Identity) {
        return logits;
    }
    let scores: [Scores; COUNT] = if is(Score::Softmax) {
        core::array::from_fn(scores)
    } else {
        [Scores::NONE; COUNT]
    };
    // All of them need one exponential.
    let factor = if is(Score::SqrtSoftplus) { -0.5 } else { -1.0 };
    let powers: [f32; COUNT] = core::array::from_fn(|i| {
        score::exp(if is(Score::Softmax) {
            logits[i] - scores[i].largest
        } else {
            factor * logits[i].abs()
        })
    });
    if is(Score::Softmax) {
        core::array::from_fn(|i| powers[i] * scores[i].inverse)
    } else if is(Score::Sigmoid) {
        core::array::from_fn(|i| score::sigmoid(logits[i], powers[i]))
    } else {
        core::array::from_fn(|i| score::sqrt_softplus(logits[i], powers[i]))
    }
}

/// Leaves what softmax needs to score a token's logits: the largest and the sum of all. For the token's warp, together.
///
/// # Safety
///
/// Every expert's logit is in the token's part of shared memory, before a barrier that the caller has met, and the
/// whole warp calls it.
#[inline(always)]
pub(super) unsafe fn softmax(scratch: Scratch) {
    // SAFETY: every logit of the table is written, and the loops around are uniform over the warp.
    let tile = |tile| unsafe { scratch.tile(scratch.logits(), tile) }.map(f32::from_bits);
    let mut largest = f32::NEG_INFINITY;
    for at in 0..scratch.tiles() {
        // The larger of a number and NaN is the number.
        largest = tile(at).iter().fold(largest, |largest, &logit| largest.max(logit));
    }
    let largest = score::from_key(warp::warp_reduce_max(u32::MAX, score::key(largest)));
    let mut sum = 0.0;
    for at in 0..scratch.tiles() {
        // NaN adds nothing.
        sum += tile(at).iter().map(|l| score::exp(l - largest)).sum::<f32>();
    }
    let inverse = math::rcp(sum_over(sum, WARP_SIZE));
    if warp::lane_id() == 0 {
        // SAFETY: the token's own place.
        unsafe {
            shared::store_f32(scratch.scores(), largest);
            shared::store_f32(scratch.scores() + WORD, inverse);
        }
    }
}

/// The sum over the first `lanes` lanes, rounded up to a power of two, in a fixed order.
#[inline(always)]
fn sum_over(mut value: f32, lanes: u32) -> f32 {
    let mut distance = 1;
    while distance < lanes {
        value += f32::from_bits(warp::warp_shuffle_xor(u32::MAX, value.to_bits(), distance));
        distance *= 2;
    }
    value
}

/// The weight of the expert that this lane has chosen, by its logit.
#[inline(always)]
pub(super) fn weigh(gate: &GateArgs, scratch: Scratch, logit: f32) -> f32 {
    /// A sum of weights nearer to zero than this counts as this.
    const LEAST_SUM: f32 = 1e-20;
    /// Keeps a sum of 32 of the largest values finite; a power of two.
    const SHRINK: f32 = 1.0 / 64.0;
    /// Below it, a sum is finite without.
    const ORDINARY: f32 = 1.0;
    // SAFETY: what softmax needs is there.
    let [score] = score_all(gate, [logit], |_| unsafe { scratch.load_scores() });
    // NaN has no weight, and lanes beyond the last choice have none either.
    let has_weight = !logit.is_nan() && warp::lane_id() < gate.top_k;
    let mut weight = if has_weight { score } else { 0.0 };
    if gate.flags & (RENORMALIZE | SOFTMAX_OVER_TOPK) != 0 {
        if gate.flags & SOFTMAX_OVER_TOPK != 0 {
            // -∞ where no expert has a weight; then every exponential is 0.
            let own = if has_weight { score } else { f32::NEG_INFINITY };
            let largest = score::from_key(warp::warp_reduce_max(u32::MAX, score::key(own)));
            weight = score::exp(own - largest);
        }
        let part = weight * SHRINK;
        let sum = sum_over(part, gate.top_k);
        let sum = if sum.abs() < LEAST_SUM * SHRINK {
            LEAST_SUM * SHRINK
        } else {
            sum
        };
        // The least weights would lose bits by shrinking.
        let (part, sum) = if sum.abs() < ORDINARY {
            (weight, sum / SHRINK)
        } else {
            (part, sum)
        };
        weight = part * math::rcp(sum);
    }
    weight * gate.scale
}
