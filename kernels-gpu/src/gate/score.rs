//! How logits become scores, to a relative error of about 10^-6, and how FP32 values are put in order.

use cuda_std::math;

/// A number whose order as an integer is that of the value: -∞ gives the least, more than 1, and 0 stands for no value.
#[inline(always)]
pub(crate) fn key(value: f32) -> u32 {
    let bits = value.to_bits();
    bits ^ ((bits as i32 >> 31) as u32 | SIGN)
}

/// The value with this key.
#[inline(always)]
pub(crate) fn from_key(key: u32) -> f32 {
    f32::from_bits(key ^ (!((key as i32 >> 31) as u32) | SIGN))
}

const SIGN: u32 = 1 << 31;

/// The nearest finite value; NaN stays.
#[inline(always)]
pub(crate) fn finite(value: f32) -> f32 {
    math::min_or_nan(math::max_or_nan(value, -f32::MAX), f32::MAX)
}

/// e^x for x ≤ 0; 0 for NaN.
///
/// The argument of the instruction is rounded, which alone would cost up to |x| · 2^-24. What the rounding took away
/// comes in as a factor 1 + ln 2 · rest.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    use core::f32::consts::{LN_2, LOG2_E};
    /// log₂ e beyond FP32.
    const LOG2_E_REST: f32 = (core::f64::consts::LOG2_E - LOG2_E as f64) as f32;
    /// From here down the result is 0.
    const LEAST: f32 = -110.0;
    let x = x.max(LEAST);
    let scaled = x * LOG2_E;
    let rest = math::fma(x, LOG2_E_REST, math::fma(x, LOG2_E, -scaled));
    let power = math::ex2(scaled);
    math::fma(power, rest * LN_2, power)
}

/// `1 / (1 + e^-l)`, from `e` = e^-|l|.
#[inline(always)]
pub(crate) fn sigmoid(l: f32, e: f32) -> f32 {
    let part = if l < 0.0 { e } else { 1.0 };
    part * math::rcp(1.0 + e)
}

/// `√(max(l, 0) + ln(1 + e^-|l|))`, from `root` = e^(-|l|/2).
///
/// For l < 0 it is e^(l/2) times the root of ln(1 + e^l) / e^l, both of which stay in range where e^l does not.
#[inline(always)]
pub(crate) fn sqrt_softplus(l: f32, root: f32) -> f32 {
    let e = root * root;
    let (outside, inside) = if l < 0.0 { (root, 1.0) } else { (1.0, e) };
    outside * math::sqrt(math::fma(ln_1p_over(e), inside, l.max(0.0)))
}

/// ln(1 + e) / e for -½ ≤ e ≤ 1: ln(1 + e) is twice the area tangent of z = e / (2 + e), whose series converges fast.
#[inline(always)]
pub(crate) fn ln_1p_over(e: f32) -> f32 {
    let inverse = math::rcp(2.0 + e);
    let z = e * inverse;
    let square = z * z;
    // 1 + z²/3 + z⁴/5 + … up to z¹²/13: what follows is below 2⁻²⁵.
    let series = [11.0, 9.0, 7.0, 5.0, 3.0, 1.0]
        .iter()
        .fold(1.0 / 13.0, |sum, odd: &f32| math::fma(sum, square, 1.0 / odd));
    2.0 * inverse * series
}

/// What softmax needs to score one logit of a token.
#[derive(Clone, Copy)]
pub(crate) struct Scores {
    /// The largest logit.
    pub(crate) largest: f32,
    /// One over the sum of `exp(l - largest)`.
    pub(crate) inverse: f32,
}

impl Scores {
    /// For the scores that look at one logit alone.
    pub(crate) const NONE: Scores = Scores {
        largest: 0.0,
        inverse: 0.0,
    };
}
