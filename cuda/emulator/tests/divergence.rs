//! Lanes that part and meet again.

mod support;

use rand::{Rng, SeedableRng, rngs::StdRng};
use support::{Run, leaves, words};

/// Lane in %r1; each lane's answer goes from %r9 to its place.
fn per_lane(body: &str) -> String {
    format!(
        "mov.u32 %r1, %laneid; mov.u32 %r9, 0; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %out;
         {body}
         st.global.u32 [%d1], %r9;"
    )
}

fn check(expected: impl Fn(u32) -> u32, body: &str) {
    let expected: Vec<u32> = (0..32).map(expected).collect();
    leaves(&expected, &per_lane(body), &Run::new("k").shared(1024));
}

#[test]
fn both_sides_meet_at_the_join() {
    check(
        |_| u32::MAX,
        "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; @%p1 bra EVEN; mov.u32 %r3, 1; bra JOIN; EVEN: mov.u32 %r3, 2;
         JOIN: activemask.b32 %r9;",
    );
    // However the blocks are laid out.
    check(
        |_| u32::MAX,
        "setp.lt.u32 %p1, %r1, 9; @%p1 bra FAR; bra NEAR; JOIN: activemask.b32 %r9; bra END;
         NEAR: mov.u32 %r3, 1; bra JOIN; FAR: mov.u32 %r3, 2; bra JOIN; END:",
    );
}

#[test]
fn loops_of_different_lengths_meet_behind() {
    check(
        |_| u32::MAX,
        "mov.u32 %r2, 0; LOOP: add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r1; @%p1 bra LOOP; activemask.b32 %r9;",
    );
    // The exit stands before the loop in the text.
    check(
        |_| u32::MAX,
        "mov.u32 %r2, 0; bra LOOP; OUT: activemask.b32 %r9; bra END;
         LOOP: add.u32 %r2, %r2, 1; setp.gt.u32 %p1, %r2, %r1; @%p1 bra OUT; bra LOOP; END:",
    );
    // Nested, with a way out of both loops at once: lane i counts i rounds, or stops at 20.
    check(
        |lane| lane.min(20),
        "mov.u32 %r2, 0; OUTER: mov.u32 %r3, 0;
         INNER: setp.eq.u32 %p1, %r9, %r1; @%p1 bra END; setp.eq.u32 %p1, %r9, 20; @%p1 bra END;
         add.u32 %r9, %r9, 1; add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 3; @%p2 bra INNER;
         bra OUTER; END:",
    );
}

#[test]
fn irreducible_loops_end() {
    check(
        |lane| 10 + lane % 2,
        "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra B;
         A: add.u32 %r9, %r9, 1; B: add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 10; @%p2 bra A;",
    );
}

#[test]
fn lanes_may_wait_for_lanes() {
    // Lane 0 waits, in a loop before the join, for what the others do on the other side.
    let body = "mov.u32 %r4, smem; st.volatile.shared.u32 [%r4], 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra OTHERS;
        SPIN: ld.volatile.shared.u32 %r5, [%r4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra SPIN; bra JOIN;
        OTHERS: st.volatile.shared.u32 [%r4], 1; JOIN: activemask.b32 %r9;";
    check(|_| u32::MAX, body);
    // The other lanes do it only behind the join.
    let body = "mov.u32 %r4, smem; st.volatile.shared.u32 [%r4], 0; setp.ne.u32 %p1, %r1, 0; @%p1 bra JOIN;
        SPIN: ld.volatile.shared.u32 %r5, [%r4]; setp.eq.u32 %p2, %r5, 0; @%p2 bra SPIN;
        JOIN: st.volatile.shared.u32 [%r4], 1; mov.u32 %r9, 7;";
    check(|_| 7, body);
    // A lock, taken by one lane at a time.
    let body =
        "mov.u32 %r4, smem; st.volatile.shared.u32 [%r4], 0; st.volatile.shared.u32 [%r4+4], 0; bar.warp.sync -1;
        TAKE: atom.shared.cas.b32 %r5, [%r4], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra TAKE;
        ld.volatile.shared.u32 %r6, [%r4+4]; add.u32 %r6, %r6, 1; st.volatile.shared.u32 [%r4+4], %r6;
        atom.shared.exch.b32 %r5, [%r4], 0;
        bar.warp.sync -1; ld.volatile.shared.u32 %r9, [%r4+4];";
    check(|_| 32, body);
    // Through an mbarrier: one lane sleeps on a phase that another one ends.
    let body = "mov.u32 %r4, smem; setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [%r4], 1; bar.warp.sync -1;
        setp.eq.u32 %p2, %r1, 5; @%p2 bra WAIT; setp.eq.u32 %p3, %r1, 9; @%p3 mbarrier.arrive.shared.b64 _, [%r4]; bra JOIN;
        WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r4], 0; @!%p4 bra WAIT; JOIN: activemask.b32 %r9;";
    check(|_| u32::MAX, body);
}

