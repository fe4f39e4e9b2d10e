//! Integers, bits, bytes and shifts.

use super::grid::{Form, all16, check, form, pairs16, wide};

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

#[test]
fn arithmetic_of_every_width() {
    for forms in [of_type!(u16, u32, "u16", "h"), of_type!(i16, i32, "s16", "h")] {
        check(&forms, pairs16);
    }
    for forms in [
        of_type!(u32, u64, "u32", "r"),
        of_type!(i32, i64, "s32", "r"),
        of_type!(u64, u128, "u64", "d"),
        of_type!(i64, i128, "s64", "d"),
    ] {
        check(&forms, wide);
    }
}

#[test]
fn arithmetic_that_widens_carries_and_saturates() {
    let s = |value: u64| i64::from(value as i32);
    let clamp = |value: i64| value.clamp(i32::MIN.into(), i32::MAX.into()) as u64 & LOW;
    let high = move |a: u64, b: u64| (s(a) * s(b)) >> 32;
    let signed24 = |value: u64| i64::from((value as u32) << 8) as i32 as i64 >> 8;
    let m24 = |value: u64| value & 0xff_ffff;
    check(
        &[
            form("mul.wide.u16 %r0, %h1, %h2;", |[a, b, _]| (a & 0xffff) * (b & 0xffff)),
            form("mul.wide.s16 %r0, %h1, %h2;", |[a, b, _]| {
                (i32::from(a as i16) * i32::from(b as i16)) as u32 as u64
            }),
            form("mul.wide.u32 %d0, %r1, %r2;", |[a, b, _]| (a & LOW) * (b & LOW)),
            form("mul.wide.s32 %d0, %r1, %r2;", move |[a, b, _]| (s(a) * s(b)) as u64),
            form("mad.wide.u32 %d0, %r1, %r2, %d3;", |[a, b, c]| {
                ((a & LOW) * (b & LOW)).wrapping_add(c)
            }),
            form("mad.wide.s32 %d0, %r1, %r2, %d3;", move |[a, b, c]| {
                ((s(a) * s(b)) as u64).wrapping_add(c)
            }),
            form("mad.wide.s16 %r0, %h1, %h2, %r3;", |[a, b, c]| {
                (i32::from(a as i16) * i32::from(b as i16)).wrapping_add(c as i32) as u32 as u64
            }),
            form("add.sat.s32 %r0, %r1, %r2;", move |[a, b, _]| clamp(s(a) + s(b))),
            form("sub.sat.s32 %r0, %r1, %r2;", move |[a, b, _]| clamp(s(a) - s(b))),
            form("mad.hi.sat.s32 %r0, %r1, %r2, %r3;", move |[a, b, c]| {
                clamp(high(a, b) + s(c))
            }),
            form(
                "add.cc.u32 %r4, %r1, %r2; addc.cc.u32 %r5, %r2, %r3; addc.u32 %r0, %r1, %r3;",
                |[a, b, c]| {
                    let sum = (u128::from(a & LOW) << 64 | u128::from(b & LOW) << 32 | u128::from(a & LOW))
                        + (u128::from(c & LOW) << 64 | u128::from(c & LOW) << 32 | u128::from(b & LOW));
                    (sum >> 64) as u64 & LOW
                },
            ),
            form("sub.cc.u32 %r4, %r1, %r2; subc.u32 %r0, %r2, %r3;", |[a, b, c]| {
                (b & LOW)
                    .wrapping_sub(c & LOW)
                    .wrapping_sub(u64::from(a & LOW < b & LOW))
                    & LOW
            }),
            form("add.cc.s64 %d4, %d1, %d2; addc.s64 %d0, %d2, %d3;", |[a, b, c]| {
                b.wrapping_add(c).wrapping_add(a.overflowing_add(b).1.into())
            }),
            form(
                "mad.lo.cc.u32 %r4, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, %r3;",
                |[a, b, c]| {
                    let product = (a & LOW) * (b & LOW);
                    let carry = ((product & LOW) + (c & LOW)) >> 32;
                    (product >> 32).wrapping_add(c & LOW).wrapping_add(carry) & LOW
                },
            ),
            form(
                "mad.lo.cc.s64 %d4, %d1, %d2, %d3; madc.hi.s64 %d0, %d1, %d2, %d3;",
                |[a, b, c]| {
                    let product = i128::from(a as i64) * i128::from(b as i64);
                    let carry = (product as u64).overflowing_add(c).1;
                    ((product >> 64) as u64).wrapping_add(c).wrapping_add(carry.into())
                },
            ),
            form("mul24.lo.u32 %r0, %r1, %r2;", move |[a, b, _]| (m24(a) * m24(b)) & LOW),
            form("mul24.hi.u32 %r0, %r1, %r2;", move |[a, b, _]| {
                (m24(a) * m24(b)) >> 16 & LOW
            }),
            form("mul24.hi.s32 %r0, %r1, %r2;", move |[a, b, _]| {
                ((signed24(a) * signed24(b)) >> 16) as u64 & LOW
            }),
            form("mad24.lo.s32 %r0, %r1, %r2, %r3;", move |[a, b, c]| {
                ((signed24(a) * signed24(b)) as u64).wrapping_add(c) & LOW
            }),
            form("mad24.hi.sat.s32 %r0, %r1, %r2, %r3;", move |[a, b, c]| {
                clamp(i64::from(((signed24(a) * signed24(b)) >> 16) as i32) + s(c))
            }),
            form("abs.s32 %r0, %r1;", |[a, ..]| (a as i32).wrapping_abs() as u32 as u64),
            form("neg.s64 %d0, %d1;", |[a, ..]| (a as i64).wrapping_neg() as u64),
            form("abs.s64 %d0, %d1;", |[a, ..]| (a as i64).wrapping_abs() as u64),
            form("max.relu.s32 %r0, %r1, %r2;", |[a, b, _]| {
                (a as i32).max(b as i32).max(0) as u64
            }),
            form("min.relu.s32 %r0, %r1, %r2;", |[a, b, _]| {
                (a as i32).min(b as i32).max(0) as u64
            }),
            form("dp4a.u32.s32 %r0, %r1, %r2, %r3;", |[a, b, c]| {
                let (a, b) = ((a as u32).to_le_bytes(), (b as u32).to_le_bytes());
                let sum: i32 = a.iter().zip(b).map(|(&a, b)| i32::from(a) * i32::from(b as i8)).sum();
                sum.wrapping_add(c as i32) as u32 as u64
            }),
            form("dp4a.s32.s32 %r0, %r1, %r2, %r3;", |[a, b, c]| {
                let (a, b) = ((a as u32).to_le_bytes(), (b as u32).to_le_bytes());
                let sum: i32 = a
                    .iter()
                    .zip(b)
                    .map(|(&a, b)| i32::from(a as i8) * i32::from(b as i8))
                    .sum();
                sum.wrapping_add(c as i32) as u32 as u64
            }),
            form("dp2a.lo.s32.u32 %r0, %r1, %r2, %r3;", |[a, b, c]| {
                let half = |i: u32| i32::from((a >> (16 * i)) as i16) * i32::from((b >> (8 * i)) as u8);
                half(0).wrapping_add(half(1)).wrapping_add(c as i32) as u32 as u64
            }),
            form("dp2a.hi.u32.s32 %r0, %r1, %r2, %r3;", |[a, b, c]| {
                let half = |i: u32| i64::from((a >> (16 * i)) as u16) * i64::from((b >> (16 + 8 * i)) as i8);
                (half(0) + half(1)).wrapping_add(i64::from(c as i32)) as u64 & LOW
            }),
        ],
        wide,
    );
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
        pairs16,
    );
}

