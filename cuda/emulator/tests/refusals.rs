//! What the hardware leaves undefined is refused, under every interleaving, and its well-ordered twin is not.

mod support;

use ptx_emulator::{Error, FaultKind, Limits};
use support::{Run, fault, kernel, leaves, memory, module, refuses};

/// Registers that most tests want: thread in %r1, warp in %r2, lane in %r3, shared memory in %r4.
const START: &str = "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; mov.u32 %r4, smem;
    setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 1; setp.eq.u32 %p3, %r3, 0; setp.eq.u32 %p4, %r1, 0;\n";

fn started(body: &str) -> String {
    format!("{START}{body}")
}

fn one_warp() -> Run<'static> {
    Run::new("k").shared(4096)
}

fn two_warps() -> Run<'static> {
    one_warp().block(64)
}

#[test]
fn a_fault_names_its_place() {
    let body =
        started("@%p2 bra L1; ret; L1:\n setp.ne.u32 %p5, %r3, 7;\n @%p5 ret;\n\n ld.global.u32 %r9, [%out+4096];");
    let fault = fault(&body, &two_warps().grid(3));
    assert_eq!((fault.kind, fault.warp, fault.lane), (FaultKind::OutOfBounds, 1, 7));
    assert_eq!(fault.kernel, "k");
    assert_eq!(fault.instruction, "ld.global.u32 %r9, [%out+4096]");
    let text = kernel(&body);
    let line = text.lines().position(|l| l.contains("+4096")).unwrap() as u32 + 1;
    assert_eq!(fault.line, line);
    let shown = fault.to_string();
    let place = format!(
        "line {line} `ld.global.u32 %r9, [%out+4096]`, CTA ({}, 0, 0), warp 1, lane 7",
        fault.cta[0]
    );
    assert!(shown.contains(&place), "{shown}");
}

#[test]
fn accesses_out_of_bounds() {
    for body in [
        "st.global.u32 [%out+4096], 1;",
        "ld.global.u64 %d1, [%out+-8];",
        "mov.u64 %d1, 0; ld.u32 %r1, [%d1];",
        "mov.u32 %r1, smem; ld.shared.u32 %r2, [%r1+4096];",
        "mov.u32 %r1, 0; st.shared.u32 [%r1], 1;",
        "mov.u32 %r1, smem; mapa.shared::cluster.u32 %r2, %r1, 1; st.shared.u32 [%r2], 1;",
        "ld.param.u64 %d1, [out+8];",
    ] {
        refuses(FaultKind::OutOfBounds, "bytes of", body, &one_warp());
    }
    let nobody = "mov.u32 %r1, smem; mapa.shared::cluster.u32 %r2, %r1, 1; st.shared::cluster.u32 [%r2], 1;";
    refuses(FaultKind::OutOfBounds, "no CTA of rank 1", nobody, &one_warp());
}

#[test]
fn misaligned_accesses() {
    for body in [
        "st.global.u32 [%out+2], 1;",
        "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%out+8];",
        "mov.u32 %r1, smem; st.shared.u16 [%r1+1], %h1;",
        "atom.global.add.u64 %d1, [%out+4], 1;",
        "mov.u32 %r1, smem; mbarrier.init.shared.b64 [%r1+4], 1;",
    ] {
        refuses(FaultKind::Misaligned, "multiple", body, &one_warp());
    }
}

#[test]
fn shared_memory_read_before_it_is_written() {
    refuses(
        FaultKind::UninitialisedShared,
        "0x400",
        &started("ld.shared.u32 %r5, [%r4];"),
        &one_warp(),
    );
    // Half of the word is not enough, and the whole of it is.
    let half = started("mov.u16 %h1, 7; st.shared.u16 [%r4], %h1; ld.shared.u32 %r5, [%r4];");
    refuses(FaultKind::UninitialisedShared, "0x402", &half, &one_warp());
    let whole =
        started("mov.u16 %h1, 7; st.shared.u16 [%r4], %h1; st.shared.u16 [%r4+2], %h1; ld.shared.u32 %r5, [%r4];");
    leaves(&[0], &whole, &one_warp());
    refuses(
        FaultKind::UninitialisedShared,
        "",
        &started("red.shared.add.u32 [%r4], 1;"),
        &one_warp(),
    );
}

