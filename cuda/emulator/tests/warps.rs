//! Instructions by which the lanes of a warp work together.

mod support;

use support::{Run, leaves, words};

/// Each lane's answer goes from %r9 to its place; lane in %r1.
fn check(expected: impl Fn(u32) -> u32, body: &str) {
    let body = format!(
        "mov.u32 %r1, %laneid; mov.u32 %r9, 0; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %out; {body} st.global.u32 [%d1], %r9;"
    );
    let expected: Vec<u32> = (0..32).map(expected).collect();
    leaves(&expected, &body, &Run::new("k"));
}

#[test]
fn shuffles() {
    check(|lane| lane ^ 5, "shfl.sync.bfly.b32 %r9, %r1, 5, 31, -1;");
    check(
        |lane| if lane >= 3 { lane - 3 } else { lane },
        "shfl.sync.up.b32 %r9, %r1, 3, 0, -1;",
    );
    check(
        |lane| if lane + 3 < 32 { lane + 3 } else { lane },
        "shfl.sync.down.b32 %r9, %r1, 3, 31, -1;",
    );
    check(|_| 7, "shfl.sync.idx.b32 %r9, %r1, 7, 31, -1;");
    // Segments of eight lanes.
    check(|lane| lane / 8 * 8 + 2, "shfl.sync.idx.b32 %r9, %r1, 2, 0x181f, -1;");
    check(
        |lane| if lane % 8 < 6 { lane + 2 } else { lane },
        "shfl.sync.down.b32 %r9, %r1, 2, 0x181f, -1;",
    );
    check(
        |lane| u32::from(lane % 8 >= 2),
        "shfl.sync.up.b32 %r8|%p1, %r1, 2, 0x1800, -1; selp.u32 %r9, 1, 0, %p1;",
    );
    // Each lane may ask for another one.
    check(
        |lane| 31 - lane,
        "sub.u32 %r2, 31, %r1; shfl.sync.idx.b32 %r9, %r1, %r2, 31, -1;",
    );
}

#[test]
fn votes() {
    let below = "setp.lt.u32 %p1, %r1, 5;";
    check(|_| 0b11111, &format!("{below} vote.sync.ballot.b32 %r9, %p1, -1;"));
    check(|_| !0b11111, &format!("{below} vote.sync.ballot.b32 %r9, !%p1, -1;"));
    check(
        |_| 0,
        &format!("{below} vote.sync.all.pred %p2, %p1, -1; selp.u32 %r9, 1, 0, %p2;"),
    );
    check(
        |_| 1,
        &format!("{below} vote.sync.any.pred %p2, %p1, -1; selp.u32 %r9, 1, 0, %p2;"),
    );
    check(
        |_| 0,
        &format!("{below} vote.sync.uni.pred %p2, %p1, -1; selp.u32 %r9, 1, 0, %p2;"),
    );
    check(
        |lane| u32::from(lane < 5),
        &format!("{below} @!%p1 bra END; vote.sync.all.pred %p2, %p1, 31; selp.u32 %r9, 1, 0, %p2; END:"),
    );
    check(
        |_| 0x5555_5555,
        "and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; vote.sync.ballot.b32 %r9, %p1, -1;",
    );
}

#[test]
fn matches() {
    check(
        |lane| 0x1111_1111 << (lane % 4),
        "and.b32 %r2, %r1, 3; match.any.sync.b32 %r9, %r2, -1;",
    );
    check(|_| u32::MAX, "mov.u64 %d2, 5; match.all.sync.b64 %r9|%p1, %d2, -1;");
    check(
        |_| 1,
        "match.all.sync.b32 %r8|%p1, %r1, -1; selp.u32 %r9, 0, 1, %p1; add.u32 %r9, %r9, %r8;",
    );
}

