//! `cp.async`: what lands where, and what must be waited for before it is touched.

mod support;

use ptx_emulator::FaultKind;
use support::{Run, leaves, refuses};

fn run() -> Run<'static> {
    Run::new("k").shared(4096)
}

/// Fills 128 words at `%out + 1024` with 100, 101, …; afterwards `%d1` points there and `%r4` is this lane's 16 bytes
/// of shared memory, `%d2` its 16 bytes of that source, `%d3` its word of results.
fn prepared(body: &str) -> String {
    format!(
        "mov.u32 %r1, %laneid; add.u64 %d1, %out, 1024; mul.wide.u32 %d2, %r1, 16; add.u64 %d2, %d1, %d2;
         shl.b32 %r2, %r1, 2; add.u32 %r3, %r2, 100;
         st.global.u32 [%d2], %r3; add.u32 %r3, %r3, 1; st.global.u32 [%d2+4], %r3;
         add.u32 %r3, %r3, 1; st.global.u32 [%d2+8], %r3; add.u32 %r3, %r3, 1; st.global.u32 [%d2+12], %r3;
         mov.u32 %r4, smem; shl.b32 %r5, %r1, 4; add.u32 %r4, %r4, %r5; mul.wide.u32 %d3, %r1, 4; add.u64 %d3, %out, %d3;
         {body}"
    )
}

const WAIT: &str = "cp.async.commit_group; cp.async.wait_group 0;";

/// Checks what each lane leaves.
fn gives(body: &str, expected: impl Fn(u32) -> u32) {
    leaves(&whole(expected), &prepared(body), &run());
}

/// Results of all lanes, and the source that lies beyond them.
fn whole(expected: impl Fn(u32) -> u32) -> Vec<u32> {
    let mut words: Vec<u32> = (0..32).map(expected).collect();
    words.resize(256, 0);
    words.extend(100..228);
    words
}

#[test]
fn bytes_of_every_size_land() {
    gives(
        &format!(
            "cp.async.cg.shared.global [%r4], [%d2], 16; {WAIT} ld.shared.u32 %r6, [%r4+8]; st.global.u32 [%d3], %r6;"
        ),
        |i| 102 + 4 * i,
    );
    gives(
        &format!(
            "cp.async.ca.shared::cta.global.L2::128B [%r4], [%d2+8], 8; {WAIT} ld.shared.u32 %r6, [%r4+4]; st.global.u32 [%d3], %r6;"
        ),
        |i| 103 + 4 * i,
    );
    gives(
        "cp.async.ca.shared.global [%r4+4], [%d2+12], 4; cp.async.wait_all; ld.shared.u32 %r6, [%r4+4]; st.global.u32 [%d3], %r6;",
        |i| 103 + 4 * i,
    );
    let policy = "createpolicy.fractional.L2::evict_first.b64 %d4, 1.0;";
    gives(
        &format!(
            "{policy} cp.async.ca.shared.global.L2::cache_hint [%r4], [%d2], 4, %d4; {WAIT} ld.shared.u32 %r6, [%r4]; st.global.u32 [%d3], %r6;"
        ),
        |i| 100 + 4 * i,
    );
}

#[test]
fn what_is_not_read_becomes_zero() {
    // Lane i reads i bytes of its 16; the word looked at starts at byte 4.
    gives(
        &format!(
            "min.u32 %r7, %r1, 16; cp.async.cg.shared.global [%r4], [%d2], 16, %r7; {WAIT} ld.shared.u32 %r6, [%r4+4]; st.global.u32 [%d3], %r6;"
        ),
        |i| match i {
            0..5 => 0,
            _ => 101 + 4 * i,
        },
    );
    // Nothing is read, so the address may be any.
    gives(
        &format!(
            "mov.u64 %d2, 16; setp.ne.u32 %p1, %r1, 99; cp.async.cg.shared.global [%r4], [%d2], 16, %p1; {WAIT} ld.shared.u32 %r6, [%r4]; st.global.u32 [%d3], %r6;"
        ),
        |_| 0,
    );
}

#[test]
fn groups_are_waited_for_in_turn() {
    let two = "cp.async.ca.shared.global [%r4], [%d2], 4; cp.async.commit_group; cp.async.ca.shared.global [%r4+4], [%d2], 4; cp.async.commit_group;";
    gives(
        &format!("{two} cp.async.wait_group 1; ld.shared.u32 %r6, [%r4]; st.global.u32 [%d3], %r6;"),
        |i| 100 + 4 * i,
    );
    refuses(
        FaultKind::AsyncCopy,
        "cp.async.wait_group",
        &prepared(&format!("{two} cp.async.wait_group 1; ld.shared.u32 %r6, [%r4+4];")),
        &run(),
    );
}