#[test]
fn races_between_warps() {
    let write = "@%p1 st.shared.u32 [%r4], 1;\n";
    let read = "@%p2 ld.shared.u32 %r5, [%r4];\n";
    let race = |body: &str| {
        refuses(
            FaultKind::SharedRace,
            "nothing that orders",
            &started(body),
            &two_warps(),
        )
    };
    race("@%p1 st.shared.u32 [%r4], 1; @%p2 st.shared.u32 [%r4], 1;");
    // A read needs something to read: all write, all meet, then one reads what the other overwrites.
    let prepared =
        format!("shl.b32 %r6, %r1, 2; add.u32 %r6, %r6, %r4; st.shared.u32 [%r6], 5; bar.sync 0; {write}{read}");
    race(&prepared);
    // Both accesses are told.
    let told = refuses(
        FaultKind::SharedRace,
        "st.shared.u32 [%r4], 1",
        &started(&prepared),
        &two_warps(),
    );
    assert!(told.to_string().contains("ld.shared.u32 %r5"), "{told}");
    // A barrier that only one side of the two accesses passes orders nothing.
    race(&format!("@%p1 st.shared.u32 [%r4], 1; bar.sync 0; {read} {write}"));
}

#[test]
fn barriers_order() {
    let both = "st.global.u32 [%out], %r5;";
    leaves(
        &[7],
        &started(&format!(
            "@%p1 st.shared.u32 [%r4], 7; bar.sync 0; ld.shared.u32 %r5, [%r4]; {both}"
        )),
        &two_warps(),
    );
    leaves(
        &[7],
        &started(&format!(
            "@%p1 st.shared.u32 [%r4], 7; barrier.cta.sync 3, 64; ld.shared.u32 %r5, [%r4]; {both}"
        )),
        &two_warps(),
    );
    // Producer and consumer.
    let halves = format!(
        "@!%p1 bra CONSUME; st.shared.u32 [%r4], 7; bar.arrive 1, 64; ret;
         CONSUME: bar.sync 1, 64; ld.shared.u32 %r5, [%r4]; {both}"
    );
    leaves(&[7], &started(&halves), &two_warps());
    // Ping-pong over one word.
    let turns = "mov.u32 %r5, 0; mov.u32 %r8, %laneid; setp.eq.u32 %p7, %r8, 0; st.shared.u32 [%r4], 0; bar.sync 0;
        LOOP: and.b32 %r6, %r5, 1; setp.eq.and.u32 %p5, %r6, %r2, %p7;
        @%p5 ld.shared.u32 %r7, [%r4]; @%p5 add.u32 %r7, %r7, 1; @%p5 st.shared.u32 [%r4], %r7;
        bar.sync 0; add.u32 %r5, %r5, 1; setp.lt.u32 %p6, %r5, 10; @%p6 bra LOOP;
        ld.shared.u32 %r7, [%r4]; st.global.u32 [%out], %r7;";
    let turns = turns.replace(
        "st.shared.u32 [%r4], 0; bar.sync 0;",
        "@%p1 st.shared.u32 [%r4], 0; bar.sync 0;",
    );
    leaves(&[10], &started(&turns), &two_warps());
}

#[test]
fn neighbours_in_a_word_do_not_race() {
    let body = started(
        "cvt.u16.u32 %h1, %r2; add.u16 %h1, %h1, 1; shl.b32 %r5, %r2, 1; add.u32 %r5, %r5, %r4; st.shared.u16 [%r5], %h1;
         bar.sync 0; ld.shared.u32 %r6, [%r4]; st.global.u32 [%out], %r6;",
    );
    leaves(&[0x0002_0001], &body, &two_warps());
    let overlap = started("mov.u16 %h1, 1; @%p1 st.shared.u16 [%r4+2], %h1; @%p2 st.shared.u32 [%r4], 9;");
    refuses(FaultKind::SharedRace, "0x402", &overlap, &two_warps());
}

