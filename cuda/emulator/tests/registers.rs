//! Registers of the text share those of the warp. Whatever the control flow, that shows nowhere: a kernel computes the
//! same as one whose registers are all in use to the end, so that none can share.

mod support;

use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::{Run, memory, module, ptx, read_u32};

const REGISTERS: usize = 24;
const BLOCKS: usize = 10;
const THREADS: u32 = 64;
/// Registers whose last values count in both kernels.
const RESULTS: usize = 4;

/// A kernel of blocks that lead to each other at random, on a lane's own values, until its fuel is spent. Some
/// registers are read with nothing written before, some writes have guards. As far as the text tells, the end may
/// follow at once.
fn body(random: &mut StdRng) -> String {
    let mut text = String::from("@%p0 bra DONE;\nmov.u32 %r0, %tid.x;\nmov.u32 %fuel, 40;\n");
    for i in (1..REGISTERS).step_by(2) {
        let _ = writeln!(
            text,
            "mad.lo.u32 %r{i}, %r0, {}, {};",
            random.random::<u32>() | 1,
            random.random::<u32>()
        );
    }
    text.push_str("bra B0;\n");
    for block in 0..BLOCKS {
        let _ = writeln!(
            text,
            "B{block}:\nsub.u32 %fuel, %fuel, 1;\nsetp.eq.u32 %p0, %fuel, 0;\n@%p0 bra DONE;"
        );
        for _ in 0..random.random_range(1..8) {
            let reg = |random: &mut StdRng| format!("%r{}", random.random_range(0..REGISTERS));
            let (d, a, b, c) = (reg(random), reg(random), reg(random), reg(random));
            let guard = ["", "", "@%p1 ", "@!%p1 "][random.random_range(0..4)];
            let _ = match random.random_range(0..8) {
                0 => writeln!(text, "{guard}mov.u32 {d}, %laneid;"),
                1 => writeln!(text, "setp.lt.u32 %p1, {a}, {b};"),
                2 => writeln!(
                    text,
                    "{guard}mov.b64 %wide, {{{a}, {b}}};\n{guard}mov.b64 {{{d}, {c}}}, %wide;"
                ),
                3 => writeln!(text, "{guard}call ({d}), mix, ({a}, {b});"),
                4 => writeln!(text, "{guard}mad.lo.u32 {d}, {a}, {b}, {c};"),
                5 => writeln!(text, "{guard}selp.u32 {d}, {a}, {b}, %p1;"),
                _ => writeln!(
                    text,
                    "{guard}lop3.b32 {d}, {a}, {b}, {c}, 0x96;\n{guard}add.u32 {d}, {d}, 77;"
                ),
            };
        }
        let target = |random: &mut StdRng| format!("B{}", random.random_range(0..BLOCKS));
        let a = random.random_range(0..REGISTERS);
        let _ = match random.random_range(0..3) {
            0 => {
                let targets: Vec<String> = (0..4).map(|_| target(random)).collect();
                writeln!(
                    text,
                    "T{block}: .branchtargets {};\nand.b32 %index, %r{a}, 3;\nbrx.idx %index, T{block};",
                    targets.join(", ")
                )
            }
            1 => writeln!(
                text,
                "setp.lt.s32 %p0, %r{a}, 0;\n@%p0 bra {};\nbra {};",
                target(random),
                target(random)
            ),
            _ => writeln!(text, "@%p1 bra {};\nbra {};", target(random), target(random)),
        };
    }
    text
}

/// The kernel, which ends with a look at so many of its registers.
fn kernel(body: &str, results: usize) -> String {
    let mut text = ptx(&format!(
        ".func (.reg .b32 %o) mix(.reg .b32 %a, .reg .b32 %b) {{ .reg .b32 %x<4>; .reg .pred %p;\n\
         setp.gt.u32 %p, %a, %b;\n@%p bra SWAP;\nmul.lo.u32 %x1, %a, 5;\nadd.u32 %x3, %x1, %b;\nbra END;\n\
         SWAP: shl.b32 %x2, %b, 3;\nsub.u32 %x3, %x2, %a;\nEND: mov.u32 %o, %x3;\nret;\n}}\n\
         .visible .entry k(.param .u64 out) {{\n.reg .pred %p<2>; .reg .b32 %r<{REGISTERS}>, %fuel, %index, %gtid; .reg .b64 %wide, %out;\n"
    ));
    text.push_str(body);
    text.push_str("DONE: ld.param.u64 %out, [out];\nmov.u32 %gtid, %tid.x;\nmad.wide.u32 %out, %gtid, 256, %out;\n");
    for i in 0..results {
        let _ = writeln!(text, "st.global.u32 [%out+{}], %r{i};", 4 * i);
    }
    text.push_str("ret;\n}\n");
    text
}

#[test]
fn sharing_registers_shows_nowhere() {
    let mut random = StdRng::seed_from_u64(11);
    let mut distinct = std::collections::HashSet::new();
    for _ in 0..400 {
        let body = body(&mut random);
        let run = |results| {
            let (module, memory) = (module(&kernel(&body, results)), memory());
            let bytes = u64::from(THREADS) * 256;
            let out = memory.allocate(bytes).unwrap();
            memory.fill(out, &[0; 4], bytes / 4).unwrap();
            let launched = Run::new("k").block(THREADS).u64(out).on(&module, &memory);
            launched.unwrap_or_else(|error| panic!("{error}\n{body}"));
            let values = read_u32(&memory, out, bytes as usize / 4);
            let of_thread = |thread: &[u32]| thread[..RESULTS].to_vec();
            values.chunks(64).flat_map(of_thread).collect::<Vec<u32>>()
        };
        let shared = run(RESULTS);
        assert_eq!(shared, run(REGISTERS), "{body}");
        distinct.extend(shared);
    }
    // The kernels do compute something.
    assert!(distinct.len() > 10_000, "{}", distinct.len());
}
