//! Arithmetic of integers.

use super::grid::{Form, check, form, forms, pairs16, wide};

const LOW: u64 = 0xffff_ffff;

/// The forms of one integer type, against Rust's own arithmetic.
macro_rules! of_type {
    ($t:ty, $wide:ty, $name:literal, $r:literal) => {{
        let v = |value: u64| value as $t;
        let u = |value: $t| value as u64 & (u64::MAX >> (64 - <$t>::BITS));
        let bits = <$t>::BITS;
        let text = |op: &str| format!("{op}.{} %{1}0, %{1}1, %{1}2;", $name, $r);
        let three = |op: &str| format!("{op}.{} %{1}0, %{1}1, %{1}2, %{1}3;", $name, $r);
        let high = move |a: $t, b: $t| ((a as $wide).wrapping_mul(b as $wide) >> bits) as $t;
        let forms: Vec<Form<'static>> = vec![
            form(text("add"), move |[a, b, _]| u(v(a).wrapping_add(v(b)))),
            form(text("sub"), move |[a, b, _]| u(v(a).wrapping_sub(v(b)))),
            form(text("mul.lo"), move |[a, b, _]| u(v(a).wrapping_mul(v(b)))),
            form(text("mul.hi"), move |[a, b, _]| u(high(v(a), v(b)))),
            form(three("mad.lo"), move |[a, b, c]| {
                u(v(a).wrapping_mul(v(b)).wrapping_add(v(c)))
            }),
            form(three("mad.hi"), move |[a, b, c]| u(high(v(a), v(b)).wrapping_add(v(c)))),
            form(three("sad"), move |[a, b, c]| {
                u(v(c).wrapping_add((v(a) as $wide).abs_diff(v(b) as $wide) as $t))
            }),
            // By zero, as the hardware does: all ones, and the dividend.
            form(
                text("div"),
                move |[a, b, _]| if v(b) == 0 { u(!0) } else { u(v(a).wrapping_div(v(b))) },
            ),
            form(text("rem"), move |[a, b, _]| {
                if v(b) == 0 { u(v(a)) } else { u(v(a).wrapping_rem(v(b))) }
            }),
            form(text("min"), move |[a, b, _]| u(v(a).min(v(b)))),
            form(text("max"), move |[a, b, _]| u(v(a).max(v(b)))),
            form(format!("shr.{} %{1}0, %{1}1, %r2;", $name, $r), move |[a, n, _]| {
                let n = (n & LOW).min(u64::from(bits));
                // In two steps, so that the whole width may be shifted out.
                u(v(a) >> (n / 2) >> (n - n / 2))
            }),
            form(format!("setp.lt.{} %p0, %{1}1, %{1}2;", $name, $r), move |[a, b, _]| {
                (v(a) < v(b)).into()
            }),
            form(format!("setp.ge.{} %p0, %{1}1, %{1}2;", $name, $r), move |[a, b, _]| {
                (v(a) >= v(b)).into()
            }),
            form(
                format!("setp.eq.and.{} %p5|%p0, %{1}1, %{1}2, %p1;", $name, $r),
                move |[a, b, c]| (v(a) != v(b) && c & 1 == 1).into(),
            ),
            form(
                format!("set.gt.u32.{} %r0, %{1}1, %{1}2;", $name, $r),
                move |[a, b, _]| {
                    if v(a) > v(b) { LOW } else { 0 }
                },
            ),
        ];
        forms
    }};
}

fn arithmetic() -> Vec<Form<'static>> {
    let mut all = of_type!(u32, u64, "u32", "r");
    all.extend(of_type!(i32, i64, "s32", "r"));
    all.extend(of_type!(u64, u128, "u64", "d"));
    all.extend(of_type!(i64, i128, "s64", "d"));
    all
}

#[test]
fn arithmetic_of_every_width() {
    for forms in [of_type!(u16, u32, "u16", "h"), of_type!(i16, i32, "s16", "h")] {
        check(&forms, &pairs16());
    }
    check(&arithmetic(), wide());
}

