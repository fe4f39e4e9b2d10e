//! Bulk copies and mbarriers: what lands when, who may look, and what is refused.

mod support;

use ptx_emulator::FaultKind;
use support::{Run, kernel, leaves, memory, module, read_u32, refuses, write_u32};

/// Thread in %r1, warp in %r2, lane in %r3, mbarrier in %r4, 256 bytes of buffer in %r5; both mbarriers made, all met.
const START: &str = "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; mov.u32 %r4, smem; add.u32 %r5, %r4, 128;
    setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0; setp.eq.u32 %p3, %r1, 32;
    @%p1 mbarrier.init.shared::cta.b64 [%r4], 1; @%p1 mbarrier.init.shared::cta.b64 [%r4+8], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;\n";

const ISSUE: &str = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 128;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%out], 128, [%r4];\n";
const SECOND: &str = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4+8], 128;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5+128], [%out], 128, [%r4+8];\n";
const READ: &str = "ld.shared.u32 %r6, [%r5+4];\n";

fn wait(n: usize, offset: u32, phase: u32) -> String {
    format!("W{n}: mbarrier.try_wait.parity.shared::cta.b64 %p9, [%r4+{offset}], {phase}; @!%p9 bra W{n};\n")
}

fn run() -> Run<'static> {
    Run::new("k").block(64).shared(1024)
}

fn refused(says: &str, body: &str) {
    refuses(FaultKind::AsyncCopy, says, &format!("{START}{body}"), &run());
}

#[test]
fn bytes_arrive() {
    let body = format!(
        "{START}{ISSUE}{}shl.b32 %r7, %r3, 2; add.u32 %r8, %r5, %r7; ld.shared.u32 %r6, [%r8]; cvt.u64.u32 %d1, %r7;
         add.u64 %d1, %d1, %out; add.u32 %r6, %r6, 1; @%p2 st.global.u32 [%d1+128], %r6;",
        wait(1, 0, 0)
    );
    for seed in [None, Some(1), Some(2), Some(3)] {
        let (memory, module) = (memory(), module(&kernel(&body)));
        let out = memory.allocate(256).unwrap();
        let values: Vec<u32> = (100..132).collect();
        write_u32(&memory, out, &values);
        let mut run = run();
        run.seed = seed;
        let (_, counters) = run.u64(out).on(&module, &memory).unwrap();
        let expected: Vec<u32> = values.iter().map(|v| v + 1).collect();
        assert_eq!(read_u32(&memory, out + 128, 32), expected);
        let traffic = counters.traffic[&out];
        assert_eq!((traffic.read_bytes, traffic.read_sectors), (128, 4));
        assert_eq!((traffic.written_bytes, traffic.written_sectors), (128, 4));
    }
}

#[test]
fn an_mbarrier_is_fenced_before_a_copy_reports_to_it() {
    let fence = "@%p1 fence.mbarrier_init.release.cluster;";
    assert!(START.contains(fence));
    let body = |fences: &str| format!("{}{ISSUE}{}{READ}", START.replace(fence, fences), wait(1, 0, 0));
    refuses(FaultKind::Mbarrier, "which copies may not see", &body(""), &run());
    // Another thread's fence is none of this one's.
    refuses(
        FaultKind::Mbarrier,
        "initialised at",
        &body("@%p3 fence.mbarrier_init.release.cluster;"),
        &run(),
    );
    for fences in [fence, "@%p1 fence.proxy.async.shared::cta;"] {
        leaves(&[0; 64], &body(fences), &run());
    }
}

#[test]
fn destinations_read_too_early() {
    refused("under way", &format!("{ISSUE}@%p1 {READ}{}", wait(1, 0, 0)));
    // Another copy's arrival says nothing of this one, and another warp's wait says nothing to this one.
    refused("", &format!("{ISSUE}{SECOND}{}{READ}{}", wait(2, 8, 0), wait(1, 0, 0)));
    let other = format!(
        "{ISSUE}bar.sync 0; @!%p2 bra OTHER; {} ret; OTHER: {READ}",
        wait(1, 0, 0)
    );
    refused("", &other);
    // The same wait in the other warp, or a barrier after it, is enough.
    leaves(&[0; 64], &format!("{START}{ISSUE}{}{READ}", wait(1, 0, 0)), &run());
    leaves(
        &[0; 64],
        &format!(
            "{START}{ISSUE}@!%p2 bra OTHER; {} OTHER: bar.sync 0; {READ}",
            wait(1, 0, 0)
        ),
        &run(),
    );
}

