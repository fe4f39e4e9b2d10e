//! `cvt`, between all types.

use rustc_apfloat::ieee::{BFloat, Double, Float8E4M3FN, Float8E5M2, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

use super::grid::{Form, all16, check, form, random};
use super::reference::{Format, ROUNDINGS};

/// Integer types, and the registers that hold them.
const INTS: &[(&str, u32, bool, &str)] = &[
    ("u8", 8, false, "r"),
    ("s8", 8, true, "r"),
    ("u16", 16, false, "h"),
    ("s16", 16, true, "h"),
    ("u32", 32, false, "r"),
    ("s32", 32, true, "r"),
    ("u64", 64, false, "d"),
    ("s64", 64, true, "d"),
];

/// The low bits of a register as a number.
fn number(value: u64, bits: u32, signed: bool) -> i128 {
    let unused = 64 - bits;
    if signed {
        i128::from((value << unused) as i64 >> unused)
    } else {
        i128::from(value << unused >> unused)
    }
}

fn range(bits: u32, signed: bool) -> (i128, i128) {
    if signed {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// What a register of the test kernel shows of a number: its width for 16, 32 and 64 bits.
fn shown(value: i128, register: &str) -> u64 {
    let bits = match register {
        "h" => 16,
        "r" => 32,
        _ => 64,
    };
    value as u64 & (u64::MAX >> (64 - bits))
}

#[test]
fn integers_become_integers() {
    let mut forms = Vec::new();
    for &(from, from_bits, from_signed, source) in INTS {
        for &(to, to_bits, to_signed, target) in INTS {
            let value = move |a: u64| number(a, from_bits, from_signed);
            forms.push(form(
                format!("cvt.{to}.{from} %{target}0, %{source}1;"),
                move |[a, ..]| shown(number(value(a) as u64, to_bits, to_signed), target),
            ));
            let (least, most) = range(to_bits, to_signed);
            forms.push(form(
                format!("cvt.sat.{to}.{from} %{target}0, %{source}1;"),
                move |[a, ..]| shown(value(a).clamp(least, most), target),
            ));
        }
    }
    check(&forms, all16);
    check(&forms, || random(30_000));
}

/// A format to every integer type, in every rounding.
fn to_integers<F: Format + FloatConvert<Double>>() -> Vec<Form<'static>> {
    let mut forms = Vec::new();
    for &(to, bits, signed, target) in INTS {
        for (name, round) in ROUNDINGS {
            let (ty, source) = (F::NAME, F::REGISTER);
            forms.push(form(
                format!("cvt.{name}i.{to}.{ty} %{target}0, %{source}1;"),
                move |[a, ..]| {
                    let value = F::read(a);
                    let (least, most) = range(bits, signed);
                    let integer = if value.is_nan() {
                        // Zero, or where a side has 64 bits the top one alone.
                        if F::BITS == 64 || bits == 64 {
                            1 << (bits - 1)
                        } else {
                            0
                        }
                    } else {
                        let wide = value.round_to_integral(round).value.to_i128(128).value;
                        wide.clamp(least, most)
                    };
                    shown(number(integer as u64, bits, signed), target)
                },
            ));
        }
    }
    forms
}

#[test]
fn floats_become_integers() {
    check(&to_integers::<Half>(), all16);
    check(&to_integers::<BFloat>(), all16);
    check(&to_integers::<Single>(), || random(100_000));
    check(&to_integers::<Double>(), || random(100_000));
}

/// Every integer type to a format, in every rounding.
fn from_integers<F: Format>() -> Vec<Form<'static>> {
    let mut forms = Vec::new();
    for &(from, bits, signed, source) in INTS {
        for (name, round) in ROUNDINGS {
            let (ty, target) = (F::NAME, F::REGISTER);
            forms.push(form(
                format!("cvt.{name}.{ty}.{from} %{target}0, %{source}1;"),
                move |[a, ..]| F::from_i128_r(number(a, bits, signed), round).value.bits(),
            ));
        }
    }
    forms
}

#[test]
fn integers_become_floats() {
    for forms in [from_integers::<Half>(), from_integers::<BFloat>()] {
        check(&forms, all16);
        check(&forms, || random(30_000));
    }
    for forms in [from_integers::<Single>(), from_integers::<Double>()] {
        check(&forms, || random(60_000));
    }
}

/// Where nothing is rounded.
fn widen<F: Format + FloatConvert<T>, T: Format>() -> Form<'static> {
    let (from, to, source, target) = (F::NAME, T::NAME, F::REGISTER, T::REGISTER);
    form(format!("cvt.{to}.{from} %{target}0, %{source}1;"), |[a, ..]| {
        let value = F::read(a);
        if F::NAME == "bf16" && T::NAME == "f32" {
            // The bits move, a NaN's too.
            (a & 0xffff) << 16
        } else {
            value.to::<T>(Round::NearestTiesToEven).bits()
        }
    })
}

