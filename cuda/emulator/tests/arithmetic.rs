//! Instructions on registers: that each opcode means the right function of the right operands.

mod support;

use support::{Run, memory, module, words};

/// Runs each instruction on `%r1 = a`, `%r2 = b`, `%r3 = c` (64-bit: `%d1`…`%d3`, 16-bit: `%h1`…`%h3`, predicates `%p1`
/// true and `%p2` false) and checks `%d9`, into which 32-bit results in `%r9` and 16-bit ones in `%h9` are widened.
fn check(cases: &[(&str, [u64; 3], u64)]) {
    let mut body = String::from("setp.eq.u32 %p1, 0, 0; setp.ne.u32 %p2, 0, 0;\n");
    for (i, (instruction, inputs, _)) in cases.iter().enumerate() {
        for (k, value) in inputs.iter().enumerate() {
            let k = k + 1;
            body += &format!("mov.b64 %d{k}, {value:#x}; cvt.u32.u64 %r{k}, %d{k}; cvt.u16.u64 %h{k}, %d{k};\n");
        }
        body += "mov.u64 %d9, 0; mov.u32 %r9, 0; mov.u16 %h9, 0;\n";
        body += instruction;
        // The instruction's destination tells which register to look at.
        let widened = if instruction.contains("%r9") {
            "cvt.u64.u32 %d9, %r9;"
        } else if instruction.contains("%h9") {
            "cvt.u64.u16 %d9, %h9;"
        } else if instruction.contains("%p9") {
            "selp.b64 %d9, 1, 0, %p9;"
        } else {
            ""
        };
        body += &format!("\n{widened} st.global.u64 [%out+{}], %d9;\n", 8 * i);
    }
    let got = words(&body, &Run::new("k"), 2 * cases.len());
    for (i, (instruction, inputs, expected)) in cases.iter().enumerate() {
        let got = u64::from(got[2 * i + 1]) << 32 | u64::from(got[2 * i]);
        assert_eq!(
            got, *expected,
            "{instruction} on {inputs:x?} gives {got:#x}, not {expected:#x}"
        );
    }
}

const NEG1: u64 = 0xffff_ffff;
const MIN: u64 = 0x8000_0000;

