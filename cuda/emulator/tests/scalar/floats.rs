//! F32 and F64.

use rustc_apfloat::ieee::{Double, Single};
use rustc_apfloat::{Float, Round};

use super::grid::{Form, check, form, forms, wide};
use super::reference::{Format, ROUNDINGS, result, sqrt_f64};

/// What follows a name: each of these with each of those.
fn spelled(names: &[&str], qualifiers: &[&str]) -> Vec<String> {
    let pairs = names
        .iter()
        .flat_map(|name| qualifiers.iter().map(move |qualifier| (name, qualifier)));
    pairs.map(|(name, qualifier)| format!("{name}{qualifier}")).collect()
}

/// `name.type d, a, …`
fn text<F: Format>(name: &str, operands: usize) -> String {
    let r = F::REGISTER;
    let list: Vec<String> = (0..=operands).map(|i| format!("%{r}{i}")).collect();
    format!("{name}.{} {};", F::NAME, list.join(", "))
}

/// One operation spelled in several ways, plain and flushed, and where it can be so also saturated.
fn rounded<F: Format>(
    names: &[&str],
    operands: usize,
    (flushes, saturates): (bool, bool),
    f: impl Fn([F; 3]) -> F + 'static,
) -> Form<'static> {
    let qualifiers: &[&str] = match (flushes, saturates) {
        (true, true) => &["", ".ftz", ".sat", ".ftz.sat"],
        (true, false) => &["", ".ftz"],
        _ => &[""],
    };
    let texts = (spelled(names, qualifiers).iter().map(|name| text::<F>(name, operands))).collect();
    Form {
        texts,
        expected: Box::new(move |inputs, out| {
            let values = inputs.map(F::read);
            let plain = f(values);
            let mut results = [0; 4];
            results[0] = result(plain, &inputs[..operands]);
            if flushes {
                let kept = values.iter().all(|value| !value.is_denormal());
                let flushed = if kept { plain } else { f(values.map(F::flushed)) }.flushed();
                results[1] = flushed.bits();
                if saturates {
                    results[2] = plain.saturated().bits();
                    results[3] = flushed.saturated().bits();
                }
            }
            let results = results.iter().take(qualifiers.len()).cycle();
            out.iter_mut().zip(results).for_each(|(out, &result)| *out = result);
        }),
    }
}

/// Addition, multiplication and their fusion, division and roots in a rounding, which the first three may leave unsaid
/// if it is the nearest.
fn arithmetic<F: Format>(rounding: &str, round: Round, root: impl Fn(F) -> F + 'static) -> Vec<Form<'static>> {
    let single = F::BITS == 32;
    let of = |name: &str| format!("{name}.{rounding}");
    let three = |name: &'static str, f: fn(F, F, Round) -> F| {
        let full = of(name);
        let names: &[&str] = if rounding == "rn" { &[name, &full] } else { &[&full] };
        rounded(names, 2, (single, single), move |[a, b, _]| f(a, b, round))
    };
    vec![
        three("add", |a, b, round| a.add_r(b, round).value),
        three("sub", |a, b, round| a.sub_r(b, round).value),
        three("mul", |a, b, round| a.mul_r(b, round).value),
        rounded(
            &[&of("fma"), &of("mad")],
            3,
            (single, single),
            move |[a, b, c]: [F; 3]| a.mul_add_r(b, c, round).value,
        ),
        rounded(&[&of("div")], 2, (single, false), move |[a, b, _]: [F; 3]| {
            a.div_r(b, round).value
        }),
        rounded(&[&of("rcp")], 1, (single, false), move |[a, ..]: [F; 3]| {
            F::one().div_r(a, round).value
        }),
        rounded(&[&of("sqrt")], 1, (single, false), move |[a, ..]| root(a)),
    ]
}

fn arithmetic_of_f32(index: usize) -> Vec<Form<'static>> {
    let (name, round) = ROUNDINGS[index];
    arithmetic::<Single>(name, round, move |a| {
        // The root in F64, cut off, with a bit that says whether it is exact, rounds to F32 as the root itself would.
        let value = f64::from(f32::from_bits(a.to_bits() as u32));
        let root = sqrt_f64(value, Round::TowardZero);
        let exact = root * root == value;
        let odd = f64::from_bits(root.to_bits() | u64::from(!exact));
        Double::read(if root.is_finite() { odd } else { root }.to_bits()).to::<Single>(round)
    })
}

