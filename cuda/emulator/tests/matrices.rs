//! `ldmatrix` and `stmatrix`: which element goes where, what bank conflicts cost, and what is refused.

mod support;

use ptx_emulator::FaultKind;
use support::{Run, kernel, leaves, memory, module, read_u32, refuses, write_u32};

/// Fills 4 KB at %r4 with the words at `out`; then lane i of %r1 names row `{row}` in %r6.
fn start(row: &str) -> String {
    format!(
        "mov.u32 %r1, %tid.x; mov.u32 %r4, smem; shl.b32 %r5, %r1, 4;
         L: setp.ge.u32 %p1, %r5, 4096; @%p1 bra E; cvt.u64.u32 %d1, %r5; add.u64 %d1, %d1, %out; add.u32 %r6, %r4, %r5;
         ld.global.v4.b32 {{%r8, %r9, %r10, %r11}}, [%d1]; st.shared.v4.b32 [%r6], {{%r8, %r9, %r10, %r11}};
         add.u32 %r5, %r5, 512; bra L; E: bar.warp.sync -1; {row} add.u32 %r6, %r4, %r7;
         mul.wide.u32 %d2, %r1, 16; add.u64 %d2, %d2, %out; mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0;\n"
    )
}

/// Rows scattered without rhyme or reason: row i at 16 · (37 i + 11 mod 256).
const SCATTERED: &str = "mad.lo.u32 %r7, %r1, 37, 11; and.b32 %r7, %r7, 255; shl.b32 %r7, %r7, 4;";
const OUT: &str = "st.global.v4.b32 [%d2+4096], {%r10, %r11, %r12, %r13};\n";

