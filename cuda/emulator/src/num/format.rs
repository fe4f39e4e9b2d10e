//! Floating-point formats as bit patterns: taking values apart, and rounding exact values into them.
//!
//! Patterns travel in the low bits of a `u64`, whatever the format.

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Four exponent and three fraction bits, without infinities: only all ones is a NaN, and what is too large becomes
    /// the largest value, as PTX's conversions to it demand.
    E4m3,
    /// The upper half of a binary16.
    E5m2,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// A binary32 with 10 fraction bits: here the 19 upper bits alone.
    Tf32,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

/// How a value between two neighbours is rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearest, ties to even: `rn`, `rni`.
    #[default]
    Nearest,
    /// To the nearest, ties away from zero: `rna`.
    NearestAway,
    /// Toward zero: `rz`, `rzi`.
    Zero,
    /// Toward negative infinity: `rm`, `rmi`.
    Down,
    /// Toward positive infinity: `rp`, `rpi`.
    Up,
}

impl Rounding {
    /// The rounding that a qualifier of an opcode names, `rn` and `rni` alike.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "rn" | "rni" => Rounding::Nearest,
            "rna" => Rounding::NearestAway,
            "rz" | "rzi" => Rounding::Zero,
            "rm" | "rmi" => Rounding::Down,
            "rp" | "rpi" => Rounding::Up,
            _ => return None,
        })
    }

    /// Whether a magnitude is rounded up, given what lies below its last kept bit.
    fn rounds_up(self, negative: bool, odd: bool, rest: Rest) -> bool {
        match self {
            Rounding::Nearest => rest == Rest::AboveHalf || (rest == Rest::Half && odd),
            Rounding::NearestAway => rest >= Rest::Half,
            Rounding::Zero => false,
            Rounding::Down => negative && rest > Rest::Zero,
            Rounding::Up => !negative && rest > Rest::Zero,
        }
    }
}

/// What rounding drops, in units of the last kept bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rest {
    Zero,
    BelowHalf,
    Half,
    AboveHalf,
}

/// An exact non-zero magnitude: `significand · 2^exponent`, plus something below one unit of it if `inexact`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Magnitude {
    pub(super) significand: u128,
    pub(super) exponent: i32,
    pub(super) inexact: bool,
}

impl Magnitude {
    /// Divided by `2^shift`, in units of one: the integer part, and what lies below it.
    fn split(self, shift: i32) -> (u128, Rest) {
        if shift <= 0 {
            let kept = self.significand << shift.unsigned_abs().min(127);
            return (kept, if self.inexact { Rest::BelowHalf } else { Rest::Zero });
        }
        // Past the width only the order of magnitude matters, and 128 bits below a half keep it.
        if shift > 128 {
            return (0, Rest::BelowHalf);
        }
        let kept = if shift == 128 { 0 } else { self.significand >> shift };
        let half = 1u128 << (shift - 1);
        let below = self.significand & (half - 1) != 0 || self.inexact;
        let rest = match (self.significand & half != 0, below) {
            (false, false) => Rest::Zero,
            (false, true) => Rest::BelowHalf,
            (true, false) => Rest::Half,
            (true, true) => Rest::AboveHalf,
        };
        (kept, rest)
    }

    /// Rounded to an integer; `u128::MAX` where it does not fit 127 bits.
    pub(super) fn to_integer(self, negative: bool, rounding: Rounding) -> u128 {
        if self.exponent > self.significand.leading_zeros() as i32 - 1 {
            return u128::MAX;
        }
        let (kept, rest) = self.split(-self.exponent);
        kept + u128::from(rounding.rounds_up(negative, kept & 1 == 1, rest))
    }
}

/// What a bit pattern stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Nan,
    Infinite,
    Zero,
    /// `significand · 2^exponent`
    Finite {
        significand: u64,
        exponent: i32,
    },
}

impl Format {
    /// Fraction bits, without the implicit leading one.
    pub const fn fraction_bits(self) -> u32 {
        match self {
            Format::E4m3 => 3,
            Format::E5m2 => 2,
            Format::F16 | Format::Tf32 => 10,
            Format::Bf16 => 7,
            Format::F32 => 23,
            Format::F64 => 52,
        }
    }

