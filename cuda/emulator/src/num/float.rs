//! Floating-point arithmetic in every format and rounding.
//!
//! The plain case (nearest, subnormals kept, F32 and F64) runs on the host's own arithmetic, which is IEEE 754's too;
//! every other case is computed exactly in integers and rounded once.

use super::format::{Class, Format, Magnitude, Rounding};

/// The qualifiers that change what an arithmetic instruction or a conversion delivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mode {
    /// How the exact result is rounded.
    pub rounding: Rounding,
    /// `.ftz`: subnormal inputs and results count as zeros of their sign.
    pub flush: bool,
    /// `.sat`: results are clamped to 0…1, NaN to 0.
    pub saturate: bool,
    /// `.relu`: negative results become 0.
    pub relu: bool,
    /// `.satfinite`: results too large become the largest finite value.
    pub finite: bool,
}

impl Mode {
    /// Nothing but a rounding.
    pub const fn rounded(rounding: Rounding) -> Self {
        Mode {
            rounding,
            flush: false,
            saturate: false,
            relu: false,
            finite: false,
        }
    }

    #[inline]
    fn is_plain(self) -> bool {
        self == Mode::default()
    }

    /// Applies the qualifiers that act on a rounded result.
    pub(super) fn finish(self, format: Format, bits: u64) -> u64 {
        let mut bits = if self.flush { format.flush(bits) } else { bits };
        if format.is_nan(bits) {
            return if self.saturate { 0 } else { bits };
        }
        let negative = format.is_negative(bits);
        if self.finite && bits & !format.sign_bit() == format.infinity() {
            bits = format.signed(format.largest(), negative);
        }
        if negative && (self.saturate || self.relu) {
            bits = 0;
        }
        if self.saturate { bits.min(format.one()) } else { bits }
    }

    #[inline]
    fn input(self, format: Format, bits: u64) -> u64 {
        if self.flush { format.flush(bits) } else { bits }
    }
}

/// Runs the plain case on the host's arithmetic, and anything else by `$soft`.
macro_rules! native_or {
    ($format:expr, $mode:expr, |$($arg:ident),+| $native:expr, $soft:expr) => {
        match $format {
            Format::F32 if $mode.is_plain() => {
                $(let $arg = f32::from_bits($arg as u32);)+
                let result: f32 = $native;
                if result.is_nan() { Format::F32.nan() } else { u64::from(result.to_bits()) }
            }
            Format::F64 if $mode.is_plain() => {
                $(let $arg = f64::from_bits($arg);)+
                let result: f64 = $native;
                if result.is_nan() { $soft } else { result.to_bits() }
            }
            _ => $soft,
        }
    };
}

/// `a + b`
#[inline]
pub fn add(format: Format, a: u64, b: u64, mode: Mode) -> u64 {
    let soft = || {
        fused(
            format,
            Product::One(mode.input(format, a)),
            mode.input(format, b),
            mode,
            &[a, b],
        )
    };
    native_or!(format, mode, |a, b| a + b, soft())
}

/// `a - b`
#[inline]
pub fn sub(format: Format, a: u64, b: u64, mode: Mode) -> u64 {
    let negated = b ^ format.sign_bit();
    let soft = || {
        fused(
            format,
            Product::One(mode.input(format, a)),
            mode.input(format, negated),
            mode,
            &[a, b],
        )
    };
    native_or!(format, mode, |a, b| a - b, soft())
}

/// `a · b`
#[inline]
pub fn mul(format: Format, a: u64, b: u64, mode: Mode) -> u64 {
    let soft = || {
        let (a, b) = (mode.input(format, a), mode.input(format, b));
        // A zero of the product's sign leaves the product as it is, its zero's sign included.
        let zero = (a ^ b) & format.sign_bit();
        fused(format, Product::Of(a, b), zero, mode, &[a, b])
    };
    native_or!(format, mode, |a, b| a * b, soft())
}

/// `a · b + c`, rounded once.
#[inline]
pub fn fma(format: Format, a: u64, b: u64, c: u64, mode: Mode) -> u64 {
    let soft = || {
        let [x, y, z] = [a, b, c].map(|bits| mode.input(format, bits));
        fused(format, Product::Of(x, y), z, mode, &[a, b, c])
    };
    native_or!(format, mode, |a, b, c| a.mul_add(b, c), soft())
}

/// `a / b`
#[inline]
pub fn div(format: Format, a: u64, b: u64, mode: Mode) -> u64 {
    let soft = || soft_div(format, a, b, mode);
    native_or!(format, mode, |a, b| a / b, soft())
}

