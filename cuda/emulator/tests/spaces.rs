//! Loads, stores and atomics in every space and width, and what they are counted to cost.

mod support;

use support::{Run, kernel, leaves, memory, module, ptx, read_u32, words, write_u32};

fn run() -> Run<'static> {
    Run::new("k").shared(8192)
}

#[test]
fn widths_signs_and_vectors() {
    let body = "mov.u32 %r1, 0x8081fe7f; st.global.b32 [%out+64], %r1; mov.u64 %d1, 0x1122334455667788; st.global.b64 [%out+72], %d1;
        ld.global.u8 %r2, [%out+65]; st.global.u32 [%out], %r2;
        ld.global.s8 %r2, [%out+65]; st.global.u32 [%out+4], %r2;
        ld.global.s16 %r2, [%out+66]; st.global.u32 [%out+8], %r2;
        ld.global.s32 %d2, [%out+64]; st.global.u64 [%out+16], %d2;
        ld.global.u8 %h1, [%out+64]; st.global.u16 [%out+12], %h1; st.global.u8 [%out+14], %r1;
        ld.global.v2.b32 {%r3, %r4}, [%out+72]; st.global.v2.b32 [%out+24], {%r4, %r3};
        ld.global.v4.b16 {%h1, %h2, %h3, _}, [%out+72]; st.global.v4.b16 [%out+32], {%h3, %h2, %h1, 5};
        st.global.v2.u64 [%out+48], {%d1, 7}; ld.global.v2.u64 {%d3, %d4}, [%out+48]; st.global.u64 [%out+40], %d4;";
    let expected = [
        0xfe,
        0xffff_fffe,
        0xffff_8081,
        0x007f_007f,
        0x8081_fe7f,
        0xffff_ffff,
        0x1122_3344,
        0x5566_7788,
        0x5566_3344,
        0x0005_7788,
        7,
        0,
        0x5566_7788,
        0x1122_3344,
        7,
        0,
        0x8081_fe7f,
        0,
        0x5566_7788,
        0x1122_3344,
    ];
    leaves(
        &expected,
        &format!("mov.u32 %r9, %laneid; setp.ne.u32 %p1, %r9, 0; @%p1 ret; {body}"),
        &run(),
    );
}

#[test]
fn hints_and_orders_change_nothing() {
    let mut body = String::from(
        "mov.u32 %r9, %laneid; setp.ne.u32 %p1, %r9, 0; @%p1 ret; mov.u32 %r4, smem; st.shared.u32 [%r4], 5;\n",
    );
    body += "createpolicy.fractional.L2::evict_first.b64 %d1, 1.0;\n";
    let loads = [
        "ld.global.nc.L1::no_allocate.L2::256B.u32 %r1, [%out];",
        "ld.global.nc.u32 %r1, [%out];",
        "ld.global.L1::evict_last.L2::cache_hint.u32 %r1, [%out], %d1;",
        "ld.relaxed.gpu.global.u32 %r1, [%out];",
        "ld.acquire.sys.global.u32 %r1, [%out];",
        "ld.volatile.global.u32 %r1, [%out];",
        "ld.weak.global.ca.u32 %r1, [%out];",
        "ldu.global.u32 %r1, [%out];",
        "ld.u32 %r1, [%out];",
        "ld.mmio.relaxed.sys.global.u32 %r1, [%out];",
    ];
    for load in loads {
        body += &format!("mov.u32 %r1, 0; {load} add.u32 %r2, %r1, 1; st.global.cs.L1::no_allocate.u32 [%out], %r2;\n");
    }
    body += "ld.shared.u32 %r1, [%r4]; ld.relaxed.cta.shared::cta.u32 %r2, [%r4]; ld.volatile.shared.u32 %r3, [%r4];
        add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; st.release.gpu.global.u32 [%out+4], %r1;
        prefetch.global.L2 [%out]; prefetchu.L1 [%out]; membar.gl; fence.sc.sys; fence.proxy.async; fence.proxy.async.global;
        applypriority.global.L2::evict_normal [%out], 128;";
    leaves(&[loads.len() as u32, 15], &body, &run());
}