#[test]
fn integers() {
    check(&[
        ("add.s32 %r9, %r1, %r2;", [NEG1, 2, 0], 1),
        ("add.u16 %h9, %h1, %h2;", [0xffff, 2, 0], 1),
        ("add.s64 %d9, %d1, %d2;", [u64::MAX, 2, 0], 1),
        ("add.sat.s32 %r9, %r1, %r2;", [0x7fff_ffff, 2, 0], 0x7fff_ffff),
        ("add.s16x2 %r9, %r1, %r2;", [0xffff_ffff, 0x0001_0002, 0], 0x0000_0001),
        ("sub.s32 %r9, %r1, %r2;", [1, 2, 0], NEG1),
        ("sub.sat.s32 %r9, %r1, %r2;", [MIN, 1, 0], MIN),
        ("add.cc.u32 %r8, %r1, %r2; addc.u32 %r9, %r3, 0;", [NEG1, 1, 7], 8),
        (
            "add.cc.u64 %d8, %d1, %d2; addc.cc.u64 %d9, %d3, 0;",
            [u64::MAX, 1, 7],
            8,
        ),
        ("sub.cc.u32 %r8, %r1, %r2; subc.u32 %r9, %r3, 0;", [0, 1, 7], 6),
        (
            "mad.lo.cc.u32 %r8, %r1, %r1, %r2; madc.hi.u32 %r9, %r1, %r1, %r3;",
            [0x1_0000, NEG1, 1],
            2,
        ),
        (
            "mad.lo.cc.u32 %r8, %r1, %r1, %r2; madc.hi.u32 %r9, %r1, %r1, %r3;",
            [0xffff, NEG1, 1],
            2,
        ),
        ("mul.lo.s32 %r9, %r1, %r2;", [NEG1, 5, 0], 0xffff_fffb),
        ("mul.lo.u16 %h9, %h1, %h2;", [0x100, 0x101, 0], 0x100),
        ("mul.lo.s64 %d9, %d1, %d2;", [1 << 40, 1 << 30, 0], 0),
        ("mul.hi.u32 %r9, %r1, %r2;", [NEG1, NEG1, 0], 0xffff_fffe),
        ("mul.hi.s32 %r9, %r1, %r2;", [NEG1, 5, 0], NEG1),
        ("mul.hi.u64 %d9, %d1, %d2;", [1 << 40, 1 << 30, 0], 64),
        ("mul.wide.u32 %d9, %r1, %r2;", [NEG1, 2, 0], 0x1_ffff_fffe),
        ("mul.wide.s32 %d9, %r1, %r2;", [NEG1, 2, 0], u64::MAX - 1),
        ("mul.wide.s16 %r9, %h1, %h2;", [0xffff, 2, 0], 0xffff_fffe),
        ("mad.lo.s32 %r9, %r1, %r2, %r3;", [3, 4, 5], 17),
        ("mad.hi.u32 %r9, %r1, %r2, %r3;", [MIN, 4, 5], 7),
        ("mad.wide.u32 %d9, %r1, %r2, %d3;", [MIN, 4, 5], 0x2_0000_0005),
        ("mad.wide.u16 %r9, %h1, %h2, %r3;", [0x8000, 4, 5], 0x2_0005),
        ("mul24.lo.u32 %r9, %r1, %r2;", [0xff00_0002, 3, 0], 6),
        ("mad24.hi.s32 %r9, %r1, %r2, %r3;", [0x00ff_ffff, 0x10000, 9], 8),
        ("sad.s32 %r9, %r1, %r2, %r3;", [NEG1, 2, 5], 8),
        ("div.s32 %r9, %r1, %r2;", [0xffff_fff9, 2, 0], 0xffff_fffd),
        ("div.u32 %r9, %r1, %r2;", [0xffff_fff9, 2, 0], 0x7fff_fffc),
        ("div.u16 %h9, %h1, %h2;", [1000, 7, 0], 142),
        ("div.u64 %d9, %d1, %d2;", [1 << 40, 1 << 10, 0], 1 << 30),
        ("rem.s32 %r9, %r1, %r2;", [0xffff_fff9, 2, 0], NEG1),
        ("rem.u64 %d9, %d1, %d2;", [(1 << 40) + 5, 1 << 10, 0], 5),
        ("abs.s32 %r9, %r1;", [NEG1, 0, 0], 1),
        ("abs.s64 %d9, %d1;", [u64::MAX - 4, 0, 0], 5),
        ("neg.s16 %h9, %h1;", [1, 0, 0], 0xffff),
        ("min.s32 %r9, %r1, %r2;", [NEG1, 2, 0], NEG1),
        ("min.u32 %r9, %r1, %r2;", [NEG1, 2, 0], 2),
        ("max.s64 %d9, %d1, %d2;", [u64::MAX, 2, 0], 2),
        ("max.u16 %h9, %h1, %h2;", [0xffff, 2, 0], 0xffff),
        ("max.s16x2 %r9, %r1, %r2;", [0xffff_0005, 0x0001_0002, 0], 0x0001_0005),
        ("popc.b32 %r9, %r1;", [0xf0f1, 0, 0], 9),
        ("popc.b64 %r9, %d1;", [u64::MAX, 0, 0], 64),
        ("clz.b32 %r9, %r1;", [0xffff, 0, 0], 16),
        ("clz.b64 %r9, %d1;", [0xffff, 0, 0], 48),
        ("brev.b32 %r9, %r1;", [1, 0, 0], MIN),
        ("brev.b64 %d9, %d1;", [1, 0, 0], 1 << 63),
        ("bfind.u32 %r9, %r1;", [0x1000, 0, 0], 12),
        ("bfind.shiftamt.u32 %r9, %r1;", [0x1000, 0, 0], 19),
        ("bfind.s64 %r9, %d1;", [u64::MAX, 0, 0], NEG1),
        ("bfe.u32 %r9, %r1, %r2, %r3;", [0x1234_5678, 8, 12], 0x456),
        ("bfe.s32 %r9, %r1, 8, 8;", [0x0000_f000, 0, 0], 0xffff_fff0),
        ("bfe.u64 %d9, %d1, 40, 8;", [0xab00_0000_0000, 0, 0], 0xab),
        ("bfi.b32 %r9, %r1, %r2, 8, 8;", [0xab, 0x1111_1111, 0], 0x1111_ab11),
        (
            "bfi.b64 %d9, %d1, %d2, 32, 16;",
            [0xab, u64::MAX, 0],
            0xffff_00ab_ffff_ffff,
        ),
        ("szext.clamp.s32 %r9, %r1, 8;", [0x80, 0, 0], 0xffff_ff80),
        ("bmsk.clamp.b32 %r9, 4, 8;", [0, 0, 0], 0xff0),
        ("fns.b32 %r9, %r1, 0, 3;", [0b1101_1000, 0, 0], 6),
        ("dp4a.u32.u32 %r9, %r1, %r2, %r3;", [0x0102_0304, 0x0101_0101, 5], 15),
        ("dp2a.lo.s32.u32 %r9, %r1, %r2, %r3;", [0xffff_0003, 0x0000_0201, 5], 6),
    ]);
}

