//! FP32 weights as sums of BF16 terms: what tensor cores that multiply BF16 values can compute with, at nearly FP32's
//! precision.
//!
//! A weight r of row n becomes `s·r = hi + lo (+ third)`, each term the nearest BF16 value to what the terms before it
//! leave. s is a power of two, one per row, so that small residuals keep their bits: 1 where the row's largest finite
//! magnitude lies within 2⁻⁶⁰..2⁶⁰, else such that this magnitude comes to lie in 1..2 (smaller rows) or in 2⁶⁰..2⁶¹
//! (larger rows). What is kept beside the terms is 1/s, the factor that turns a sum over the terms into one over the
//! weights; it is always an FP32 number.
//!
//! Two terms leave at most 2⁻¹⁷ of the weight, or 2⁻¹³³ / s where that is more; three leave nothing of a weight from
//! 2⁻¹¹⁰ / s on. So a weight loses more than its 17th bit only where it is 2⁵⁰ times smaller than its row's largest. A
//! weight that is not finite is carried by `hi`, and its other terms are zero.

use crate::formats::bf16 as packing;
use crate::{Error, Result, Shape};
use half::bf16;
use kernels_gpu::instances::Format;
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, UNIT_WEIGHTS, units};
use rayon::prelude::*;

/// The most terms that a weight is split into: three hold every bit of an FP32 number.
pub const MAX_TERMS: usize = 3;

/// Columns of a row of [`Split::rows`] are a multiple of this: 16 bytes, as tensor copies want it.
pub const ROW_COLUMNS: usize = 8;

/// Exponents of the largest magnitude for which a row is left unscaled.
const ORDINARY: std::ops::RangeInclusive<i32> = -60..=59;
/// Where the largest magnitude of a larger row is brought.
const LARGE: i32 = 60;

/// Weights as one to three BF16 terms each.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    shape: Shape,
    /// `[terms, n, k]`.
    terms: Vec<bf16>,
    /// 1/s of every row; `None` where all are 1.
    factors: Option<Vec<f32>>,
}

impl Split {
    /// Splits row-major FP32 weights into `terms` terms: 1, 2 or 3.
    pub fn new(weights: &[f32], shape: Shape, terms: usize) -> Result<Self> {
        let (n, k) = (shape.n(), shape.k());
        Shape::check_len("the weights", weights.len(), n, k)?;
        if !(1..=MAX_TERMS).contains(&terms) {
            return Err(Error::Terms { given: terms });
        }
        let mut split = Shape::filled("the terms of the weights", n * terms, k, bf16::ZERO)?;
        let exponents: Vec<i32> = weights.par_chunks_exact(k).map(row_exponent).collect();
        let mut parts: Vec<&mut [bf16]> = split.chunks_exact_mut(n * k).collect();
        let mut rest: Vec<f64> = Vec::with_capacity(k);
        for (n, (row, &exponent)) in weights.chunks_exact(k).zip(&exponents).enumerate() {
            rest.clear();
            rest.extend(row.iter().map(|&r| f64::from(r) * power_of_two(exponent)));
            for part in &mut parts {
                for (term, rest) in part[n * k..(n + 1) * k].iter_mut().zip(&mut rest) {
                    // Through FP32, which holds every value here that is not far below BF16's least: `from_f64` drops
                    // bits unseen.
                    *term = bf16::from_f32(*rest as f32);
                    let left = *rest - term.to_f64();
                    *rest = if left.is_finite() { left } else { 0.0 };
                }
            }
        }
        let scaled = exponents.iter().any(|&exponent| exponent != 0);
        let factors = scaled.then(|| exponents.iter().map(|&e| power_of_two(-e) as f32).collect());
        Ok(Split {
            shape,
            terms: split,
            factors,
        })
    }

    /// BF16 weights as their own and only term.
    pub fn of_bf16(weights: &[bf16], shape: Shape) -> Result<Self> {
        Shape::check_len("the weights", weights.len(), shape.n(), shape.k())?;
        Ok(Split {
            shape,
            terms: weights.to_vec(),
            factors: None,
        })
    }

    /// The weights' shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Terms per weight.
    pub fn terms(&self) -> usize {
        self.terms.len() / (self.shape.n() * self.shape.k())
    }

    /// The format of their units.
    pub fn format(&self) -> Format {
        packing::format_of(self.terms())
    }

    /// The factor of each row on its finished sum; `None` where all are 1.
    pub fn factors(&self) -> Option<&[f32]> {
        self.factors.as_deref()
    }