#[test]
fn destinations_overwritten() {
    refused(
        "under way",
        &format!("{ISSUE}@%p1 st.shared.u32 [%r5+124], 1; {}", wait(1, 0, 0)),
    );
    let twice = ISSUE.replace("expect_tx.shared::cta.b64 _, [%r4], 128", "expect_tx.shared::cta.b64 _, [%r4], 256").replace(
        "[%r5], [%out], 128, [%r4];",
        "[%r5], [%out], 128, [%r4]; @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5+112], [%out], 128, [%r4];",
    );
    refused("copies to", &format!("{twice}{}", wait(1, 0, 0)));
    // A copy over what another warp may still read, and its ordered twin.
    let again = SECOND.replace("[%r5+128]", "[%r5]");
    let reuse = |between: &str| format!("{ISSUE}{}{READ}{between}{again}{}", wait(1, 0, 0), wait(2, 8, 0));
    // Whichever comes first, the copy or the other warp's read, the second one is refused.
    refused("", &reuse("bar.warp.sync -1;\n"));
    leaves(&[0; 64], &format!("{START}{}", reuse("bar.sync 0;\n")), &run());
    let full_and_empty = format!(
        "{ISSUE}{}{READ}@%p3 mbarrier.arrive.shared.b64 _, [%r4+8];\n@!%p2 bra DONE; {} {ISSUE}{}DONE: bar.sync 0;",
        wait(1, 0, 0),
        wait(2, 8, 0),
        wait(3, 0, 1)
    );
    leaves(&[0; 64], &format!("{START}{full_and_empty}"), &run());
}

#[test]
fn exits_with_copies_in_flight() {
    refused("exits", ISSUE);
    // Landed or not, nobody has made sure.
    refused("exits", &format!("{ISSUE}{SECOND}{}", wait(1, 0, 0)));
    let store = "shl.b32 %r7, %r3, 2; add.u32 %r8, %r5, %r7; @%p2 st.shared.u32 [%r8], %r3; fence.proxy.async.shared::cta; bar.sync 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%out], [%r5], 128;\n";
    refused("wait for it", store);
    refused("wait for it", &format!("{store}@%p1 cp.async.bulk.commit_group;"));
}

#[test]
fn stores_in_bulk() {
    let store = |then: &str| {
        format!(
            "{START}shl.b32 %r7, %r3, 2; add.u32 %r8, %r5, %r7; @%p2 st.shared.u32 [%r8], %r3; fence.proxy.async.shared::cta; bar.sync 0;
             @!%p1 bra END; cp.async.bulk.global.shared::cta.bulk_group [%out], [%r5], 128; cp.async.bulk.commit_group;
             {then} END: bar.sync 1;"
        )
    };
    let expected: Vec<u32> = (0..32).collect();
    leaves(&expected, &store("cp.async.bulk.wait_group 0;"), &run());
    leaves(
        &expected,
        &store("cp.async.bulk.wait_group.read 0; st.shared.u32 [%r5], 99;"),
        &run(),
    );
    refuses(
        FaultKind::AsyncCopy,
        "wait for the bulk group",
        &store("st.shared.u32 [%r5], 99; cp.async.bulk.wait_group.read 0;"),
        &run(),
    );
    refuses(
        FaultKind::AsyncCopy,
        "wait for the bulk group",
        &store("cp.async.bulk.wait_group.read 1; st.shared.u32 [%r5], 99; cp.async.bulk.wait_group 0;"),
        &run(),
    );
    // The fence may stand on either side of the barrier, but it must stand somewhere.
    let unfenced = store("cp.async.bulk.wait_group 0;").replace("fence.proxy.async.shared::cta;", "");
    refuses(FaultKind::AsyncCopy, "fence.proxy.async", &unfenced, &run());
    let late = unfenced.replace("@!%p1 bra END;", "fence.proxy.async; @!%p1 bra END;");
    leaves(&expected, &late, &run());
    let unwritten = format!("{START}@!%p1 ret; cp.async.bulk.global.shared::cta.bulk_group [%out], [%r5], 16;");
    refuses(FaultKind::UninitialisedShared, "copies from", &unwritten, &run());
}

#[test]
fn sizes_and_places_of_copies() {
    let copy = |to: &str, from: &str, size: &str| {
        format!(
            "{START}@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [{from}], {size}, [%r4];"
        )
    };
    refuses(FaultKind::Misaligned, "16", &copy("%r5+8", "%out", "128"), &run());
    refuses(FaultKind::Misaligned, "16", &copy("%r5", "%out+8", "128"), &run());
    refuses(FaultKind::Misaligned, "16", &copy("%r5", "%out", "120"), &run());
    refuses(
        FaultKind::OutOfBounds,
        "global",
        &copy("%r5", "%out+4080", "32"),
        &run(),
    );
    refuses(
        FaultKind::OutOfBounds,
        "shared",
        &copy("%r5+880", "%out", "128"),
        &run(),
    );
    refuses(
        FaultKind::OutOfBounds,
        "global",
        &format!("{START}cp.async.bulk.prefetch.L2.global [%out], 8192;"),
        &run(),
    );
    leaves(
        &[0; 4],
        &format!("{START}cp.async.bulk.prefetch.L2.global [%out], 16;"),
        &run(),
    );
}

