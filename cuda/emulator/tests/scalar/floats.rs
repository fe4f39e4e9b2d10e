//! F32 and F64.

use rustc_apfloat::ieee::{Double, Single};
use rustc_apfloat::{Float, Round};

use super::grid::{Form, check, form, wide};
use super::reference::{Format, ROUNDINGS, result, sqrt_f64};

/// `name.rounding.type d, a, …`
fn text<F: Format>(name: &str, operands: usize) -> String {
    let r = F::REGISTER;
    let list: Vec<String> = (0..=operands).map(|i| format!("%{r}{i}")).collect();
    format!("{name}.{} {};", F::NAME, list.join(", "))
}

/// Addition, multiplication and their fusion in a rounding.
fn arithmetic<F: Format>(rounding: &str, round: Round) -> Vec<Form<'static>> {
    let of = |name: &str| format!("{name}.{rounding}");
    vec![
        form(text::<F>(&of("add"), 2), move |[a, b, _]| {
            result(F::read(a).add_r(F::read(b), round).value, &[a, b])
        }),
        form(text::<F>(&of("sub"), 2), move |[a, b, _]| {
            result(F::read(a).sub_r(F::read(b), round).value, &[a, b])
        }),
        form(text::<F>(&of("mul"), 2), move |[a, b, _]| {
            result(F::read(a).mul_r(F::read(b), round).value, &[a, b])
        }),
        form(text::<F>(&of("fma"), 3), move |[a, b, c]| {
            result(F::read(a).mul_add_r(F::read(b), F::read(c), round).value, &[a, b, c])
        }),
        form(text::<F>(&of("mad"), 3), move |[a, b, c]| {
            result(F::read(a).mul_add_r(F::read(b), F::read(c), round).value, &[a, b, c])
        }),
        form(text::<F>(&of("div"), 2), move |[a, b, _]| {
            result(F::read(a).div_r(F::read(b), round).value, &[a, b])
        }),
        form(text::<F>(&of("rcp"), 1), move |[a, ..]| {
            result(F::one().div_r(F::read(a), round).value, &[a])
        }),
    ]
}

#[test]
fn f32_in_every_rounding() {
    for (name, round) in ROUNDINGS {
        let mut forms = arithmetic::<Single>(name, round);
        forms.push(form(format!("sqrt.{name}.f32 %r0, %r1;"), move |[a, ..]| {
            // The root in F64, cut off, with a bit that says whether it is exact, rounds to F32 as the root itself would.
            let value = f64::from(f32::from_bits(a as u32));
            let root = sqrt_f64(value, Round::TowardZero);
            let exact = root * root == value;
            let odd = f64::from_bits(root.to_bits() | u64::from(!exact));
            Double::read(if root.is_finite() { odd } else { root }.to_bits())
                .to::<Single>(round)
                .bits()
        }));
        check(&forms, wide);
    }
}

#[test]
fn f64_in_every_rounding() {
    for (name, round) in ROUNDINGS {
        let mut forms = arithmetic::<Double>(name, round);
        forms.push(form(format!("sqrt.{name}.f64 %d0, %d1;"), move |[a, ..]| {
            result(Double::read(sqrt_f64(f64::from_bits(a), round).to_bits()), &[a])
        }));
        check(&forms, wide);
    }
}