    const fn exponent_bits(self) -> u32 {
        match self {
            Format::E4m3 => 4,
            Format::F16 | Format::E5m2 => 5,
            Format::Bf16 | Format::Tf32 | Format::F32 => 8,
            Format::F64 => 11,
        }
    }

    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits() - 1)) - 1
    }

    /// The exponent of the smallest normal value.
    pub(super) const fn least_exponent(self) -> i32 {
        1 - self.bias()
    }

    /// The bit of the sign.
    pub const fn sign_bit(self) -> u64 {
        1 << (self.fraction_bits() + self.exponent_bits())
    }

    /// The largest exponent of a finite value.
    const fn largest_exponent(self) -> i32 {
        match self {
            // There is no infinity to make room for.
            Format::E4m3 => self.bias() + 1,
            _ => self.bias(),
        }
    }

    /// Positive infinity; where there is none, the pattern above the largest value.
    pub const fn infinity(self) -> u64 {
        match self {
            Format::E4m3 => 0x7f,
            _ => ((1 << self.exponent_bits()) - 1) << self.fraction_bits(),
        }
    }

    /// The largest finite value.
    pub const fn largest(self) -> u64 {
        self.infinity() - 1
    }

    /// The NaN that instructions deliver: all bits set but the sign; for F64 the hardware's default quiet NaN.
    pub const fn nan(self) -> u64 {
        match self {
            Format::F64 => 0xfff8_0000_0000_0000,
            _ => self.sign_bit() - 1,
        }
    }

    /// One.
    pub const fn one(self) -> u64 {
        (self.bias() as u64) << self.fraction_bits()
    }

    /// Whether the pattern is a NaN.
    pub const fn is_nan(self, bits: u64) -> bool {
        let magnitude = bits & (self.sign_bit() - 1);
        match self {
            Format::E4m3 => magnitude == self.infinity(),
            _ => magnitude > self.infinity(),
        }
    }

    /// Whether the sign is set.
    pub const fn is_negative(self, bits: u64) -> bool {
        bits & self.sign_bit() != 0
    }

    /// The pattern, or a zero of its sign if it is subnormal.
    pub const fn flush(self, bits: u64) -> u64 {
        if bits & (self.sign_bit() - 1) < 1 << self.fraction_bits() {
            bits & self.sign_bit()
        } else {
            bits
        }
    }

    pub(super) const fn signed(self, magnitude: u64, negative: bool) -> u64 {
        if negative {
            magnitude | self.sign_bit()
        } else {
            magnitude
        }
    }

    pub(super) fn class(self, bits: u64) -> Class {
        let magnitude = bits & (self.sign_bit() - 1);
        let (biased, fraction) = (
            magnitude >> self.fraction_bits(),
            magnitude & ((1 << self.fraction_bits()) - 1),
        );
        if self.is_nan(bits) {
            Class::Nan
        } else if magnitude == self.infinity() {
            Class::Infinite
        } else if magnitude == 0 {
            Class::Zero
        } else {
            let hidden = u64::from(biased > 0) << self.fraction_bits();
            let exponent = biased.max(1) as i32 - self.bias() - self.fraction_bits() as i32;
            Class::Finite {
                significand: fraction | hidden,
                exponent,
            }
        }
    }

    /// The pattern nearest to the value in the sense of `rounding`.
    ///
    /// Where the magnitude is inexact, its significand must have two bits more than this format.
    pub(super) fn round(self, negative: bool, value: Magnitude, rounding: Rounding) -> u64 {
        let fraction = self.fraction_bits() as i32;
        let leading = value.exponent + 127 - value.significand.leading_zeros() as i32;
        // The weight of the last bit kept: fixed by the value where it is normal, else by the smallest exponent.
        let last = (leading - fraction).max(1 - self.bias() - fraction);
        if leading > self.largest_exponent() {
            return self.overflow(negative, rounding);
        }
        let (kept, rest) = value.split(last - value.exponent);
        let up = rounding.rounds_up(negative, kept & 1 == 1, rest);
        // A carry out of the significand runs into the exponent, which is what it should do.
        let biased_less_one = (last + fraction + self.bias() - 1) as u64;
        let magnitude = (biased_less_one << fraction) + kept as u64 + u64::from(up);
        if magnitude >= self.infinity() {
            self.overflow(negative, rounding)
        } else {
            self.signed(magnitude, negative)
        }
    }

    /// What stands for a magnitude beyond the largest.
    fn overflow(self, negative: bool, rounding: Rounding) -> u64 {
        let largest = match rounding {
            _ if self == Format::E4m3 => true,
            Rounding::Nearest | Rounding::NearestAway => false,
            Rounding::Zero => true,
            Rounding::Down => !negative,
            Rounding::Up => negative,
        };
        self.signed(if largest { self.largest() } else { self.infinity() }, negative)
    }
}