#[test]
fn phases_alternate() {
    // Four rounds over one barrier; each round adds the copied word to a sum.
    let rounds: String = (0..4)
        .map(|i| {
            format!(
                "{ISSUE}{}{READ}add.u32 %r10, %r10, %r6; bar.sync 0;\n",
                wait(i, 0, i as u32 & 1)
            )
        })
        .collect();
    let body = format!("{START}mov.u32 %r10, 0;{rounds}st.global.u32 [%out], %r10;");
    let module = module(&kernel(&body));
    for seed in [None, Some(1), Some(2), Some(3)] {
        let memory = memory();
        let out = memory.allocate(256).unwrap();
        write_u32(&memory, out, &[0, 5]);
        let mut run = run();
        run.seed = seed;
        run.u64(out).on(&module, &memory).unwrap();
        assert_eq!(read_u32(&memory, out, 1), [20]);
    }
}

#[test]
fn arrivals_states_and_pending_counts() {
    let body = format!(
        "{START}@!%p1 ret; mbarrier.init.shared.b64 [%r4+16], 3;
         mbarrier.arrive.shared.b64 %d1, [%r4+16]; mbarrier.pending_count.b64 %r6, %d1; st.global.u32 [%out], %r6;
         mbarrier.arrive.noComplete.shared.b64 %d2, [%r4+16], 1; mbarrier.pending_count.b64 %r6, %d2; st.global.u32 [%out+4], %r6;
         mbarrier.test_wait.shared.b64 %p4, [%r4+16], %d1; selp.u32 %r6, 1, 0, %p4; st.global.u32 [%out+8], %r6;
         mbarrier.arrive_drop.shared.b64 _, [%r4+16];
         mbarrier.test_wait.shared.b64 %p4, [%r4+16], %d1; selp.u32 %r6, 1, 0, %p4; st.global.u32 [%out+12], %r6;
         mbarrier.arrive.shared.b64 %d3, [%r4+16], 1; mbarrier.pending_count.b64 %r6, %d3; st.global.u32 [%out+16], %r6;
         mbarrier.test_wait.parity.shared.b64 %p4, [%r4+16], 1; selp.u32 %r6, 1, 0, %p4; st.global.u32 [%out+20], %r6;
         mbarrier.expect_tx.relaxed.cta.shared.b64 [%r4+16], 64; mbarrier.arrive.shared.b64 _, [%r4+16];
         mbarrier.test_wait.shared.b64 %p4, [%r4+16], %d3; selp.u32 %r6, 1, 0, %p4; st.global.u32 [%out+24], %r6;
         mbarrier.complete_tx.relaxed.cta.shared.b64 [%r4+16], 64;
         mbarrier.test_wait.shared.b64 %p4, [%r4+16], %d3; selp.u32 %r6, 1, 0, %p4; st.global.u32 [%out+28], %r6;"
    );
    leaves(&[3, 2, 0, 1, 2, 0, 0, 1], &body, &run());
}

#[test]
fn multicast_reaches_every_rank() {
    let body = format!(
        "{START}mov.u32 %r9, %cluster_ctarank; barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
         @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 128; mov.u16 %h1, 0xb;
         setp.eq.u32 %p4, %r9, 1; and.pred %p4, %p4, %p1;
         @%p4 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r5], [%out], 128, [%r4], %h1;
         setp.eq.u32 %p5, %r9, 2; @%p5 bra END;
         {}{READ} shl.b32 %r10, %r9, 2; cvt.u64.u32 %d1, %r10; add.u64 %d1, %d1, %out; @%p1 st.global.u32 [%d1+128], %r6;
         END: barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
        wait(1, 0, 0)
    );
    let module = module(&kernel(&body));
    for seed in [None, Some(1), Some(2), Some(3), Some(4)] {
        let memory = memory();
        let out = memory.allocate(256).unwrap();
        write_u32(&memory, out, &[0, 5]);
        let mut run = run().cluster(4);
        run.seed = seed;
        let (_, counters) = run.u64(out).on(&module, &memory).unwrap();
        assert_eq!(read_u32(&memory, out + 128, 4), [5, 5, 0, 5]);
        assert_eq!(counters.traffic[&out].read_bytes, 128);
    }
}

#[test]
fn objects_may_be_named_by_generic_addresses() {
    let body = format!(
        "{START}@!%p1 ret; cvt.u64.u32 %d1, %r4; cvta.shared.u64 %d1, %d1; mbarrier.init.b64 [%d1+32], 2;
         mbarrier.arrive.release.cta.b64 %d2, [%d1+32]; mbarrier.arrive.b64 _, [%d1+32];
         mbarrier.test_wait.acquire.cta.b64 %p4, [%d1+32], %d2; selp.u32 %r6, 1, 0, %p4; st.global.u32 [%out], %r6;
         mbarrier.inval.b64 [%d1+32]; st.shared.u32 [%r4+32], 3;"
    );
    leaves(&[1], &body, &run());
}
