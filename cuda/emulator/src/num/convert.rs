//! `cvt`: between formats, between integers, and across.

use super::float::Mode;
use super::format::{Class, Format, Magnitude, Rounding};

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Int {
    /// Its width: 1 to 64.
    pub bits: u32,
    /// Whether it has a sign.
    pub signed: bool,
}

impl Int {
    /// The low bits of a register, extended to all of it.
    #[inline]
    pub const fn extend(self, register: u64) -> u64 {
        let unused = 64 - self.bits;
        if self.signed {
            ((register << unused) as i64 >> unused) as u64
        } else {
            register << unused >> unused
        }
    }

    /// The value that the low bits of a register stand for.
    #[inline]
    pub const fn value(self, register: u64) -> i128 {
        let extended = self.extend(register);
        if self.signed {
            extended as i64 as i128
        } else {
            extended as i128
        }
    }

    /// The smallest and the largest value.
    #[inline]
    pub const fn range(self) -> (i128, i128) {
        if self.signed {
            (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// The value nearest to `value` that the type holds.
    #[inline]
    pub fn clamp(self, value: i128) -> i128 {
        let (least, most) = self.range();
        value.clamp(least, most)
    }
}

/// From one integer type to another, as the 64 bits of a register: extended by the source's sign and cut off, or
/// clamped if `saturate`.
#[inline]
pub fn int_to_int(register: u64, from: Int, to: Int, saturate: bool) -> u64 {
    if saturate {
        to.clamp(from.value(register)) as u64
    } else {
        to.extend(from.extend(register))
    }
}

/// From an integer to a format.
#[inline]
pub fn int_to_float(register: u64, from: Int, to: Format, mode: Mode) -> u64 {
    let value = from.value(register);
    if value == 0 {
        return 0;
    }
    let magnitude = Magnitude {
        significand: value.unsigned_abs(),
        exponent: 0,
        inexact: false,
    };
    mode.finish(to, to.round(value < 0, magnitude, mode.rounding))
}

/// From a format to an integer, as the 64 bits of a register, sign-extended. What the type cannot hold becomes its
/// nearest value; NaN becomes 0, or the top bit alone where either side has 64 bits.
pub fn float_to_int(bits: u64, from: Format, to: Int, mode: Mode) -> u64 {
    let bits = if mode.flush && from == Format::F32 {
        from.flush(bits)
    } else {
        bits
    };
    let negative = from.is_negative(bits);
    let (least, most) = to.range();
    let value = match from.class(bits) {
        Class::Nan if from == Format::F64 || to.bits == 64 => return to.extend(1 << (to.bits - 1)),
        Class::Nan | Class::Zero => 0,
        Class::Infinite => {
            if negative {
                least
            } else {
                most
            }
        }
        Class::Finite { significand, exponent } => {
            let magnitude = Magnitude {
                significand: significand.into(),
                exponent,
                inexact: false,
            };
            // Beyond 127 bits any clamped value will do.
            let integer = i128::try_from(magnitude.to_integer(negative, mode.rounding)).unwrap_or(i128::MAX);
            to.clamp(if negative { -integer } else { integer })
        }
    };
    value as u64
}

/// From one format to another. [`Format::Tf32`] as a target means a binary32 pattern with 13 zeros below.
#[inline]
pub fn float_to_float(bits: u64, from: Format, to: Format, mode: Mode) -> u64 {
    match (from, to) {
        // The bits move, NaN payloads with them.
        (Format::Bf16, Format::F32) if mode == Mode::default() => bits << 16,
        (Format::F32, Format::F64) if !f32::from_bits(bits as u32).is_nan() && mode == Mode::default() => {
            f64::from(f32::from_bits(bits as u32)).to_bits()
        }
        _ => round_to_format(bits, from, to, mode),
    }
}

fn round_to_format(bits: u64, from: Format, to: Format, mode: Mode) -> u64 {
    // `.ftz` speaks of F32 alone here.
    let bits = if mode.flush && from == Format::F32 {
        from.flush(bits)
    } else {
        bits
    };
    let mode = Mode {
        flush: mode.flush && to == Format::F32,
        ..mode
    };
    let negative = from.is_negative(bits);
    let converted = match from.class(bits) {
        Class::Nan => to.nan(),
        Class::Infinite if to == Format::E4m3 => to.signed(to.largest(), negative),
        Class::Infinite => to.signed(to.infinity(), negative),
        Class::Zero => to.signed(0, negative),
        Class::Finite { significand, exponent } => {
            let magnitude = Magnitude {
                significand: significand.into(),
                exponent,
                inexact: false,
            };
            to.round(negative, magnitude, mode.rounding)
        }
    };
    let finished = mode.finish(to, converted);
    if to == Format::Tf32 { finished << 13 } else { finished }
}

/// To an integral value of the same format: `cvt.rni.f32.f32` and its like.
pub fn round_to_integral(bits: u64, format: Format, mode: Mode) -> u64 {
    let bits = if mode.flush { format.flush(bits) } else { bits };
    let negative = format.is_negative(bits);
    let rounded = match format.class(bits) {
        Class::Nan => format.nan(),
        Class::Finite { significand, exponent } if exponent < 0 => {
            let magnitude = Magnitude {
                significand: significand.into(),
                exponent,
                inexact: false,
            };
            match magnitude.to_integer(negative, mode.rounding) {
                0 => format.signed(0, negative),
                integer => {
                    let integer = Magnitude {
                        significand: integer,
                        exponent: 0,
                        inexact: false,
                    };
                    format.round(negative, integer, Rounding::Nearest)
                }
            }
        }
        _ => bits,
    };
    mode.finish(format, rounded)
}

/// `cvt.pack.sat`: two values clamped to a type of 2 to 16 bits, `high` above `low`, below what fits of `rest`.
#[inline]
pub fn pack_saturated(high: u64, low: u64, rest: u64, from: Int, to: Int) -> u32 {
    let part = |register: u64| to.clamp(from.value(register)) as u64 & (u64::MAX >> (64 - to.bits));
    let pair = part(high) << to.bits | part(low);
    (rest << (2 * to.bits) | pair) as u32
}

/// Two values converted and packed, the first in the upper half: `cvt.rn.bf16x2.f32 d, a, b`.
#[inline]
pub fn pack_pair(high: u64, low: u64, from: Format, to: Format, mode: Mode) -> u32 {
    (float_to_float(high, from, to, mode) << 16 | float_to_float(low, from, to, mode)) as u32
}