fn narrow<F: Format + FloatConvert<T>, T: Format>() -> Vec<Form<'static>> {
    let (from, to, source, target) = (F::NAME, T::NAME, F::REGISTER, T::REGISTER);
    let one = |(name, round): (&str, Round)| {
        form(
            format!("cvt.{name}.{to}.{from} %{target}0, %{source}1;"),
            move |[a, ..]| F::read(a).to::<T>(round).bits(),
        )
    };
    ROUNDINGS.into_iter().map(one).collect()
}

#[test]
fn floats_become_wider() {
    check(
        &[
            widen::<Half, Single>(),
            widen::<BFloat, Single>(),
            widen::<Half, Double>(),
            widen::<BFloat, Double>(),
        ],
        all16,
    );
    check(&[widen::<Single, Double>()], || random(300_000));
}

#[test]
fn floats_become_narrower() {
    let mut forms = narrow::<Single, Half>();
    forms.extend(narrow::<Single, BFloat>());
    forms.extend(narrow::<Double, Half>());
    forms.extend(narrow::<Double, BFloat>());
    forms.extend(narrow::<Double, Single>());
    check(&forms, || random(1_000_000));
    // Every half, and ties between halves.
    let ties =
        || -> Box<dyn Iterator<Item = [u64; 3]>> { Box::new((0..1 << 17).map(|i: u64| [i << 15 | 0x1000, 0, 0])) };
    check(&narrow::<Single, Half>(), ties);
    check(&narrow::<Single, BFloat>(), ties);
    let mut between = narrow::<Half, BFloat>();
    between.extend(narrow::<BFloat, Half>());
    check(&between, all16);
}

#[test]
fn qualifiers_of_conversions() {
    let near = Round::NearestTiesToEven;
    let s = Single::read;
    let pair = |high: u64, low: u64| high << 16 | low;
    // The 19 upper bits, rounded by adding below them.
    let tf32 = |a: u64, away: bool| {
        let value = a & 0xffff_ffff;
        if s(value).is_nan() {
            return 0x7fff_e000;
        }
        let below = value & 0x1fff;
        let up = below > 0x1000 || below == 0x1000 && (away || value & 0x2000 != 0);
        (value & !0x1fff) + if up { 0x2000 } else { 0 }
    };
    check(
        &[
            form("cvt.rn.relu.f16.f32 %h0, %r1;", move |[a, ..]| {
                s(a).to::<Half>(near).relu().bits()
            }),
            form("cvt.rz.relu.bf16.f32 %h0, %r1;", move |[a, ..]| {
                s(a).to::<BFloat>(Round::TowardZero).relu().bits()
            }),
            form("cvt.rna.tf32.f32 %r0, %r1;", move |[a, ..]| tf32(a, true)),
            form("cvt.rn.tf32.f32 %r0, %r1;", move |[a, ..]| tf32(a, false)),
            form("cvt.rz.relu.tf32.f32 %r0, %r1;", move |[a, ..]| match s(a) {
                value if value.is_nan() => 0x7fff_e000,
                value if value.is_negative() => 0,
                _ => a & 0xffff_e000,
            }),
            form("cvt.rn.f16x2.f32 %r0, %r1, %r2;", move |[a, b, _]| {
                pair(s(a).to::<Half>(near).bits(), s(b).to::<Half>(near).bits())
            }),
            form("cvt.rz.relu.bf16x2.f32 %r0, %r1, %r2;", move |[a, b, _]| {
                let part = |a: u64| s(a).to::<BFloat>(Round::TowardZero).relu().bits();
                pair(part(a), part(b))
            }),
            form("cvt.sat.f32.f32 %r0, %r1;", move |[a, ..]| s(a).saturated().bits()),
            form("cvt.ftz.f32.f32 %r0, %r1;", move |[a, ..]| match s(a) {
                value if value.is_nan() => 0x7fff_ffff,
                value => value.flushed().bits(),
            }),
            form("cvt.rn.sat.f16.f32 %h0, %r1;", move |[a, ..]| {
                s(a).to::<Half>(near).saturated().bits()
            }),
            form("cvt.rpi.ftz.f32.f32 %r0, %r1;", move |[a, ..]| {
                s(a).flushed().round_to_integral(Round::TowardPositive).value.bits()
            }),
            form("cvt.rmi.f64.f64 %d0, %d1;", |[a, ..]| {
                Double::read(a).round_to_integral(Round::TowardNegative).value.bits()
            }),
            form("cvt.rn.ftz.f32.f64 %r0, %d1;", move |[a, ..]| {
                Double::read(a).to::<Single>(near).flushed().bits()
            }),
            form("cvt.rzi.ftz.u32.f32 %r0, %r1;", move |[a, ..]| match s(a).flushed() {
                value if value.is_nan() => 0,
                value => (value.to_i128(128).value).clamp(0, u32::MAX.into()) as u64,
            }),
        ],
        || random(300_000),
    );
}