fn arithmetic_of_f64() -> Vec<Form<'static>> {
    let of = |(name, round)| {
        let root = move |a: Double| Double::read(sqrt_f64(f64::from_bits(a.to_bits() as u64), round).to_bits());
        arithmetic::<Double>(name, round, root)
    };
    ROUNDINGS.into_iter().flat_map(of).collect()
}

#[test]
fn f32_rounded_to_nearest_and_to_zero() {
    check(&arithmetic_of_f32(0), wide());
    check(&arithmetic_of_f32(1), wide());
}

#[test]
fn f32_rounded_down_and_up() {
    check(&arithmetic_of_f32(2), wide());
    check(&arithmetic_of_f32(3), wide());
}

#[test]
fn f64_in_every_rounding() {
    check(&arithmetic_of_f64(), wide());
}

fn signs() -> Vec<Form<'static>> {
    let f = |bits: u64| Single::read(bits).flushed();
    vec![
        form("abs.f32 %r0, %r1;", |[a, ..]| a & 0x7fff_ffff),
        form("neg.f32 %r0, %r1;", |[a, ..]| a & 0xffff_ffff ^ 0x8000_0000),
        form("abs.ftz.f32 %r0, %r1;", move |[a, ..]| f(a).abs().to_bits() as u64),
        form("neg.ftz.f32 %r0, %r1;", move |[a, ..]| (-f(a)).to_bits() as u64),
        form("abs.f64 %d0, %d1;", |[a, ..]| a & (u64::MAX >> 1)),
        form("neg.f64 %d0, %d1;", |[a, ..]| a ^ 1 << 63),
        form("copysign.f32 %r0, %r1, %r2;", |[a, b, _]| {
            Single::read(b).copy_sign(Single::read(a)).to_bits() as u64
        }),
        form("copysign.f64 %d0, %d1, %d2;", |[a, b, _]| {
            f64::from_bits(b).copysign(f64::from_bits(a)).to_bits()
        }),
    ]
}

#[test]
fn signs_of_floats() {
    check(&signs(), wide());
}

/// The smaller or larger of two, -0 below +0.
fn pick<F: Format>(a: F, b: F, largest: bool, nan: bool) -> u64 {
    let chosen = match (a.is_nan(), b.is_nan()) {
        (true, true) => return F::DEFAULT_NAN,
        (true, false) | (false, true) if nan => return F::DEFAULT_NAN,
        (true, false) => b,
        (false, true) => a,
        _ if a == b => {
            if a.is_negative() == largest {
                b
            } else {
                a
            }
        }
        _ => {
            if (a > b) == largest {
                a
            } else {
                b
            }
        }
    };
    chosen.to_bits() as u64
}

/// `min` and `max`, with what they may be told; F64 has nothing of that.
pub(super) fn selections<F: Format>() -> Vec<Form<'static>> {
    let mut forms = Vec::new();
    let flags = |has: bool| if has { &[false, true][..] } else { &[false] };
    for (name, largest) in [("min", false), ("max", true)] {
        for &flush in flags(F::NAME != "bf16" && F::BITS < 64) {
            for &nan in flags(F::BITS < 64) {
                for &xorsign in flags(F::BITS < 64) {
                    let say = |has: bool, what| if has { what } else { "" };
                    let (ftz, nan_too, sign) = (say(flush, ".ftz"), say(nan, ".NaN"), say(xorsign, ".xorsign.abs"));
                    let name = format!("{name}{ftz}{nan_too}{sign}");
                    let one = move |a: F, b: F| {
                        let read = |value: F| if flush { value.flushed() } else { value };
                        let (a, b) = (read(a), read(b));
                        if !xorsign {
                            return pick(a, b, largest, nan);
                        }
                        let magnitude = pick(a.abs(), b.abs(), largest, nan);
                        let negative = a.is_negative() != b.is_negative();
                        if F::read(magnitude).is_nan() {
                            F::DEFAULT_NAN
                        } else {
                            magnitude | u64::from(negative) << (F::BITS - 1)
                        }
                    };
                    forms.push(form(text::<F>(&name, 2), move |[a, b, _]| one(F::read(a), F::read(b))));
                }
            }
        }
    }
    forms
}