#[test]
fn atomics_do_not_race_with_atomics() {
    let sum = started(
        "@%p4 st.shared.u32 [%r4], 0; bar.sync 0; red.shared.add.u32 [%r4], 1; bar.sync 0;
         ld.shared.u32 %r5, [%r4]; st.global.u32 [%out], %r5;",
    );
    leaves(&[64], &sum, &two_warps());
    let mixed = started(
        "@%p4 st.shared.u32 [%r4], 0; bar.sync 0; @%p1 red.shared.add.u32 [%r4], 1; @%p2 ld.shared.u32 %r5, [%r4];",
    );
    refuses(FaultKind::SharedRace, "red.shared", &mixed, &two_warps());
}

#[test]
fn flags_order_if_they_release_and_acquire() {
    let pass = |store: &str, load: &str, after: &str| {
        started(&format!(
            "st.shared.u32 [%r4+128], 0; bar.sync 0; @%p2 bra WAIT;
             st.shared.u32 [%r4], 7; {store} [%r4+128], 1; ret;
             WAIT: {load} %r5, [%r4+128]; setp.eq.u32 %p5, %r5, 0; @%p5 bra WAIT; {after}
             ld.shared.u32 %r6, [%r4]; st.global.u32 [%out], %r6;"
        ))
        .replacen("st.shared.u32 [%r4+128], 0", "@%p4 st.shared.u32 [%r4+128], 0", 1)
    };
    let run = two_warps();
    leaves(
        &[7],
        &pass("st.release.cta.shared.u32", "ld.acquire.cta.shared.u32", ""),
        &run,
    );
    leaves(
        &[7],
        &pass(
            "fence.acq_rel.cta; st.relaxed.cta.shared.u32",
            "ld.relaxed.cta.shared.u32",
            "fence.acq_rel.cta;",
        ),
        &run,
    );
    leaves(
        &[7],
        &pass(
            "membar.cta; st.volatile.shared.u32",
            "ld.volatile.shared.u32",
            "membar.cta;",
        ),
        &run,
    );
    let race = |body: &str| refuses(FaultKind::SharedRace, "nothing that orders", body, &run);
    race(&pass("st.relaxed.cta.shared.u32", "ld.acquire.cta.shared.u32", ""));
    race(&pass("st.release.cta.shared.u32", "ld.relaxed.cta.shared.u32", ""));
    race(&pass("st.shared.u32", "ld.shared.u32", ""));
}

#[test]
fn aligned_instructions_in_partly_active_warps() {
    let partial = |says: &str, body: &str| refuses(FaultKind::PartialWarp, says, &started(body), &two_warps());
    partial("lanes 0x00000001", "@%p3 bar.sync 0;");
    partial(
        "0x0000ffff",
        "setp.ge.u32 %p5, %r3, 16; @%p5 bra SKIP; bar.sync 0; SKIP: add.u32 %r5, %r5, 1;",
    );
    partial("lanes", "@%p3 bra OTHER; bar.sync 0; ret; OTHER: bar.sync 0;");
    partial("lanes", "@%p3 barrier.cluster.arrive.aligned;");
    let mma = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r8,%r9,%r10,%r11}, {%r8,%r9,%r10,%r11}, {%r8,%r9}, {%r8,%r9,%r10,%r11};";
    partial("exited", &format!("@%p3 ret; {mma}"));
    partial("lanes", &format!("@%p3 {mma}"));
    refuses(
        FaultKind::PartialWarp,
        "never existed",
        &started(mma),
        &one_warp().block(40),
    );
    // Lanes that come late are waited for; lanes that have exited are not missed at a barrier.
    let late = "@!%p3 bra JOIN; mov.u32 %r5, 0; SPIN: add.u32 %r5, %r5, 1; setp.lt.u32 %p5, %r5, 40000; @%p5 bra SPIN;
        JOIN: bar.sync 0; st.global.u32 [%out], 3;";
    leaves(&[3], &started(late), &two_warps());
    leaves(
        &[3],
        &started("@%p3 ret; bar.sync 0; st.global.u32 [%out], 3;"),
        &two_warps(),
    );
}

