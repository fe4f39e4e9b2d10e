//! Comparisons, and choices by them.
//!
//! What an instruction must deliver depends on little: how the operands stand to each other, and a predicate. So it is
//! worked out once for each such case, and many instructions are looked at together.

use std::num::FpCategory;

use half::{bf16, f16};

use super::grid::{Form, check, form, forms, wide};

/// A comparison's name, and whether it holds of operands that are less, equal, greater, unordered.
type Comparison = (&'static str, [bool; 4]);

const FLOATS: &[Comparison] = &[
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

/// Of unsigned integers all, of signed ones the first six, of those with no type the first two.
const INTEGERS: &[Comparison] = &[
    ("eq", [false, true, false, false]),
    ("ne", [true, false, true, false]),
    ("lt", [true, false, false, false]),
    ("le", [true, true, false, false]),
    ("gt", [false, false, true, false]),
    ("ge", [false, true, true, false]),
    ("lo", [true, false, false, false]),
    ("ls", [true, true, false, false]),
    ("hi", [false, false, true, false]),
    ("hs", [false, true, true, false]),
];

/// How a comparison is combined with a predicate.
type Logic = fn(bool, bool) -> bool;

const LOGIC: [(&str, Logic); 4] = [
    ("", |yes, _| yes),
    (".and", |yes, p| yes && p),
    (".or", |yes, p| yes || p),
    (".xor", |yes, p| yes != p),
];

/// Instructions that are looked at together.
const TOGETHER: usize = 16;

/// A type, flushed perhaps, and how operands stand to each other: less, equal, greater, unordered.
struct Kind {
    ty: &'static str,
    register: &'static str,
    flush: &'static str,
    comparisons: &'static [Comparison],
    order: fn(u64, u64) -> usize,
}

fn order<T: PartialOrd>(a: T, b: T) -> usize {
    a.partial_cmp(&b).map_or(3, |order| (order as i8 + 1) as usize)
}

fn float(ty: &'static str, register: &'static str, flush: bool, order: fn(u64, u64) -> usize) -> Kind {
    Kind {
        ty,
        register,
        flush: if flush { ".ftz" } else { "" },
        comparisons: FLOATS,
        order,
    }
}

fn flushed(bits: u64) -> f32 {
    let value = f32::from_bits(bits as u32);
    if value.is_subnormal() { 0.0 } else { value }
}

fn half(bits: u64) -> f16 {
    f16::from_bits(bits as u16)
}

fn brain(bits: u64) -> bf16 {
    bf16::from_bits(bits as u16)
}

fn flushed_half(bits: u64) -> f16 {
    let value = half(bits);
    if value.classify() == FpCategory::Subnormal {
        f16::ZERO
    } else {
        value
    }
}

fn integers() -> [Kind; 6] {
    let kind = |ty, register, known, order| Kind {
        ty,
        register,
        flush: "",
        comparisons: &INTEGERS[..known],
        order,
    };
    [
        kind("b32", "r", 2, |a, b| order(a as u32, b as u32)),
        kind("u32", "r", 10, |a, b| order(a as u32, b as u32)),
        kind("s32", "r", 6, |a, b| order(a as i32, b as i32)),
        kind("b64", "d", 2, order),
        kind("u64", "d", 10, order),
        kind("s64", "d", 6, |a, b| order(a as i64, b as i64)),
    ]
}

/// The two predicates of `setp` and the value of `set`, with every comparison, alone and combined with a predicate.
fn of_kind(kind: &Kind) -> Vec<Form<'static>> {
    let Kind {
        ty, register: r, flush, ..
    } = kind;
    let (mut tests, mut values) = (Vec::new(), Vec::new());
    for (name, holds) in kind.comparisons {
        for (logic, with) in LOGIC {
            let p = if logic.is_empty() { "" } else { ", %p1" };
            let cases =
                |negated: bool| [0, 1, 2, 3, 4, 5, 6, 7].map(|case| with(holds[case / 2] != negated, case % 2 == 1));
            let text = format!("setp.{name}{logic}{flush}.{ty} %p2|%p3, %{r}1, %{r}2{p};");
            tests.push((text, [cases(false), cases(true)]));
            for (to, yes) in [("u32", u32::MAX), ("s32", u32::MAX), ("f32", 1f32.to_bits())] {
                let text = format!("set.{name}{logic}{flush}.{to}.{ty} %r5, %{r}1, %{r}2{p};");
                values.push((text, cases(false).map(|holds| if holds { yes } else { 0 })));
            }
        }
    }
    let order = kind.order;
    // Two bits of the result for each `setp`.
    let tests = tests.chunks(TOGETHER).map(|tests| {
        let (mut all, mut wanted) = ("mov.b64 %d0, 0; ".to_owned(), [0; 8]);
        for (i, (text, [first, second])) in tests.iter().enumerate() {
            let (low, high) = (1u64 << (2 * i), 2u64 << (2 * i));
            all += &format!("{text} @%p2 add.u64 %d0, %d0, {low}; @%p3 add.u64 %d0, %d0, {high}; ");
            for (case, wanted) in wanted.iter_mut().enumerate() {
                *wanted += u64::from(first[case]) * low + u64::from(second[case]) * high;
            }
        }
        form(all, move |[a, b, c]| wanted[2 * order(a, b) + (c & 1) as usize])
    });
    let values = values.chunks(TOGETHER).map(|values| {
        let (mut all, mut wanted) = ("mov.b32 %r0, 0; ".to_owned(), [0u32; 8]);
        for (text, value) in values {
            all += &format!("{text} mad.lo.u32 %r0, %r0, 31, %r5; ");
            for (wanted, value) in wanted.iter_mut().zip(value) {
                *wanted = wanted.wrapping_mul(31).wrapping_add(*value);
            }
        }
        form(all, move |[a, b, c]| wanted[2 * order(a, b) + (c & 1) as usize].into())
    });
    tests.chain(values).collect()
}

/// The comparisons of formats of 16 bits, with results of 32.
pub(super) fn of_halves() -> Vec<Form<'static>> {
    let mut all = of_kind(&float("f16", "h", false, |a, b| order(half(a), half(b))));
    all.extend(of_kind(&float("f16", "h", true, |a, b| {
        order(flushed_half(a), flushed_half(b))
    })));
    all.extend(of_kind(&float("bf16", "h", false, |a, b| order(brain(a), brain(b)))));
    all
}