fn selections_of_wide() -> Vec<Form<'static>> {
    selections::<Single>()
        .into_iter()
        .chain(selections::<Double>())
        .collect()
}

#[test]
fn the_smaller_and_the_larger() {
    check(&selections_of_wide(), wide());
}

type Function = fn(f64) -> f64;

fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

fn bits(x: f32) -> u64 {
    if x.is_nan() {
        0x7fff_ffff
    } else {
        u64::from(x.to_bits())
    }
}

/// Approximate functions lie within the bounds that the ISA states; here within those of a result rounded once.
fn approximations() -> Vec<Form<'static>> {
    let both = |name: &str, f: Function| {
        let texts = [".approx", ".approx.ftz"].map(|how| format!("{name}{how}.f32 %r0, %r1;"));
        forms(texts.to_vec(), move |[a, ..]| {
            let x = f32::from_bits(a as u32);
            let plain = f(x.into()) as f32;
            let from_flushed = if x.is_subnormal() {
                f(flushed(x).into()) as f32
            } else {
                plain
            };
            [bits(plain), bits(flushed(from_flushed))]
        })
    };
    // Of F64 only the upper half.
    let upper = |y: f64| {
        let upper = f64::from_bits(y.to_bits() >> 32 << 32);
        match upper {
            _ if y.is_nan() => 0x7fff_ffff_0000_0000,
            _ if upper.is_subnormal() => 0.0_f64.copysign(upper).to_bits(),
            _ => upper.to_bits(),
        }
    };
    let zero = |a: u64| {
        let x = f64::from_bits(a);
        if x.is_subnormal() { 0.0_f64.copysign(x) } else { x }
    };
    let functions: [(&str, Function); 7] = [
        ("ex2", f64::exp2),
        ("lg2", f64::log2),
        ("rcp", f64::recip),
        ("rsqrt", |x| x.sqrt().recip()),
        ("sqrt", f64::sqrt),
        ("sin", f64::sin),
        ("cos", f64::cos),
    ];
    let mut all: Vec<Form<'static>> = functions.map(|(name, f)| both(name, f)).into();
    all.push(form("tanh.approx.f32 %r0, %r1;", |[a, ..]| {
        bits(f64::from(f32::from_bits(a as u32)).tanh() as f32)
    }));
    all.push(form("rcp.approx.ftz.f64 %d0, %d1;", move |[a, ..]| {
        upper(zero(a).recip())
    }));
    all.push(form("rsqrt.approx.ftz.f64 %d0, %d1;", move |[a, ..]| {
        upper(zero(a).sqrt().recip())
    }));
    all.push(form("rsqrt.approx.f64 %d0, %d1;", |[a, ..]| {
        Double::read(f64::from_bits(a).sqrt().recip().to_bits()).bits()
    }));
    all.push(quotients());
    all
}

/// Quotients that need not be rounded correctly. One by a very large number is zero, as its reciprocal is too small,
/// unless `.full` takes care of that.
fn quotients() -> Form<'static> {
    let texts = ["approx", "approx.ftz", "full", "full.ftz"].map(|how| format!("div.{how}.f32 %r0, %r1, %r2;"));
    forms(texts.to_vec(), |[a, b, _]| {
        let [a, b] = [a, b].map(|value| f32::from_bits(value as u32));
        let small = |a: f32, b: f32| {
            if b.is_finite() && b.abs() > 2f32.powi(126) {
                if a.is_finite() {
                    0.0_f32.copysign(a) * b.signum()
                } else {
                    f32::NAN
                }
            } else {
                a / b
            }
        };
        let (c, d) = (flushed(a), flushed(b));
        [
            bits(small(a, b)),
            bits(flushed(small(c, d))),
            bits(a / b),
            bits(flushed(c / d)),
        ]
    })
}

#[test]
fn approximate_functions() {
    check(&approximations(), wide());
}

/// All of these.
pub(super) fn all() -> Vec<Form<'static>> {
    let f32 = (0..4).flat_map(arithmetic_of_f32);
    f32.chain(arithmetic_of_f64())
        .chain(signs())
        .chain(selections_of_wide())
        .chain(approximations())
        .collect()
}