#[test]
fn deadlocks() {
    refuses(
        FaultKind::Deadlock,
        "waits for barrier 0 (32 of 64 threads",
        &started("@%p1 bar.sync 0, 64;"),
        &two_warps(),
    );
    // An exit makes up for an absence only where all threads are waited for.
    leaves(&[0], &started("@%p1 bar.sync 0;"), &two_warps());
    let phase = started(
        "@%p4 mbarrier.init.shared.b64 [%r4], 2; bar.sync 0; @%p4 mbarrier.arrive.shared.b64 _, [%r4];
         WAIT: mbarrier.try_wait.parity.shared.b64 %p5, [%r4], 0; @!%p5 bra WAIT;",
    );
    refuses(FaultKind::Deadlock, "try_wait", &phase, &two_warps());
    let cluster = started(
        "mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p5, %r5, 0; barrier.cluster.arrive; @%p5 barrier.cluster.wait; @%p5 barrier.cluster.arrive; @%p5 barrier.cluster.wait; @!%p5 barrier.sync %r2, 64;",
    );
    refuses(
        FaultKind::Deadlock,
        "cluster barrier",
        &cluster,
        &two_warps().cluster(2),
    );
    let members = started(
        "@%p3 bra ONE; shfl.sync.idx.b32 %r5, %r3, 0, 31, -1; ret; ONE: shfl.sync.idx.b32 %r5, %r3, 1, 31, -1;",
    );
    refuses(
        FaultKind::Deadlock,
        "waits for the lanes 0xffffffff",
        &members,
        &one_warp(),
    );
}

#[test]
fn endless_spins() {
    let mut run = two_warps();
    run.limits = Limits {
        idle_instructions: 200_000,
        ..Limits::default()
    };
    refuses(
        FaultKind::Deadlock,
        "nothing visible",
        "WAIT: ld.volatile.global.u32 %r1, [%out]; setp.eq.u32 %p1, %r1, 0; @%p1 bra WAIT;",
        &run,
    );
    refuses(FaultKind::Deadlock, "nothing visible", "WAIT: bra WAIT;", &run);
    run.limits = Limits {
        total_instructions: 200_000,
        ..Limits::default()
    };
    refuses(
        FaultKind::Deadlock,
        "all instructions",
        "WAIT: st.global.u32 [%out], 1; bra WAIT;",
        &run,
    );
}

#[test]
fn misused_mbarriers() {
    let misuse = |says: &str, body: &str| refuses(FaultKind::Mbarrier, says, &started(body), &one_warp());
    misuse("no mbarrier", "@%p4 mbarrier.arrive.shared.b64 _, [%r4];");
    misuse(
        "lives here already",
        "@%p4 mbarrier.init.shared.b64 [%r4], 1; @%p4 mbarrier.init.shared.b64 [%r4], 1;",
    );
    misuse(
        "invalidate it first",
        "@%p4 mbarrier.init.shared.b64 [%r4], 1; @%p4 ld.shared.u32 %r5, [%r4+4];",
    );
    misuse(
        "too many",
        "@%p4 mbarrier.init.shared.b64 [%r4], 1; @%p4 mbarrier.arrive.shared.b64 _, [%r4], 2;",
    );
    misuse("0 arrivals", "@%p4 mbarrier.init.shared.b64 [%r4], 0;");
    misuse(
        "no mbarrier",
        "@%p4 mbarrier.init.shared.b64 [%r4], 1; @%p4 mbarrier.inval.shared.b64 [%r4]; @%p4 mbarrier.arrive.shared.b64 _, [%r4];",
    );
    misuse(
        "1048576 bytes",
        "@%p4 mbarrier.init.shared.b64 [%r4], 1; @%p4 mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 1048576;",
    );
    refuses(
        FaultKind::SharedRace,
        "initialised at",
        &started(
            "@%p4 mbarrier.init.shared.b64 [%r4], 2; @%p4 st.relaxed.cta.shared.u32 [%r4+64], 1; @%p1 bra END;
            WAIT: ld.relaxed.cta.shared.u32 %r5, [%r4+64]; setp.eq.u32 %p5, %r5, 0; @%p5 bra WAIT;
            mbarrier.arrive.shared.b64 _, [%r4]; END:",
        )
        .replace(
            "setp.eq.u32 %p1",
            "st.relaxed.cta.shared.u32 [%r4+64], 0; bar.sync 0; setp.eq.u32 %p1",
        ),
        &two_warps(),
    );
}

