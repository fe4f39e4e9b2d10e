//! The approximate functions: `ex2.approx` and its like.
//!
//! The hardware computes them by table and interpolation to an accuracy that the PTX ISA states; here they are computed
//! in double precision and rounded once. So results are at least as accurate as the hardware's and may differ from it
//! in the last bits, by no more than the sum of the table's bound and half a unit in the last place.

use super::convert::float_to_float;
use super::float::{self, Mode};
use super::format::{Class, Format};

/// An approximate function of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `2^x`: within 2 ulp.
    Ex2,
    /// `log2 x`: absolute error 2^-22 for x in 0.5…2, else relative 2^-22.
    Lg2,
    /// `1/x`: within 1 ulp.
    Rcp,
    /// `1/√x`: relative error 2^-22.9.
    Rsqrt,
    /// `√x`: relative error 2^-23.
    Sqrt,
    /// `sin x`: absolute error 2^-20.5 for x in -π…π, larger beyond.
    Sin,
    /// `cos x`: as for the sine.
    Cos,
    /// `tanh x`: relative error 2^-11.
    Tanh,
}

/// A function in double precision.
type Exact = fn(f64) -> f64;

/// Name, function in the order of its declaration, and what stands for it.
const FUNCTIONS: &[(&str, Function, Exact)] = &[
    ("ex2", Function::Ex2, f64::exp2),
    ("lg2", Function::Lg2, f64::log2),
    ("rcp", Function::Rcp, f64::recip),
    ("rsqrt", Function::Rsqrt, |x| x.sqrt().recip()),
    ("sqrt", Function::Sqrt, f64::sqrt),
    ("sin", Function::Sin, f64::sin),
    ("cos", Function::Cos, f64::cos),
    ("tanh", Function::Tanh, f64::tanh),
];

impl Function {
    /// The function that an opcode's first part names.
    pub fn from_name(name: &str) -> Option<Self> {
        FUNCTIONS
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|&(_, function, _)| function)
    }

    fn exact(self) -> Exact {
        FUNCTIONS[self as usize].2
    }
}

/// The function's value in a format. `flush` is `.ftz`.
pub fn approximate(function: Function, format: Format, x: u64, flush: bool) -> u64 {
    let x = if flush { format.flush(x) } else { x };
    // Widening is exact in every format, and rounding the double-precision result is the only loss.
    let wide = float_to_float(x, format, Format::F64, Mode::default());
    let value = function.exact()(f64::from_bits(wide)).to_bits();
    let rounded = float_to_float(value, Format::F64, format, Mode::default());
    if flush { format.flush(rounded) } else { rounded }
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64`: a result whose lower 32 bits are zero.
pub fn approximate_upper(function: Function, x: u64) -> u64 {
    let value = function.exact()(f64::from_bits(Format::F64.flush(x)));
    if value.is_nan() {
        // The one NaN of this instruction.
        return 0x7fff_ffff_0000_0000;
    }
    Format::F64.flush(value.to_bits() & 0xffff_ffff_0000_0000)
}

/// `div.approx.f32`: a quotient within 2 ulp where the divisor's magnitude is in 2^-126…2^126. Beyond, the reciprocal
/// underflows and the quotient is zero, or NaN if the dividend is infinite. (`div.full.f32` is within 2 ulp for all
/// divisors, and is computed here as `div.rn.f32` is.)
pub fn div_approx(a: u64, b: u64, flush: bool) -> u64 {
    let format = Format::F32;
    let [a, b] = [a, b].map(|bits| if flush { format.flush(bits) } else { bits });
    const LARGEST_DIVISOR: u64 = 0x7e80_0000;
    let magnitude = b & !format.sign_bit();
    if magnitude > LARGEST_DIVISOR && magnitude < format.infinity() {
        return match format.class(a) {
            Class::Nan | Class::Infinite => format.nan(),
            _ => format.signed(0, format.is_negative(a ^ b)),
        };
    }
    float::div(
        format,
        a,
        b,
        Mode {
            flush,
            ..Mode::default()
        },
    )
}