#[test]
fn f32_flushed_and_saturated() {
    let near = Round::NearestTiesToEven;
    let f = |bits: u64| Single::read(bits).flushed();
    let s = Single::read;
    check(
        &[
            form("add.ftz.f32 %r0, %r1, %r2;", |[a, b, _]| {
                f(a).add_r(f(b), near).value.flushed().bits()
            }),
            form("sub.ftz.f32 %r0, %r1, %r2;", |[a, b, _]| {
                f(a).sub_r(f(b), near).value.flushed().bits()
            }),
            form("mul.rp.ftz.f32 %r0, %r1, %r2;", |[a, b, _]| {
                f(a).mul_r(f(b), Round::TowardPositive).value.flushed().bits()
            }),
            form("fma.rn.ftz.f32 %r0, %r1, %r2, %r3;", |[a, b, c]| {
                f(a).mul_add_r(f(b), f(c), near).value.flushed().bits()
            }),
            form("div.rn.ftz.f32 %r0, %r1, %r2;", |[a, b, _]| {
                f(a).div_r(f(b), near).value.flushed().bits()
            }),
            form("add.sat.f32 %r0, %r1, %r2;", |[a, b, _]| {
                s(a).add_r(s(b), near).value.saturated().bits()
            }),
            form("sub.rz.ftz.sat.f32 %r0, %r1, %r2;", |[a, b, _]| {
                f(a).sub_r(f(b), Round::TowardZero).value.flushed().saturated().bits()
            }),
            form("mul.sat.f32 %r0, %r1, %r2;", |[a, b, _]| {
                s(a).mul_r(s(b), near).value.saturated().bits()
            }),
            form("fma.rm.sat.f32 %r0, %r1, %r2, %r3;", |[a, b, c]| {
                s(a).mul_add_r(s(b), s(c), Round::TowardNegative)
                    .value
                    .saturated()
                    .bits()
            }),
            form("abs.f32 %r0, %r1;", |[a, ..]| a & 0x7fff_ffff),
            form("neg.ftz.f32 %r0, %r1;", |[a, ..]| (-f(a)).to_bits() as u64),
            form("copysign.f32 %r0, %r1, %r2;", |[a, b, _]| {
                s(b).copy_sign(s(a)).to_bits() as u64
            }),
            form("div.full.f32 %r0, %r1, %r2;", |[a, b, _]| {
                s(a).div_r(s(b), near).value.bits()
            }),
        ],
        wide,
    );
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

pub(super) fn selections<F: Format>(flush: bool) -> Vec<Form<'static>> {
    let mut forms = Vec::new();
    for (name, largest) in [("min", false), ("max", true)] {
        forms.push(form(text::<F>(name, 2), move |[a, b, _]| {
            pick(F::read(a), F::read(b), largest, false)
        }));
        if F::BITS == 64 {
            continue;
        }
        forms.push(form(text::<F>(&format!("{name}.NaN"), 2), move |[a, b, _]| {
            pick(F::read(a), F::read(b), largest, true)
        }));
        forms.push(form(text::<F>(&format!("{name}.xorsign.abs"), 2), move |[a, b, _]| {
            let (a, b) = (F::read(a), F::read(b));
            let magnitude = pick(a.abs(), b.abs(), largest, false);
            let negative = a.is_negative() != b.is_negative();
            if F::read(magnitude).is_nan() {
                F::DEFAULT_NAN
            } else {
                magnitude | u64::from(negative) << (F::BITS - 1)
            }
        }));
        if flush {
            forms.push(form(text::<F>(&format!("{name}.ftz"), 2), move |[a, b, _]| {
                pick(F::read(a).flushed(), F::read(b).flushed(), largest, false)
            }));
        }
    }
    forms
}

#[test]
fn the_smaller_and_the_larger() {
    check(&selections::<Single>(true), wide);
    check(&selections::<Double>(false), wide);
}

/// Comparisons: name, and whether they hold of operands that are less, equal, greater, unordered.
const COMPARISONS: &[(&str, [bool; 4])] = &[
    ("eq", [false, true, false, false]),
    ("ne", [true, false, true, false]),
    ("lt", [true, false, false, false]),
    ("le", [true, true, false, false]),
    ("gt", [false, false, true, false]),
    ("ge", [false, true, true, false]),
    ("equ", [false, true, false, true]),
    ("neu", [true, false, true, true]),
    ("ltu", [true, false, false, true]),
    ("leu", [true, true, false, true]),
    ("gtu", [false, false, true, true]),
    ("geu", [false, true, true, true]),
    ("num", [true, true, true, false]),
    ("nan", [false, false, false, true]),
];

fn holds<F: Format>(table: [bool; 4], a: F, b: F) -> bool {
    table[a.partial_cmp(&b).map_or(3, |order| (order as i8 + 1) as usize)]
}

/// `setp` with every comparison, alone and combined with a predicate, and `set`.
pub(super) fn comparisons<F: Format>() -> Vec<Form<'static>> {
    let (r, ty) = (F::REGISTER, F::NAME);
    let mut forms = Vec::new();
    for &(name, table) in COMPARISONS {
        let yes = move |a: u64, b: u64| holds(table, F::read(a), F::read(b));
        forms.push(form(
            format!("setp.{name}.{ty} %p0, %{r}1, %{r}2;"),
            move |[a, b, _]| yes(a, b).into(),
        ));
        // The second destination gets the opposite, combined in the same way.
        forms.push(form(
            format!("setp.{name}.and.{ty} %p5|%p0, %{r}1, %{r}2, !%p1;"),
            move |[a, b, c]| (!yes(a, b) && c & 1 == 0).into(),
        ));
        forms.push(form(
            format!("setp.{name}.or.{ty} %p0|%p5, %{r}1, %{r}2, %p1;"),
            move |[a, b, c]| (yes(a, b) || c & 1 == 1).into(),
        ));
        forms.push(form(
            format!("set.{name}.xor.u32.{ty} %r0, %{r}1, %{r}2, %p1;"),
            move |[a, b, c]| {
                if yes(a, b) != (c & 1 == 1) { 0xffff_ffff } else { 0 }
            },
        ));
        forms.push(form(
            format!("set.{name}.f32.{ty} %r0, %{r}1, %{r}2;"),
            move |[a, b, _]| {
                if yes(a, b) { 0x3f80_0000 } else { 0 }
            },
        ));
    }
    forms
}