#[test]
fn generic_addresses_reach_every_space() {
    let text = ptx(
        ".global .align 4 .b8 table[8] = {1, 2, 3, 4, 5}; .const .align 4 .u32 fixed = 77; .shared .align 4 .b8 own[4];
        .visible .entry k(.param .u64 out, .param .align 4 .b8 block[12]) {
        .reg .pred %p; .reg .b32 %r<9>; .reg .b64 %d<9>; .local .align 8 .b8 stack[16];
        mov.u32 %r1, %laneid; setp.ne.u32 %p, %r1, 3; @%p ret;
        ld.param.u64 %d1, [out]; ld.param.u32 %r1, [block+8]; st.global.u32 [%d1], %r1;
        mov.b64 %d2, block; cvta.param.u64 %d2, %d2; ld.u32 %r1, [%d2+4]; st.global.u32 [%d1+4], %r1;
        ld.global.u32 %r1, [table]; st.global.u32 [%d1+8], %r1; mov.u64 %d3, table; ld.u32 %r1, [%d3+4]; st.u32 [%d1+12], %r1;
        ld.const.u32 %r1, [fixed]; st.global.u32 [%d1+16], %r1;
        mov.u64 %d4, stack; cvta.local.u64 %d4, %d4; st.u32 [%d4+12], 41; ld.local.u32 %r1, [stack+12]; st.global.u32 [%d1+20], %r1;
        mov.u32 %r2, own; st.shared.u32 [%r2], 42; cvt.u64.u32 %d5, %r2; cvta.shared.u64 %d5, %d5; ld.u32 %r1, [%d5]; st.global.u32 [%d1+24], %r1;
        cvta.to.shared.u64 %d6, %d5; cvt.u32.u64 %r3, %d6; sub.u32 %r3, %r3, %r2; st.global.u32 [%d1+28], %r3;
        isspacep.shared %p, %d5; selp.u32 %r1, 1, 0, %p; isspacep.global %p, %d5; @%p add.u32 %r1, %r1, 2;
        isspacep.global %p, %d1; @%p add.u32 %r1, %r1, 4; isspacep.local %p, %d4; @%p add.u32 %r1, %r1, 8; st.global.u32 [%d1+32], %r1;
        atom.add.u32 %r1, [%d5], 1; atom.add.u32 %r2, [table], 0x100; add.u32 %r1, %r1, %r2; st.global.u32 [%d1+36], %r1; }",
    );
    let module = module(&text);
    let expected = [13, 12, 0x0403_0201, 5, 77, 41, 42, 0, 13, 42 + 0x0403_0201];
    for seed in [None, Some(1)] {
        let memory = memory();
        let out = memory.allocate(64).unwrap();
        let mut run = run();
        run.seed = seed;
        run.u64(out).u32(11).u32(12).u32(13).on(&module, &memory).unwrap();
        assert_eq!(read_u32(&memory, out, 10), expected);
        // The table is the module's in this memory, and keeps what was added.
        let (table, size) = module.global_address(&memory, "table").unwrap();
        assert_eq!(size, 8);
        assert_eq!(read_u32(&memory, table, 1), [0x0403_0301]);
        module.unload(&memory);
        assert_eq!(memory.range(table), None);
    }
}

