//! `mma.sync` in every type: fragments taken apart, sums as the tensor cores form them.
//!
//! Integers are exact. Floats follow the model of [`super::mma`], which this file states for every format: sixteen
//! products (eight of TF32) and an addend, aligned to the largest exponent among them and cut off 25 bits below it.
//! Longer products are chains of such sums. FP8 has no tensor core instruction behind `mma.sync` on Hopper: its values
//! are widened to F16 first. Sums in F16 are rounded to nearest, sums in F32 cut off. F64 is a chain of fused
//! multiply-adds.
//!
//! Fragments lie as the PTX ISA says in "Matrix Fragments for mma.m16n8k4" and its like, which all follow one rule: a
//! row of A or a column of B lies in four neighbouring lanes, a register of each in turn. CUTLASS states the same of
//! F64 and FP8.

use super::convert::{Int, float_to_float};
use super::float::{self, Mode};
use super::format::{Class, Format, Magnitude, Rounding};
use super::mma::{KEPT_BITS, cut, cut_to_f32, power_of_two};

/// Columns of B and of the sums.
const COLUMNS: usize = 8;
/// Lanes of a warp.
const WARP: usize = 32;

/// What the elements of A or B are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Floating-point numbers.
    Float(Format),
    /// Integers of 4 or 8 bits.
    Integer(Int),
}

/// What the sums are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// Packed in pairs.
    F16,
    /// The sums of floats.
    F32,
    /// The sums of F64.
    F64,
    /// The sums of integers; clamped if `saturate`, else they wrap.
    S32 {
        /// `.satfinite`
        saturate: bool,
    },
}

/// A matrix product `D = A · B + C`, of `rows` × `depth` and `depth` × 8 elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// 8 or 16.
    pub rows: usize,
    /// Columns of A, rows of B.
    pub depth: usize,
    /// The elements of A.
    pub a: Element,
    /// The elements of B.
    pub b: Element,
    /// C and D.
    pub sum: Sum,
}

/// A register of every lane.
type Lanes = [u64; WARP];

impl Element {
    fn bits(self) -> usize {
        match self {
            Element::Float(Format::E4m3 | Format::E5m2) => 8,
            Element::Float(Format::F16 | Format::Bf16) => 16,
            Element::Float(Format::Tf32 | Format::F32) => 32,
            Element::Float(Format::F64) => 64,
            Element::Integer(int) => int.bits as usize,
        }
    }

    /// Elements of a register, which has 64 bits for F64 and 32 for all others.
    fn per_register(self) -> usize {
        32_usize.div_ceil(self.bits())
    }

    fn part(self, register: u64, i: usize) -> u64 {
        let bits = self.bits();
        register >> (bits * i) & (u64::MAX >> (64 - bits))
    }
}

impl Sum {
    /// Sums that lie side by side in a register.
    fn per_register(self) -> usize {
        if self == Sum::F16 { 2 } else { 1 }
    }
}

impl Product {
    /// Registers that a lane holds of A, of B, and of C or D.
    pub fn registers(&self) -> [usize; 3] {
        let of = |elements: usize, per: usize| elements / WARP / per;
        [
            of(self.rows * self.depth, self.a.per_register()),
            of(self.depth * COLUMNS, self.b.per_register()),
            of(self.rows * COLUMNS, self.sum.per_register()),
        ]
    }