#[test]
fn logic_shifts_and_bytes() {
    check(&[
        ("and.b32 %r9, %r1, %r2;", [0xff00, 0x0ff0, 0], 0x0f00),
        ("or.b64 %d9, %d1, %d2;", [0xff00, 0x0ff0, 0], 0xfff0),
        ("xor.b16 %h9, %h1, %h2;", [0xff00, 0x0ff0, 0], 0xf0f0),
        ("not.b32 %r9, %r1;", [0xff00, 0, 0], 0xffff_00ff),
        ("not.b16 %h9, %h1;", [0xff00, 0, 0], 0x00ff),
        ("cnot.b32 %r9, %r1;", [0, 0, 0], 1),
        ("lop3.b32 %r9, %r1, %r2, %r3, 0xca;", [0xff00, 0x1234, 0x5678], 0x1278),
        ("shl.b32 %r9, %r1, %r2;", [1, 31, 0], MIN),
        ("shl.b32 %r9, %r1, %r2;", [1, 32, 0], 0),
        ("shl.b64 %d9, %d1, %r2;", [1, 40, 0], 1 << 40),
        ("shl.b16 %h9, %h1, %r2;", [0x8001, 1, 0], 2),
        ("shr.u32 %r9, %r1, %r2;", [MIN, 4, 0], 0x0800_0000),
        ("shr.s32 %r9, %r1, %r2;", [MIN, 4, 0], 0xf800_0000),
        ("shr.s32 %r9, %r1, %r2;", [MIN, 99, 0], NEG1),
        ("shr.b64 %d9, %d1, 4;", [0x100, 0, 0], 0x10),
        ("shf.l.wrap.b32 %r9, %r1, %r2, %r3;", [0x8000_0000, 1, 4], 0x18),
        ("shf.r.clamp.b32 %r9, %r1, %r2, %r3;", [0, 0xabcd, 32], 0xabcd),
        (
            "prmt.b32 %r9, %r1, %r2, 0x5140;",
            [0x3322_1100, 0x7766_5544, 0],
            0x5511_4400,
        ),
        ("prmt.b32 %r9, %r1, %r2, 0x888b;", [0x8000_0000, 0, 0], 0x0000_00ff),
        (
            "prmt.b32.f4e %r9, %r1, %r2, 1;",
            [0x3322_1100, 0x7766_5544, 0],
            0x4433_2211,
        ),
        ("and.pred %p9, %p1, %p2;", [0; 3], 0),
        ("or.pred %p9, %p1, %p2;", [0; 3], 1),
        ("xor.pred %p9, %p1, %p1;", [0; 3], 0),
        ("not.pred %p9, %p2;", [0; 3], 1),
        ("mov.pred %p9, %p1;", [0; 3], 1),
        ("and.pred %p9, %p1, !%p2;", [0; 3], 1),
    ]);
}