#[test]
fn atomics_do_what_they_say() {
    let cases: &[(&str, u32, u32)] = &[
        ("atom.global.add.u32 %r1, [%d1], 5;", 7, 12),
        ("atom.global.add.s32 %r1, [%d1], -5;", 7, 2),
        ("atom.global.min.s32 %r1, [%d1], -5;", 7, 0xffff_fffb),
        ("atom.global.max.u32 %r1, [%d1], -5;", 7, 0xffff_fffb),
        ("atom.global.and.b32 %r1, [%d1], 6;", 12, 4),
        ("atom.global.or.b32 %r1, [%d1], 6;", 12, 14),
        ("atom.global.xor.b32 %r1, [%d1], 6;", 12, 10),
        ("atom.global.exch.b32 %r1, [%d1], 6;", 12, 6),
        ("atom.global.cas.b32 %r1, [%d1], 12, 9;", 12, 9),
        ("atom.global.cas.b32 %r1, [%d1], 13, 9;", 12, 12),
        ("atom.global.inc.u32 %r1, [%d1], 12;", 12, 0),
        ("atom.global.inc.u32 %r1, [%d1], 13;", 12, 13),
        ("atom.global.dec.u32 %r1, [%d1], 13;", 0, 13),
        ("atom.global.add.f32 %r1, [%d1], 0f3F800000;", 0x3f80_0000, 0x4000_0000),
        (
            "atom.global.add.noftz.bf16x2 %r1, [%d1], 0x3f803f80;".trim(),
            0x3f80_4000,
            0x4000_4040,
        ),
        ("atom.acq_rel.gpu.global.add.u32 %r1, [%d1], 1;", 1, 2),
        ("red.relaxed.sys.global.add.u32 [%d1], 5; mov.u32 %r1, 7;", 7, 12),
        ("red.global.max.s32 [%d1], 5; mov.u32 %r1, -7;", -7i32 as u32, 5),
    ];
    let mut body = String::from("mov.u32 %r9, %laneid; setp.ne.u32 %p1, %r9, 0; @%p1 ret;\n");
    for (i, (instruction, before, _)) in cases.iter().enumerate() {
        body += &format!(
            "add.u64 %d1, %out, {}; st.global.u32 [%d1], {before}; {instruction} st.global.u32 [%d1+4], %r1;\n",
            8 * i
        );
    }
    let got = words(&body, &run(), 2 * cases.len());
    for (i, (instruction, before, after)) in cases.iter().enumerate() {
        assert_eq!(got[2 * i..2 * i + 2], [*after, *before], "{instruction}");
    }
    let wide = "mov.u32 %r9, %laneid; setp.ne.u32 %p1, %r9, 0; @%p1 ret; mov.u64 %d1, 0xffffffff;
        atom.global.add.u64 %d2, [%out], %d1; atom.global.add.u64 %d2, [%out], %d1; atom.global.cas.b64 %d3, [%out+8], 0, %d2;
        red.global.add.v2.f32 [%out+16], {0f3F800000, 0f40000000}; atom.global.cas.b16 %h1, [%out+26], 0, 3;
        atom.global.add.noftz.bf16 %h2, [%out+28], %h1;";
    leaves(
        &[0xffff_fffe, 1, 0xffff_ffff, 0, 0x3f80_0000, 0x4000_0000, 3 << 16, 0],
        wide,
        &run(),
    );
    let floats = "mov.u32 %r9, %laneid; setp.ne.u32 %p1, %r9, 0; @%p1 ret; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;
        red.global.add.v4.f32 [%out], {%f1, %f2, %f1, %f1}; red.relaxed.gpu.global.add.v4.f32 [%out], {%f1, %f2, %f2, %f1};
        red.relaxed.gpu.global.add.f32 [%out], %f2; st.relaxed.gpu.global.f32 [%out+16], %f2; fence.acq_rel.gpu;
        ld.relaxed.gpu.global.f32 %f3, [%out+16]; ld.global.cg.v4.f32 {%f4, %f5, %f6, %f7}, [%out]; st.global.f32 [%out+20], %f3;
        add.f32 %f4, %f4, %f5; st.global.f32 [%out+24], %f4;";
    let expected = [4.0f32, 4.0, 3.0, 2.0, 2.0, 2.0, 8.0].map(f32::to_bits);
    leaves(&expected, floats, &run());
    // Every lane of many warps counts once.
    leaves(&[32 * 24], "red.global.add.u32 [%out], 1;", &run().block(128).grid(6));
}