#[test]
fn reductions() {
    check(|_| 496, "redux.sync.add.s32 %r9, %r1, -1;");
    check(|_| 31, "redux.sync.max.u32 %r9, %r1, -1;");
    check(|_| 3, "add.u32 %r2, %r1, 3; redux.sync.min.u32 %r9, %r2, -1;");
    check(
        |_| (-31i32) as u32,
        "neg.s32 %r2, %r1; redux.sync.min.s32 %r9, %r2, -1;",
    );
    check(|_| 31, "redux.sync.or.b32 %r9, %r1, -1;");
    check(
        |lane| if lane < 16 { 120 } else { 376 },
        "setp.lt.u32 %p1, %r1, 16; selp.b32 %r2, 0xffff, 0xffff0000, %p1; redux.sync.add.u32 %r9, %r1, %r2;",
    );
}

#[test]
fn one_is_elected() {
    // Whoever it is: the only lane whose predicate holds is the one that all are told of.
    let agree = |members: &str| {
        format!(
            "elect.sync %r8|%p1, {members}; vote.sync.ballot.b32 %r2, %p1, {members}; mov.u32 %r3, 1; shl.b32 %r3, %r3, %r8;
             xor.b32 %r2, %r2, %r3; setp.eq.u32 %p2, %r2, 0; selp.u32 %r9, 1, 0, %p2;"
        )
    };
    check(|_| 1, &agree("-1"));
    check(
        |lane| u32::from(lane >= 4),
        &format!("setp.lt.u32 %p2, %r1, 4; @%p2 bra END; {} END:", agree("0xfffffff0")),
    );
    // Only members are elected.
    check(
        |lane| u32::from(lane >= 4),
        "setp.lt.u32 %p2, %r1, 4; @%p2 bra END; elect.sync %r8|_, 0xfffffff0; setp.ge.u32 %p3, %r8, 4; selp.u32 %r9, 1, 0, %p3; END:",
    );
    check(
        |lane| u32::from(lane == 7),
        "setp.ne.u32 %p2, %r1, 7; @%p2 bra END; elect.sync %r8|%p1, 0x80; selp.u32 %r9, 1, 0, %p1; END:",
    );
}

/// The leader is any of a mask's lanes, but for one mask always the same.
#[test]
fn a_seed_elects_the_same_lane_every_time() {
    let body = "mov.u32 %r1, %laneid; mul.wide.u32 %d1, %r1, 8; add.u64 %d1, %d1, %out;
        elect.sync %r8|%p1, -1; bar.warp.sync -1; elect.sync %r9|%p2, -1;
        setp.ne.u32 %p3, %r8, %r9; @%p3 trap;
        selp.u32 %r2, 1, 0, %p1; selp.u32 %r3, 1, 0, %p2; st.global.v2.u32 [%d1], {%r2, %r3};";
    let leaders: Vec<usize> = (0..20)
        .map(|seed| {
            let flags = words(body, &Run::new("k").seed(seed), 64);
            let leads: Vec<usize> = (0..32).filter(|&lane| flags[2 * lane] == 1).collect();
            let again: Vec<usize> = (0..32).filter(|&lane| flags[2 * lane + 1] == 1).collect();
            assert_eq!(leads, again);
            let [leader] = leads[..] else { panic!("{leads:?}") };
            leader
        })
        .collect();
    assert!(leaders.iter().any(|&leader| leader != leaders[0]), "{leaders:?}");
}

#[test]
fn barrier_reductions() {
    let vote = |op: &str, get: &str| {
        format!(
            "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40; bar.red.{op}, %p1; {get}
             mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %r9;"
        )
    };
    let run = Run::new("k").block(64);
    leaves(&[40; 64], &vote("popc.u32 %r9, 0", ""), &run);
    leaves(&[0; 64], &vote("and.pred %p2, 0", "selp.u32 %r9, 1, 0, %p2;"), &run);
    leaves(&[1; 64], &vote("or.pred %p2, 0", "selp.u32 %r9, 1, 0, %p2;"), &run);
    leaves(
        &[24; 64],
        &vote("popc.u32 %r9, 1, 64", "").replace("1, 64, %p1", "1, 64, !%p1"),
        &run,
    );
}