#[test]
fn comparisons_and_choices() {
    check(&[
        ("setp.lt.s32 %p9, %r1, %r2;", [NEG1, 1, 0], 1),
        ("setp.lt.u32 %p9, %r1, %r2;", [NEG1, 1, 0], 0),
        ("setp.hi.u32 %p9, %r1, %r2;", [NEG1, 1, 0], 1),
        ("setp.ge.s64 %p9, %d1, %d2;", [u64::MAX, 1, 0], 0),
        ("setp.ne.b16 %p9, %h1, %h2;", [3, 4, 0], 1),
        ("setp.eq.and.b32 %p9, %r1, %r2, %p2;", [3, 3, 0], 0),
        ("setp.eq.or.b32 %p9, %r1, %r2, !%p2;", [3, 4, 0], 1),
        ("setp.eq.xor.b32 %p8|%p9, %r1, %r2, %p1;", [3, 3, 0], 1),
        ("setp.lt.f32 %p9, %r1, %r2;", [0xbf80_0000, 0, 0], 1),
        ("setp.neu.f32 %p9, %r1, %r1;", [0x7fc0_0000, 0, 0], 1),
        ("setp.nan.f32 %p9, %r1, %r2;", [0x7fc0_0000, 0, 0], 1),
        ("setp.eq.ftz.f32 %p9, %r1, 0f00000000;", [1, 0, 0], 1),
        (
            "setp.gt.f64 %p9, %d1, 0d3FF0000000000000;",
            [0x4000_0000_0000_0000, 0, 0],
            1,
        ),
        ("setp.lt.bf16 %p9, %h1, %h2;", [0xbf80, 0x3f80, 0], 1),
        ("set.lt.u32.s32 %r9, %r1, %r2;", [NEG1, 1, 0], NEG1),
        ("set.eq.and.f32.u32 %r9, %r1, %r1, %p1;", [5, 0, 0], 0x3f80_0000),
        ("selp.b32 %r9, %r1, %r2, %p1;", [5, 6, 0], 5),
        ("selp.b64 %d9, %d1, %d2, %p2;", [5, 6, 0], 6),
        ("slct.u32.s32 %r9, %r1, %r2, %r3;", [5, 6, NEG1], 6),
        ("slct.b32.f32 %r9, %r1, %r2, %r3;", [5, 6, 0x8000_0000], 5),
        ("testp.normal.f32 %p9, %r1;", [0x3f80_0000, 0, 0], 1),
        ("testp.subnormal.f32 %p9, %r1;", [1, 0, 0], 1),
        ("testp.infinite.f64 %p9, %d1;", [0xfff0_0000_0000_0000, 0, 0], 1),
    ]);
}

fn f(value: f32) -> u64 {
    value.to_bits().into()
}

fn d(value: f64) -> u64 {
    value.to_bits()
}

fn h(value: f32) -> u64 {
    half::bf16::from_f32(value).to_bits().into()
}

