//! Whatever the text and the launch, the answer is a value.

mod support;

use ptx_emulator::{BadLaunch, Error, Launch, Memory, Module, Options, launch};
use rand::{Rng, SeedableRng, rngs::StdRng};
use support::damage::damaged;
use support::{kernel, memory, module, ptx};

const GEMV: &str = include_str!("ptx/gemv.ptx");
/// One of each family of instructions.
const BREADTH: &str = include_str!("ptx/breadth.ptx");

#[test]
fn what_is_unknown_is_named_with_its_line() {
    for instruction in [
        "frobnicate.b32 %r1, %r2;",
        "add.sideways.s32 %r1, %r2, %r3;",
        "ld.global.b128 %d1, [%out];",
        "wgmma.fence.sync;",
        "wgmma.wait_group.sync.aligned -1;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1,%r2,%r3,%r4}, %d1, %d2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%r1,%r2,%r3,%r4,%r5,%r6}, %d1, %d2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1,%r2,%r3}, %d1, %d2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1,%r2,%r3,%r3}, %d1, %d2, %p1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1,%r2,%r3,%r4}, %d1, %d2, %p1, 2, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1,%r2,%r3,%r4}, %d1, %d2, %p1, 1, 1, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8}, %d2, %p1, 1, 1, 0, 0;",
        "cp.async.cg.shared.global [%r1], [%out], 8;",
        "cp.async.ca.shared.global [%r1], [%out], 12;",
        "mma.sync.aligned.m16n8k4.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1}, {%r1,%r2,%r3,%r4};",
        "mma.sync.aligned.m16n8k8.row.col.f16.tf32.tf32.f16 {%r1,%r2}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2};",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%r1,%r2,%r3,%r4};",
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4}, %r5, 0;",
        "add.rni.f32 %f1, %f2, %f3;",
        "add.rz.f16 %h1, %h2, %h3;",
        "add.ftz.f64 %d1, %d2, %d3;",
        "fma.f32 %f1, %f2, %f3, %f4;",
        "fma.rn.relu.f32 %f1, %f2, %f3, %f4;",
        "div.approx.f64 %d1, %d2, %d3;",
        "div.f32 %f1, %f2, %f3;",
        "sin.approx.f16 %h1, %h2;",
        "ex2.approx.bf16 %h1, %h2;",
        "max.relu.u32 %r1, %r2, %r3;",
        "max.xorsign.f32 %f1, %f2, %f3;",
        "abs.u64 %d1, %d2;",
        "add.b32 %r1, %r2, %r3;",
        "bfe.u16 %h1, %h2, %r2, %r3;",
        "setp.lt.b32 %p1, %r1, %r2;",
        "setp.lo.s32 %p1, %r1, %r2;",
        "setp.lt.ftz.s32 %p1, %r1, %r2;",
        "cvt.rn.u32.s32 %r1, %r2;",
        "cvt.f32.s32 %f1, %r2;",
        "cvt.rni.f32.s32 %f1, %r2;",
        "cvt.bf16.f32 %h1, %f2;",
        "cvt.rn.e4m3x2.f32 %h1, %f1, %f2;",
        "cvt.rn.relu.f32.f64 %f1, %d1;",
        "cvt.ftz.u32.s32 %r1, %r2;",
        "cvt.pack.u8.s32.b32 %r1, %r2, %r3, %r4;",
        "atom.global.add.f16 %h1, [%out], %h2;",
        "atom.global.max.f32 %f1, [%out], %f2;",
        "atom.global.exch.b16 %h1, [%out], %h2;",
        "atom.global.v2.u32.add {%r1,%r2}, [%out], {%r1,%r2};",
        "red.global.cas.b32 [%out], %r1, %r2;",
        "st.const.u32 [%out], %r1;",
        "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%out, {%f5,%f6}];",
        "suld.b.1d.b32.trap %r1, [%out, {%r2}];",
        "call %r1;",
        "discard.global.L2 [%out], 64;",
        "add.s32 %r1, %r2;",
        "add.s32 %r1, %d2, %r3;",
        "add.s32 %p1, %r2, %r3;",
        "add.f32 %r1, %r2, [%out];",
        "mov.u32 %r1, nobody;",
        "ld.shared.u32 %r1, [out];",
        "st.param.u64 [out], %d1;",
        "cvt.u32.f32 %r1, %r2;",
        "shfl.bfly.b32 %r1, %r2, 1, 31;",
        "lop3.b32 %r1, %r2, %r3, %r4, 256;",
        "@%r1 add.s32 %r1, %r2, %r3;",
    ] {
        let text = kernel(&format!("add.s32 %r1, %r1, 1;\n{instruction}"));
        let line = text.lines().position(|l| l.contains(instruction)).unwrap() as u32 + 1;
        let error = Module::parse(&text).expect_err(instruction);
        assert_eq!(error.line, line, "{instruction}: {error}");
        assert!(!error.message.is_empty());
    }
}

