//! F16, BF16 and their pairs.

use rustc_apfloat::ieee::{BFloat, Double, Half};
use rustc_apfloat::{Float, Round};

use super::comparisons;
use super::floats::selections;
use super::grid::{Form, all16, check, few_pairs16, form, pairs16, wide};
use super::reference::Format;

const NEAR: Round = Round::NearestTiesToEven;

/// A function of values of a format on both halves of 32 bits.
fn both<F: Format, const N: usize>(values: [u64; N], f: impl Fn([F; N]) -> F) -> u64 {
    let half = |shift: u32| f(values.map(|value| F::read(value >> shift))).bits();
    half(16) << 16 | half(0)
}

fn arithmetic<F: Format>() -> Vec<Form<'static>> {
    let ty = F::NAME;
    let add = |[a, b]: [F; 2]| a.add_r(b, NEAR).value;
    let sub = |[a, b]: [F; 2]| a.sub_r(b, NEAR).value;
    let mul = |[a, b]: [F; 2]| a.mul_r(b, NEAR).value;
    vec![
        form(format!("add.{ty} %h0, %h1, %h2;"), move |[a, b, _]| {
            add([a, b].map(F::read)).bits()
        }),
        form(format!("sub.rn.{ty} %h0, %h1, %h2;"), move |[a, b, _]| {
            sub([a, b].map(F::read)).bits()
        }),
        form(format!("mul.{ty} %h0, %h1, %h2;"), move |[a, b, _]| {
            mul([a, b].map(F::read)).bits()
        }),
        form(format!("add.{ty}x2 %r0, %r1, %r2;"), move |[a, b, _]| both([a, b], add)),
        form(format!("sub.{ty}x2 %r0, %r1, %r2;"), move |[a, b, _]| both([a, b], sub)),
        form(format!("mul.rn.{ty}x2 %r0, %r1, %r2;"), move |[a, b, _]| {
            both([a, b], mul)
        }),
    ]
}

#[test]
fn sums_and_products_of_halves() {
    let mut forms = arithmetic::<Half>();
    forms.extend(arithmetic::<BFloat>());
    let h = |bits: u64| Half::read(bits).flushed();
    forms.push(form("add.ftz.f16 %h0, %h1, %h2;", move |[a, b, _]| {
        h(a).add_r(h(b), NEAR).value.flushed().bits()
    }));
    forms.push(form("sub.sat.f16 %h0, %h1, %h2;", |[a, b, _]| {
        Half::read(a).sub_r(Half::read(b), NEAR).value.saturated().bits()
    }));
    forms.push(form("mul.ftz.sat.f16x2 %r0, %r1, %r2;", |[a, b, _]| {
        both([a, b], |[a, b]: [Half; 2]| {
            a.flushed().mul_r(b.flushed(), NEAR).value.flushed().saturated()
        })
    }));
    check(&forms, &pairs16());
}

fn fused<F: Format>() -> Vec<Form<'static>> {
    let ty = F::NAME;
    let fma = |[a, b, c]: [F; 3]| a.mul_add_r(b, c, NEAR).value;
    vec![
        form(format!("fma.rn.{ty} %h0, %h1, %h2, %h3;"), move |inputs| {
            fma(inputs.map(F::read)).bits()
        }),
        form(format!("fma.rn.relu.{ty} %h0, %h1, %h2, %h3;"), move |inputs| {
            fma(inputs.map(F::read)).relu().bits()
        }),
        form(format!("fma.rn.{ty}x2 %r0, %r1, %r2, %r3;"), move |inputs| {
            both(inputs, fma)
        }),
        form(format!("fma.rn.relu.{ty}x2 %r0, %r1, %r2, %r3;"), move |inputs| {
            both(inputs, |v| fma(v).relu())
        }),
    ]
}

/// The values in both halves of random inputs meet each other more often here.
fn triples() -> Vec<[u64; 3]> {
    wide()
        .iter()
        .map(|&[a, b, c]| [a ^ a >> 32, b ^ b >> 32, c ^ c >> 32])
        .collect()
}

#[test]
fn fused_products_of_halves() {
    let mut forms = fused::<Half>();
    forms.extend(fused::<BFloat>());
    forms.push(form("fma.rn.ftz.sat.f16 %h0, %h1, %h2, %h3;", |inputs| {
        let [a, b, c] = inputs.map(|bits| Half::read(bits).flushed());
        a.mul_add_r(b, c, NEAR).value.flushed().saturated().bits()
    }));
    check(&forms, &triples());
    let others: Vec<[u64; 3]> = pairs16()
        .iter()
        .map(|&[a, b, c]| [a, b, c.rotate_left(7) ^ a])
        .collect();
    check(&forms, &others);
}