    /// The weights that the terms stand for, rounded to FP32.
    pub fn join(&self) -> Vec<f32> {
        let (size, k) = (self.shape.n() * self.shape.k(), self.shape.k());
        let sum = |at: usize| {
            let terms = self.terms[at..].iter().step_by(size);
            // -0 is the sum of no terms that keeps the sign of a zero.
            let sum = terms.fold(-0.0, |sum, term| sum + term.to_f64());
            let factor = self.factors.as_ref().map_or(1.0, |factors| factors[at / k]);
            (sum * f64::from(factor)) as f32
        };
        (0..size).map(sum).collect()
    }

    /// The terms in the order that kernels for few tokens stream: units of 16 rows × 64 columns, each with its terms
    /// one after the other, each term in the [order](crate::formats::bf16) of BF16 weights.
    pub fn units(&self) -> Result<Vec<bf16>> {
        let (terms, size) = (self.terms(), self.shape.n() * self.shape.k());
        let packed = self
            .terms
            .chunks_exact(size)
            .map(|term| packing::pack(term, self.shape));
        let packed = packed.collect::<Result<Vec<_>>>()?;
        let (row_blocks, groups) = units(self.shape.n(), self.shape.k());
        let mut all = Shape::filled(UNITS, row_blocks * UNIT_ROWS * terms, groups * UNIT_K, bf16::ZERO)?;
        for (at, unit) in all.chunks_exact_mut(UNIT_WEIGHTS).enumerate() {
            let from = at / terms * UNIT_WEIGHTS;
            unit.copy_from_slice(&packed[at % terms][from..from + UNIT_WEIGHTS]);
        }
        Ok(all)
    }

    /// The inverse of [`Split::units`], for units of `terms` terms and the rows' factors.
    pub fn from_units(all: &[bf16], factors: Option<&[f32]>, shape: Shape, terms: usize) -> Result<Self> {
        if !(1..=MAX_TERMS).contains(&terms) {
            return Err(Error::Terms { given: terms });
        }
        let (row_blocks, groups) = units(shape.n(), shape.k());
        Shape::check_len(UNITS, all.len(), row_blocks * UNIT_ROWS * terms, groups * UNIT_K)?;
        let mut split = Vec::new();
        for term in 0..terms {
            let own = all.chunks_exact(UNIT_WEIGHTS).skip(term).step_by(terms);
            split.extend(packing::unpack(&own.flatten().copied().collect::<Vec<_>>(), shape)?);
        }
        Self::from_parts(split, factors, shape)
    }

    /// The terms in the order that kernels for many tokens load: row-major `[terms, n, columns]`, where the columns are
    /// K rounded up to a multiple of [`ROW_COLUMNS`] and padded with zeros.
    pub fn rows(&self) -> Result<Vec<bf16>> {
        let (k, columns) = (self.shape.k(), row_columns(self.shape));
        let rows = self.shape.n() * self.terms();
        let mut all = Shape::filled("the rows of terms", rows, columns, bf16::ZERO)?;
        for (row, terms) in all.chunks_exact_mut(columns).zip(self.terms.chunks_exact(k)) {
            row[..k].copy_from_slice(terms);
        }
        Ok(all)
    }

    /// The inverse of [`Split::rows`], for `terms` terms and the rows' factors.
    pub fn from_rows(all: &[bf16], factors: Option<&[f32]>, shape: Shape, terms: usize) -> Result<Self> {
        if !(1..=MAX_TERMS).contains(&terms) {
            return Err(Error::Terms { given: terms });
        }
        let columns = row_columns(shape);
        Shape::check_len("the rows of terms", all.len(), shape.n() * terms, columns)?;
        let kept = all.chunks_exact(columns).flat_map(|row| &row[..shape.k()]);
        Self::from_parts(kept.copied().collect(), factors, shape)
    }

    fn from_parts(terms: Vec<bf16>, factors: Option<&[f32]>, shape: Shape) -> Result<Self> {
        if let Some(factors) = factors {
            Shape::check_len("the factors of the rows", factors.len(), shape.n(), 1)?;
        }
        let factors = factors.map(<[f32]>::to_vec);
        Ok(Split { shape, terms, factors })
    }
}

const UNITS: &str = "the units of terms";

/// Columns of a row of [`Split::rows`].
pub const fn row_columns(shape: Shape) -> usize {
    shape.k().next_multiple_of(ROW_COLUMNS)
}

/// The exponent of the power of two that the row is multiplied by before it is split.
fn row_exponent(row: &[f32]) -> i32 {
    let finite = row.iter().map(|r| r.abs()).filter(|r| r.is_finite());
    let largest = finite.fold(0f32, f32::max);
    if largest == 0.0 {
        return 0;
    }
    // FP64 has no subnormals here, so that its exponent is the number's.
    let exponent = (f64::from(largest).to_bits() >> 52) as i32 - 1023;
    if ORDINARY.contains(&exponent) {
        0
    } else if exponent < *ORDINARY.start() {
        -exponent
    } else {
        LARGE - exponent
    }
}

/// 2ᵉ for an exponent of [`row_exponent`], or minus one.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
