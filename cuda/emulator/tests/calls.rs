//! Functions: calls by name and by address, recursion, values in memory and in registers, divergence.

mod support;

use ptx_emulator::{FaultKind, Module};
use support::{Run, memory, module, ptx, read_u32};

/// Runs kernel `k` of a module on a grid of one CTA and reads the words that it leaves.
fn leaves(text: &str, run: &Run<'_>, expected: &[u32]) {
    let module = module(text);
    for seed in [None, Some(1), Some(2), Some(3)] {
        let memory = memory();
        let out = memory.allocate(4 * expected.len() as u64).unwrap();
        let mut run = run.clone();
        run.seed = seed;
        run.u64(out)
            .on(&module, &memory)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read_u32(&memory, out, expected.len()), expected, "seed {seed:?}");
    }
}

/// A module of functions and a kernel whose `%out` points at this lane's word.
fn with_functions(functions: &str, body: &str) -> String {
    ptx(&format!(
        "{functions}\n.visible .entry k(.param .u64 out) {{
         .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %d<8>; .reg .b64 %out;
         ld.param.u64 %out, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4; add.u64 %out, %out, %d1;
         {body}
         st.global.u32 [%out], %r2; ret; }}"
    ))
}

fn each(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn values_pass_through_memory() {
    // As compilers spell it: parameters in `.param` space, in a block of their own.
    let text = with_functions(
        ".func (.param .b32 sum) add3(.param .b32 a, .param .b64 b, .param .align 8 .b8 c[12]) {
         .reg .b32 %r<8>; .reg .b64 %d<4>; .local .align 4 .b8 own[8];
         ld.param.u32 %r1, [a]; ld.param.u64 %d1, [b]; ld.param.u32 %r2, [c+8]; cvt.u32.u64 %r3, %d1;
         st.local.u32 [own+4], %r2; mov.u64 %d2, own; cvta.local.u64 %d2, %d2; ld.u32 %r2, [%d2+4];
         add.u32 %r4, %r1, %r2; add.u32 %r4, %r4, %r3; st.param.b32 [sum+0], %r4; ret; }",
        "{ .param .b32 p0; st.param.b32 [p0+0], %r1; .param .b64 p1; st.param.b64 [p1+0], 100;
           .param .align 8 .b8 p2[12]; st.param.b32 [p2+8], 1000; .param .b32 r;
           call.uni (r), add3, (p0, p1, p2); ld.param.b32 %r2, [r+0]; }",
    );
    leaves(&text, &Run::new("k"), &each(|i| 1100 + i));
}

#[test]
fn values_pass_in_registers() {
    let text = with_functions(
        ".func (.reg .u32 d) twice(.reg .u32 a, .reg .u32 b);
         .func (.reg .u32 d, .reg .u32 e) both(.reg .u32 a) { mov.u32 e, 7; call (d), twice, (a, 3); }
         .func (.reg .u32 d) twice(.reg .u32 a, .reg .u32 b) { mad.lo.u32 d, a, 2, b; ret; }",
        "call (%r2, %r3), both, (%r1); add.u32 %r2, %r2, %r3; call (_, %r3), both, (%r1); add.u32 %r2, %r2, %r3;",
    );
    leaves(&text, &Run::new("k"), &each(|i| 2 * i + 3 + 14));
}

#[test]
fn recursion_keeps_registers_apart() {
    // Lanes recurse to different depths; each call keeps its own `%r1` across the two calls within.
    let text = with_functions(
        ".visible .func (.param .b32 r) fib(.param .b32 n) {
         .reg .pred %p; .reg .b32 %r<8>;
         ld.param.u32 %r1, [n]; setp.lt.u32 %p, %r1, 2; @%p bra BASE;
         sub.u32 %r2, %r1, 1; { .param .b32 a; st.param.b32 [a], %r2; .param .b32 v; call (v), fib, (a); ld.param.b32 %r3, [v]; }
         sub.u32 %r2, %r1, 2; { .param .b32 a; st.param.b32 [a], %r2; .param .b32 v; call (v), fib, (a); ld.param.b32 %r4, [v]; }
         add.u32 %r5, %r3, %r4; st.param.b32 [r], %r5; ret;
         BASE: st.param.b32 [r], %r1; ret; }",
        "and.b32 %r3, %r1, 7; { .param .b32 a; st.param.b32 [a], %r3; .param .b32 v; call (v), fib, (a); ld.param.b32 %r2, [v]; }",
    );
    let fib = [0, 1, 1, 2, 3, 5, 8, 13];
    leaves(&text, &Run::new("k"), &each(|i| fib[i as usize % 8]));
}

const THREE: &str = ".func (.reg .u32 d) plus(.reg .u32 a) { add.u32 d, a, 1000; ret; }
    .func (.reg .u32 d) times(.reg .u32 a) { mul.lo.u32 d, a, 1000; ret; }
    .func (.reg .u32 d) same(.reg .u32 a) { mov.u32 d, a; }";