#[test]
fn member_masks_gather_lanes() {
    // Halves that come to the same shuffle by different ways.
    check(
        |lane| if lane < 16 { 3 } else { 19 },
        "setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW; mov.u32 %r2, 0xffff0000; bra GO; LOW: mov.u32 %r2, 0x0000ffff;
         GO: shfl.sync.idx.b32 %r9, %r1, 3, 0x100f, %r2;",
    );
    // `bar.warp.sync` brings lanes together that stand at different copies of it.
    check(
        |_| 1,
        "mov.u32 %r4, smem; setp.lt.u32 %p1, %r1, 16; @%p1 bra LOW;
         st.volatile.shared.u32 [%r4], 1; bar.warp.sync -1; bra JOIN; LOW: bar.warp.sync -1;
         JOIN: ld.volatile.shared.u32 %r9, [%r4];",
    );
    // Lanes that have exited are not waited for.
    let body = per_lane(
        "setp.lt.u32 %p1, %r1, 30; @%p1 ret; bar.warp.sync -1; vote.sync.ballot.b32 %r9, %p2, -1; mov.u32 %r9, 4;",
    );
    let left = words(&body, &Run::new("k"), 32);
    assert_eq!(left[29..], [0, 4, 4]);
}

#[test]
fn indexed_branches_spread() {
    check(
        |lane| [10, 20, 30, 20][lane as usize % 4],
        "and.b32 %r2, %r1, 3; TABLE: .branchtargets A, B, C, B; brx.idx %r2, TABLE;
         A: mov.u32 %r9, 10; bra JOIN; B: mov.u32 %r9, 20; bra JOIN; C: mov.u32 %r9, 30; JOIN: bar.warp.sync -1;",
    );
}

#[test]
fn guards_leave_other_lanes_alone() {
    check(
        |lane| if lane < 5 { 1 } else { 2 },
        "setp.lt.u32 %p1, %r1, 5; @%p1 mov.u32 %r9, 1; @!%p1 mov.u32 %r9, 2;",
    );
    check(
        |lane| lane % 2,
        "and.b32 %r2, %r1, 1; setp.eq.u32 %p1|%p2, %r2, 1; @%p2 bra END; mov.u32 %r9, 1; END:",
    );
}

/// Blocks that hash and branch at random, lane by lane, until their fuel is spent: every lane must go its own way.
#[test]
fn tangled_control_flow_leads_each_lane_right() {
    let mut random = StdRng::seed_from_u64(3);
    for round in 0..60 {
        let blocks = random.random_range(2..12);
        let targets: Vec<[usize; 2]> = (0..blocks)
            .map(|_| [random.random_range(0..blocks), random.random_range(0..blocks)])
            .collect();
        let fuel = random.random_range(1..60);
        let mut body = format!("mov.u32 %r2, %r1; mov.u32 %r3, {fuel};\n");
        for (b, [near, far]) in targets.iter().enumerate() {
            body += &format!(
                "B{b}: mad.lo.u32 %r2, %r2, 1664525, {}; sub.u32 %r3, %r3, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra END;
                 and.b32 %r4, %r2, 0x30000; setp.eq.u32 %p2, %r4, 0; @%p2 bra B{far}; bra B{near};\n",
                2 * b + 1
            );
        }
        body += "END: bar.warp.sync -1; mov.u32 %r9, %r2;";
        let alone = |lane: u32| {
            let (mut hash, mut at) = (lane, 0);
            for _ in 0..fuel {
                hash = hash.wrapping_mul(1_664_525).wrapping_add(2 * at as u32 + 1);
                at = targets[at][usize::from(hash & 0x30000 == 0)];
            }
            hash
        };
        let expected: Vec<u32> = (0..32).map(alone).collect();
        assert_eq!(
            words(&per_lane(&body), &Run::new("k").seed(round), 32),
            expected,
            "{body}"
        );
    }
}