fn image() -> Vec<u32> {
    (0..1024u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect()
}

/// The element in a row and column of a matrix whose rows lie scattered.
fn element(matrix: usize, row: usize, column: usize) -> u32 {
    let lane = 8 * matrix + row;
    let at = 16 * ((lane * 37 + 11) % 256) + 2 * column;
    image()[at / 4] >> (8 * (at % 4)) & 0xffff
}

/// What lane l holds of a matrix: two neighbours of a row, or of a column where the matrix is transposed.
fn fragment(matrix: usize, lane: usize, transposed: bool) -> u32 {
    let at = |half: usize| match (lane / 4, lane % 4 * 2 + half, transposed) {
        (row, column, false) => element(matrix, row, column),
        (column, row, true) => element(matrix, row, column),
    };
    at(0) | at(1) << 16
}

/// Runs a body over the image, and answers with the words behind it and the passes that conflicts cost.
fn run(body: &str, seed: Option<u64>) -> (Vec<u32>, [u64; 2]) {
    let (memory, module) = (memory(), module(&kernel(body)));
    let out = memory.allocate(8192).unwrap();
    write_u32(&memory, out, &image());
    let mut run = Run::new("k").shared(4096);
    run.seed = seed;
    let (_, counters) = run
        .u64(out)
        .on(&module, &memory)
        .unwrap_or_else(|error| panic!("{error}"));
    let conflicts = [counters.load_conflicts, counters.store_conflicts];
    (read_u32(&memory, out + 4096, 1024), conflicts)
}

#[test]
fn fragments_of_one_two_and_four_matrices() {
    for (count, regs) in [(1, "%r10"), (2, "%r10, %r11"), (4, "%r10, %r11, %r12, %r13")] {
        for (trans, transposed) in [("", false), (".trans", true)] {
            for space in [".shared", ".shared::cta", ""] {
                let generic = if space.is_empty() {
                    "cvt.u64.u32 %d3, %r6; cvta.shared.u64 %d3, %d3;"
                } else {
                    "cvt.u64.u32 %d3, %r6;"
                };
                let load =
                    format!("{generic} ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {{{regs}}}, [%d3];\n");
                let (seen, _) = run(&format!("{}{load}{OUT}", start(SCATTERED)), Some(1));
                for lane in 0..32 {
                    for matrix in 0..4 {
                        let expected = if matrix < count {
                            fragment(matrix, lane, transposed)
                        } else {
                            0
                        };
                        assert_eq!(
                            seen[lane * 4 + matrix],
                            expected,
                            "x{count}{trans}, lane {lane}, matrix {matrix}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn stored_fragments_come_back() {
    for (trans, back) in [("", ""), (".trans", ""), ("", ".trans"), (".trans", ".trans")] {
        // What is stored to rows that lie elsewhere is what is loaded from there.
        let body = format!(
            "{}ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r6];
             shl.b32 %r7, %r1, 4; add.u32 %r7, %r7, %r4; bar.warp.sync -1;
             stmatrix.sync.aligned.m8n8.x4{back}.shared.b16 [%r7], {{%r10, %r11, %r12, %r13}};
             ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r7];\n{OUT}",
            start(SCATTERED)
        );
        let (seen, conflicts) = run(&body, None);
        for lane in 0..32 {
            for pair in 0..4 {
                let at = |half| {
                    let (matrix, row, column) = (lane / 8, lane % 8, 2 * pair + half);
                    if trans == back {
                        element(matrix, row, column)
                    } else {
                        element(matrix, column, row)
                    }
                };
                assert_eq!(seen[lane * 4 + pair], at(0) | at(1) << 16, "{trans} and {back}");
            }
        }
        assert_eq!(conflicts[1], 0);
    }
}

#[test]
fn conflicts_are_counted_for_eight_rows_at_a_time() {
    let load = |regs: &str, row: &str| {
        let count = regs.split(',').count();
        let load = format!("ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{regs}}}, [%r6];\n");
        run(&format!("{}{load}", start(row)), None).1[0]
    };
    let four = "%r10, %r11, %r12, %r13";
    // Rows one behind the other; rows 128 bytes apart, which share their banks; rows 144 bytes apart, which do not.
    assert_eq!(load(four, "shl.b32 %r7, %r1, 4;"), 0);
    assert_eq!(load(four, "shl.b32 %r7, %r1, 7; and.b32 %r7, %r7, 0xfff;"), 4 * 7);
    assert_eq!(
        load("%r10, %r11", "shl.b32 %r7, %r1, 7; and.b32 %r7, %r7, 0xfff;"),
        2 * 7
    );
    assert_eq!(load("%r10", "and.b32 %r7, %r1, 7; mul.lo.u32 %r7, %r7, 144;"), 0);
    // Rows 128 bytes apart, their pieces permuted as a tensor copy's swizzle does.
    let swizzled = "and.b32 %r7, %r1, 7; shl.b32 %r8, %r7, 7; shl.b32 %r7, %r7, 4; or.b32 %r7, %r7, %r8;";
    assert_eq!(load(four, swizzled), 0);
    // Lanes that name the same row cost nothing.
    assert_eq!(load(four, "mov.u32 %r7, 64;"), 0);
    // The addresses of lanes beyond the matrices' rows are not looked at.
    assert_eq!(
        load(
            "%r10",
            "shl.b32 %r7, %r1, 20; setp.lt.u32 %p2, %r1, 8; @%p2 shl.b32 %r7, %r1, 4;"
        ),
        0
    );
}

#[test]
fn matrices_that_are_refused() {
    let run = Run::new("k").shared(1024);
    let ready = "mov.u32 %r1, %tid.x; mov.u32 %r4, smem; shl.b32 %r7, %r1, 4; add.u32 %r6, %r4, %r7; mov.u32 %r10, 5;
        setp.lt.u32 %p2, %r1, 31; st.shared.v4.b32 [%r6], {%r1, %r1, %r1, %r1}; bar.warp.sync -1;\n";
    let load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r6];";
    let store = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {%r10};";
    for what in [load, store] {
        leaves(&[0], &format!("{ready}{what}"), &run);
        let with = |kind, says, change: &str| refuses(kind, says, &format!("{ready}{change}{what}"), &run);
        with(FaultKind::Misaligned, "multiple of 16", "add.u32 %r6, %r6, 8;");
        with(FaultKind::OutOfBounds, "shared memory", "add.u32 %r6, %r6, 2048;");
        with(FaultKind::PartialWarp, "skip it", "@%p2 ");
    }
    let empty = ready.replace("st.shared.v4.b32 [%r6], {%r1, %r1, %r1, %r1};", "");
    refuses(FaultKind::UninitialisedShared, "", &format!("{empty}{load}"), &run);
    let both = format!(
        "mov.u32 %r1, %laneid; mov.u32 %r4, smem; shl.b32 %r6, %r1, 4; add.u32 %r6, %r4, %r6; mov.u32 %r10, 1; {store}"
    );
    refuses(FaultKind::SharedRace, "", &both, &Run::new("k").shared(1024).block(64));
    let remote = "mov.u32 %r1, %tid.x; mov.u32 %r4, smem; shl.b32 %r7, %r1, 4; add.u32 %r6, %r4, %r7; mov.u32 %r10, 5;
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
        cvt.u64.u32 %d1, %r6; cvta.shared.u64 %d1, %d1; mapa.u64 %d1, %d1, 1; mov.u32 %r2, %cluster_ctarank;
        setp.ne.u32 %p1, %r2, 0; @%p1 bra E; stmatrix.sync.aligned.m8n8.x1.b16 [%d1], {%r10}; E:
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";
    refuses(
        FaultKind::BadInstruction,
        "not in the warp's own",
        remote,
        &Run::new("k").shared(1024).cluster(2),
    );
}

#[test]
fn forms_that_do_not_exist() {
    for text in [
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r10, [%r4];",
        "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10}, [%r4];",
        "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r10, %r11, %r12}, [%r4];",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b8 {%r10}, [%r4];",
        "ldmatrix.sync.aligned.m8n8.x1.global.b16 {%r10}, [%d1];",
        "ldmatrix.sync.m8n8.x1.shared.b16 {%r10}, [%r4];",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d1}, [%r4];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r4];",
    ] {
        assert!(ptx_emulator::Module::parse(&kernel(text)).is_err(), "{text}");
    }
}