/// Sums, differences and products whose carry goes from one instruction to the next.
fn carries() -> Vec<Form<'static>> {
    let types = [
        ("u32", "r", 32, false),
        ("s32", "r", 32, true),
        ("u64", "d", 64, false),
        ("s64", "d", 64, true),
    ];
    let mut all = Vec::new();
    for (ty, r, bits, signed) in types {
        let mask = u64::MAX >> (64 - bits);
        let cut = move |value: u128| value as u64 & mask;
        let add = move |a: u64, b: u64, carry: bool| {
            let sum = u128::from(a & mask) + u128::from(b & mask) + u128::from(carry);
            (cut(sum), sum >> bits != 0)
        };
        let sub = move |a: u64, b: u64, borrow: bool| {
            let taken = u128::from(b & mask) + u128::from(borrow);
            (
                cut(u128::from(a & mask).wrapping_sub(taken)),
                u128::from(a & mask) < taken,
            )
        };
        // Every result of a chain is looked at.
        let chain = |first: &str, next: &str| {
            vec![
                format!("{first}.cc.{ty} %{r}0, %{r}1, %{r}2;"),
                format!("{first}.cc.{ty} %{r}4, %{r}1, %{r}2; {next}.cc.{ty} %{r}0, %{r}2, %{r}3;"),
                format!(
                    "{first}.cc.{ty} %{r}4, %{r}1, %{r}2; {next}.cc.{ty} %{r}5, %{r}2, %{r}3; {next}.{ty} %{r}0, %{r}3, %{r}1;"
                ),
            ]
        };
        all.push(forms(chain("add", "addc"), move |[a, b, c]| {
            let (x, carry) = add(a, b, false);
            let (y, again) = add(b, c, carry);
            [x, y, add(c, a, again).0]
        }));
        all.push(forms(chain("sub", "subc"), move |[a, b, c]| {
            let (x, borrow) = sub(a, b, false);
            let (y, again) = sub(b, c, borrow);
            [x, y, sub(c, a, again).0]
        }));
        let product = move |a: u64, b: u64, high: bool| {
            let extend = |value: u64| ((value << (64 - bits)) as i64 >> (64 - bits)) as i128;
            let whole = if signed {
                (extend(a) * extend(b)) as u128
            } else {
                u128::from(a & mask) * u128::from(b & mask)
            };
            if high { (whole >> bits) as u64 } else { whole as u64 }
        };
        let halves = ["lo", "hi"];
        for (first, second) in [(0, 1), (1, 0), (0, 0)] {
            let (one, two) = (halves[first], halves[second]);
            let texts = vec![
                format!("mad.{one}.cc.{ty} %{r}0, %{r}1, %{r}2, %{r}3;"),
                format!("mad.{one}.cc.{ty} %{r}4, %{r}1, %{r}2, %{r}3; madc.{two}.cc.{ty} %{r}0, %{r}2, %{r}3, %{r}1;"),
                format!(
                    "mad.{one}.cc.{ty} %{r}4, %{r}1, %{r}2, %{r}3; madc.{two}.cc.{ty} %{r}5, %{r}2, %{r}3, %{r}1; \
                     madc.{one}.{ty} %{r}0, %{r}3, %{r}1, %{r}2;"
                ),
            ];
            all.push(forms(texts, move |[a, b, c]| {
                let (x, carry) = add(product(a, b, first == 1), c, false);
                let (y, again) = add(product(b, c, second == 1), a, carry);
                [x, y, add(product(c, a, first == 1), b, again).0]
            }));
        }
    }
    all
}

/// What a value of 24 bits means.
type Part = fn(u64) -> i64;

/// What saturates, multiplies 24 bits, or widens.
fn special() -> Vec<Form<'static>> {
    let s = |value: u64| i64::from(value as i32);
    let clamp = |value: i64| value.clamp(i32::MIN.into(), i32::MAX.into()) as u64 & LOW;
    let high = move |a: u64, b: u64| (s(a) * s(b)) >> 32;
    let u24 = |value: u64| (value & 0xff_ffff) as i64;
    let s24 = |value: u64| i64::from((value as i32) << 8 >> 8);
    let mut all = vec![
        form("mul.wide.u32 %d0, %r1, %r2;", |[a, b, _]| (a & LOW) * (b & LOW)),
        form("mul.wide.s32 %d0, %r1, %r2;", move |[a, b, _]| (s(a) * s(b)) as u64),
        form("mad.wide.u32 %d0, %r1, %r2, %d3;", |[a, b, c]| {
            ((a & LOW) * (b & LOW)).wrapping_add(c)
        }),
        form("mad.wide.s32 %d0, %r1, %r2, %d3;", move |[a, b, c]| {
            ((s(a) * s(b)) as u64).wrapping_add(c)
        }),
        form("add.sat.s32 %r0, %r1, %r2;", move |[a, b, _]| clamp(s(a) + s(b))),
        form("sub.sat.s32 %r0, %r1, %r2;", move |[a, b, _]| clamp(s(a) - s(b))),
        form("mad.hi.sat.s32 %r0, %r1, %r2, %r3;", move |[a, b, c]| {
            clamp(high(a, b) + s(c))
        }),
        form("mad24.hi.sat.s32 %r0, %r1, %r2, %r3;", move |[a, b, c]| {
            clamp(i64::from(((s24(a) * s24(b)) >> 16) as i32) + s(c))
        }),
        form("abs.s32 %r0, %r1;", |[a, ..]| (a as i32).wrapping_abs() as u32 as u64),
        form("neg.s32 %r0, %r1;", |[a, ..]| (a as i32).wrapping_neg() as u32 as u64),
        form("neg.s64 %d0, %d1;", |[a, ..]| (a as i64).wrapping_neg() as u64),
        form("abs.s64 %d0, %d1;", |[a, ..]| (a as i64).wrapping_abs() as u64),
        form("max.relu.s32 %r0, %r1, %r2;", |[a, b, _]| {
            (a as i32).max(b as i32).max(0) as u64
        }),
        form("min.relu.s32 %r0, %r1, %r2;", |[a, b, _]| {
            (a as i32).min(b as i32).max(0) as u64
        }),
    ];
    let types: [(&str, Part); 2] = [("u32", u24), ("s32", s24)];
    for (ty, part) in types {
        for (half, shift) in [("lo", 0), ("hi", 16)] {
            let product = move |a: u64, b: u64| ((part(a) * part(b)) >> shift) as u64 & LOW;
            let texts = vec![
                format!("mul24.{half}.{ty} %r0, %r1, %r2;"),
                format!("mad24.{half}.{ty} %r0, %r1, %r2, %r3;"),
            ];
            all.push(forms(texts, move |[a, b, c]| {
                [product(a, b), product(a, b).wrapping_add(c) & LOW]
            }));
        }
    }
    all
}