fn of_floats() -> Vec<Form<'static>> {
    let single = |a: u64, b: u64| order(f32::from_bits(a as u32), f32::from_bits(b as u32));
    let mut all = of_kind(&float("f32", "r", false, single));
    all.extend(of_kind(&float("f32", "r", true, |a, b| order(flushed(a), flushed(b)))));
    all.extend(of_kind(&float("f64", "d", false, |a, b| {
        order(f64::from_bits(a), f64::from_bits(b))
    })));
    all
}

fn of_integers() -> Vec<Form<'static>> {
    integers().iter().flat_map(of_kind).collect()
}

#[test]
fn floats_compare() {
    check(&of_floats(), wide());
}

#[test]
fn integers_compare() {
    check(&of_integers(), wide());
}

/// `testp`, `selp` and `slct`.
fn choices() -> Vec<Form<'static>> {
    let mut all = vec![
        testp("f32", "r", |a| {
            (f32::from_bits(a as u32).classify(), f32::from_bits(a as u32).is_nan())
        }),
        testp("f64", "d", |a| {
            (f64::from_bits(a).classify(), f64::from_bits(a).is_nan())
        }),
    ];
    for (bits, r) in [(32, "r"), (64, "d")] {
        let kept = u64::MAX >> (64 - bits);
        let types = ["b", "u", "s", "f"].map(|sign| format!("{sign}{bits}"));
        let texts = types
            .each_ref()
            .map(|ty| format!("selp.{ty} %{r}0, %{r}1, %{r}2, %p1;"));
        all.push(forms(texts.to_vec(), move |[a, b, c]| {
            [if c & 1 == 1 { a } else { b } & kept; 4]
        }));
        let texts = types.iter().flat_map(|ty| {
            [("", "s32"), ("", "f32"), (".ftz", "f32")]
                .map(|(ftz, by)| format!("slct{ftz}.{ty}.{by} %{r}0, %{r}1, %{r}2, %r3;"))
        });
        all.push(forms(texts.collect(), move |[a, b, c]| {
            let chosen = [c as i32 >= 0, f32::from_bits(c as u32) >= 0.0, flushed(c) >= 0.0]
                .map(|first| if first { a } else { b } & kept);
            std::array::from_fn::<u64, 12, _>(|i| chosen[i % 3])
        }));
    }
    all
}

fn testp(ty: &str, r: &str, classify: fn(u64) -> (FpCategory, bool)) -> Form<'static> {
    use FpCategory::{Infinite, Nan, Normal, Subnormal};
    let names = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
    forms(
        names.map(|name| format!("testp.{name}.{ty} %p0, %{r}1;")).to_vec(),
        move |[a, ..]| {
            let (class, nan) = classify(a);
            [
                class != Infinite && class != Nan,
                class == Infinite,
                !nan,
                nan,
                class == Normal,
                class == Subnormal,
            ]
            .map(u64::from)
        },
    )
}

#[test]
fn tests_and_choices() {
    check(&choices(), wide());
}

/// All of these.
pub(super) fn all() -> Vec<Form<'static>> {
    of_floats().into_iter().chain(of_integers()).chain(choices()).collect()
}