/// What `bfe` and `bfi` cut out: bits below `length`, counted from `at`, that the width holds.
fn field(at: u64, length: u64, bits: u32) -> u64 {
    (0..u64::from(bits))
        .filter(|bit| *bit >= at && *bit < at + length)
        .fold(0, |mask, bit| mask | 1 << bit)
}

#[test]
fn bits_and_fields() {
    let extract = |a: u64, at: u64, length: u64, bits: u32, signed: bool| {
        let (at, length) = (at & 0xff, length & 0xff);
        let sign_at = (at + length).saturating_sub(1).min(u64::from(bits) - 1);
        let sign = signed && length > 0 && a >> sign_at & 1 == 1;
        (0..u64::from(bits)).fold(0, |result, bit| {
            let inside = bit < length && at + bit < u64::from(bits);
            let value = if inside { a >> (at + bit) & 1 } else { sign.into() };
            result | value << bit
        })
    };
    let insert = |a: u64, b: u64, at: u64, length: u64, bits: u32| {
        let mask = field(at & 0xff, length & 0xff, bits);
        let moved = if at & 0xff < 64 { a << (at & 0xff) } else { 0 };
        (moved & mask | b & !mask) & (u64::MAX >> (64 - bits))
    };
    let find = |value: u64, bits: u32| {
        let value = value & (u64::MAX >> (64 - bits));
        if value == 0 {
            LOW
        } else {
            u64::from(63 - value.leading_zeros())
        }
    };
    check(
        &[
            form("popc.b32 %r0, %r1;", |[a, ..]| (a as u32).count_ones().into()),
            form("popc.b64 %r0, %d1;", |[a, ..]| a.count_ones().into()),
            form("clz.b32 %r0, %r1;", |[a, ..]| (a as u32).leading_zeros().into()),
            form("clz.b64 %r0, %d1;", |[a, ..]| a.leading_zeros().into()),
            form("brev.b32 %r0, %r1;", |[a, ..]| (a as u32).reverse_bits().into()),
            form("brev.b64 %d0, %d1;", |[a, ..]| a.reverse_bits()),
            form("bfind.u32 %r0, %r1;", move |[a, ..]| find(a, 32)),
            form("bfind.s32 %r0, %r1;", move |[a, ..]| {
                find(if a as i32 <= -1 { !a } else { a }, 32)
            }),
            form("bfind.u64 %r0, %d1;", move |[a, ..]| find(a, 64)),
            form("bfind.shiftamt.s64 %r0, %d1;", move |[a, ..]| {
                match find(if (a as i64) < 0 { !a } else { a }, 64) {
                    LOW => LOW,
                    at => 63 - at,
                }
            }),
            form("bfe.u32 %r0, %r1, %r2, %r3;", move |[a, b, c]| {
                extract(a & LOW, b, c, 32, false)
            }),
            form("bfe.s32 %r0, %r1, %r2, %r3;", move |[a, b, c]| {
                extract(a & LOW, b, c, 32, true)
            }),
            form("bfe.u64 %d0, %d1, %r2, %r3;", move |[a, b, c]| {
                extract(a, b, c, 64, false)
            }),
            form("bfe.s64 %d0, %d1, %r2, %r3;", move |[a, b, c]| {
                extract(a, b, c, 64, true)
            }),
            form("bfi.b32 %r0, %r1, %r2, %r3, 9;", move |[a, b, c]| {
                insert(a, b, c, 9, 32)
            }),
            form("bfi.b64 %d0, %d1, %d2, 13, %r3;", move |[a, b, c]| {
                insert(a, b, 13, c, 64)
            }),
            form("bmsk.clamp.b32 %r0, %r1, %r2;", |[at, width, _]| {
                field((at & LOW).min(32), (width & LOW).min(32), 32)
            }),
            form("bmsk.wrap.b32 %r0, %r1, %r2;", |[at, width, _]| {
                field(at & 31, width & 31, 32)
            }),
            form("szext.clamp.s32 %r0, %r1, %r2;", |[a, width, _]| match width & LOW {
                0 => 0,
                width @ 1..32 => ((a as i32) << (32 - width) >> (32 - width)) as u32 as u64,
                _ => a & LOW,
            }),
            form("szext.wrap.u32 %r0, %r1, %r2;", |[a, width, _]| {
                a & ((1 << (width & 31)) - 1)
            }),
            form("fns.b32 %r0, %r1, 5, 2;", |[a, ..]| {
                (5..32).filter(|bit| a >> bit & 1 == 1).nth(1).unwrap_or(LOW)
            }),
            form("fns.b32 %r0, %r1, 20, -3;", |[a, ..]| {
                (0..=20).rev().filter(|bit| a >> bit & 1 == 1).nth(2).unwrap_or(LOW)
            }),
        ],
        || super::grid::random(300_000),
    );
}

