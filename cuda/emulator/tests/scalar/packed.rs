//! `cvt` to and from pairs of 8 bits, and `cvt.pack`.

use rustc_apfloat::ieee::{Float8E4M3FN, Float8E5M2, Half, Single};
use rustc_apfloat::{Float, Round};

use super::conversions::{number, range};
use super::grid::{Form, all16, check, form, forms, wide};
use super::reference::Format;

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
        &all16(),
    );
    // Values around the formats' range, too.
    let near: Vec<[u64; 3]> = wide()
        .iter()
        .map(|&[a, b, c]| [a & 0x8fff_ffff | 0x3800_0000, b, c])
        .collect();
    check(&to_small(), &near);
    check(&to_small(), wide());
}

type ToSmall = fn(Single) -> u64;

/// Two of F32 to two of 8 bits.
fn to_small() -> Vec<Form<'static>> {
    let kinds: [(&str, ToSmall); 2] = [("e4m3", to_e4m3), ("e5m2", to_e5m2)];
    let of = |(name, convert): (&str, ToSmall)| {
        let texts = ["", ".relu"].map(|relu| format!("cvt.rn.satfinite{relu}.{name}x2.f32 %h0, %r1, %r2;"));
        forms(texts.to_vec(), move |[a, b, _]| {
            let [a, b] = [a, b].map(|value| convert(Single::read(value)));
            let relu = |value: u64| if value & 0x80 != 0 { 0 } else { value };
            [a << 8 | b, relu(a) << 8 | relu(b)]
        })
    };
    kinds.map(of).into()
}

fn integers() -> Vec<Form<'static>> {
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
    forms
}

#[test]
fn integers_are_packed() {
    check(&integers(), wide());
}

/// All of these from 32 bits.
pub(super) fn all() -> Vec<Form<'static>> {
    to_small().into_iter().chain(integers()).collect()
}
