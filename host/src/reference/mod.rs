//! The FP64 references, and how far a result lies from them.

pub mod gate;

use crate::{Result, Shape};
use half::bf16;
use rayon::prelude::*;

/// The relative L2 error that a BF16 result may show: the rounding of an exact sum to BF16 alone is 1.7e-3.
pub const TOLERANCE: f64 = 4e-3;

/// The relative L2 error that logits of FP32 weights may show at most.
pub const LOGITS_TOLERANCE: f64 = 1e-4;
/// The relative L2 error that logits of FP32 weights of ordinary magnitude stay below, for up to 8192 columns.
pub const LOGITS_GOAL: f64 = 5e-6;

/// `y = x · Wᵀ` in FP64: `x` is `[m, K]`, `w` is `[N, K]`, the result `[m, N]`. Products of BF16 values are exact in
/// FP64 and the order of the sum is fixed, so the result is the same on every machine.
pub fn project(x: &[bf16], w: &[bf16], shape: Shape, m: usize) -> Result<Vec<f64>> {
    product(x, w, bf16::to_f64, shape, m)
}

/// [`project`] for FP32 weights: a router's logits.
pub fn logits(x: &[bf16], w: &[f32], shape: Shape, m: usize) -> Result<Vec<f64>> {
    product(x, w, f64::from, shape, m)
}

fn product<W: Copy + Sync>(
    x: &[bf16],
    w: &[W],
    widen: impl Fn(W) -> f64 + Sync,
    shape: Shape,
    m: usize,
) -> Result<Vec<f64>> {
    let (n, k) = (shape.n(), shape.k());
    Shape::check_len("x", x.len(), m, k)?;
    Shape::check_len("the weights", w.len(), n, k)?;
    let mut y = Shape::filled("y", m, n, 0.0)?;
    if m == 0 {
        return Ok(y);
    }
    let x: Vec<f64> = x.iter().map(|v| v.to_f64()).collect();
    // Rows outside, tokens inside: a row of W is widened once, and x stays in cache.
    let mut by_row = Shape::filled("y", n, m, 0.0)?;
    let rows = by_row.par_chunks_exact_mut(m).zip(w.par_chunks_exact(k));
    rows.for_each(|(sums, row)| {
        let row: Vec<f64> = row.iter().map(|&v| widen(v)).collect();
        for (sum, x) in sums.iter_mut().zip(x.chunks_exact(k)) {
            *sum = dot(x, &row);
        }
    });
    for (r, sums) in by_row.chunks_exact(m).enumerate() {
        for (token, &sum) in sums.iter().enumerate() {
            y[token * n + r] = sum;
        }
    }
    Ok(y)
}

/// Eight partial sums, so that the compiler can use vector registers; their order is part of the result.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f64 = a8.remainder().iter().zip(b8.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a8.zip(b8) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    lanes.iter().sum::<f64>() + tail
}

/// The relative L2 error `‖y − r‖ / ‖r‖` of `y` against the reference `r`.
///
/// Defined everywhere: elements that are both NaN, or both the same infinity, agree; any other element that is not
/// finite makes the error infinite, as does a non-zero `y` against a reference of norm zero, or a difference in length.
pub fn relative_error(y: &[bf16], reference: &[f64]) -> f64 {
    distance(y, reference, bf16::to_f64, |r| bf16::from_f64(r).to_f64())
}

/// [`relative_error`] of FP32 results.
pub fn relative_error_fp32(y: &[f32], reference: &[f64]) -> f64 {
    distance(y, reference, f64::from, |r| f64::from(r as f32))
}

/// `rounded` gives what the result's type makes of a number: infinity beyond its range.
fn distance<Y: Copy>(y: &[Y], reference: &[f64], widen: impl Fn(Y) -> f64, rounded: impl Fn(f64) -> f64) -> f64 {
    if y.len() != reference.len() {
        return f64::INFINITY;
    }
    let (mut off, mut norm) = (0.0, 0.0);
    for (&y, &r) in y.iter().zip(reference) {
        // A sum beyond the type's range is infinite once rounded, and rightly so.
        let (y, beyond) = (widen(y), rounded(r));
        if !beyond.is_finite() || !y.is_finite() {
            if (y.is_nan() && beyond.is_nan()) || y == beyond {
                continue;
            }
            return f64::INFINITY;
        }
        off += (y - r) * (y - r);
        norm += r * r;
    }
    match (off, norm) {
        (0.0, _) => 0.0,
        (_, 0.0) => f64::INFINITY,
        _ => (off / norm).sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_abs_diff_eq;

    fn bf(values: &[f32]) -> Vec<bf16> {
        values.iter().map(|&v| bf16::from_f32(v)).collect()
    }

    #[test]
    fn a_small_product_by_hand() {
        let w = bf(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let x = bf(&[1.0, 0.0, -1.0, 2.0, 0.5, 0.25]);
        let y = project(&x, &w, Shape::new(2, 3).unwrap(), 2).unwrap();
        assert_eq!(y, [-2.0, -2.0, 3.75, 12.0]);
    }

    #[test]
    fn no_tokens_is_an_empty_result() {
        assert!(
            project(&[], &bf(&[1.0]), Shape::new(1, 1).unwrap(), 0)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let one = bf(&[1.0]);
        let shape = Shape::new(1, 2).unwrap();
        let err = project(&one, &one, shape, 1).unwrap_err();
        assert!(
            err.to_string()
                .contains("x holds 1 elements, but [1, 2] needs exactly 2"),
            "{err}"
        );
        assert!(project(&bf(&[1.0, 1.0]), &one, shape, 1).is_err());
    }

    #[test]
    fn the_error_is_defined_at_its_edges() {
        assert_eq!(relative_error(&bf(&[1.0, 2.0]), &[1.0, 2.0]), 0.0);
        assert_eq!(relative_error(&bf(&[0.0]), &[0.0]), 0.0);
        assert_eq!(relative_error(&bf(&[1.0]), &[0.0]), f64::INFINITY);
        assert_eq!(relative_error(&bf(&[f32::NAN]), &[1.0]), f64::INFINITY);
        assert_eq!(relative_error(&bf(&[1.0]), &[f64::NAN]), f64::INFINITY);
        assert_eq!(relative_error(&bf(&[f32::NAN, 1.0]), &[f64::NAN, 1.0]), 0.0);
        assert_eq!(relative_error(&bf(&[f32::INFINITY]), &[1e300]), 0.0);
        assert_eq!(relative_error(&bf(&[f32::NEG_INFINITY]), &[1e300]), f64::INFINITY);
        assert_eq!(relative_error(&[], &[]), 0.0);
        assert_eq!(relative_error(&bf(&[1.0]), &[]), f64::INFINITY);
        assert_abs_diff_eq!(relative_error(&bf(&[3.0, 3.0]), &[3.0, 4.0]), 0.2, epsilon = 1e-12);
        assert_abs_diff_eq!(relative_error_fp32(&[3.0, 3.0], &[3.0, 4.0]), 0.2, epsilon = 1e-12);
        assert_eq!(relative_error_fp32(&[f32::INFINITY], &[1e39]), 0.0);
    }

    #[test]
    fn fp32_weights_are_not_rounded() {
        let w = [1.000_000_1f32, 1e-30];
        let logits = logits(&bf(&[1.0, 2.0]), &w, Shape::new(1, 2).unwrap(), 1).unwrap();
        assert_eq!(logits, [f64::from(w[0]) + 2.0 * f64::from(w[1])]);
    }
}