#[test]
fn signs_and_choices_of_halves() {
    let h = |bits: u64| Half::read(bits).flushed();
    check(
        &[
            form("abs.f16 %h0, %h1;", |[a, ..]| a & 0x7fff),
            form("neg.f16 %h0, %h1;", |[a, ..]| (a ^ 0x8000) & 0xffff),
            form("abs.ftz.f16 %h0, %h1;", move |[a, ..]| h(a).abs().to_bits() as u64),
            form("abs.bf16 %h0, %h1;", |[a, ..]| a & 0x7fff),
            form("neg.bf16x2 %r0, %r1;", |[a, ..]| (a ^ 0x8000_8000) & 0xffff_ffff),
            form("abs.f16x2 %r0, %r1;", |[a, ..]| a & 0x7fff_7fff),
        ],
        &all16(),
    );
    check(&selections::<Half>(), &few_pairs16());
    check(&selections::<BFloat>(), &few_pairs16());
    let least = |[a, b]: [Half; 2]| {
        if a.is_nan() || b.is_nan() {
            Half::DEFAULT_NAN
        } else {
            a.minimum(b).to_bits() as u64
        }
    };
    check(
        &[form("min.NaN.f16x2 %r0, %r1, %r2;", move |[a, b, _]| {
            let part = |shift: u32| least([a, b].map(|bits| Half::read(bits >> shift)));
            part(16) << 16 | part(0)
        })],
        &pairs16(),
    );
}

#[test]
fn halves_compare() {
    check(&comparisons::of_halves(), &few_pairs16());
    let less = |a: u64, b: u64, shift: u32| Half::read(a >> shift) < Half::read(b >> shift);
    let equal = |a: u64, b: u64, shift: u32| BFloat::read(a >> shift) == BFloat::read(b >> shift);
    check(
        &[
            form("setp.lt.f16x2 %p0|%p5, %r1, %r2;", move |[a, b, _]| {
                less(a, b, 0).into()
            }),
            form("setp.lt.f16x2 %p5|%p0, %r1, %r2;", move |[a, b, _]| {
                less(a, b, 16).into()
            }),
            form("setp.eq.and.bf16x2 %p5|%p0, %r1, %r2, %p1;", move |[a, b, c]| {
                (equal(a, b, 16) && c & 1 == 1).into()
            }),
            form("set.lt.f16x2.f16x2 %r0, %r1, %r2;", move |[a, b, _]| {
                let part = |shift| if less(a, b, shift) { 0x3c00 } else { 0 };
                part(16) << 16 | part(0)
            }),
            form("set.eq.or.bf16x2.bf16x2 %r0, %r1, %r2, %p1;", move |[a, b, c]| {
                let part = |shift| if equal(a, b, shift) || c & 1 == 1 { 0x3f80 } else { 0 };
                part(16) << 16 | part(0)
            }),
            form("set.lt.u32.f16x2 %r0, %r1, %r2;", move |[a, b, _]| {
                let part = |shift| if less(a, b, shift) { 0xffff } else { 0 };
                part(16) << 16 | part(0)
            }),
            form(
                "set.lt.u16.f16 %h0, %h1, %h2;",
                move |[a, b, _]| if less(a, b, 0) { 0xffff } else { 0 },
            ),
            form(
                "set.lt.f16.f16 %h0, %h1, %h2;",
                move |[a, b, _]| if less(a, b, 0) { 0x3c00 } else { 0 },
            ),
            form("set.lt.bf16.u16 %h0, %h1, %h2;", |[a, b, _]| {
                if a & 0xffff < b & 0xffff { 0x3f80 } else { 0 }
            }),
        ],
        &pairs16(),
    );
}

#[test]
fn approximate_functions_of_halves() {
    let f16 = |f: fn(f64) -> f64| {
        move |[a, ..]: [u64; 3]| {
            let y = f(half::f16::from_bits(a as u16).to_f64());
            Double::read(y.to_bits()).to::<Half>(NEAR).bits()
        }
    };
    let bf16 = |f: fn(f64) -> f64, flush: bool| {
        let flush = move |x: half::bf16| {
            let subnormal = x.to_f32().is_subnormal() && flush;
            if subnormal {
                half::bf16::from_bits(x.to_bits() & 0x8000)
            } else {
                x
            }
        };
        move |a: u64| -> u64 {
            let y = f(flush(half::bf16::from_bits(a as u16)).to_f64());
            let y = Double::read(y.to_bits()).to::<BFloat>(NEAR).bits();
            if y == 0x7fff {
                y
            } else {
                flush(half::bf16::from_bits(y as u16)).to_bits().into()
            }
        }
    };
    let (tanh, ex2) = (bf16(f64::tanh, false), bf16(f64::exp2, true));
    check(
        &[
            form("ex2.approx.f16 %h0, %h1;", f16(f64::exp2)),
            form("tanh.approx.f16 %h0, %h1;", f16(f64::tanh)),
            form("ex2.approx.ftz.bf16 %h0, %h1;", move |[a, ..]| ex2(a)),
            form("tanh.approx.bf16x2 %r0, %r1;", move |[a, ..]| {
                tanh(a >> 16) << 16 | tanh(a)
            }),
        ],
        &all16(),
    );
}