    /// D, by registers; A, B and C must have as many as [`Self::registers`] says.
    pub fn multiply(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> Vec<Lanes> {
        let (a, b) = (self.unpack_rows(a), self.unpack_columns(b));
        let mut d = vec![[0; WARP]; c.len()];
        let per = self.sum.per_register();
        for lane in 0..WARP {
            let (group, pair) = (lane / 4, lane % 4 * 2);
            for i in 0..c.len() * per {
                // Two neighbours of a row, then two of the row eight below.
                let (row, column) = (group + i / 2 * 8, pair + i % 2);
                let shift = 16 * (i % per);
                let c = c[i / per][lane] >> shift;
                let depth = self.depth;
                let sum = self.element(&a[row * depth..][..depth], &b[column * depth..][..depth], c);
                d[i / per][lane] |= sum << shift;
            }
        }
        d
    }

    /// A by rows.
    fn unpack_rows(&self, a: &[Lanes]) -> Vec<u64> {
        let mut rows = vec![0; self.rows * self.depth];
        let per = self.a.per_register();
        let halves = self.rows / 8;
        for (r, register) in a.iter().enumerate() {
            for (lane, &register) in register.iter().enumerate() {
                let row = lane / 4 + r % halves * 8;
                for i in 0..per {
                    let column = lane % 4 * per + i + r / halves * 4 * per;
                    rows[row * self.depth + column] = self.a.part(register, i);
                }
            }
        }
        rows
    }

    /// B by columns.
    fn unpack_columns(&self, b: &[Lanes]) -> Vec<u64> {
        let mut columns = vec![0; self.depth * COLUMNS];
        let per = self.b.per_register();
        for (r, register) in b.iter().enumerate() {
            for (lane, &register) in register.iter().enumerate() {
                for i in 0..per {
                    let row = lane % 4 * per + i + r * 4 * per;
                    columns[lane / 4 * self.depth + row] = self.b.part(register, i);
                }
            }
        }
        columns
    }

    /// One sum.
    fn element(&self, a: &[u64], b: &[u64], c: u64) -> u64 {
        match (self.a, self.b) {
            (Element::Integer(of_a), Element::Integer(of_b)) => {
                let products = a.iter().zip(b).map(|(&a, &b)| (of_a.value(a) * of_b.value(b)) as i64);
                let sum = i64::from(c as u32 as i32) + products.sum::<i64>();
                let saturate = matches!(self.sum, Sum::S32 { saturate: true });
                let clamped = sum.clamp(i32::MIN.into(), i32::MAX.into());
                u64::from(if saturate { clamped } else { sum } as u32)
            }
            (Element::Float(Format::F64), _) => a
                .iter()
                .zip(b)
                .fold(c, |sum, (&a, &b)| float::fma(Format::F64, a, b, sum, Mode::default())),
            (Element::Float(of_a), Element::Float(of_b)) => {
                let step = if of_a == Format::Tf32 { 8 } else { 16 };
                let terms = |format: Format, values: &[u64]| -> Vec<Term> {
                    values.iter().map(|&value| Term::factor(format, value)).collect()
                };
                let (a, b) = (terms(of_a, a), terms(of_b, b));
                a.chunks(step).zip(b.chunks(step)).fold(c, |c, (a, b)| match self.sum {
                    Sum::F16 => sum_of(a, b, Term::new(Format::F16, c & 0xffff)).to_f16(),
                    _ => sum_of(a, b, Term::new(Format::F32, c & 0xffff_ffff)).to_f32(),
                })
            }
            _ => c,
        }
    }
}

/// A number as the tensor cores take it apart.
#[derive(Clone, Copy)]
struct Term {
    /// Signed, of `fraction` bits below its point.
    significand: i64,
    fraction: i32,
    /// That of the smallest normal number where the number is smaller.
    exponent: i32,
    /// The number itself, for infinities and NaNs.
    value: f64,
}

impl Term {
    fn new(format: Format, bits: u64) -> Term {
        let fraction = format.fraction_bits() as i32;
        let (magnitude, exponent) = match format.class(bits) {
            Class::Finite { significand, exponent } => (significand as i64, exponent + fraction),
            _ => (0, format.least_exponent()),
        };
        let negative = format.is_negative(bits);
        Term {
            significand: if negative { -magnitude } else { magnitude },
            fraction,
            exponent,
            value: f64::from_bits(float_to_float(bits, format, Format::F64, Mode::default())),
        }
    }

    /// An element of A or B.
    fn factor(format: Format, bits: u64) -> Term {
        match format {
            Format::E4m3 | Format::E5m2 => {
                let wide = float_to_float(bits, format, Format::F16, Mode::default());
                Term::new(Format::F16, wide)
            }
            // A binary32 whose lower bits do not count.
            Format::Tf32 => Term::new(Format::Tf32, bits >> 13 & 0x7_ffff),
            _ => Term::new(format, bits),
        }
    }
}

/// What a sum came to, before it is brought into a format.
enum Total {
    Special(f64),
    /// `units · 2^exponent`
    Exact {
        units: i64,
        exponent: i32,
    },
}

/// The products of two runs of factors, and an addend.
fn sum_of(a: &[Term], b: &[Term], c: Term) -> Total {
    // In binary64 finite products cannot overflow, so what is infinite or NaN here is so because an input was.
    let plain = a.iter().zip(b).map(|(a, b)| a.value * b.value).sum::<f64>() + c.value;
    if !plain.is_finite() {
        return Total::Special(plain);
    }
    let largest = (a.iter().zip(b)).fold(c.exponent, |most, (a, b)| most.max(a.exponent + b.exponent));
    let last = largest - KEPT_BITS;
    let products = a.iter().zip(b).map(|(a, b)| {
        let exponent = a.exponent - a.fraction + b.exponent - b.fraction;
        cut(a.significand * b.significand, exponent - last)
    });
    Total::Exact {
        units: products.sum::<i64>() + cut(c.significand, c.exponent - c.fraction - last),
        exponent: last,
    }
}

impl Total {
    fn to_f32(&self) -> u64 {
        u64::from(match *self {
            Total::Special(value) if value.is_nan() => 0x7fff_ffff,
            Total::Special(value) => (value as f32).to_bits(),
            Total::Exact { units, exponent } => cut_to_f32(units as f64 * power_of_two(exponent)).to_bits(),
        })
    }

    fn to_f16(&self) -> u64 {
        match *self {
            Total::Special(value) if value.is_nan() => Format::F16.nan(),
            Total::Special(value) => Format::F16.signed(Format::F16.infinity(), value < 0.0),
            Total::Exact { units: 0, .. } => 0,
            Total::Exact { units, exponent } => {
                let magnitude = Magnitude {
                    significand: units.unsigned_abs().into(),
                    exponent,
                    inexact: false,
                };
                Format::F16.round(units < 0, magnitude, Rounding::Nearest)
            }
        }
    }
}