#[test]
fn sectors_are_counted_per_request() {
    let counted = |access: &str| {
        let text = kernel(&format!("mov.u32 %r1, %laneid; mul.wide.u32 %d1, %r1, 4; {access}"));
        let (memory, module) = (memory(), module(&text));
        let out = memory.allocate(8192).unwrap();
        let (_, counters) = Run::new("k").u64(out).on(&module, &memory).unwrap();
        counters.traffic[&out]
    };
    let reads = |access: &str| {
        let traffic = counted(access);
        (traffic.read_bytes, traffic.read_sectors)
    };
    assert_eq!(reads("add.u64 %d2, %out, %d1; ld.global.u32 %r2, [%d2];"), (128, 4));
    assert_eq!(reads("ld.global.u32 %r2, [%out];"), (128, 1));
    assert_eq!(
        reads("mad.lo.u64 %d2, %d1, 8, %out; ld.global.u32 %r2, [%d2];"),
        (128, 32)
    );
    assert_eq!(
        reads("mad.lo.u64 %d2, %d1, 4, %out; ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d2];"),
        (512, 16)
    );
    // Downward, and in an order that comes back to sectors seen before.
    assert_eq!(reads("sub.u64 %d2, %out, %d1; ld.global.u32 %r2, [%d2+124];"), (128, 4));
    let shuffled = "and.b32 %r2, %r1, 1; shl.b32 %r2, %r2, 5; and.b32 %r3, %r1, 0x10; add.u32 %r2, %r2, %r3; mul.wide.u32 %d2, %r2, 4;
        add.u64 %d2, %d2, %out; ld.global.u32 %r4, [%d2];";
    assert_eq!(reads(shuffled), (128, 4));
    assert_eq!(
        reads("setp.lt.u32 %p1, %r1, 3; add.u64 %d2, %out, %d1; @%p1 ld.global.u32 %r2, [%d2];"),
        (12, 1)
    );
    let written = counted("add.u64 %d2, %out, %d1; st.global.u16 [%d2], %r1;");
    assert_eq!(
        (written.written_bytes, written.written_sectors, written.read_sectors),
        (64, 4, 0)
    );
}

#[test]
fn bank_conflicts_cost_passes() {
    let extra = |stride: u32, access: &str| {
        let text = kernel(&format!(
            "mov.u32 %r1, %laneid; mov.u32 %r4, smem; mov.u32 %r5, 0;
             FILL: shl.b32 %r6, %r1, 2; add.u32 %r6, %r6, %r5; add.u32 %r6, %r6, %r4; st.shared.u32 [%r6], 0; add.u32 %r5, %r5, 128;
             setp.lt.u32 %p1, %r5, 8192; @%p1 bra FILL;
             bar.warp.sync -1; mad.lo.u32 %r6, %r1, {stride}, %r4; {access}"
        ));
        let (memory, module) = (memory(), module(&text));
        let out = memory.allocate(64).unwrap();
        let (_, counters) = run().u64(out).on(&module, &memory).unwrap();
        (counters.load_conflicts, counters.store_conflicts)
    };
    let load = "ld.shared.u32 %r7, [%r6];";
    assert_eq!(extra(4, load), (0, 0));
    assert_eq!(extra(0, load), (0, 0));
    assert_eq!(extra(8, load), (1, 0));
    assert_eq!(extra(12, load), (0, 0));
    assert_eq!(extra(128, load), (31, 0));
    assert_eq!(extra(132, load), (0, 0));
    assert_eq!(extra(64, "st.shared.u32 [%r6], 1;"), (0, 15));
    assert_eq!(extra(8, "ld.shared.v2.u32 {%r7, %r8}, [%r6];"), (0, 0));
    assert_eq!(extra(16, "ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [%r6];"), (0, 0));
    assert_eq!(extra(32, "ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [%r6];"), (4, 0));
    assert_eq!(extra(2, "mov.u16 %h1, 1; st.shared.u16 [%r6], %h1;"), (0, 0));
}

#[test]
fn instructions_are_counted_by_opcode() {
    let (memory, module) = (
        memory(),
        module(&kernel(
            "bar.sync 0; @%p1 add.s32 %r1, %r1, 1; add.s32 %r1, %r1, 1; add.s64 %d1, %d1, 1;",
        )),
    );
    let out = memory.allocate(64).unwrap();
    let (_, counters) = Run::new("k").block(96).grid(2).u64(out).on(&module, &memory).unwrap();
    assert_eq!(counters.count("add"), 18);
    assert_eq!(counters.count("add.s32"), 12);
    assert_eq!(counters.count("bar.sync"), 6);
    assert_eq!(counters.count("ba"), 0);
    assert_eq!(counters.total_instructions(), 6 * 6);
    let mut twice = counters.clone();
    twice.add(&counters);
    assert_eq!(twice.total_instructions(), 2 * counters.total_instructions());
}

