//! Races in global memory between warps, CTAs and clusters are found, and orders that CUDA's memory model knows are
//! known.

mod support;

use ptx_emulator::{Error, FaultKind};
use support::{Run, kernel, leaves, memory, module};

/// CTA in %r1, thread in %r2, warp in %r3; %p1: the first CTA, %p2: the second, %p3: the third, each with its first
/// thread only.
const START: &str = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; setp.eq.u32 %p9, %r2, 0;
    setp.eq.and.u32 %p1, %r1, 0, %p9; setp.eq.and.u32 %p2, %r1, 1, %p9; setp.eq.and.u32 %p3, %r1, 2, %p9;\n";

fn started(body: &str) -> String {
    format!("{START}{body}")
}

/// What a body ends in under each of many seeds: the faults' texts.
fn faults(body: &str, run: &Run<'_>) -> Vec<String> {
    let module = module(&kernel(&started(body)));
    let end = |seed| {
        let memory = memory();
        let out = memory.allocate(4096).unwrap();
        match run.clone().seed(seed).u64(out).on(&module, &memory) {
            Ok(_) => None,
            Err(Error::Fault(fault)) if fault.kind == FaultKind::GlobalRace => Some(fault.to_string()),
            Err(other) => panic!("seed {seed}: {other}"),
        }
    };
    (1..40).filter_map(end).collect()
}

/// Checks that a race is found, perhaps not under every seed; the message contains something.
fn races(says: &str, body: &str, run: &Run<'_>) {
    let faults = faults(body, run);
    let fault = faults.first().unwrap_or_else(|| panic!("no race was found in: {body}"));
    assert!(fault.contains(says), "`{says}` is not in: {fault}");
}

/// Checks that no seed finds a race, and what the body leaves.
fn runs(expected: &[u32], body: &str, run: &Run<'_>) {
    assert_eq!(faults(body, run), [""; 0]);
    leaves(expected, &started(body), run);
}

fn ctas(n: u32) -> Run<'static> {
    Run::new("k").grid(n)
}

/// The first CTA writes a word and says so at the next one; the second waits until it has, and copies it.
fn message(write: &str, say: &str, hear: &str, read: &str) -> String {
    format!(
        "@%p1 bra WRITE; @%p2 bra WAIT; ret;
        WRITE: {write} {say} ret;
        WAIT: {hear} setp.eq.u32 %p4, %r5, 0; @%p4 bra WAIT;
        {read} st.global.u32 [%out+8], %r6;"
    )
}

#[test]
fn two_writers() {
    let body = "mov.u32 %r5, %r1; st.global.u32 [%out], %r5;";
    races("warp 0 of CTA (", body, &ctas(2));
    // Two warps of a CTA, and the same with a barrier between them.
    let warps = |between: &str| {
        format!(
            "setp.eq.u32 %p4, %r3, 0; mov.u32 %r5, 7; @%p4 st.global.u32 [%out], %r5; {between}
            mov.u32 %r5, 9; @!%p4 st.global.u32 [%out], %r5;"
        )
    };
    races("a barrier must stand", &warps(""), &ctas(1).block(64));
    runs(&[9], &warps("bar.sync 0;"), &ctas(1).block(64));
    // Whoever writes what is there does no harm.
    runs(&[3], "mov.u32 %r5, 3; st.global.u32 [%out], %r5;", &ctas(3));
    // Neighbours in one word are no race.
    runs(
        &[0x0001_0000],
        "mul.wide.u32 %d1, %r1, 2; add.u64 %d1, %d1, %out; cvt.u16.u32 %h1, %r1; st.global.u16 [%d1], %h1;",
        &ctas(2),
    );
}

#[test]
fn messages_between_clusters() {
    let (write, read) = ("st.global.u32 [%out], 5;", "ld.global.u32 %r6, [%out];");
    let (say, hear) = (
        "st.relaxed.gpu.global.u32 [%out+4], 1;",
        "ld.relaxed.gpu.global.u32 %r5, [%out+4];",
    );
    let fence = "fence.acq_rel.gpu;";
    let passes = |body: &str| runs(&[5, 1, 5], body, &ctas(2));
    let fails = |body: &str| races("reads 4 bytes of global memory", body, &ctas(2));
    let fenced = |before: &str, after: &str| message(&format!("{write}{before}"), say, hear, &format!("{after}{read}"));
    passes(&fenced(fence, fence));
    passes(&fenced("membar.gl;", "fence.sc.sys;"));
    fails(&fenced("", fence));
    fails(&fenced(fence, ""));
    // Fences that hold for less than the device.
    fails(&fenced("fence.acq_rel.cta;", fence));
    fails(&fenced("membar.cta;", fence));
    fails(&fenced("fence.acq_rel.cluster;", fence));
    let ordered = |say: &str, hear: &str| message(write, say, hear, read);
    passes(&ordered(
        "st.release.gpu.global.u32 [%out+4], 1;",
        "ld.acquire.gpu.global.u32 %r5, [%out+4];",
    ));
    passes(&ordered(
        "atom.release.gpu.global.add.u32 %r9, [%out+4], 1;",
        "atom.acquire.gpu.global.add.u32 %r5, [%out+4], 0;",
    ));
    fails(&ordered(
        "st.release.cta.global.u32 [%out+4], 1;",
        "ld.acquire.gpu.global.u32 %r5, [%out+4];",
    ));
    fails(&ordered(
        "st.release.gpu.global.u32 [%out+4], 1;",
        "ld.acquire.cluster.global.u32 %r5, [%out+4];",
    ));
    // The word that says so is one of the accesses itself.
    fails(&ordered(
        "st.global.u32 [%out+4], 1;",
        "ld.acquire.gpu.global.u32 %r5, [%out+4];",
    ));
    // Within a cluster, its scope is enough.
    let near = fenced("fence.acq_rel.cluster;", "fence.acq_rel.cluster;").replace(".relaxed.gpu", ".relaxed.cluster");
    runs(&[5, 1, 5], &near, &ctas(2).cluster(2));
}