/// `√a`
#[inline]
pub fn sqrt(format: Format, a: u64, mode: Mode) -> u64 {
    let soft = || soft_sqrt(format, a, mode);
    native_or!(format, mode, |a| a.sqrt(), soft())
}

/// `1 / a`
#[inline]
pub fn rcp(format: Format, a: u64, mode: Mode) -> u64 {
    div(format, format.one(), a, mode)
}

/// The NaN that an instruction delivers. F64 keeps the first NaN input, made quiet; the other formats have one NaN.
fn nan(format: Format, inputs: &[u64], mode: Mode) -> u64 {
    let quiet = 1 << (format.fraction_bits() - 1);
    let first = inputs
        .iter()
        .find(|&&input| format == Format::F64 && format.is_nan(input));
    mode.finish(format, first.map_or(format.nan(), |input| input | quiet))
}

/// The product in `product + c`.
#[derive(Clone, Copy)]
enum Product {
    /// A single factor.
    One(u64),
    Of(u64, u64),
}

/// `product + c`; `inputs` are the instruction's, for NaNs to come from.
#[cold]
fn fused(format: Format, product: Product, c: u64, mode: Mode, inputs: &[u64]) -> u64 {
    let (a, b) = match product {
        Product::One(a) => (a, format.one()),
        Product::Of(a, b) => (a, b),
    };
    let negative = format.is_negative(a ^ b);
    let negative_c = format.is_negative(c);
    let c_bits = c;
    let (product, c) = match (format.class(a), format.class(b), format.class(c)) {
        (Class::Nan, ..) | (_, Class::Nan, _) | (.., Class::Nan) => return nan(format, inputs, mode),
        (Class::Infinite, Class::Zero, _) | (Class::Zero, Class::Infinite, _) => return nan(format, inputs, mode),
        (Class::Infinite, _, c) | (_, Class::Infinite, c) => {
            if c == Class::Infinite && negative != negative_c {
                return nan(format, inputs, mode);
            }
            return mode.finish(format, format.signed(format.infinity(), negative));
        }
        (.., Class::Infinite) => return mode.finish(format, c),
        (Class::Zero, _, Class::Zero) | (_, Class::Zero, Class::Zero) => {
            let sign = if negative == negative_c {
                negative
            } else {
                mode.rounding == Rounding::Down
            };
            return mode.finish(format, format.signed(0, sign));
        }
        (Class::Zero, ..) | (_, Class::Zero, _) => return mode.finish(format, c_bits),
        (
            Class::Finite {
                significand: a,
                exponent: ea,
            },
            Class::Finite {
                significand: b,
                exponent: eb,
            },
            c,
        ) => {
            let product = Magnitude {
                significand: u128::from(a) * u128::from(b),
                exponent: ea + eb,
                inexact: false,
            };
            let c = match c {
                Class::Finite { significand, exponent } => Magnitude {
                    significand: significand.into(),
                    exponent,
                    inexact: false,
                },
                _ => return mode.finish(format, format.round(negative, product, mode.rounding)),
            };
            (product, c)
        }
    };
    let rounded = match sum((negative, product), (negative_c, c)) {
        Some((negative, sum)) => format.round(negative, sum, mode.rounding),
        None => format.signed(0, mode.rounding == Rounding::Down),
    };
    mode.finish(format, rounded)
}

/// The sum of two signed magnitudes, `None` if it is exactly zero. The addends must be exact and have at most 106 bits.
fn sum(a: (bool, Magnitude), b: (bool, Magnitude)) -> Option<(bool, Magnitude)> {
    // With the leading ones at bit 126 there is room for a carry, and at least 20 zeros below the significands: an
    // alignment that cancels more than one leading bit shifts by one at most and therefore loses nothing.
    let [a, b] = [a, b].map(
        |(
            negative,
            Magnitude {
                significand, exponent, ..
            },
        )| {
            let shift = significand.leading_zeros() - 1;
            (negative, significand << shift, exponent - shift as i32)
        },
    );
    let (large, small) = if (a.2, a.1) >= (b.2, b.1) { (a, b) } else { (b, a) };
    let distance = (large.2 - small.2) as u32;
    let (aligned, lost) = match distance {
        0..=127 => (small.1 >> distance, small.1 & ((1 << distance) - 1) != 0),
        _ => (0, true),
    };
    let significand = if large.0 == small.0 {
        large.1 + aligned
    } else {
        large.1 - aligned - u128::from(lost)
    };
    (significand != 0).then_some((
        large.0,
        Magnitude {
            significand,
            exponent: large.2,
            inexact: lost,
        },
    ))
}