#[test]
fn floats() {
    check(&[
        ("add.f32 %r9, %r1, %r2;", [f(1.5), f(2.25), 0], f(3.75)),
        ("add.rn.f32 %r9, %r1, 0f40000000;", [f(1.5), 0, 0], f(3.5)),
        (
            "add.rz.f32 %r9, %r1, %r2;",
            [f(1.0), f(-1e-20), 0],
            f(1.0f32.next_down()),
        ),
        ("sub.f32 %r9, %r1, %r2;", [f(1.5), f(2.25), 0], f(-0.75)),
        ("sub.f64 %d9, %d1, %d2;", [d(1.5), d(2.25), 0], d(-0.75)),
        ("mul.f32 %r9, %r1, %r2;", [f(1.5), f(-2.0), 0], f(-3.0)),
        ("mul.ftz.f32 %r9, %r1, %r2;", [1, f(1.0), 0], 0),
        ("fma.rn.f32 %r9, %r1, %r2, %r3;", [f(1.5), f(2.0), f(0.25)], f(3.25)),
        ("fma.rn.f64 %d9, %d1, %d2, %d3;", [d(1.5), d(2.0), d(0.25)], d(3.25)),
        (
            "fma.rn.relu.bf16x2 %r9, %r1, %r2, %r3;",
            [h(1.0) << 16 | h(-2.0), h(3.0) << 16 | h(3.0), h(1.0) << 16 | h(1.0)],
            h(4.0) << 16,
        ),
        ("add.bf16 %h9, %h1, %h2;", [h(1.0), h(2.0), 0], h(3.0)),
        ("mad.rn.f32 %r9, %r1, %r2, %r3;", [f(1.5), f(2.0), f(0.25)], f(3.25)),
        ("div.rn.f32 %r9, %r1, %r2;", [f(1.0), f(3.0), 0], f(1.0 / 3.0)),
        ("div.full.f32 %r9, %r1, %r2;", [f(6.0), f(3.0), 0], f(2.0)),
        ("div.full.ftz.f32 %r9, %r1, %r2;", [f(3e38), f(1.5e38), 0], f(2.0)),
        ("div.approx.f32 %r9, %r1, %r2;", [f(6.0), f(-3.0), 0], f(-2.0)),
        ("div.approx.ftz.f32 %r9, %r1, %r2;", [f(3e38), f(1.5e38), 0], 0),
        ("abs.f32 %r9, %r1;", [f(-2.0), 0, 0], f(2.0)),
        ("neg.f32 %r9, %r1;", [f(2.0), 0, 0], f(-2.0)),
        (
            "neg.bf16x2 %r9, %r1;",
            [h(1.0) << 16 | h(-2.0), 0, 0],
            h(-1.0) << 16 | h(2.0),
        ),
        ("min.f32 %r9, %r1, %r2;", [f(f32::NAN), f(2.0), 0], f(2.0)),
        ("max.NaN.f32 %r9, %r1, %r2;", [f(f32::NAN), f(2.0), 0], 0x7fff_ffff),
        ("max.bf16 %h9, %h1, %h2;", [h(1.0), h(2.0), 0], h(2.0)),
        ("rcp.rn.f32 %r9, %r1;", [f(4.0), 0, 0], f(0.25)),
        ("rcp.approx.ftz.f32 %r9, %r1;", [f(4.0), 0, 0], f(0.25)),
        ("rcp.approx.f32 %r9, %r1;", [f(-8.0), 0, 0], f(-0.125)),
        ("rcp.rn.f32 %r9, %r1;", [f(3.0), 0, 0], f(1.0 / 3.0)),
        ("rcp.rn.ftz.f32 %r9, %r1;", [1, 0, 0], f(f32::INFINITY)),
        ("sqrt.rn.f32 %r9, %r1;", [f(9.0), 0, 0], f(3.0)),
        ("sqrt.rn.ftz.f32 %r9, %r1;", [1, 0, 0], 0),
        ("sqrt.approx.f32 %r9, %r1;", [f(9.0), 0, 0], f(3.0)),
        ("sqrt.approx.ftz.f32 %r9, %r1;", [1, 0, 0], 0),
        ("rsqrt.approx.f32 %r9, %r1;", [f(0.25), 0, 0], f(2.0)),
        ("rsqrt.approx.ftz.f32 %r9, %r1;", [1, 0, 0], f(f32::INFINITY)),
        ("ex2.approx.f32 %r9, %r1;", [f(3.0), 0, 0], f(8.0)),
        ("ex2.approx.ftz.f32 %r9, %r1;", [f(-127.0), 0, 0], 0),
        ("lg2.approx.ftz.f32 %r9, %r1;", [1, 0, 0], f(f32::NEG_INFINITY)),
        (
            "ex2.approx.ftz.bf16x2 %r9, %r1;",
            [h(3.0) << 16 | h(-1.0), 0, 0],
            h(8.0) << 16 | h(0.5),
        ),
        ("lg2.approx.f32 %r9, %r1;", [f(8.0), 0, 0], f(3.0)),
        ("sin.approx.f32 %r9, %r1;", [0, 0, 0], 0),
        ("cos.approx.f32 %r9, %r1;", [0, 0, 0], f(1.0)),
        ("tanh.approx.f32 %r9, %r1;", [0, 0, 0], 0),
        ("copysign.f32 %r9, %r1, %r2;", [f(-1.0), f(2.0), 0], f(-2.0)),
    ]);
}