#[test]
fn order_passes_on() {
    let pass = |second: &str| {
        format!(
            "@%p1 bra FIRST; @%p2 bra SECOND; @%p3 bra THIRD; ret;
            FIRST: st.global.u32 [%out], 5; st.release.gpu.global.u32 [%out+4], 1; ret;
            SECOND: ld{second}.gpu.global.u32 %r5, [%out+4]; setp.eq.u32 %p4, %r5, 0; @%p4 bra SECOND;
            st.release.gpu.global.u32 [%out+8], 1; ret;
            THIRD: ld.acquire.gpu.global.u32 %r5, [%out+8]; setp.eq.u32 %p4, %r5, 0; @%p4 bra THIRD;
            ld.global.u32 %r6, [%out]; st.global.u32 [%out+12], %r6;"
        )
    };
    runs(&[5, 1, 1, 5], &pass(".acquire"), &ctas(3));
    races("reads", &pass(".relaxed"), &ctas(3));
    // And from one warp of a CTA to the others, by a barrier: the last CTA adds up what all have left.
    let last = |fence: &str, again: &str| {
        format!(
            "mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %out; add.u32 %r6, %r1, 1; mov.u32 %r4, smem;
            setp.eq.u32 %p5, %r2, 32; @%p5 st.global.u32 [%d1+16], %r6; bar.sync 0;
            @!%p9 bra JOIN; {fence} atom.relaxed.gpu.global.add.u32 %r7, [%out], 1; {again} st.shared.u32 [%r4], %r7;
            JOIN: bar.sync 0; ld.shared.u32 %r7, [%r4]; setp.ne.u32 %p4, %r7, 3; @%p4 ret;
            @!%p5 ret; ld.global.u32 %r8, [%out+16]; ld.global.u32 %r9, [%out+20]; add.u32 %r8, %r8, %r9;
            ld.global.u32 %r9, [%out+24]; add.u32 %r8, %r8, %r9; ld.global.u32 %r9, [%out+28]; add.u32 %r8, %r8, %r9;
            st.global.u32 [%out+4], %r8;"
        )
    };
    let run = ctas(4).block(64).shared(64);
    let fence = "fence.acq_rel.gpu;";
    runs(&[4, 10, 0, 0, 1, 2, 3, 4], &last(fence, fence), &run);
    races("warp 1 of CTA", &last("", fence), &run);
    races("warp 1 of CTA", &last(fence, ""), &run);
}

#[test]
fn atomics() {
    let add = |scope: &str| format!("red.relaxed.{scope}.global.add.u32 [%out], 1;");
    runs(&[96], &add("gpu"), &ctas(3));
    races("changes", &add("cta"), &ctas(3));
    runs(&[64], &add("cta"), &ctas(1).block(64));
    // A plain access beside them.
    races(
        "reads",
        &format!(
            "@%p2 bra READ; {} ret; READ: ld.global.u32 %r5, [%out]; st.global.u32 [%out+8], %r5;",
            add("gpu")
        ),
        &ctas(2),
    );
    races("", &format!("@%p2 st.global.u32 [%out], 77; {}", add("gpu")), &ctas(2));
}

#[test]
fn bulk_copies() {
    let copy = |wait: &str| {
        format!(
            "mov.u32 %r4, smem; @!%p9 bra END; st.shared.v4.u32 [%r4], {{5, 5, 5, 5}}; fence.proxy.async;
            @%p1 cp.async.bulk.global.shared::cta.bulk_group [%out], [%r4], 16; cp.async.bulk.commit_group;
            {wait} @%p1 st.release.gpu.global.u32 [%out+16], 1; @%p1 bra DONE;
            WAIT: ld.acquire.gpu.global.u32 %r5, [%out+16]; setp.eq.u32 %p4, %r5, 0; @%p4 bra WAIT;
            ld.global.u32 %r6, [%out]; st.global.u32 [%out+20], %r6;
            DONE: cp.async.bulk.wait_group 0; END:"
        )
    };
    let run = ctas(2).shared(64);
    runs(&[5, 5, 5, 5, 1, 5], &copy("cp.async.bulk.wait_group 0;"), &run);
    races("a bulk copy of warp 0 of CTA (0, 0, 0)", &copy(""), &run);
    // A copy out of global memory.
    let read =
        "@%p1 st.global.v4.u32 [%out], {5, 5, 5, 5}; @!%p2 ret; mov.u32 %r4, smem; mbarrier.init.shared.b64 [%r4], 1;
        fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 16;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4+16], [%out], 16, [%r4];
        WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r4], 0; @!%p4 bra WAIT;";
    races("copies from 16 bytes", read, &run);
}

#[test]
fn one_launch_after_another() {
    let (memory, module) = (
        memory(),
        module(&kernel(&started(
            "@%p1 st.global.u32 [%out], %r1; @%p2 st.global.u32 [%out+4], %r1;",
        ))),
    );
    let out = memory.allocate(4096).unwrap();
    for grid in [2, 1, 2] {
        ctas(grid).u64(out).on(&module, &memory).unwrap();
    }
}
