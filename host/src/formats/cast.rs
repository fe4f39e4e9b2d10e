//! Casts to BF16, round to nearest, ties to even. Only ever done on explicit request: they lose bits.

use half::{bf16, f16};

/// The type to which weights may be cast, on explicit request only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cast {
    /// To BF16, rounding to nearest even.
    Bf16,
}

/// Rounds FP32 values to BF16; a value beyond BF16's range becomes infinite, a NaN stays one.
pub fn f32_to_bf16(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|&v| bf16::from_f32(v)).collect()
}

/// Rounds FP16 values to BF16, which has FP16's range but three bits less of precision.
pub fn f16_to_bf16(values: &[f16]) -> Vec<bf16> {
    values.iter().map(|&v| bf16::from_f32(v.to_f32())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Round to nearest even by arithmetic on the bits, written apart from `half`'s own.
    fn nearest_even(v: f32) -> u16 {
        let bits = v.to_bits();
        let (high, low) = ((bits >> 16) as u16, bits & 0xffff);
        if low > 0x8000 || (low == 0x8000 && high & 1 == 1) {
            high + 1
        } else {
            high
        }
    }

    #[test]
    fn f32_rounds_to_nearest_even() {
        let ties = [
            0x3f80_8000,
            0x3f81_8000,
            0x3f80_8001,
            0x3f80_7fff,
            0x7f7f_ffff,
            0x0000_8000,
            0x8001_8000,
        ];
        for bits in ties.into_iter().chain((0..0x7f80_0000).step_by(65_521)) {
            let v = f32::from_bits(bits);
            assert_eq!(f32_to_bf16(&[v])[0].to_bits(), nearest_even(v), "{bits:#x}");
        }
        assert!(f32_to_bf16(&[f32::from_bits(0x7f80_0001)])[0].is_nan());
    }

    #[test]
    fn every_f16_rounds_as_its_f32_does() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for (v, b) in all.iter().zip(f16_to_bf16(&all)) {
            assert_eq!(v.is_nan(), b.is_nan());
            if !v.is_nan() {
                assert_eq!(b.to_bits(), nearest_even(v.to_f32()), "{v}");
            }
        }
    }
}
