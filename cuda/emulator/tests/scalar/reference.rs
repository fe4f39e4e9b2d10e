//! References: IEEE arithmetic of `rustc_apfloat`, with PTX's qualifiers applied on top.

use rustc_apfloat::ieee::{BFloat, Double, Float8E4M3FN, Float8E5M2, Half, Single};
use rustc_apfloat::{Float, Round};

/// PTX's roundings and what they mean.
pub(super) const ROUNDINGS: [(&str, Round); 4] = [
    ("rn", Round::NearestTiesToEven),
    ("rz", Round::TowardZero),
    ("rm", Round::TowardNegative),
    ("rp", Round::TowardPositive),
];

/// A format: how PTX spells it, and the NaN that arithmetic delivers.
pub(super) trait Format: Float + 'static {
    const NAME: &'static str;
    /// The register that holds a value: its prefix in the test kernels.
    const REGISTER: &'static str;
    const DEFAULT_NAN: u64;

    fn read(bits: u64) -> Self {
        Self::from_bits(u128::from(bits) & (u128::MAX >> (128 - Self::BITS)))
    }

    /// The bits, of a NaN the one that arithmetic delivers.
    fn bits(self) -> u64 {
        if self.is_nan() {
            Self::DEFAULT_NAN
        } else {
            self.to_bits() as u64
        }
    }

    /// A zero of its sign where it is subnormal.
    fn flushed(self) -> Self {
        if self.is_denormal() {
            Self::ZERO.copy_sign(self)
        } else {
            self
        }
    }

    fn one() -> Self {
        Self::from_u128(1).value
    }

    /// Clamped to 0…1, a NaN to 0.
    fn saturated(self) -> Self {
        if self.is_nan() || self.is_negative() {
            Self::ZERO
        } else if self > Self::one() {
            Self::one()
        } else {
            self
        }
    }

    /// Negative numbers become 0.
    fn relu(self) -> Self {
        if self.is_negative() && !self.is_nan() {
            Self::ZERO
        } else {
            self
        }
    }

    /// The other format's value nearest in the sense of a rounding.
    fn to<F: Format>(self, round: Round) -> F
    where
        Self: rustc_apfloat::FloatConvert<F>,
    {
        let mut loses = false;
        self.convert_r(round, &mut loses).value
    }
}

macro_rules! formats {
    ($($format:ty = $name:literal, $register:literal, $nan:literal;)*) => {$(
        impl Format for $format {
            const NAME: &'static str = $name;
            const REGISTER: &'static str = $register;
            const DEFAULT_NAN: u64 = $nan;
        }
    )*};
}

formats! {
    Half = "f16", "h", 0x7fff;
    BFloat = "bf16", "h", 0x7fff;
    Single = "f32", "r", 0x7fff_ffff;
    Double = "f64", "d", 0xfff8_0000_0000_0000;
    Float8E4M3FN = "e4m3", "h", 0x7f;
    Float8E5M2 = "e5m2", "h", 0x7f;
}

/// Bits of a result; where F64 operands are NaN, the first one made quiet.
pub(super) fn result<F: Format>(value: F, operands: &[u64]) -> u64 {
    let nan = operands.iter().find(|&&bits| F::BITS == 64 && F::read(bits).is_nan());
    match nan {
        Some(bits) if value.is_nan() => bits | 1 << 51,
        _ => value.bits(),
    }
}

/// The square root of a value, correctly rounded: from the host's, corrected by exact comparisons of squares.
pub(super) fn sqrt_f64(value: f64, round: Round) -> f64 {
    let near = value.sqrt();
    if !near.is_finite() || near == 0.0 {
        return near;
    }
    // The residue of a correctly rounded root is exact, unless it underflows, which scaling by an even power of two
    // avoids.
    let scale = if value < 1e-200 { 2f64.powi(400) } else { 1.0 };
    let (scaled, root) = (value * scale, near * scale.sqrt());
    let rest = (-root).mul_add(root, scaled);
    match round {
        Round::TowardPositive if rest > 0.0 => near.next_up(),
        Round::TowardZero | Round::TowardNegative if rest < 0.0 => near.next_down(),
        _ => near,
    }
}