/// `dp4a` and `dp2a`, of bytes with signs or without.
fn dots() -> Vec<Form<'static>> {
    let part = |value: u64, at: u32, bits: u32, signed: bool| {
        let moved = (value >> at << (64 - bits)) as i64;
        if signed {
            moved >> (64 - bits)
        } else {
            (moved as u64 >> (64 - bits)) as i64
        }
    };
    let mut all = Vec::new();
    let types = [("u32", false), ("s32", true)];
    for (of_a, sa) in types {
        for (of_b, sb) in types {
            let texts = vec![
                format!("dp4a.{of_a}.{of_b} %r0, %r1, %r2, %r3;"),
                format!("dp2a.lo.{of_a}.{of_b} %r0, %r1, %r2, %r3;"),
                format!("dp2a.hi.{of_a}.{of_b} %r0, %r1, %r2, %r3;"),
            ];
            all.push(forms(texts, move |[a, b, c]| {
                let bytes: i64 = (0..4).map(|i| part(a, 8 * i, 8, sa) * part(b, 8 * i, 8, sb)).sum();
                let halves = |from: u32| -> i64 {
                    (0..2)
                        .map(|i| part(a, 16 * i, 16, sa) * part(b, from + 8 * i, 8, sb))
                        .sum()
                };
                [bytes, halves(0), halves(16)].map(|sum| (sum as u64).wrapping_add(c) & LOW)
            }));
        }
    }
    all
}

fn narrow_products() -> Vec<Form<'static>> {
    vec![
        form("mul.wide.u16 %r0, %h1, %h2;", |[a, b, _]| (a & 0xffff) * (b & 0xffff)),
        form("mul.wide.s16 %r0, %h1, %h2;", |[a, b, _]| {
            (i32::from(a as i16) * i32::from(b as i16)) as u32 as u64
        }),
        form("mad.wide.s16 %r0, %h1, %h2, %r3;", |[a, b, c]| {
            (i32::from(a as i16) * i32::from(b as i16)).wrapping_add(c as i32) as u32 as u64
        }),
    ]
}

#[test]
fn arithmetic_that_widens_carries_and_saturates() {
    for forms in [narrow_products(), special(), carries(), dots()] {
        check(&forms, wide());
    }
}

#[test]
fn pairs_of_16_bit_integers() {
    let both = |a: u64, b: u64, f: fn(u16, u16) -> u16| {
        let part = |shift: u32| u64::from(f((a >> shift) as u16, (b >> shift) as u16));
        part(16) << 16 | part(0)
    };
    check(
        &[
            form("add.u16x2 %r0, %r1, %r2;", move |[a, b, _]| {
                both(a, b, u16::wrapping_add)
            }),
            form("add.s16x2 %r0, %r1, %r2;", move |[a, b, _]| {
                both(a, b, u16::wrapping_add)
            }),
            form("min.u16x2 %r0, %r1, %r2;", move |[a, b, _]| both(a, b, u16::min)),
            form("max.u16x2 %r0, %r1, %r2;", move |[a, b, _]| both(a, b, u16::max)),
            form("min.s16x2 %r0, %r1, %r2;", move |[a, b, _]| {
                both(a, b, |a, b| (a as i16).min(b as i16) as u16)
            }),
            form("max.relu.s16x2 %r0, %r1, %r2;", move |[a, b, _]| {
                both(a, b, |a, b| (a as i16).max(b as i16).max(0) as u16)
            }),
            form("abs.s16 %h0, %h1;", |[a, ..]| (a as i16).wrapping_abs() as u16 as u64),
            form("neg.s16 %h0, %h1;", |[a, ..]| (a as i16).wrapping_neg() as u16 as u64),
        ],
        &pairs16(),
    );
}

/// All of these of 32 or 64 bits.
pub(super) fn all() -> Vec<Form<'static>> {
    let mut all = arithmetic();
    all.extend(special());
    all.extend(carries());
    all.extend(dots());
    all
}