#[test]
fn floats_compare() {
    let few = || super::grid::random(100_000);
    check(&comparisons::<Single>(), few);
    check(&comparisons::<Double>(), few);
    let flushed = |bits: u64| Single::read(bits).flushed();
    check(
        &[
            form("setp.lt.ftz.f32 %p0, %r1, %r2;", |[a, b, _]| {
                (flushed(a) < flushed(b)).into()
            }),
            form("set.eq.ftz.s32.f32 %r0, %r1, %r2;", |[a, b, _]| {
                if flushed(a) == flushed(b) { 0xffff_ffff } else { 0 }
            }),
            form("testp.finite.f32 %p0, %r1;", |[a, ..]| {
                f32::from_bits(a as u32).is_finite().into()
            }),
            form("testp.infinite.f64 %p0, %d1;", |[a, ..]| {
                f64::from_bits(a).is_infinite().into()
            }),
            form("testp.number.f64 %p0, %d1;", |[a, ..]| {
                (!f64::from_bits(a).is_nan()).into()
            }),
            form("testp.notanumber.f32 %p0, %r1;", |[a, ..]| {
                f32::from_bits(a as u32).is_nan().into()
            }),
            form("testp.normal.f32 %p0, %r1;", |[a, ..]| {
                f32::from_bits(a as u32).is_normal().into()
            }),
            form("testp.subnormal.f64 %p0, %d1;", |[a, ..]| {
                f64::from_bits(a).is_subnormal().into()
            }),
            form("slct.b32.f32 %r0, %r1, %r2, %r3;", |[a, b, c]| {
                let chosen = if f32::from_bits(c as u32) >= 0.0 { a } else { b };
                chosen & 0xffff_ffff
            }),
            form(
                "selp.b32 %r0, %r1, %r2, %p1;",
                |[a, b, c]| if c & 1 == 1 { a } else { b } & 0xffff_ffff,
            ),
        ],
        few,
    );
}

type Function = fn(f64) -> f64;

/// Approximate functions lie within the bounds that the ISA states; here within those of a result rounded once.
#[test]
fn approximate_functions() {
    let function = |f: fn(f64) -> f64, flush: bool| {
        move |[a, ..]: [u64; 3]| {
            let x = f32::from_bits(a as u32);
            let x = if flush && x.is_subnormal() {
                0.0_f32.copysign(x)
            } else {
                x
            };
            let y = f(f64::from(x)) as f32;
            let y = if flush && y.is_subnormal() {
                0.0_f32.copysign(y)
            } else {
                y
            };
            if y.is_nan() {
                0x7fff_ffff
            } else {
                u64::from(y.to_bits())
            }
        }
    };
    let mut forms = Vec::new();
    let functions: [(&str, Function); 7] = [
        ("ex2", f64::exp2),
        ("lg2", f64::log2),
        ("rcp", f64::recip),
        ("rsqrt", |x| x.sqrt().recip()),
        ("sqrt", f64::sqrt),
        ("sin", f64::sin),
        ("cos", f64::cos),
    ];
    for (name, f) in functions {
        forms.push(form(format!("{name}.approx.f32 %r0, %r1;"), function(f, false)));
        forms.push(form(format!("{name}.approx.ftz.f32 %r0, %r1;"), function(f, true)));
    }
    forms.push(form("tanh.approx.f32 %r0, %r1;", function(f64::tanh, false)));
    forms.push(form("rcp.approx.ftz.f64 %d0, %d1;", |[a, ..]| {
        let x = f64::from_bits(a);
        let y = if x.is_subnormal() { 0.0_f64.copysign(x) } else { x }.recip();
        if y.is_nan() {
            return 0x7fff_ffff_0000_0000;
        }
        let upper = f64::from_bits(y.to_bits() >> 32 << 32);
        if upper.is_subnormal() {
            0.0_f64.copysign(upper)
        } else {
            upper
        }
        .to_bits()
    }));
    check(&forms, || super::grid::random(200_000));
}
