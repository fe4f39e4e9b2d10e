//! Logic, shifts, bits and bytes.

use super::grid::{Form, all16, check, form, forms as together, wide};

const LOW: u64 = 0xffff_ffff;

/// What `bfe` and `bfi` cut out: bits below `length`, counted from `at`, that the width holds.
fn field(at: u64, length: u64, bits: u32) -> u64 {
    (0..u64::from(bits))
        .filter(|bit| *bit >= at && *bit < at + length)
        .fold(0, |mask, bit| mask | 1 << bit)
}

fn bits_and_fields() -> Vec<Form<'static>> {
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
    let mut all = vec![
        form("popc.b32 %r0, %r1;", |[a, ..]| (a as u32).count_ones().into()),
        form("popc.b64 %r0, %d1;", |[a, ..]| a.count_ones().into()),
        form("clz.b32 %r0, %r1;", |[a, ..]| (a as u32).leading_zeros().into()),
        form("clz.b64 %r0, %d1;", |[a, ..]| a.leading_zeros().into()),
        form("brev.b32 %r0, %r1;", |[a, ..]| (a as u32).reverse_bits().into()),
        form("brev.b64 %d0, %d1;", |[a, ..]| a.reverse_bits()),
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
        form("fns.b32 %r0, %r1, 5, 2;", |[a, ..]| {
            (5..32).filter(|bit| a >> bit & 1 == 1).nth(1).unwrap_or(LOW)
        }),
        form("fns.b32 %r0, %r1, 20, -3;", |[a, ..]| {
            (0..=20).rev().filter(|bit| a >> bit & 1 == 1).nth(2).unwrap_or(LOW)
        }),
    ];
    for (sign, width) in [("u", "clamp"), ("s", "clamp"), ("u", "wrap"), ("s", "wrap")] {
        all.push(form(
            format!("szext.{width}.{sign}32 %r0, %r1, %r2;"),
            move |[a, n, _]| {
                let n = if width == "wrap" { n & 31 } else { (n & LOW).min(32) };
                let kept = (a & LOW) << (64 - n).min(63) << u32::from(n == 0);
                let back = 64 - n;
                match (n, sign) {
                    (0, _) => 0,
                    (_, "s") => ((kept as i64) >> back) as u64 & LOW,
                    _ => kept >> back,
                }
            },
        ));
    }
    for (ty, r, bits, signed) in [
        ("u32", "r", 32, false),
        ("s32", "r", 32, true),
        ("u64", "d", 64, false),
        ("s64", "d", 64, true),
    ] {
        let texts = ["", ".shiftamt"].map(|how| format!("bfind{how}.{ty} %r0, %{r}1;"));
        all.push(together(texts.to_vec(), move |[a, ..]| {
            let negative = signed && a >> (bits - 1) & 1 == 1;
            match find(if negative { !a } else { a }, bits) {
                LOW => [LOW; 2],
                at => [at, u64::from(bits) - 1 - at],
            }
        }));
    }
    all
}

/// Which byte a mode of `prmt` picks, of its selector and the place to fill.
type Pick = fn(u64, u64) -> u64;

/// Two 32-bit values as one.
fn joined(low: u64, high: u64) -> u64 {
    (high & LOW) << 32 | low & LOW
}

fn logic_shifts_and_bytes() -> Vec<Form<'static>> {
    let mut forms = vec![
        form("and.b32 %r0, %r1, %r2;", |[a, b, _]| a & b & LOW),
        form("or.b32 %r0, %r1, %r2;", |[a, b, _]| (a | b) & LOW),
        form("xor.b32 %r0, %r1, %r2;", |[a, b, _]| (a ^ b) & LOW),
        form("and.b64 %d0, %d1, %d2;", |[a, b, _]| a & b),
        form("or.b64 %d0, %d1, %d2;", |[a, b, _]| a | b),
        form("xor.b64 %d0, %d1, %d2;", |[a, b, _]| a ^ b),
        form("xor.b16 %h0, %h1, %h2;", |[a, b, _]| (a ^ b) & 0xffff),
        form("not.b32 %r0, %r1;", |[a, ..]| !a & LOW),
        form("not.b64 %d0, %d1;", |[a, ..]| !a),
        form("cnot.b32 %r0, %r1;", |[a, ..]| (a & LOW == 0).into()),
        form("cnot.b64 %d0, %d1;", |[a, ..]| (a == 0).into()),
        form("shr.b32 %r0, %r1, %r2;", |[a, n, _]| {
            if n & LOW < 32 { (a & LOW) >> (n & 31) } else { 0 }
        }),
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
    // Every table: of each row the lanes of bits that stand there.
    let rows = |[a, b, c]: [u64; 3]| -> [u64; 8] {
        std::array::from_fn(|row| {
            let pick = |value: u64, bit: usize| if row >> bit & 1 == 1 { value } else { !value };
            pick(a, 2) & pick(b, 1) & pick(c, 0) & LOW
        })
    };
    let lop = move |rows: &[u64; 8], table: usize| {
        (0..8)
            .filter(|row| table >> row & 1 == 1)
            .fold(0, |all, row| all | rows[row])
    };
    for first in (0..256).step_by(32) {
        let tables: Vec<String> = (first..first + 32)
            .map(|table| format!("lop3.b32 %r0, %r1, %r2, %r3, {table};"))
            .collect();
        forms.push(together(tables, move |inputs| {
            let rows = rows(inputs);
            std::array::from_fn::<u64, 32, _>(|i| lop(&rows, first + i))
        }));
    }
    for table in [0xca, 0x96, 0x01, 0xe8] {
        let texts = vec![
            format!("lop3.or.b32 %r5|%p0, %r1, %r2, %r3, {table}, %p1;"),
            format!("lop3.and.b32 _|%p0, %r1, %r2, %r3, {table}, !%p1;"),
        ];
        forms.push(together(texts, move |inputs| {
            let (any, p) = (lop(&rows(inputs), table) != 0, inputs[2] & 1 == 1);
            [(any || p).into(), (any && !p).into()]
        }));
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
    forms
}

#[test]
fn logic_shifts_bits_and_bytes() {
    check(&bits_and_fields(), wide());
    check(&logic_shifts_and_bytes(), wide());
    let bytes = [
        form("mov.b16 %h0, %h1;", |[a, ..]| a & 0xffff),
        form("mov.b32 %r0, {%h1, %h2};", |[a, b, _]| (b & 0xffff) << 16 | a & 0xffff),
        form("mov.b32 {%h4, %h0}, %r1;", |[a, ..]| a >> 16 & 0xffff),
        form("mov.b64 {%r4, %r0}, %d1;", |[a, ..]| a >> 32),
        form("mov.b64 {%h4, %h5, %h0, _}, %d1;", |[a, ..]| a >> 32 & 0xffff),
    ];
    check(&bytes, &all16());
}

/// All of these of 32 or 64 bits.
pub(super) fn all() -> Vec<Form<'static>> {
    bits_and_fields().into_iter().chain(logic_shifts_and_bytes()).collect()
}