/// Loads and runs damaged texts; answers how many were still PTX. Right or wrong, each ends.
fn run_damaged(text: &str, count: u32, params: &[u8], what: &Launch<'_>) -> u32 {
    let mut random = StdRng::seed_from_u64(7);
    let mut run = 0;
    for _ in 0..count {
        let Ok(module) = Module::parse(&damaged(text, text, 5, &mut random)) else {
            continue;
        };
        let memory = Memory::new(1 << 24);
        let buffer = memory.allocate(1 << 16).unwrap();
        let params = [&buffer.to_le_bytes(), params].concat();
        let mut options = Options {
            seed: Some(random.random()),
            ..Options::default()
        };
        options.limits.idle_instructions = 2_000;
        options.limits.total_instructions = 20_000;
        run += 1;
        let what = Launch {
            params: &params,
            ..what.clone()
        };
        let _ = launch(&module, &memory, &what, &options);
    }
    run
}

#[test]
fn damaged_texts_never_panic() {
    let what = Launch {
        entry: "gemv",
        grid: [4, 1, 1],
        block: [256, 1, 1],
        cluster: [2, 1, 1],
        dynamic_shared: 80_000,
        params: &[],
        overlaps: None,
    };
    let mut params = 0u64.to_le_bytes().repeat(2);
    params.extend([1u32, 32, 2048, 0, 0].iter().flat_map(|v| v.to_le_bytes()));
    let run = run_damaged(GEMV, 400, &params, &what);
    assert!(run > 50, "only {run} of the damaged texts were still PTX");
}

/// The launch that the text with one of each family of instructions is for.
const BREADTH_LAUNCH: Launch<'_> = Launch {
    entry: "k",
    grid: [1, 1, 1],
    block: [64, 1, 1],
    cluster: [1, 1, 1],
    dynamic_shared: 4096,
    params: &[],
    overlaps: None,
};

