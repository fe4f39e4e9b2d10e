//! Clusters: ranks, distributed shared memory, barriers, and CTAs that start and exit when they like.

mod support;

use ptx_emulator::{FaultKind, Launch, Options, launch};
use support::{Run, kernel, leaves, memory, module, read_u32, refuses};

/// Thread in %r1, rank in %r2, own shared memory in %r4, the next rank's in %r5, %p1 in one thread per CTA.
const START: &str =
    "mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank; mov.u32 %r4, smem;
    add.u32 %r6, %r2, 1; rem.u32 %r6, %r6, %r3; mapa.shared::cluster.u32 %r5, %r4, %r6; setp.eq.u32 %p1, %r1, 0;\n";
const MEET: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n";
const MEET_RELAXED: &str = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;\n";
/// Each CTA's first thread writes %r9 to its rank's place.
const ANSWER: &str = "mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d1, %out; @%p1 st.global.u32 [%d1], %r9;\n";

fn run(ctas: u32) -> Run<'static> {
    Run::new("k").cluster(ctas).block(64).shared(256)
}

fn refused(kind: FaultKind, says: &str, body: &str) {
    refuses(kind, says, &format!("{START}{body}"), &run(4));
}

#[test]
fn neighbours_pass_values_round() {
    let store = "add.u32 %r7, %r2, 100; @%p1 st.shared::cluster.u32 [%r5], %r7;\n";
    let body = format!("{START}{MEET_RELAXED}{store}{MEET}ld.shared.u32 %r9, [%r4];{ANSWER}");
    leaves(&[103, 100, 101, 102], &body, &run(4));
    let load = format!("{START}@%p1 st.shared.u32 [%r4], %r2; {MEET}ld.shared::cluster.u32 %r9, [%r5];{MEET}{ANSWER}");
    leaves(&[1, 2, 3, 0], &load, &run(4));
    let vector = format!(
        "{START}mov.u32 %r7, 9; @%p1 st.shared.v4.u32 [%r4+16], {{%r7, %r7, %r2, %r7}}; {MEET}
         ld.shared::cluster.v4.u32 {{%r7, %r8, %r9, %r10}}, [%r5+16];{MEET}{ANSWER}"
    );
    leaves(&[1, 2, 3, 0], &vector, &run(4));
    // Generic addresses reach there too.
    let generic = "cvta.shared.u64 %d2, %d3; mapa.u64 %d4, %d2, %r6; add.u32 %r7, %r2, 100; @%p1 st.u32 [%d4], %r7; getctarank.u64 %r8, %d4;\n";
    let body = format!(
        "{START}cvt.u64.u32 %d3, %r4; {MEET}{generic}{MEET}ld.shared.u32 %r9, [%r4]; mad.lo.u32 %r9, %r8, 1000, %r9;{ANSWER}"
    );
    leaves(&[1103, 2100, 3101, 102], &body, &run(4));
}

#[test]
fn atomics_and_arrivals_reach_other_ctas() {
    let sum = format!(
        "{START}@%p1 st.shared.u32 [%r4], 0; {MEET}mov.u32 %r7, 0; mapa.shared::cluster.u32 %r8, %r4, %r7;
         red.relaxed.cluster.shared::cluster.add.u32 [%r8], 1; {MEET}
         setp.eq.u32 %p2, %r2, 0; @%p2 ld.shared.u32 %r9, [%r4]; {ANSWER}"
    );
    leaves(&[256, 0, 0, 0], &sum, &run(4));
    // Everybody mails rank 0 and arrives at its mbarrier; nobody else waits.
    let mail = format!(
        "{START}@%p1 mbarrier.init.shared.b64 [%r4+128], 4; @%p1 fence.mbarrier_init.release.cluster; {MEET_RELAXED}
         @!%p1 ret; mov.u32 %r7, 0; mapa.shared::cluster.u32 %r8, %r4, %r7; shl.b32 %r10, %r2, 2; add.u32 %r11, %r8, %r10;
         st.shared::cluster.u32 [%r11], %r2; add.u32 %r12, %r8, 128;
         mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r12];
         setp.ne.u32 %p2, %r2, 0; @%p2 ret;
         W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r4+128], 0; @!%p3 bra W;
         ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r4]; st.global.v4.u32 [%out], {{%r20, %r21, %r22, %r23}};"
    );
    leaves(&[0, 1, 2, 3], &mail, &run(4));
}

#[test]
fn places_in_the_grid() {
    let body = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %clusterid.x; mov.u32 %r3, %cluster_ctarank; mov.u32 %r4, %nclusterid.x;
        mov.u32 %r5, %cluster_nctaid.x; mov.u32 %r6, %nctaid.x;
        mad.lo.u32 %r7, %r2, 10, %r3; mad.lo.u32 %r7, %r4, 100, %r7; mad.lo.u32 %r7, %r5, 1000, %r7; mad.lo.u32 %r7, %r6, 10000, %r7;
        mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %r7;";
    leaves(&[62300, 62301, 62310, 62311, 62320, 62321], body, &run(2).grid(6));
}

