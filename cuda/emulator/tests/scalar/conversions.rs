//! `cvt`, between all types.

use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

use super::grid::{Form, all16, check, form, forms, wide};
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
pub(super) fn number(value: u64, bits: u32, signed: bool) -> i128 {
    let unused = 64 - bits;
    if signed {
        i128::from((value << unused) as i64 >> unused)
    } else {
        i128::from(value << unused >> unused)
    }
}

pub(super) fn range(bits: u32, signed: bool) -> (i128, i128) {
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

/// Whether a type is none of 8 or 16 bits.
fn is_wide(bits: u32) -> bool {
    bits > 16
}

/// Conversions that have a side of 32 or 64 bits, or none.
fn between_integers(wide: bool) -> Vec<Form<'static>> {
    let mut all = Vec::new();
    for &(from, from_bits, from_signed, source) in INTS {
        for &(to, to_bits, to_signed, target) in INTS {
            if (is_wide(from_bits) || is_wide(to_bits)) != wide {
                continue;
            }
            let (least, most) = range(to_bits, to_signed);
            let texts = ["", ".sat"].map(|sat| format!("cvt{sat}.{to}.{from} %{target}0, %{source}1;"));
            all.push(forms(texts.to_vec(), move |[a, ..]| {
                let value = number(a, from_bits, from_signed);
                let wrapped = number(value as u64, to_bits, to_signed);
                [wrapped, value.clamp(least, most)].map(|value| shown(value, target))
            }));
        }
    }
    all
}

#[test]
fn integers_become_integers() {
    check(&between_integers(false), &all16());
    check(&between_integers(true), wide());
}

/// Integral values in the order of [`ROUNDINGS`]: the host's, which apply to every format as it widens to F64.
fn integral(value: f64) -> [f64; 4] {
    [value.round_ties_even(), value.trunc(), value.floor(), value.ceil()]
}

/// A format to every integer type, in every rounding; saturating makes no difference.
fn to_integers<F: Format + FloatConvert<Double>>() -> Vec<Form<'static>> {
    let (ty, source) = (F::NAME, F::REGISTER);
    let qualifiers: &[&str] = if ty == "f32" {
        &["", ".ftz", ".sat", ".ftz.sat"]
    } else {
        &["", ".sat"]
    };
    let mut all = Vec::new();
    for &(to, bits, signed, target) in INTS {
        let spell = |qualifier: &&str| {
            ROUNDINGS.map(|(name, _)| format!("cvt.{name}i{qualifier}.{to}.{ty} %{target}0, %{source}1;"))
        };
        let texts: Vec<String> = qualifiers.iter().flat_map(spell).collect();
        all.push(Form {
            texts,
            expected: Box::new(move |[a, ..], out| {
                let value = match F::NAME {
                    "f64" => f64::from_bits(a),
                    "f32" => f32::from_bits(a as u32).into(),
                    _ => f64::from_bits(F::read(a).to::<Double>(Round::NearestTiesToEven).bits()),
                };
                let flushed = if F::read(a).is_denormal() { 0.0 } else { value };
                let (least, most) = range(bits, signed);
                let convert = |value: f64| {
                    let integer = if value.is_nan() {
                        // Zero, or where a side has 64 bits the top one alone.
                        if F::BITS == 64 || bits == 64 {
                            1 << (bits - 1)
                        } else {
                            0
                        }
                    } else {
                        (value as i128).clamp(least, most)
                    };
                    shown(number(integer as u64, bits, signed), target)
                };
                let (plain, flushed) = (integral(value).map(convert), integral(flushed).map(convert));
                for (i, out) in out.iter_mut().enumerate() {
                    let flushes = F::NAME == "f32" && i / 4 % 2 == 1;
                    *out = if flushes { flushed } else { plain }[i % 4];
                }
            }),
        });
    }
    all
}

#[test]
fn floats_become_integers() {
    check(&to_integers::<Half>(), &all16());
    check(&to_integers::<BFloat>(), &all16());
    check(&to_integers::<Single>(), wide());
    check(&to_integers::<Double>(), wide());
}

/// An integer in a format, rounded: by counting the bits that do not fit.
fn rounded<F: Format>(value: i128, round: Round) -> u64 {
    let (magnitude, negative) = (value.unsigned_abs(), value < 0);
    let shift = (128 - magnitude.leading_zeros()).saturating_sub(F::PRECISION as u32);
    let (kept, rest) = (magnitude >> shift, magnitude & ((1 << shift) - 1));
    let half = (1 << shift) >> 1;
    let up = match round {
        Round::NearestTiesToEven => shift > 0 && (rest > half || rest == half && kept & 1 == 1),
        Round::TowardPositive => rest > 0 && !negative,
        Round::TowardNegative => rest > 0 && negative,
        _ => false,
    };
    let magnitude = (kept + u128::from(up)) << shift;
    let sign = u64::from(negative) << (F::BITS - 1);
    sign | match F::NAME {
        "f64" => (magnitude as f64).to_bits(),
        "f32" => (magnitude as f32).to_bits().into(),
        "bf16" => u64::from((magnitude as f32).to_bits() >> 16),
        // Beyond the largest half there are only infinity and, where that is no nearer, the largest itself.
        _ if magnitude > 65504 => match (round, negative) {
            (Round::TowardZero, _) | (Round::TowardPositive, true) | (Round::TowardNegative, false) => 0x7bff,
            _ => 0x7c00,
        },
        _ => half::f16::from_f64(magnitude as f64).to_bits().into(),
    }
}

