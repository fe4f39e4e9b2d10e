//! What orders groups: their two best experts together, in numbers that do not saturate where the sum of two scores
//! does.
//!
//! Each kind of score has a function that grows with the sum of the two. It comes as the sum of two FP32 numbers, and
//! what their sum's rounding takes away decides between sums that are rounded alike: one expert far above the other
//! does not hide it.

use super::{Tokens, pair, score};
use crate::args::Score;
use core::f32::consts::LN_2;
use cuda_std::math;

/// A number that grows with how good a group is; its lowest five bits are zeros.
///
/// `best` is the value of the group's best expert, `second` of the second one, -∞ where there is none: logits, or
/// scores with their bias. All others are finite.
#[inline(always)]
pub(super) fn group_key(tokens: &Tokens<'_>, best: f32, second: f32) -> u64 {
    let is = |score: Score| tokens.gate.score == score as u32;
    let (is_above, first, rest) = if tokens.biases_scores() || is(Score::Identity) {
        sum(best, second)
    } else if is(Score::Softmax) {
        (true, best, ln_1p(score::exp(second - best)))
    } else if is(Score::Sigmoid) {
        sigmoid(best, second)
    } else {
        sqrt_softplus(best, second)
    };
    // The sum, and exactly what its rounding takes away.
    let sum = first + rest;
    let of_rest = sum - first;
    let lost = (first - (sum - of_rest)) + (rest - of_rest);
    let key = pair(score::key(sum), score::key(lost)) >> 1;
    (key | u64::from(is_above) << 63) & !31
}

/// The values themselves. Halves, whose sum stays finite.
#[inline(always)]
fn sum(best: f32, second: f32) -> (bool, f32, f32) {
    let second = if second == f32::NEG_INFINITY { 0.0 } else { second };
    (true, 0.5 * best, 0.5 * second)
}

/// For S = σ(a) + σ(b): whether S ≥ 1, and ln((S − 1) / (2 − S)), which neither S = 0, 1 nor 2 brings to an end. Below
/// 1 it is the negative of that of 2 − S = σ(−a) + σ(−b).
///
/// With a ≥ b and u = a + b ≥ 0 it is b + ln((1 − e^-u) / (1 + e^(b−a) + 2 e^-a)), where no exponent is positive.
#[inline(always)]
fn sigmoid(best: f32, second: f32) -> (bool, f32, f32) {
    let is_above = best + second >= 0.0;
    // Subtracting from 0 makes no -0.
    let (a, b) = if is_above {
        (best, second)
    } else {
        (0.0 - second, 0.0 - best)
    };
    let u = a + b;
    let of_u = score::exp(-u);
    let more = math::fma(2.0, score::exp(-a), score::exp(b - a));
    let inverse = math::rcp(1.0 + more);
    // The quotient is 1 − less.
    let less = (of_u + more) * inverse;
    let near_one = ln_1p(-less.min(0.5));
    let far = LN_2 * math::lg2(one_minus_exp(u, of_u) * inverse);
    let rest = if less < 0.5 { near_one } else { far };
    // All sums that are 1 are equal.
    let (first, rest) = if u == 0.0 { (-f32::MAX, 0.0) } else { (b, rest) };
    if is_above {
        (true, first, rest)
    } else {
        (false, -first, -rest)
    }
}

/// 1 − e^-u for u ≥ 0, to a relative error of about 10^-6; `power` is e^-u.
#[inline(always)]
fn one_minus_exp(u: f32, power: f32) -> f32 {
    /// Below it, what is subtracted is too near to 1; above, the series is too short.
    const SMALL: f32 = 0.125;
    let v = u.min(SMALL);
    let series = [4.0, 3.0, 2.0, 1.0]
        .iter()
        .fold(1.0, |sum, n: &f32| math::fma(-v / (n + 1.0), sum, 1.0));
    if u < SMALL { u * series } else { 1.0 - power }
}

/// For S = s(a) + s(b), s(l) = √ln(1 + e^l): S itself from ½ on, and ln S below, where both logits are negative.
///
/// There s(l) = e^(l/2) √q with q = ln(1 + e^l) / e^l, so that ln S = a/2 + ½ ln q(a) + ln(1 + s(b) / s(a)).
#[inline(always)]
fn sqrt_softplus(a: f32, b: f32) -> (bool, f32, f32) {
    let roots = [a, b].map(|l| score::exp(-0.5 * l.abs()));
    let of_a = score::sqrt_softplus(a, roots[0]);
    let of_b = score::sqrt_softplus(b, roots[1]);
    if of_a + of_b > 0.5 {
        return (true, of_a, of_b);
    }
    let [q_a, q_b] = roots.map(|root| score::ln_1p_over(root * root));
    let ratio = score::exp(0.5 * (b - a)) * math::sqrt(q_b * math::rcp(q_a));
    (true, 0.5 * (a + ln_1p(q_a - 1.0)), ln_1p(ratio))
}

/// ln(1 + x) for -½ ≤ x ≤ 1, to a relative error of about 10^-6.
#[inline(always)]
fn ln_1p(x: f32) -> f32 {
    x * score::ln_1p_over(x)
}