/// What a conversion to FP8 delivers: nothing infinite.
fn small<F: Format>(value: F, largest: u64) -> u64 {
    let finite = value.is_finite();
    match (value.is_nan(), finite) {
        (true, _) => 0x7f,
        (_, true) => value.to_bits() as u64,
        _ => largest | u64::from(value.is_negative()) << 7,
    }
}

fn to_e4m3(value: Single) -> u64 {
    if value.is_nan() {
        return 0x7f;
    }
    // Beyond 464, the middle between 448 and what would be next, it is too large; the format's own NaN lies there.
    let magnitude = f32::from_bits(value.abs().to_bits() as u32);
    if magnitude >= 448.0 {
        return 0x7e | u64::from(value.is_negative()) << 7;
    }
    small(value.to::<Float8E4M3FN>(Round::NearestTiesToEven), 0x7e)
}

fn to_e5m2(value: Single) -> u64 {
    small(value.to::<Float8E5M2>(Round::NearestTiesToEven), 0x7b)
}

#[test]
fn eight_bit_floats() {
    let widen = |bits: u64| Half::read(bits).to::<Single>(Round::NearestTiesToEven);
    let relu = |value: u64| if value & 0x80 != 0 { 0 } else { value };
    let s = Single::read;
    check(
        &[
            form("cvt.rn.f16x2.e4m3x2 %r0, %h1;", |[a, ..]| {
                let part = |a| Float8E4M3FN::read(a).to::<Half>(Round::NearestTiesToEven).bits();
                part(a >> 8) << 16 | part(a)
            }),
            form("cvt.rn.relu.f16x2.e5m2x2 %r0, %h1;", |[a, ..]| {
                let part = |a| Float8E5M2::read(a).to::<Half>(Round::NearestTiesToEven).relu().bits();
                part(a >> 8) << 16 | part(a)
            }),
            form("cvt.rn.satfinite.e4m3x2.f16x2 %h0, %r1;", move |[a, ..]| {
                to_e4m3(widen(a >> 16)) << 8 | to_e4m3(widen(a))
            }),
            form("cvt.rn.satfinite.relu.e5m2x2.f16x2 %h0, %r1;", move |[a, ..]| {
                relu(to_e5m2(widen(a >> 16))) << 8 | relu(to_e5m2(widen(a)))
            }),
        ],
        all16,
    );
    // Values around the formats' range, too.
    let near = || -> Box<dyn Iterator<Item = [u64; 3]>> {
        Box::new(random(300_000).map(|[a, b, c]| [a & 0x8fff_ffff | 0x3800_0000, b, c]))
    };
    check(
        &[
            form("cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2;", move |[a, b, _]| {
                to_e4m3(s(a)) << 8 | to_e4m3(s(b))
            }),
            form("cvt.rn.satfinite.relu.e4m3x2.f32 %h0, %r1, %r2;", move |[a, b, _]| {
                relu(to_e4m3(s(a))) << 8 | relu(to_e4m3(s(b)))
            }),
            form("cvt.rn.satfinite.e5m2x2.f32 %h0, %r1, %r2;", move |[a, b, _]| {
                to_e5m2(s(a)) << 8 | to_e5m2(s(b))
            }),
        ],
        near,
    );
}

#[test]
fn integers_are_packed() {
    let clamp = |value: u64, bits: u32, signed: bool| {
        let (least, most) = range(bits, signed);
        number(value, 32, true).clamp(least, most) as u64 & (u64::MAX >> (64 - bits))
    };
    let mut forms = vec![
        form("cvt.pack.sat.u16.s32 %r0, %r1, %r2;", move |[a, b, _]| {
            clamp(a, 16, false) << 16 | clamp(b, 16, false)
        }),
        form("cvt.pack.sat.s16.s32 %r0, %r1, %r2;", move |[a, b, _]| {
            clamp(a, 16, true) << 16 | clamp(b, 16, true)
        }),
    ];
    for (name, bits, signed) in [
        ("u8", 8, false),
        ("s8", 8, true),
        ("u4", 4, false),
        ("s4", 4, true),
        ("u2", 2, false),
        ("s2", 2, true),
    ] {
        forms.push(form(
            format!("cvt.pack.sat.{name}.s32.b32 %r0, %r1, %r2, %r3;"),
            move |[a, b, c]| (c << (2 * bits) | clamp(a, bits, signed) << bits | clamp(b, bits, signed)) & 0xffff_ffff,
        ));
    }
    check(&forms, || random(200_000));
}
