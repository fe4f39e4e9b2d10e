//! Lanes of a warp that exchange through shared memory.

mod support;

use ptx_emulator::FaultKind;
use support::{Run, leaves, refuses};

/// Lane in %r1, the lane's word in %r3, the next lane's in %r4, a word of all in %r5, memory made by nobody yet.
const START: &str = "mov.u32 %r1, %laneid; add.u32 %r2, %r1, 1; and.b32 %r2, %r2, 31; mov.u32 %r5, smem;
    shl.b32 %r3, %r1, 2; add.u32 %r3, %r3, %r5; shl.b32 %r4, %r2, 2; add.u32 %r4, %r4, %r5; setp.eq.u32 %p1, %r1, 0;\n";
const PUT: &str = "st.shared.u32 [%r3], %r1;\n";
const TAKE: &str = "ld.shared.u32 %r6, [%r4];\n";
/// Writes what the lanes took to `out`.
const SHOW: &str = "mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %r6;\n";
const MEET: &str = "bar.warp.sync -1;\n";

fn run() -> Run<'static> {
    Run::new("k").block(32).shared(512)
}

fn refused(says: &str, body: &str) {
    refuses(FaultKind::LaneRace, says, &format!("{START}{body}"), &run());
}

fn next_lanes() -> Vec<u32> {
    (0..32).map(|lane| (lane + 1) % 32).collect()
}

#[test]
fn what_another_lane_has_written_is_read_behind_a_barrier() {
    refused("which lane 1 of the same warp wrote", &format!("{PUT}{TAKE}{SHOW}"));
    for barrier in [
        MEET,
        "bar.sync 0;\n",
        "barrier.cta.sync 1, 32;\n",
        "fence.acq_rel.cta;\n",
    ] {
        leaves(&next_lanes(), &format!("{START}{PUT}{barrier}{TAKE}{SHOW}"), &run());
    }
    // A shuffle and a vote bring lanes together and order nothing of memory.
    for meeting in [
        "shfl.sync.idx.b32 %r7, %r1, 0, 31, -1;\n",
        "vote.sync.ballot.b32 %r7, %p1, -1;\n",
    ] {
        refused(
            "a `bar.warp.sync` must stand between",
            &format!("{PUT}{meeting}{TAKE}{SHOW}"),
        );
    }
}

#[test]
fn what_another_lane_has_read_is_written_behind_a_barrier() {
    let again = "st.shared.u32 [%r3], 7;\n";
    refused("of the same warp read", &format!("{PUT}{MEET}{TAKE}{again}{SHOW}"));
    leaves(
        &next_lanes(),
        &format!("{START}{PUT}{MEET}{TAKE}{MEET}{again}{SHOW}"),
        &run(),
    );
}

#[test]
fn one_lane_writes_at_a_time() {
    refused("writes", &format!("{PUT}@%p1 st.shared.u32 [%r4], 7;\n"));
    // Lanes that take turns, as the compiler or a branch has it, are as little ordered.
    let branches = "@%p1 bra ZERO; st.shared.u32 [%r5+128], 1; bra END; ZERO: st.shared.u32 [%r5+128], 2; END:\n";
    refused("0x480", branches);
    // The same value by one instruction, and each lane's own.
    let all = "st.shared.u32 [%r5+128], 5; ld.shared.u32 %r6, [%r5+128];\n";
    leaves(&[5; 32], &format!("{START}{all}{SHOW}"), &run());
    // Bytes of one word.
    let bytes = "add.u32 %r7, %r5, %r1; cvt.u16.u32 %h1, %r1; st.shared.u8 [%r7], %h1; ld.shared.u8 %r6, [%r7];\n";
    leaves(&(0..32).collect::<Vec<_>>(), &format!("{START}{bytes}{SHOW}"), &run());
}

#[test]
fn copies_are_accesses_of_the_lane_that_issues_them() {
    let copy = |between: &str| {
        format!(
            "{START}{PUT}fence.proxy.async.shared::cta; {between} @!%p1 bra END;
             cp.async.bulk.global.shared::cta.bulk_group [%out], [%r5], 128; cp.async.bulk.commit_group;
             cp.async.bulk.wait_group 0; END:\n"
        )
    };
    refuses(
        FaultKind::LaneRace,
        "which lane 1 of the same warp wrote",
        &copy(""),
        &run(),
    );
    leaves(&(0..32).collect::<Vec<_>>(), &copy(MEET), &run());
    let refill = |between: &str| {
        format!(
            "{START}@%p1 mbarrier.init.shared::cta.b64 [%r5+256], 1; fence.proxy.async.shared::cta; {MEET}{PUT}{MEET}{TAKE}{between}
             @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5+256], 128;
             @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%out], 128, [%r5+256];
             W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5+256], 0; @!%p2 bra W;\n{SHOW}"
        )
    };
    refuses(FaultKind::LaneRace, "of the same warp read", &refill(""), &run());
    leaves(&next_lanes(), &refill(MEET), &run());
}

#[test]
fn lanes_meet_before_they_use_what_one_has_initialised() {
    let wait = |between: &str| {
        format!(
            "{START}@%p1 mbarrier.init.shared::cta.b64 [%r5+256], 1; {between} @%p1 mbarrier.arrive.shared::cta.b64 _, [%r5+256];
             W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5+256], 0; @!%p2 bra W;
             mov.u32 %r6, 3; {SHOW}"
        )
    };
    refuses(FaultKind::LaneRace, "initialised at", &wait(""), &run());
    leaves(&[3; 32], &wait(MEET), &run());
}

#[test]
fn strong_accesses_do_not_race() {
    let counts = "st.shared.u32 [%r5+128], 0; bar.warp.sync -1; atom.shared.add.u32 %r6, [%r5+128], 1;
        bar.warp.sync -1; ld.shared.u32 %r6, [%r5+128];\n";
    leaves(&[32; 32], &format!("{START}{counts}{SHOW}"), &run());
    let volatile = "st.volatile.shared.u32 [%r3], %r1; ld.volatile.shared.u32 %r6, [%r4];\n";
    leaves(&next_lanes(), &format!("{START}{volatile}{SHOW}"), &run());
}