/// Which byte a mode of `prmt` picks, of its selector and the place to fill.
type Pick = fn(u64, u64) -> u64;

/// Two 32-bit values as one.
fn joined(low: u64, high: u64) -> u64 {
    (high & LOW) << 32 | low & LOW
}

#[test]
fn logic_shifts_and_bytes() {
    let mut forms = vec![
        form("and.b32 %r0, %r1, %r2;", |[a, b, _]| a & b & LOW),
        form("or.b64 %d0, %d1, %d2;", |[a, b, _]| a | b),
        form("xor.b16 %h0, %h1, %h2;", |[a, b, _]| (a ^ b) & 0xffff),
        form("not.b64 %d0, %d1;", |[a, ..]| !a),
        form("cnot.b32 %r0, %r1;", |[a, ..]| (a & LOW == 0).into()),
        form("shl.b16 %h0, %h1, %r2;", |[a, n, _]| {
            if n & LOW < 16 { (a << (n & 15)) & 0xffff } else { 0 }
        }),
        form("shl.b32 %r0, %r1, %r2;", |[a, n, _]| {
            if n & LOW < 32 { (a << (n & 31)) & LOW } else { 0 }
        }),
        form(
            "shl.b64 %d0, %d1, %r2;",
            |[a, n, _]| if n & LOW < 64 { a << (n & 63) } else { 0 },
        ),
        form(
            "shr.b64 %d0, %d1, %r2;",
            |[a, n, _]| if n & LOW < 64 { a >> (n & 63) } else { 0 },
        ),
    ];
    for table in [0xca_u8, 0x96, 0x01, 0xe8] {
        let lop = move |[a, b, c]: [u64; 3]| {
            (0..32).fold(0, |result, bit| {
                let row = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1);
                result | u64::from(table >> row & 1) << bit
            })
        };
        forms.push(form(format!("lop3.b32 %r0, %r1, %r2, %r3, {table};"), lop));
        forms.push(form(
            format!("lop3.or.b32 %r5|%p0, %r1, %r2, %r3, {table}, %p1;"),
            move |inputs| (lop(inputs) != 0 || inputs[2] & 1 == 1).into(),
        ));
        forms.push(form(
            format!("lop3.and.b32 _|%p0, %r1, %r2, %r3, {table}, !%p1;"),
            move |inputs| (lop(inputs) != 0 && inputs[2] & 1 == 0).into(),
        ));
    }
    for (name, amount) in [
        ("clamp", (|n| (n & LOW).min(32)) as fn(u64) -> u64),
        ("wrap", |n| n & 31),
    ] {
        forms.push(form(
            format!("shf.l.{name}.b32 %r0, %r1, %r2, %r3;"),
            move |[a, b, n]| ((u128::from(joined(a, b)) << amount(n)) >> 32) as u64 & LOW,
        ));
        forms.push(form(
            format!("shf.r.{name}.b32 %r0, %r1, %r2, %r3;"),
            move |[a, b, n]| (joined(a, b) >> amount(n)) & LOW,
        ));
    }
    let byte = move |a: u64, b: u64, i: u64| joined(a, b) >> (8 * (i & 7)) & 0xff;
    let gather = move |f: &dyn Fn(u64) -> u64| (0..4).fold(0, |result, i| result | f(i) << (8 * i));
    forms.push(form("prmt.b32 %r0, %r1, %r2, %r3;", move |[a, b, c]| {
        gather(&|i| {
            let nibble = c >> (4 * i);
            let value = byte(a, b, nibble);
            if nibble & 8 == 0 { value } else { 0xff * (value >> 7) }
        })
    }));
    let modes: [(&str, Pick); 6] = [
        ("f4e", |c, i| c + i),
        ("b4e", |c, i| c.wrapping_sub(i)),
        ("rc8", |c, _| c),
        ("ecl", |c, i| c.max(i)),
        ("ecr", |c, i| c.min(i)),
        ("rc16", |c, i| (c & 1) * 2 + (i & 1)),
    ];
    for (mode, at) in modes {
        forms.push(form(
            format!("prmt.b32.{mode} %r0, %r1, %r2, %r3;"),
            move |[a, b, c]| gather(&|i| byte(a, b, at(c & 3, i))),
        ));
    }
    check(&forms, || super::grid::random(300_000));
    let bytes = [
        form("mov.b16 %h0, %h1;", |[a, ..]| a & 0xffff),
        form("mov.b32 %r0, {%h1, %h2};", |[a, b, _]| (b & 0xffff) << 16 | a & 0xffff),
        form("mov.b32 {%h4, %h0}, %r1;", |[a, ..]| a >> 16 & 0xffff),
        form("mov.b64 {%r4, %r0}, %d1;", |[a, ..]| a >> 32),
        form("mov.b64 {%h4, %h5, %h0, _}, %d1;", |[a, ..]| a >> 32 & 0xffff),
    ];
    check(&bytes, all16);
}