#[test]
fn accesses_before_the_launch_before_has_finished() {
    let write = kernel("st.global.u32 [%out], 7; st.global.u32 [%out+8], 7;");
    let read = |body: &str| kernel(&format!("mov.u32 %r1, 0; {body}"));
    let (memory, writer) = (memory(), module(&write));
    let out = memory.allocate(4096).unwrap();
    let then = |body: &str, overlap: bool| {
        let (id, _) = Run::new("k").u64(out).on(&writer, &memory).unwrap();
        let mut run = Run::new("k").shared(64).u64(out);
        run.overlaps = overlap.then_some(id);
        run.on(&module(&read(body)), &memory)
    };
    let refused = |kind: FaultKind, body: &str| match then(body, true) {
        Err(Error::Fault(fault)) => assert_eq!(fault.kind, kind, "{fault}"),
        other => panic!("{body}: {other:?}"),
    };
    let early = |body: &str| refused(FaultKind::EarlyDependentRead, body);
    refused(FaultKind::EarlyDependentWrite, "st.global.u32 [%out+8], 1;");
    then("st.global.u32 [%out+4], 1;", true).unwrap();
    then("st.global.u32 [%out+8], 1;", false).unwrap();
    then("griddepcontrol.wait; st.global.u32 [%out+8], 1;", true).unwrap();
    early("ld.global.u32 %r1, [%out];");
    early("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%out];");
    early("atom.global.add.u32 %r1, [%out], 1;");
    early(
        "mov.u32 %r4, smem; mbarrier.init.shared.b64 [%r4], 32; fence.mbarrier_init.release.cluster;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4+16], [%out], 16, [%r4];"
            .replace("mbarrier.init", "elect.sync _|%p1, -1; @!%p1 ret; mbarrier.init")
            .as_str(),
    );
    let fine = |body: &str, overlap: bool| assert!(then(body, overlap).is_ok(), "{body}");
    fine("ld.global.u32 %r1, [%out];", false);
    fine("griddepcontrol.wait; ld.global.u32 %r1, [%out];", true);
    fine(
        "ld.global.u32 %r1, [%out+4]; ld.global.u32 %r1, [%out+12]; ld.global.u32 %r1, [%out+2048];",
        true,
    );

    // Through a launch in between that never waits, the first one's result stays unfinished even after a wait.
    let through = |between: &str| {
        let (first, _) = Run::new("k").u64(out).on(&writer, &memory).unwrap();
        let mut run = Run::new("k").u64(out);
        run.overlaps = Some(first);
        let (second, _) = run.on(&module(&kernel(between)), &memory).unwrap();
        run.overlaps = Some(second);
        run.on(
            &module(&kernel("griddepcontrol.wait; ld.global.u32 %r1, [%out];")),
            &memory,
        )
        .map(|_| ())
    };
    let fault = through("griddepcontrol.launch_dependents;").unwrap_err();
    assert!(fault.to_string().contains("a launch between"), "{fault}");
    through("griddepcontrol.launch_dependents; griddepcontrol.wait;").unwrap();
}