#[test]
fn clusters_on_all_cores_count_like_one() {
    let body = "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 64, %r1; mul.wide.u32 %d1, %r3, 4; add.u64 %d1, %d1, %out;
        ld.global.u32 %r4, [%d1]; mad.lo.u32 %r4, %r4, 3, %r3; st.global.u32 [%d1], %r4;";
    let module = module(&kernel(body));
    let mut answers = Vec::new();
    for seed in [None, None, Some(1), Some(2)] {
        let memory = memory();
        let out = memory.allocate(64 * 50 * 4).unwrap();
        write_u32(&memory, out, &(0..3200).collect::<Vec<u32>>());
        let mut run = Run::new("k").block(64).grid(50);
        run.seed = seed;
        let (_, counters) = run.u64(out).on(&module, &memory).unwrap();
        answers.push((read_u32(&memory, out, 3200), counters));
    }
    assert!(answers[0].0.iter().enumerate().all(|(i, &v)| v == 4 * i as u32));
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn sixteen_bytes_at_once() {
    let body = "mov.u32 %r9, %laneid; setp.ne.u32 %p1, %r9, 0; @%p1 ret; .reg .b128 %w<5>; mov.u32 %r4, smem;
        mov.u64 %d1, 0x1111222233334444; mov.u64 %d2, 0x5555666677778888; mov.b128 %w0, {%d1, %d2}; mov.b128 %w1, %w0;
        st.global.b128 [%out], %w1; ld.global.b128 %w2, [%out]; mov.b128 {_, %d3}, %w2; st.global.u64 [%out+16], %d3;
        mov.b128 %w3, {%d2, %d2}; atom.global.exch.b128 %w4, [%out+32], %w0; atom.global.cas.b128 %w4, [%out+32], %w0, %w3;
        atom.relaxed.gpu.global.cas.b128 %w4, [%out+32], %w0, %w1; st.global.b128 [%out+48], %w4;
        st.shared.b128 [%r4], %w0; atom.shared.cas.b128 %w4, [%r4], %w0, %w3; atom.shared.exch.b128 %w2, [%r4], %w0;
        mov.b128 {%d5, %d6}, %w4; st.global.u64 [%out+24], %d5; st.global.b128 [%out+64], %w2;";
    let (a, b) = ([0x3333_4444, 0x1111_2222], [0x7777_8888, 0x5555_6666]);
    let expected = [a, b, b, a, b, b, b, b, b, b].concat();
    leaves(&expected, body, &run());
}

#[test]
fn sums_in_global_memory_lose_subnormals() {
    let body = "mov.u32 %r9, %laneid; setp.ne.u32 %p1, %r9, 0; @%p1 ret; mov.u32 %r4, smem; mov.f32 %f1, 0f00000001;
        st.global.f32 [%out], %f1; st.shared.f32 [%r4], %f1; atom.global.add.f32 %f2, [%out], %f1; red.shared.add.f32 [%r4], %f1;
        ld.shared.u32 %r1, [%r4]; st.global.u32 [%out+4], %r1; mov.b16 %h1, 0x3c00; st.global.b16 [%out+8], %h1;
        red.global.add.noftz.f16 [%out+8], %h1; st.global.v2.f32 [%out+16], {1.0, 2.0};
        atom.global.v2.f32.add {%f3, %f4}, [%out+16], {0.5, 0.25}; st.global.f32 [%out+24], %f4;
        st.global.b32 [%out+28], 0x3f803f80; mov.b32 %r2, 0xc0004000; st.global.b32 [%out+32], 0x40004000;
        red.global.v2.bf16x2.add.noftz [%out+32], {%r2, %r2}; red.global.v4.f16.max.noftz [%out+40], {%h1, %h1, 0, 0};";
    let f = |value: f32| value.to_bits();
    let expected = [
        0,
        2,
        0x4000,
        0,
        f(1.5),
        f(2.25),
        f(2.0),
        0x3f80_3f80,
        0x0000_4080,
        0xc000_4000,
        0x3c00_3c00,
        0,
    ];
    leaves(&expected, body, &run());
}
