use half::{bf16, f16};
use proptest::prelude::*;

use super::super::*;
use super::ROUNDINGS;

const INTS: [Int; 8] = [
    Int { bits: 8, signed: false },
    Int { bits: 8, signed: true },
    Int {
        bits: 16,
        signed: false,
    },
    Int { bits: 16, signed: true },
    Int {
        bits: 32,
        signed: false,
    },
    Int { bits: 32, signed: true },
    Int {
        bits: 64,
        signed: false,
    },
    Int { bits: 64, signed: true },
];

/// A value rounded to an integral one by the host's own functions.
fn integral(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::NearestAway => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// What [`float_to_int`] must deliver for a value that is not NaN.
fn expected_int(value: f64, to: Int) -> u64 {
    let (least, most) = to.range();
    (value as i128).clamp(least, most) as u64
}

#[test]
fn every_16_bit_float_widens_and_returns() {
    for bits in 0..=u16::MAX {
        let pattern = u64::from(bits);
        let mode = Mode::default();
        let half = f16::from_bits(bits);
        let wide = float_to_float(pattern, Format::F16, Format::F32, mode) as u32;
        if half.is_nan() {
            assert_eq!(wide, 0x7fff_ffff);
        } else {
            assert_eq!(wide, half.to_f32().to_bits());
            for rounding in ROUNDINGS {
                let mode = Mode::rounded(rounding);
                assert_eq!(float_to_float(wide.into(), Format::F32, Format::F16, mode), pattern);
                let wider = float_to_float(pattern, Format::F16, Format::F64, mode);
                assert_eq!(wider, half.to_f64().to_bits());
                assert_eq!(float_to_float(wider, Format::F64, Format::F16, mode), pattern);
            }
        }
        let wide = float_to_float(pattern, Format::Bf16, Format::F32, mode);
        assert_eq!(wide, pattern << 16);
        if !bf16::from_bits(bits).is_nan() {
            assert_eq!(float_to_float(wide, Format::F32, Format::Bf16, mode), pattern);
            assert_eq!(float_to_float(wide, Format::F32, Format::Tf32, mode), wide);
        }
    }
}

#[test]
fn every_16_bit_float_becomes_every_integer() {
    for pattern in 0..=u16::MAX {
        for (format, value) in [
            (Format::F16, f16::from_bits(pattern).to_f64()),
            (Format::Bf16, bf16::from_bits(pattern).to_f64()),
        ] {
            for (to, rounding) in INTS.iter().flat_map(|&to| ROUNDINGS.map(|rounding| (to, rounding))) {
                let result = float_to_int(pattern.into(), format, to, Mode::rounded(rounding));
                let expected = match value.is_nan() {
                    true if to.bits == 64 => 1 << 63,
                    true => 0,
                    false => expected_int(integral(value, rounding), to),
                };
                assert_eq!(result, expected, "{format:?} {value} {to:?} {rounding:?}");
            }
            if !value.is_nan() {
                for rounding in ROUNDINGS {
                    let result = round_to_integral(pattern.into(), format, Mode::rounded(rounding));
                    let result = f64::from_bits(float_to_float(result, format, Format::F64, Mode::default()));
                    let expected = integral(value, rounding);
                    assert_eq!(result.to_bits(), expected.to_bits(), "{format:?} {value} {rounding:?}");
                }
            }
        }
    }
}

#[test]
fn every_16_bit_integer_becomes_a_float() {
    for register in 0..=u64::from(u16::MAX) {
        for signed in [false, true] {
            let from = Int { bits: 16, signed };
            let value = from.value(register) as f64;
            let wide = int_to_float(register, from, Format::F32, Mode::default());
            assert_eq!(wide as u32, (value as f32).to_bits());
            let half = int_to_float(register, from, Format::F16, Mode::default());
            assert_eq!(half as u16, f16::from_f64(value).to_bits());
            let brain = int_to_float(register, from, Format::Bf16, Mode::default());
            assert_eq!(brain as u16, bf16::from_f64(value).to_bits());
            // What lies between the directed roundings is the value, and they differ only where it is inexact.
            let [down, up] = [Rounding::Down, Rounding::Up].map(|rounding| {
                bf16::from_bits(int_to_float(register, from, Format::Bf16, Mode::rounded(rounding)) as u16).to_f64()
            });
            assert!(down <= value && value <= up && (down == up) == (bf16::from_f64(value).to_f64() == value));
        }
    }
}

#[test]
fn nan_becomes_what_the_isa_says() {
    let (nan, wide_nan) = (u64::from(f32::NAN.to_bits()), f64::NAN.to_bits());
    for to in INTS {
        let top = to.extend(1 << (to.bits - 1));
        assert_eq!(
            float_to_int(nan, Format::F32, to, Mode::default()),
            if to.bits == 64 { 1 << 63 } else { 0 }
        );
        assert_eq!(float_to_int(wide_nan, Format::F64, to, Mode::default()), top);
    }
    for (to, expected) in [
        (Format::F16, 0x7fff),
        (Format::Bf16, 0x7fff),
        (Format::F32, 0x7fff_ffff),
    ] {
        assert_eq!(float_to_float(wide_nan, Format::F64, to, Mode::default()), expected);
    }
}

#[test]
fn qualifiers_shape_conversions() {
    let f32_bits = |value: f32| u64::from(value.to_bits());
    let convert = |value, to, mode| float_to_float(f32_bits(value), Format::F32, to, mode);
    let finite = Mode {
        finite: true,
        ..Mode::default()
    };
    let relu = Mode {
        relu: true,
        ..Mode::default()
    };
    let saturate = Mode {
        saturate: true,
        ..Mode::default()
    };
    let flush = Mode {
        flush: true,
        ..Mode::default()
    };
    assert_eq!(convert(1e30, Format::F16, Mode::default()), 0x7c00);
    assert_eq!(convert(1e30, Format::F16, finite), 0x7bff);
    assert_eq!(convert(f32::NEG_INFINITY, Format::Bf16, finite), 0xff7f);
    assert_eq!(convert(-2.0, Format::Bf16, relu), 0);
    assert_eq!(convert(f32::NAN, Format::Bf16, relu), 0x7fff);
    assert_eq!(convert(2.5, Format::F32, saturate), f32_bits(1.0));
    assert_eq!(convert(f32::NAN, Format::F32, saturate), 0);
    assert_eq!(convert(f32::from_bits(5), Format::F64, flush), 0);
    // A half's own subnormals are no business of `.ftz`.
    assert_eq!(
        float_to_float(1, Format::F16, Format::F32, flush),
        f32_bits(2f32.powi(-24))
    );
    assert_eq!(
        convert(1.0 + 2f32.powi(-11), Format::Tf32, Mode::rounded(Rounding::NearestAway)),
        f32_bits(1.0 + 2f32.powi(-10))
    );
    assert_eq!(
        pack_pair(
            f32_bits(1.0),
            f32_bits(-2.0),
            Format::F32,
            Format::Bf16,
            Mode::default()
        ),
        0x3f80_c000
    );
    let (byte, signed) = (Int { bits: 8, signed: false }, Int { bits: 32, signed: true });
    assert_eq!(int_to_int(0xffff_fff0, signed, byte, true), 0);
    assert_eq!(int_to_int(0xffff_fff0, signed, byte, false), 0xf0);
    assert_eq!(
        int_to_int(
            0xf0,
            Int { bits: 8, signed: true },
            Int {
                bits: 64,
                signed: false
            },
            false
        ),
        -16i64 as u64
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn narrowing_agrees_with_the_half_crate(bits: u32, wide: u64, tie: u16) {
        for bits in [bits, u32::from(tie) << 16 | 0x8000, u32::from(tie) << 13 | 0x1000 | bits & 0x8000_0000] {
            let value = f32::from_bits(bits);
            let [half, brain] = [Format::F16, Format::Bf16].map(|to| float_to_float(bits.into(), Format::F32, to, Mode::default()) as u16);
            if value.is_nan() {
                prop_assert_eq!((half, brain), (0x7fff, 0x7fff));
            } else {
                prop_assert_eq!((half, brain), (f16::from_f32(value).to_bits(), bf16::from_f32(value).to_bits()));
            }
        }
        let value = f64::from_bits(wide);
        let narrow = float_to_float(wide, Format::F64, Format::F32, Mode::default()) as u32;
        prop_assert_eq!(narrow, if value.is_nan() { 0x7fff_ffff } else { (value as f32).to_bits() });
    }

    /// Directed narrowing brackets the value with neighbours, and picks the right one.
    #[test]
    fn directed_narrowing_brackets_the_value(bits: u32) {
        let value = f64::from(f32::from_bits(bits));
        prop_assume!(value.is_finite());
        let narrow = |rounding| {
            let result = float_to_float(bits.into(), Format::F32, Format::Bf16, Mode::rounded(rounding)) as u16;
            (result, bf16::from_bits(result).to_f64())
        };
        let ((down_bits, down), (up_bits, up)) = (narrow(Rounding::Down), narrow(Rounding::Up));
        prop_assert!(down <= value && value <= up);
        prop_assert_eq!(down_bits.abs_diff(up_bits), u16::from(down != value));
        prop_assert_eq!(narrow(Rounding::Zero).1, if value < 0.0 { up } else { down });
        let away = narrow(Rounding::NearestAway).1;
        prop_assert!(away == down || away == up);
        prop_assert!(!away.is_finite() || (away - value).abs() <= (down - value).abs().min((up - value).abs()));
    }

    #[test]
    fn wide_floats_become_integers(bits: u64, exponent in 1000u64..1100) {
        for bits in [bits, bits & 0x800f_ffff_ffff_ffff | exponent << 52] {
            let value = f64::from_bits(bits);
            prop_assume!(!value.is_nan());
            for (to, rounding) in INTS.iter().flat_map(|&to| ROUNDINGS.map(|rounding| (to, rounding))) {
                let result = float_to_int(bits, Format::F64, to, Mode::rounded(rounding));
                prop_assert_eq!(result, expected_int(integral(value, rounding), to));
                let narrow = value as f32;
                let result = float_to_int(narrow.to_bits().into(), Format::F32, to, Mode::rounded(rounding));
                prop_assert_eq!(result, expected_int(integral(narrow.into(), rounding), to));
            }
        }
    }

    #[test]
    fn wide_integers_become_floats(register: u64) {
        let (unsigned, signed) = (Int { bits: 64, signed: false }, Int { bits: 64, signed: true });
        let mode = Mode::default();
        prop_assert_eq!(int_to_float(register, unsigned, Format::F32, mode) as u32, (register as f32).to_bits());
        prop_assert_eq!(int_to_float(register, signed, Format::F32, mode) as u32, (register as i64 as f32).to_bits());
        prop_assert_eq!(int_to_float(register, unsigned, Format::F64, mode), (register as f64).to_bits());
        prop_assert_eq!(int_to_float(register, signed, Format::F64, mode), (register as i64 as f64).to_bits());
        let toward_zero = int_to_float(register, unsigned, Format::F64, Mode::rounded(Rounding::Zero));
        let top = register.checked_ilog2().map_or(0, |top| top.saturating_sub(52));
        prop_assert_eq!(f64::from_bits(toward_zero), (register >> top << top) as f64);
    }
}