#[test]
fn an_mbarrier_tells_of_copies() {
    let kernel = |arrive: &str, count: u32, more: &str| {
        prepared(&format!(
            "mov.u32 %r8, smem; add.u32 %r8, %r8, 2048; setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [%r8], {count}; bar.sync 0;
             cp.async.cg.shared.global [%r4], [%d2], 16; {arrive} {more}
             WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0; @!%p2 bra WAIT;
             xor.b32 %r9, %r4, 16; ld.shared.u32 %r6, [%r9]; st.global.u32 [%d3], %r6;"
        ))
    };
    let expected = whole(|i| 100 + 4 * (i ^ 1));
    leaves(
        &expected,
        &kernel("cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];", 32, ""),
        &run(),
    );
    let arrives = "mbarrier.arrive.shared.b64 _, [%r8];";
    leaves(
        &expected,
        &kernel("cp.async.mbarrier.arrive.shared::cta.b64 [%r8];", 32, arrives),
        &run(),
    );
    refuses(FaultKind::AsyncCopy, "cp.async", &kernel("", 32, arrives), &run());
    // The phase waits for bytes, not for another arrival.
    refuses(
        FaultKind::Mbarrier,
        "one too many",
        &kernel(
            "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r8], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];",
            31,
            "",
        ),
        &run(),
    );
}

#[test]
fn copies_are_waited_for_before_their_bytes_are_touched() {
    let copy = "cp.async.cg.shared.global [%r4], [%d2], 16;";
    let refused = |body: &str| refuses(FaultKind::AsyncCopy, "cp.async", &prepared(body), &run());
    refused(&format!("{copy} ld.shared.u32 %r6, [%r4];"));
    refused(&format!(
        "{copy} cp.async.commit_group; bar.sync 0; ld.shared.u32 %r6, [%r4];"
    ));
    refused(&format!("{copy} st.shared.u32 [%r4], 5;"));
    refused(&format!("{copy} cp.async.cg.shared.global [%r4], [%d2], 16;"));
    refused(&format!("{copy} cp.async.wait_group 0; ld.shared.u32 %r6, [%r4];"));
    // Another warp's copies: its wait and a barrier make them known.
    let mut two = run();
    two.block = 64;
    let across = |order: &str| {
        format!(
            "mov.u32 %r1, %tid.x; shl.b32 %r5, %r1, 2; mov.u32 %r4, smem; add.u32 %r4, %r4, %r5; mul.wide.u32 %d2, %r1, 4;
             add.u64 %d3, %out, %d2; st.global.u32 [%d3+512], %r1; cp.async.ca.shared.global [%r4], [%d3+512], 4; {order}
             xor.b32 %r4, %r4, 128; ld.shared.u32 %r6, [%r4]; st.global.u32 [%d3], %r6;"
        )
    };
    let mut expected: Vec<u32> = (0..64).map(|i| i ^ 32).collect();
    expected.resize(128, 0);
    expected.extend(0..64);
    leaves(&expected, &across("cp.async.wait_all; bar.sync 0;"), &two);
    refuses(
        FaultKind::AsyncCopy,
        "cp.async",
        &across("bar.sync 0; cp.async.wait_all;"),
        &two,
    );
}

#[test]
fn copies_that_are_refused() {
    let refused = |kind, says, body: &str| refuses(kind, says, &prepared(body), &run());
    refused(
        FaultKind::Misaligned,
        "multiple of the 16",
        "cp.async.cg.shared.global [%r4], [%d2+4], 16;",
    );
    refused(
        FaultKind::Misaligned,
        "multiple of the 8",
        "cp.async.ca.shared.global [%r4+4], [%d2], 8;",
    );
    refused(
        FaultKind::OutOfBounds,
        "no allocation",
        "mov.u64 %d2, 64; cp.async.cg.shared.global [%r4], [%d2], 16;",
    );
    refused(
        FaultKind::OutOfBounds,
        "outside the CTA",
        "add.u32 %r4, %r4, 8192; cp.async.cg.shared.global [%r4], [%d2], 16;",
    );
    refused(
        FaultKind::BadInstruction,
        "read 17 bytes",
        "mov.u32 %r7, 17; cp.async.cg.shared.global [%r4], [%d2], 16, %r7;",
    );
}