#[test]
fn before_the_start() {
    refused(
        FaultKind::RemoteBeforeStart,
        "may not have started",
        &format!("@%p1 st.shared::cluster.u32 [%r5], 1;{MEET}"),
    );
    // Arriving is not enough.
    refused(
        FaultKind::RemoteBeforeStart,
        "may not have started",
        "barrier.cluster.arrive.release.aligned; @%p1 st.shared::cluster.u32 [%r5], 1; barrier.cluster.wait.acquire.aligned;",
    );
    // One's own memory may be touched at any time, through whichever window.
    leaves(
        &[0],
        &format!("{START}mapa.shared::cluster.u32 %r5, %r4, %r2; @%p1 st.shared::cluster.u32 [%r5], 1;"),
        &run(4),
    );
}

#[test]
fn after_the_end() {
    // Nothing makes the CTAs wait for their neighbours' stores.
    refused(
        FaultKind::RemoteAfterExit,
        "exit",
        &format!("{MEET}@%p1 st.shared::cluster.u32 [%r5], 1;"),
    );
    // A relaxed arrival does not say that the stores before it are done.
    refused(
        FaultKind::RemoteAfterExit,
        "exit",
        &format!("{MEET}@%p1 st.shared::cluster.u32 [%r5], 1;{MEET_RELAXED}"),
    );
}

#[test]
fn relaxed_arrivals_order_nothing() {
    let pass =
        |meet: &str| format!("{MEET}@%p1 st.shared::cluster.u32 [%r5], 1;{meet}@%p1 ld.shared.u32 %r9, [%r4];{MEET}");
    refused(FaultKind::SharedRace, "nothing that orders", &pass(MEET_RELAXED));
    leaves(&[0], &format!("{START}{}", pass(MEET)), &run(4));
    leaves(
        &[0],
        &format!("{START}{}", pass(&format!("fence.acq_rel.cluster;{MEET_RELAXED}"))),
        &run(4),
    );
}

#[test]
fn exited_threads_count_as_arrived() {
    let body = format!("{START}setp.gt.u32 %p2, %r2, 1; @%p2 ret; {MEET}mov.u32 %r9, 5;{ANSWER}");
    leaves(&[5, 5, 0, 0], &body, &run(4));
}

#[test]
fn clusters_may_wait_for_each_other() {
    // A barrier across the whole grid, counted in global memory.
    let body = "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mov.u32 %r2, %ctaid.x;
        mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d1, %out; add.u32 %r3, %r2, 1; @%p1 st.global.u32 [%d1+16], %r3; fence.acq_rel.gpu;
        @%p1 red.release.gpu.global.add.u32 [%out], 1;
        WAIT: ld.acquire.gpu.global.u32 %r4, [%out]; setp.lt.u32 %p2, %r4, 12; @%p2 bra WAIT;
        add.u32 %r5, %r2, 1; rem.u32 %r5, %r5, 12; mul.wide.u32 %d2, %r5, 4; add.u64 %d2, %d2, %out;
        @%p1 ld.global.u32 %r6, [%d2+16]; @%p1 st.global.u32 [%d1+64], %r6;";
    let mut expected = vec![0; 28];
    expected[0] = 12;
    for i in 0..12 {
        expected[4 + i] = i as u32 + 1;
        expected[16 + i] = (i as u32 + 1) % 12 + 1;
    }
    leaves(&expected, body, &run(2).grid(12));
    leaves(&expected, body, &Run::new("k").grid(12));
}

#[test]
fn clusters_have_up_to_three_axes() {
    let text = kernel(
        "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_ctaid.x; mov.u32 %r3, %cluster_ctaid.y; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
         mov.u32 %r6, %nctaid.x; mad.lo.u32 %r6, %r5, %r6, %r4; mov.u32 %r7, %clusterid.y;
         mad.lo.u32 %r8, %r3, 10, %r2; mad.lo.u32 %r8, %r1, 100, %r8; mad.lo.u32 %r8, %r7, 1000, %r8;
         mul.wide.u32 %d1, %r6, 4; add.u64 %d1, %d1, %out; st.global.u32 [%d1], %r8;",
    );
    let (memory, module) = (memory(), module(&text));
    let out = memory.allocate(64).unwrap();
    let what = Launch {
        entry: "k",
        grid: [4, 4, 1],
        block: [32, 1, 1],
        cluster: [2, 2, 1],
        dynamic_shared: 0,
        params: &out.to_le_bytes(),
        overlaps: None,
    };
    launch(&module, &memory, &what, &Options::default()).unwrap();
    let expected: Vec<u32> = (0..16)
        .map(|cta| {
            let (x, y) = (cta % 4, cta / 4);
            (y / 2) * 1000 + (y % 2 * 2 + x % 2) * 100 + (y % 2) * 10 + x % 2
        })
        .collect();
    assert_eq!(read_u32(&memory, out, 16), expected);
}