#[test]
fn damaged_instructions_of_every_family_never_panic() {
    let (memory, module) = (memory(), module(BREADTH));
    let out = memory.allocate(4096).unwrap();
    let what = Launch {
        params: &out.to_le_bytes(),
        ..BREADTH_LAUNCH
    };
    launch(&module, &memory, &what, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let results = support::read_u32(&memory, out, 4);
    assert_eq!(results[..3], [3000, 1000, 0]);
    let run = run_damaged(BREADTH, 3000, &[], &BREADTH_LAUNCH);
    assert!(run > 300, "only {run} of the damaged texts were still PTX");
}

#[test]
fn launches_are_checked() {
    let text = ptx(
        ".visible .entry k(.param .u64 a, .param .u32 b) .maxntid 64, 1, 1 { .shared .align 16 .b8 fixed[100]; .reg .b32 %r; mov.u32 %r, fixed; ret; }
         .visible .entry exact() .reqntid 96, 1, 1 .reqnctapercluster 2, 1, 1 { ret; }",
    );
    let (memory, module) = (memory(), module(&text));
    let info = module.entry("k").unwrap();
    assert_eq!(
        (info.param_bytes, info.max_threads, info.static_shared),
        (12, Some([64, 1, 1]), 100)
    );
    assert_eq!(module.entry("exact").unwrap().required_cluster, Some([2, 1, 1]));
    assert_eq!(module.entries().count(), 2);
    let good = Launch {
        entry: "k",
        grid: [2, 1, 1],
        block: [64, 1, 1],
        cluster: [1, 1, 1],
        dynamic_shared: 0,
        params: &[0; 12],
        overlaps: None,
    };
    let refused = |what: &Launch<'_>| match launch(&module, &memory, what, &Options::default()) {
        Err(Error::BadLaunch(why)) => {
            assert!(!why.to_string().is_empty());
            why
        }
        other => panic!("{other:?}"),
    };
    launch(&module, &memory, &good, &Options::default()).unwrap();
    assert!(matches!(
        refused(&Launch {
            entry: "nobody",
            ..good.clone()
        }),
        BadLaunch::NoSuchEntry(_)
    ));
    assert!(matches!(
        refused(&Launch {
            params: &[0; 16],
            ..good.clone()
        }),
        BadLaunch::ParameterSize {
            expected: 12,
            given: 16,
            ..
        }
    ));
    assert!(matches!(
        refused(&Launch {
            dynamic_shared: 227 * 1024,
            ..good.clone()
        }),
        BadLaunch::SharedMemory { .. }
    ));
    assert!(matches!(
        refused(&Launch {
            dynamic_shared: u32::MAX,
            ..good.clone()
        }),
        BadLaunch::SharedMemory { .. }
    ));
    for bad in [
        Launch {
            grid: [0, 1, 1],
            ..good.clone()
        },
        Launch {
            grid: [1, 65536, 1],
            ..good.clone()
        },
        Launch {
            block: [0, 1, 1],
            ..good.clone()
        },
        Launch {
            block: [65, 1, 1],
            ..good.clone()
        },
        Launch {
            block: [1, 1, 65],
            ..good.clone()
        },
        Launch {
            block: [u32::MAX, u32::MAX, u32::MAX],
            ..good.clone()
        },
        Launch {
            cluster: [3, 1, 1],
            ..good.clone()
        },
        Launch {
            cluster: [0, 1, 1],
            ..good.clone()
        },
        Launch {
            cluster: [17, 1, 1],
            grid: [17, 1, 1],
            ..good.clone()
        },
        Launch {
            entry: "exact",
            params: &[],
            block: [64, 1, 1],
            cluster: [2, 1, 1],
            ..good.clone()
        },
        Launch {
            entry: "exact",
            params: &[],
            block: [96, 1, 1],
            ..good.clone()
        },
    ] {
        assert!(matches!(refused(&bad), BadLaunch::Dimensions { .. }), "{bad:?}");
    }
    launch(
        &module,
        &memory,
        &Launch {
            entry: "exact",
            params: &[],
            block: [96, 1, 1],
            cluster: [2, 1, 1],
            ..good
        },
        &Options::default(),
    )
    .unwrap();
}

#[test]
fn a_memory_without_room_for_variables_refuses_the_launch() {
    let module = module(&ptx(
        ".global .align 4 .b8 large[4096]; .visible .entry k() { .reg .b64 %d; mov.u64 %d, large; ret; }",
    ));
    let memory = Memory::new(1024);
    let what = Launch {
        entry: "k",
        grid: [1, 1, 1],
        block: [1, 1, 1],
        cluster: [1, 1, 1],
        dynamic_shared: 0,
        params: &[],
        overlaps: None,
    };
    let refused = launch(&module, &memory, &what, &Options::default());
    assert!(
        matches!(refused, Err(Error::BadLaunch(BadLaunch::Variables { bytes: 4096 }))),
        "{refused:?}"
    );
    assert_eq!(memory.used(), 0);
    assert_eq!(module.global_address(&memory, "large"), None);
}