#[test]
fn conversions() {
    check(&[
        ("cvt.u64.u32 %d9, %r1;", [NEG1, 0, 0], NEG1),
        ("cvt.s64.s32 %d9, %r1;", [NEG1, 0, 0], u64::MAX),
        ("cvt.u32.u64 %r9, %d1;", [0x1_2345_6789, 0, 0], 0x2345_6789),
        ("cvt.u32.u8 %r9, %r1;", [0x1ff, 0, 0], 0xff),
        ("cvt.s32.s8 %r9, %r1;", [0x1ff, 0, 0], NEG1),
        ("cvt.u16.u32 %h9, %r1;", [0x1_2345, 0, 0], 0x2345),
        ("cvt.sat.u16.u32 %h9, %r1;", [0x1_2345, 0, 0], 0xffff),
        ("cvt.sat.s8.s32 %r9, %r1;", [0xffff_0000, 0, 0], 0xffff_ff80),
        ("cvt.rn.f32.s32 %r9, %r1;", [NEG1, 0, 0], f(-1.0)),
        ("cvt.rn.f32.u32 %r9, %r1;", [NEG1, 0, 0], f(u32::MAX as f32)),
        ("cvt.rzi.s32.f32 %r9, %r1;", [f(-1.7), 0, 0], NEG1),
        ("cvt.rni.u32.f32 %r9, %r1;", [f(2.5), 0, 0], 2),
        ("cvt.rpi.u16.f32 %h9, %r1;", [f(2.5), 0, 0], 3),
        ("cvt.rzi.u32.f32 %r9, %r1;", [f(-5.0), 0, 0], 0),
        ("cvt.rmi.f32.f32 %r9, %r1;", [f(-1.5), 0, 0], f(-2.0)),
        ("cvt.f64.f32 %d9, %r1;", [f(1.5), 0, 0], d(1.5)),
        ("cvt.rn.f32.f64 %r9, %d1;", [d(1.1), 0, 0], f(1.1)),
        ("cvt.rn.bf16.f32 %h9, %r1;", [f(1.0 + 1.0 / 256.0), 0, 0], h(1.0)),
        ("cvt.rz.bf16.f32 %h9, %r1;", [f(1.99999), 0, 0], h(1.9921875)),
        ("cvt.f32.bf16 %r9, %h1;", [h(1.5), 0, 0], f(1.5)),
        ("cvt.rn.f16.f32 %h9, %r1;", [f(1.0), 0, 0], 0x3c00),
        ("cvt.f32.f16 %r9, %h1;", [0x3c00, 0, 0], f(1.0)),
        (
            "cvt.rn.bf16x2.f32 %r9, %r1, %r2;",
            [f(1.0), f(2.0), 0],
            h(1.0) << 16 | h(2.0),
        ),
        ("cvt.rn.relu.bf16x2.f32 %r9, %r1, %r2;", [f(-1.0), f(2.0), 0], h(2.0)),
        ("cvt.rna.tf32.f32 %r9, %r1;", [0x3f80_1000, 0, 0], 0x3f80_2000),
        ("cvt.sat.f32.f32 %r9, %r1;", [f(7.0), 0, 0], f(1.0)),
    ]);
}

#[test]
fn moves() {
    check(&[
        ("mov.b32 %r9, 0f3F800000;", [0; 3], f(1.0)),
        ("mov.f32 %r9, 0f3F800000;", [0; 3], f(1.0)),
        ("mov.f64 %d9, 1.5;", [0; 3], d(1.5)),
        ("mov.u32 %r9, -1;", [0; 3], NEG1),
        ("mov.b64 %d9, {%r1, %r2};", [5, 6, 0], 6 << 32 | 5),
        ("mov.b64 {%r8, %r9}, %d1;", [6 << 32 | 5, 0, 0], 6),
        ("mov.b64 {%r9, _}, %d1;", [6 << 32 | 5, 0, 0], 5),
        ("mov.b32 %r9, {%h1, %h2};", [5, 6, 0], 6 << 16 | 5),
        ("mov.b32 {%h8, %h9}, %r1;", [6 << 16 | 5, 0, 0], 6),
        (
            "mov.b64 %d9, {%h1, %h2, %h3, %h1};",
            [1, 2, 3],
            1 << 48 | 3 << 32 | 2 << 16 | 1,
        ),
        ("@%p1 mov.u32 %r9, 5;", [0; 3], 5),
        ("@!%p1 mov.u32 %r9, 5;", [0; 3], 0),
        ("{ .reg .b32 %r9; mov.u32 %r9, 5; } mov.u32 %r9, 6;", [0; 3], 6),
    ]);
}