#[test]
fn writes_over_what_the_launch_before_may_still_read() {
    let memory = memory();
    let out = memory.allocate(4096).unwrap();
    // After a launch that reads, and others in between.
    let then = |read: &str, between: &[&str], body: &str, overlap: bool| {
        let (mut last, _) = Run::new("k")
            .shared(64)
            .u64(out)
            .on(&module(&kernel(read)), &memory)
            .unwrap();
        for body in between.iter().chain([&body]) {
            let mut run = Run::new("k").u64(out);
            run.overlaps = overlap.then_some(last);
            last = run.on(&module(&kernel(body)), &memory)?.0;
        }
        Ok(())
    };
    let refused = |read: &str, between: &[&str], body: &str| match then(read, between, body, true) {
        Err(Error::Fault(fault)) => {
            assert_eq!(fault.kind, FaultKind::EarlyDependentWrite, "{fault}");
            let says = fault.to_string();
            assert!(says.contains("launch") && says.contains(" read the "), "{says}");
        }
        other => panic!("{read} {body}: {other:?}"),
    };
    let load = "ld.global.u32 %r1, [%out+8]; ld.global.u16 %r1, [%out+12];";
    let copy = "elect.sync _|%p1, -1; @!%p1 ret; mov.u32 %r4, smem; mbarrier.init.shared.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 16;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4+16], [%out], 16, [%r4];
        DONE: mbarrier.try_wait.parity.shared.b64 %p1, [%r4], 0; @!%p1 bra DONE;";
    for read in [load, copy] {
        refused(read, &[], "st.global.u32 [%out+8], 1;");
        refused(read, &[], "st.global.v2.u32 [%out+8], {%r1, %r1};");
        refused(read, &[], "atom.global.add.u32 %r1, [%out+8], 1;");
        refused(read, &["ret;"], "st.global.u32 [%out+8], 1;");
        refused(read, &["ret;"], "griddepcontrol.wait; st.global.u32 [%out+8], 1;");
        then(read, &[], "st.global.u32 [%out+16], 1;", true).unwrap();
        then(read, &[], "ld.global.u32 %r1, [%out+8];", true).unwrap();
        then(read, &[], "st.global.u32 [%out+8], 1;", false).unwrap();
        then(read, &[], "griddepcontrol.wait; st.global.u32 [%out+8], 1;", true).unwrap();
        then(
            read,
            &["griddepcontrol.wait;"],
            "griddepcontrol.wait; st.global.u32 [%out+8], 1;",
            true,
        )
        .unwrap();
    }
    // The other half of four bytes.
    then(load, &[], "st.global.u16 [%out+14], 1;", true).unwrap();
}

#[test]
fn the_host_may_overwrite_what_a_launch_wrote() {
    let (memory, module) = (memory(), module(&kernel("st.global.u32 [%out], 7;")));
    let out = memory.allocate(64).unwrap();
    let (id, _) = Run::new("k").u64(out).on(&module, &memory).unwrap();
    memory.write(out, &[1; 4]).unwrap();
    let mut run = Run::new("k").u64(out);
    run.overlaps = Some(id);
    run.on(&support::module(&kernel("ld.global.u32 %r1, [%out];")), &memory)
        .unwrap();
}

#[test]
fn operands_that_are_not_allowed() {
    let bad = |says: &str, body: &str| refuses(FaultKind::BadInstruction, says, &started(body), &two_warps());
    bad("barrier 16", "mov.u32 %r5, 16; barrier.sync %r5;");
    bad("multiple of 32", "bar.sync 0, 40;");
    bad("leaves it out", "shfl.sync.idx.b32 %r5, %r3, 0, 31, 0xfffffffe;");
    bad(
        "does not take part",
        "setp.lt.u32 %p5, %r3, 16; @!%p5 ret; shfl.sync.idx.b32 %r5, %r3, 20, 31, 0xffff;",
    );
    bad("without having arrived", "barrier.cluster.wait;");
    bad("second time", "barrier.cluster.arrive; barrier.cluster.arrive;");
    bad("to wait for", "@%p1 bar.sync 0, 64; @%p2 bar.sync 0;");
    refuses(FaultKind::Trap, "gave up", "trap;", &one_warp());
}