/// The qualifiers of conversions to a format.
fn finishes<F: Format>(from: &str) -> &'static [&'static str] {
    if F::NAME == "f32" || from == "f32" {
        &["", ".ftz", ".sat", ".ftz.sat"]
    } else {
        &["", ".sat"]
    }
}

/// Integer types of 32 and 64 bits, or the others, to a format, in every rounding.
fn from_integers<F: Format>(wide: bool) -> Vec<Form<'static>> {
    let mut all = Vec::new();
    for &(from, bits, signed, source) in INTS.iter().filter(|int| is_wide(int.1) == wide) {
        for (name, round) in ROUNDINGS {
            let (ty, target) = (F::NAME, F::REGISTER);
            let spell = |qualifier: &&str| format!("cvt.{name}{qualifier}.{ty}.{from} %{target}0, %{source}1;");
            all.push(Form {
                texts: finishes::<F>(from).iter().map(spell).collect(),
                expected: Box::new(move |[a, ..], out| {
                    let value = number(a, bits, signed);
                    let clamped = if value > 0 { F::one().bits() } else { 0 };
                    let (plain, saturated) = out.split_at_mut(out.len() / 2);
                    plain.fill(rounded::<F>(value, round));
                    saturated.fill(clamped);
                }),
            });
        }
    }
    all
}

#[test]
fn integers_become_floats() {
    for forms in [from_integers::<Half>(false), from_integers::<BFloat>(false)] {
        check(&forms, &all16());
    }
    for forms in [from_integers::<Single>(false), from_integers::<Double>(false)] {
        check(&forms, &all16());
    }
    check(&wide_integers_to_floats(), wide());
}

fn wide_integers_to_floats() -> Vec<Form<'static>> {
    let mut all = from_integers::<Half>(true);
    all.extend(from_integers::<BFloat>(true));
    all.extend(from_integers::<Single>(true));
    all.extend(from_integers::<Double>(true));
    all
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

/// Where something is, in every rounding. F32 that is flushed is so ahead of the conversion and after it.
fn narrow<F: Format + FloatConvert<T>, T: Format>() -> Vec<Form<'static>> {
    let (from, to, source, target) = (F::NAME, T::NAME, F::REGISTER, T::REGISTER);
    let one = |(name, round): (&str, Round)| {
        let spell = |qualifier: &&str| format!("cvt.{name}{qualifier}.{to}.{from} %{target}0, %{source}1;");
        Form {
            texts: finishes::<T>(from).iter().map(spell).collect(),
            expected: Box::new(move |[a, ..], out: &mut [u64]| {
                let value = F::read(a).to::<T>(round);
                if out.len() == 2 {
                    return out.copy_from_slice(&[value, value.saturated()].map(T::bits));
                }
                let flushed = if F::NAME == "f32" {
                    F::read(a).flushed().to::<T>(round)
                } else {
                    value
                };
                let flushed = if T::NAME == "f32" { flushed.flushed() } else { flushed };
                let results = [value, flushed, value.saturated(), flushed.saturated()];
                out.copy_from_slice(&results.map(T::bits));
            }),
        }
    };
    ROUNDINGS.into_iter().map(one).collect()
}

fn wide_floats_to_narrower() -> Vec<Form<'static>> {
    let mut all = narrow::<Single, Half>();
    all.extend(narrow::<Single, BFloat>());
    all.extend(narrow::<Double, Half>());
    all.extend(narrow::<Double, BFloat>());
    all.extend(narrow::<Double, Single>());
    all
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
        &all16(),
    );
}

#[test]
fn floats_become_narrower() {
    check(&wide_floats_to_narrower(), wide());
    // Every half, and ties between halves.
    let ties: Vec<[u64; 3]> = (0..1 << 17).map(|i: u64| [i << 15 | 0x1000, 0, 0]).collect();
    check(&narrow::<Single, Half>(), &ties);
    check(&narrow::<Single, BFloat>(), &ties);
    let mut between = narrow::<Half, BFloat>();
    between.extend(narrow::<BFloat, Half>());
    check(&between, &all16());
}