#[test]
fn special_registers() {
    let text = support::ptx(
        ".visible .entry k(.param .u64 out) { .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %d<9>;
         ld.param.u64 %d1, [out];
         mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.y; mov.u32 %r5, %nctaid.z;
         mov.u32 %r6, %warpid; mov.u32 %r7, %ntid.y;
         mad.lo.u32 %r8, %r2, 10, %r1; mad.lo.u32 %r8, %r3, 100, %r8; mad.lo.u32 %r8, %r4, 1000, %r8;
         mad.lo.u32 %r8, %r5, 10000, %r8; mad.lo.u32 %r8, %r6, 100000, %r8; mad.lo.u32 %r8, %r7, 1000000, %r8;
         setp.ne.u32 %p, %r3, 1; @%p ret; setp.ne.u32 %p, %r1, 4; @%p ret; setp.ne.u32 %p, %r2, 2; @%p ret;
         st.global.u32 [%d1], %r8; mov.u32 %r1, %lanemask_lt; st.global.u32 [%d1+4], %r1; mov.u32 %r1, %dynamic_smem_size;
         st.global.u32 [%d1+8], %r1; }",
    );
    let (memory, module) = (memory(), module(&text));
    let out = memory.allocate(64).unwrap();
    let launch = ptx_emulator::Launch {
        entry: "k",
        grid: [1, 1, 3],
        block: [5, 4, 2],
        cluster: [1, 1, 1],
        dynamic_shared: 48,
        params: &out.to_le_bytes(),
        overlaps: None,
    };
    ptx_emulator::launch(&module, &memory, &launch, &Default::default()).unwrap();
    // Thread (4, 2, 1) of a CTA of 5 × 4 × 2 is number 34: lane 2 of warp 1.
    assert_eq!(support::read_u32(&memory, out, 3), [4_130_124, 0b11, 48]);
}

#[test]
fn matrix_products() {
    // A is the identity in its first 8 columns, B has row k filled with k + 1, C counts up: D = A·B + C.
    let body = "mov.u32 %r1, %laneid; shr.u32 %r2, %r1, 2; and.b32 %r3, %r1, 3; shl.b32 %r4, %r3, 1;
        mov.u32 %r10, 0; setp.eq.u32 %p1, %r2, %r4; @%p1 mov.u32 %r10, 0x00003f80;
        add.u32 %r5, %r4, 1; setp.eq.u32 %p1, %r2, %r5; @%p1 mov.u32 %r10, 0x3f800000;
        cvt.rn.f32.u32 %r6, %r5; add.u32 %r5, %r5, 1; cvt.rn.f32.u32 %r7, %r5; cvt.rn.bf16x2.f32 %r8, %r7, %r6;
        mov.u32 %r11, 0; cvt.rn.f32.u32 %r12, %r1;
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r10, %r11, %r11, %r11}, {%r8, %r11}, {%r12, %r11, %r11, %r12};
        mul.wide.u32 %d1, %r1, 16; add.u64 %d1, %d1, %out; st.global.v4.f32 [%d1], {%f0, %f1, %f2, %f3};";
    let got = words(body, &Run::new("k"), 128);
    for lane in 0..32 {
        let row = lane / 4 + 1;
        let expected = [row as f32 + lane as f32, row as f32, 0.0, lane as f32];
        assert_eq!(got[4 * lane..4 * lane + 4], expected.map(f32::to_bits), "lane {lane}");
    }
}