#[cold]
fn soft_div(format: Format, a: u64, b: u64, mode: Mode) -> u64 {
    let inputs = [a, b];
    let (a, b) = (mode.input(format, a), mode.input(format, b));
    let negative = format.is_negative(a ^ b);
    let result = match (format.class(a), format.class(b)) {
        (Class::Nan, _) | (_, Class::Nan) => return nan(format, &inputs, mode),
        (Class::Infinite, Class::Infinite) | (Class::Zero, Class::Zero) => return nan(format, &inputs, mode),
        (Class::Infinite, _) | (_, Class::Zero) => format.signed(format.infinity(), negative),
        (Class::Zero, _) | (_, Class::Infinite) => format.signed(0, negative),
        (
            Class::Finite {
                significand: a,
                exponent: ea,
            },
            Class::Finite {
                significand: b,
                exponent: eb,
            },
        ) => {
            // With the dividend's leading one at bit 127 the quotient has at least 74 bits, F64 needs 55.
            let shift = 64 + a.leading_zeros();
            let (dividend, divisor) = (u128::from(a) << shift, u128::from(b));
            let quotient = Magnitude {
                significand: dividend / divisor,
                exponent: ea - shift as i32 - eb,
                inexact: dividend % divisor != 0,
            };
            format.round(negative, quotient, mode.rounding)
        }
    };
    mode.finish(format, result)
}

#[cold]
fn soft_sqrt(format: Format, a: u64, mode: Mode) -> u64 {
    let input = mode.input(format, a);
    let result = match format.class(input) {
        Class::Nan => return nan(format, &[a], mode),
        Class::Zero => input,
        _ if format.is_negative(input) => return nan(format, &[], mode),
        Class::Infinite => input,
        Class::Finite { significand, exponent } => {
            // An even exponent, and enough bits below for a root of at least 60 bits.
            let shift = 64 + (significand.leading_zeros() & !1);
            let shift = if (exponent - shift as i32) % 2 == 0 {
                shift
            } else {
                shift - 1
            };
            let radicand = u128::from(significand) << shift;
            let root = radicand.isqrt();
            let root = Magnitude {
                significand: root,
                exponent: (exponent - shift as i32) / 2,
                inexact: root * root != radicand,
            };
            format.round(false, root, mode.rounding)
        }
    };
    mode.finish(format, result)
}

/// Which of two values `min` and `max` deliver, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// The larger instead of the smaller.
    pub largest: bool,
    /// `.NaN`: a NaN input makes the result NaN, instead of giving way to the other input.
    pub nan: bool,
    /// `.xorsign.abs`: compare magnitudes, and give the result the product of the signs.
    pub xorsign_abs: bool,
    /// `.ftz`
    pub flush: bool,
}

/// The smaller or larger of two values, where -0 is smaller than +0.
pub fn select(format: Format, a: u64, b: u64, selection: Selection) -> u64 {
    let mode = Mode {
        flush: selection.flush,
        ..Mode::default()
    };
    let [mut x, mut y] = [a, b].map(|bits| mode.input(format, bits));
    let sign = (x ^ y) & format.sign_bit();
    if selection.xorsign_abs {
        (x, y) = (x & !format.sign_bit(), y & !format.sign_bit());
    }
    let result = match (format.is_nan(x), format.is_nan(y)) {
        (true, true) => return format.nan(),
        (true, false) | (false, true) if selection.nan => return format.nan(),
        (true, false) => y,
        (false, true) => x,
        (false, false) => {
            // Sign and magnitude as an integer that orders as the values do, -0 below +0.
            let order = |bits: u64| {
                let magnitude = (bits & !format.sign_bit()) as i64;
                if format.is_negative(bits) {
                    -1 - magnitude
                } else {
                    magnitude
                }
            };
            if (order(x) > order(y)) == selection.largest {
                x
            } else {
                y
            }
        }
    };
    if selection.xorsign_abs { result | sign } else { result }
}

/// `-a`, a NaN's too.
pub fn neg(format: Format, a: u64, flush: bool) -> u64 {
    (if flush { format.flush(a) } else { a }) ^ format.sign_bit()
}

/// `|a|`, a NaN's too.
pub fn abs(format: Format, a: u64, flush: bool) -> u64 {
    (if flush { format.flush(a) } else { a }) & !format.sign_bit()
}