/// Conversions of a format to itself: to integral values, flushed, clamped.
fn within<F: Format>() -> Vec<Form<'static>> {
    let (ty, r) = (F::NAME, F::REGISTER);
    let qualifiers: &[&str] = if ty == "f32" {
        &["", ".ftz", ".sat", ".ftz.sat"]
    } else {
        &["", ".sat"]
    };
    let roundings = ["", ".rni", ".rzi", ".rmi", ".rpi"];
    let mut texts = Vec::new();
    for rounding in roundings {
        texts.extend(
            qualifiers
                .iter()
                .map(|qualifier| format!("cvt{rounding}{qualifier}.{ty}.{ty} %{r}0, %{r}1;")),
        );
    }
    let count = qualifiers.len();
    vec![Form {
        texts,
        expected: Box::new(move |[a, ..], out| {
            let value = F::read(a);
            for (i, out) in out.chunks_mut(count).enumerate() {
                let to_integral = |value: F| match i.checked_sub(1) {
                    Some(i) => value.round_to_integral(ROUNDINGS[i].1).value,
                    None => value,
                };
                let (plain, flushed) = (to_integral(value), to_integral(value.flushed()));
                // What changes nothing changes no NaN either.
                let plain_bits = if i == 0 { value.to_bits() as u64 } else { plain.bits() };
                if count == 4 {
                    out[1] = flushed.bits();
                    out[3] = flushed.saturated().bits();
                }
                out[0] = plain_bits;
                out[count / 2] = plain.saturated().bits();
            }
        }),
    }]
}

/// What rounds F32 to TF32, into two halves, and with `.relu`; and F32 to F64.
fn qualified() -> Vec<Form<'static>> {
    let near = Round::NearestTiesToEven;
    let s = Single::read;
    let mut all = within::<Single>();
    all.extend(within::<Double>());
    let wider = ["", ".ftz", ".sat", ".ftz.sat"].map(|qualifier| format!("cvt{qualifier}.f64.f32 %d0, %r1;"));
    all.push(forms(wider.to_vec(), move |[a, ..]| {
        let [plain, flushed] = [s(a), s(a).flushed()].map(|value| value.to::<Double>(near));
        [plain, flushed, plain.saturated(), flushed.saturated()].map(Format::bits)
    }));
    // The 19 upper bits, rounded by adding below them.
    let tf32 = |a: u64, away: Option<bool>| {
        let value = a & 0xffff_ffff;
        if Single::read(value).is_nan() {
            return 0x7fff_e000;
        }
        let below = value & 0x1fff;
        let up = away.is_some_and(|away| below > 0x1000 || below == 0x1000 && (away || value & 0x2000 != 0));
        (value & !0x1fff) + if up { 0x2000 } else { 0 }
    };
    let finite = |value: u64| match value & 0x7fff_ffff {
        0x7f80_0000 => value & 0x8000_0000 | 0x7f7f_e000,
        _ => value,
    };
    let away = ["", ".satfinite"].map(|how| format!("cvt.rna{how}.tf32.f32 %r0, %r1;"));
    all.push(forms(away.to_vec(), move |[a, ..]| {
        let value = tf32(a, Some(true));
        [value, finite(value)]
    }));
    for (name, away) in [("rn", Some(false)), ("rz", None)] {
        let texts =
            ["", ".relu", ".satfinite", ".satfinite.relu"].map(|how| format!("cvt.{name}{how}.tf32.f32 %r0, %r1;"));
        all.push(forms(texts.to_vec(), move |[a, ..]| {
            let value = tf32(a, away);
            let nan = s(value).is_nan();
            let relu = |value: u64| if value >> 31 == 1 && !nan { 0 } else { value };
            [value, relu(value), finite(value), relu(finite(value))]
        }));
    }
    for (name, round) in [("rn", near), ("rz", Round::TowardZero)] {
        all.extend([halves::<Half>(name, round), halves::<BFloat>(name, round)]);
    }
    all
}

/// F32 to one half with `.relu`, and to two.
fn halves<F: Format>(name: &str, round: Round) -> Form<'static>
where
    Single: FloatConvert<F>,
{
    let ty = F::NAME;
    let texts = vec![
        format!("cvt.{name}.relu.{ty}.f32 %h0, %r1;"),
        format!("cvt.{name}.{ty}x2.f32 %r0, %r1, %r2;"),
        format!("cvt.{name}.relu.{ty}x2.f32 %r0, %r1, %r2;"),
    ];
    forms(texts, move |[a, b, _]| {
        let [a, b] = [a, b].map(|value| Single::read(value).to::<F>(round));
        let pair = |a: F, b: F| a.bits() << 16 | b.bits();
        [a.relu().bits(), pair(a, b), pair(a.relu(), b.relu())]
    })
}

#[test]
fn qualifiers_of_conversions() {
    check(&qualified(), wide());
}

/// All of these that have a side of 32 or 64 bits, but for those from 16 bits.
pub(super) fn all() -> Vec<Form<'static>> {
    let mut all = between_integers(true);
    all.extend(to_integers::<Single>());
    all.extend(to_integers::<Double>());
    all.extend(wide_integers_to_floats());
    all.extend(wide_floats_to_narrower());
    all.extend(qualified());
    all
}