#[test]
fn addresses_of_functions_are_called() {
    let expected = each(|i| match i % 3 {
        0 => i + 1000,
        1 => i * 1000,
        _ => i,
    });
    let chosen = with_functions(
        THREE,
        "rem.u32 %r3, %r1, 3; mov.u64 %d2, plus; mov.u64 %d3, times; mov.u64 %d4, same;
         setp.eq.u32 %p1, %r3, 1; selp.b64 %d2, %d3, %d2, %p1; setp.eq.u32 %p1, %r3, 2; selp.b64 %d2, %d4, %d2, %p1;
         prototype: .callprototype (.reg .u32 _) _ (.reg .u32 _);
         call (%r2), %d2, (%r1), prototype;",
    );
    leaves(&chosen, &Run::new("k"), &expected);
    let listed = with_functions(
        &format!("{THREE}\n.global .align 8 .u64 table[3] = {{plus, times, generic(same)}};"),
        "rem.u32 %r3, %r1, 3; mul.wide.u32 %d2, %r3, 8; mov.u64 %d3, table; add.u64 %d3, %d3, %d2; ld.global.u64 %d2, [%d3];
         list: .calltargets plus, times, same;
         call (%r2), %d2, (%r1), list;",
    );
    leaves(&listed, &Run::new("k"), &expected);
}

#[test]
fn lanes_meet_again_after_calls() {
    // Half of the lanes come by one call, half by another; aligned instructions outside and inside need all of the
    // warp.
    let text = with_functions(
        ".func (.reg .u32 d) loops(.reg .u32 n) { .reg .pred %p; mov.u32 d, 0;
           LOOP: setp.ge.u32 %p, d, n; @%p bra END; add.u32 d, d, 1; bra LOOP; END: ret; }
         .func (.reg .u32 d) all() { .reg .pred %p; .reg .b32 %r; mov.u32 %r, %tid.x; setp.lt.u32 %p, %r, 5;
           bar.red.popc.u32 d, 0, %p; }",
        "mov.u32 %r2, 0; setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW; call (%r2), loops, (%r1); add.u32 %r2, %r2, 100; bra JOIN;
         LOW: @%p1 call (%r2), loops, (7);
         JOIN: bar.sync 0; call (%r3), all; add.u32 %r2, %r2, %r3;",
    );
    leaves(&text, &Run::new("k"), &each(|i| if i < 16 { 12 } else { i + 105 }));
}

#[test]
fn guards_call_and_return_for_some_lanes() {
    let text = with_functions(
        ".func (.reg .u32 d) clamp(.reg .u32 a) { .reg .pred %p; mov.u32 d, a; setp.lt.u32 %p, a, 10; @%p ret; mov.u32 d, 10; }
         .func leave(.reg .u32 a) { .reg .pred %p; setp.gt.u32 %p, a, 20; @%p exit; }",
        "mov.u32 %r2, 99; setp.ne.u32 %p1, %r1, 3; @%p1 call (%r2), clamp, (%r1); call leave, (%r1);",
    );
    leaves(
        &text,
        &Run::new("k"),
        &each(|i| match i {
            3 => 99,
            21.. => 0,
            _ => i.min(10),
        }),
    );
}

#[test]
fn what_goes_wrong_in_calls_is_told() {
    let refuse = |functions: &str, body: &str, says: &str| {
        let error = Module::parse(&with_functions(functions, body)).expect_err(body);
        assert!(error.to_string().contains(says), "{error}");
    };
    refuse(THREE, "call (%r2), plus, (%r1, %r1);", "takes 1 values");
    refuse(THREE, "call (%r2), plus, (%d1);", "has 4 bytes");
    refuse(THREE, "call (%r2), nobody, (%r1);", "names a declared function");
    refuse(
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);",
        "call (%r2), vprintf, (%d1, %d1);",
        "not linked",
    );
    refuse(THREE, "call (%r2), plus, (out);", "no `.param` variable");
    refuse(THREE, "call (%r2), %d1, (5);", "by name");
    let fault = |functions: &str, body: &str| {
        let (memory, module) = (memory(), module(&with_functions(functions, body)));
        let out = memory.allocate(128).unwrap();
        match Run::new("k").u64(out).on(&module, &memory) {
            Err(ptx_emulator::Error::Fault(fault)) => *fault,
            other => panic!("{other:?}"),
        }
    };
    let endless = fault(".func f(.reg .u32 a) { call f, (a); }", "call f, (%r1);");
    assert!(
        endless.kind == FaultKind::OutOfBounds && endless.to_string().contains("stack"),
        "{endless}"
    );
    let wild = fault(THREE, "mov.u64 %d2, 4096; call (%r2), %d2, (%r1);");
    assert!(wild.to_string().contains("not the address of a function"), "{wild}");
    let other = fault(THREE, "mov.u64 %d2, plus; call (%r2), %d2, (%d1);");
    assert!(other.to_string().contains("other values"), "{other}");
    let trap = fault(
        ".extern .func __assertfail(.param .b64 a) .noreturn;",
        "call __assertfail, (%d1);",
    );
    assert_eq!(trap.kind, FaultKind::Trap);
    let beyond = fault(
        ".func f() { .reg .b64 %d; .local .b32 v; mov.u64 %d, v; st.local.u32 [%d+16], 1; }",
        "call f;",
    );
    assert_eq!(beyond.kind, FaultKind::OutOfBounds);
}
