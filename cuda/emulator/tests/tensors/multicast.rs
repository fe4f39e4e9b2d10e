//! One read of a box for several CTAs: what lands where, when, and what must come before.

use ptx_emulator::tensor_map::{Element, Swizzle};
use ptx_emulator::{Counters, Error, FaultKind, TensorMap};

use crate::build::*;
use crate::support::{Run, memory, module};

const SEEDS: [Option<u64>; 6] = [None, Some(1), Some(2), Some(3), Some(4), Some(5)];
/// Rank in %r12, %p4 in the first thread of rank 0, %p5 in that of rank 1, the mask of both in %h1.
const START: &str = "mov.u32 %r12, %cluster_ctarank; mov.u16 %h1, 3; setp.eq.and.u32 %p4, %r12, 0, %p1; setp.eq.and.u32 %p5, %r12, 1, %p1;\n";
const MEET: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n";
const MEET_RELAXED: &str = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;\n";
const EXPECT: &str = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 512;\n";
/// Where each rank puts its 1024 bytes.
const OUT: &str = "mul.wide.u32 %d5, %r12, 1024; add.u64 %out, %out, %d5;\n";

/// A copy of the box at this row into both CTAs, by threads of this predicate, `by` bytes behind the usual places of
/// box and barrier.
fn both(predicate: &str, row: i32, by: u32) -> String {
    format!(
        "@{predicate} cp.async.bulk.tensor.2d.{OPCODE}.multicast::cluster [%r5+{by}], [%map, {{0, {row}}}], [%r4], %h1;\n"
    )
}

/// Rows of 64 bytes, in boxes of 8 (512 bytes) or of 4.
fn run(body: &str, rows: u32, seed: Option<u64>) -> Result<(Vec<u8>, Vec<u8>, Counters, u64), Error> {
    let memory = memory();
    let (address, values) = tensor(&memory, 6400);
    let map: TensorMap = map(
        Element::U8,
        Swizzle::None,
        address,
        &[(64, 0, 64, 1), (100, 0, rows, 1)],
    );
    let out = memory.allocate(2048).unwrap();
    let mut run = Run::new("k").cluster(2).shared(2048);
    run.seed = seed;
    let run = run.bytes(&map.encode().unwrap()).u64(out);
    let (_, counters) = run.on(&module(&kernel(128, body)), &memory)?;
    let mut seen = vec![0; 2048];
    memory.read(out, &mut seen).unwrap();
    Ok((seen, values, counters, address))
}

fn refused(kind: FaultKind, says: &str, body: &str) {
    for seed in SEEDS {
        match run(body, 8, seed) {
            Err(Error::Fault(fault)) => {
                assert_eq!(fault.kind, kind, "seed {seed:?}: {fault}");
                assert!(
                    fault.to_string().contains(says),
                    "seed {seed:?}: `{says}` is not in: {fault}"
                );
            }
            Err(other) => panic!("seed {seed:?}: not a fault: {other}"),
            Ok(_) => panic!("seed {seed:?}: no fault, where one says `{says}`:\n{body}"),
        }
    }
}

/// Each CTA brings half of a box for both: every byte lands at its place in both, is counted on the barrier of each,
/// and leaves memory once. What comes before its receiver has announced it is counted too.
#[test]
fn halves_brought_by_each_land_in_both() {
    let late = "@%p5 nanosleep.u32 100; @%p5 nanosleep.u32 100;\n";
    for wait_first in ["", late] {
        let body = format!(
            "{START}{MEET_RELAXED}{}{}{wait_first}{EXPECT}{WAIT}{OUT}{}{MEET}",
            both("%p4", 10, 0),
            both("%p5", 14, 256),
            drain(512)
        );
        for seed in SEEDS {
            let (seen, values, counters, address) = run(&body, 4, seed).unwrap_or_else(|error| panic!("{error}"));
            for rank in 0..2 {
                assert_eq!(
                    seen[rank * 1024..][..512],
                    values[640..1152],
                    "rank {rank}, seed {seed:?}"
                );
            }
            let traffic = counters.traffic[&address];
            assert_eq!((traffic.read_bytes, traffic.read_sectors), (512, 16));
        }
    }
}

#[test]
fn what_must_come_first() {
    let then = format!("{EXPECT}{WAIT}{MEET}");
    let copy = both("%p4", 0, 0);
    assert!(run(&format!("{START}{MEET_RELAXED}{copy}{then}"), 8, None).is_ok());
    let start = "may not have started";
    refused(
        FaultKind::RemoteBeforeStart,
        start,
        &format!("{START}{copy}{MEET}{then}"),
    );
    let nobody = "mov.u16 %h1, 7;";
    let absent = format!("{START}{nobody}{MEET_RELAXED}{copy}{then}");
    refused(FaultKind::OutOfBounds, "no CTA of rank 2", &absent);
    // The other CTA's barrier: none there, or one that the meeting tells nothing of.
    let elsewhere = copy.replace("[%r4]", "[%r4+8]");
    let init = "@%p4 mbarrier.init.shared::cta.b64 [%r4+8], 1; @%p4 fence.mbarrier_init.release.cluster;";
    refused(
        FaultKind::Mbarrier,
        "no mbarrier has been initialised",
        &format!("{START}{init}{MEET_RELAXED}{elsewhere}{then}"),
    );
    let bare = kernel(128, &format!("{START}{MEET_RELAXED}{copy}{then}"));
    let unfenced = bare.replace("@%p1 fence.mbarrier_init.release.cluster;", "");
    assert_ne!(bare, unfenced);
    let memory = memory();
    let (address, _) = tensor(&memory, 6400);
    let map = map(Element::U8, Swizzle::None, address, &[(64, 0, 64, 1), (100, 0, 8, 1)]);
    let unfenced = Run::new("k")
        .cluster(2)
        .shared(2048)
        .bytes(&map.encode().unwrap())
        .u64(address)
        .on(&module(&unfenced), &memory);
    assert!(
        unfenced
            .unwrap_err()
            .to_string()
            .contains("nothing that orders this use after it")
    );
    // Somebody who does not wait for what others send.
    let gone = format!("{START}{MEET_RELAXED}{copy}@!%p4 bra X; {EXPECT}{WAIT}X: {MEET}");
    refused(FaultKind::AsyncCopy, "the CTA exits", &gone);
    // Bytes of the other CTA that its threads still use.
    let used = format!("{START}@%p5 st.shared.u32 [%r5], 1;\n{MEET_RELAXED}{copy}{then}");
    refused(FaultKind::AsyncCopy, "copies to", &used);
    let ordered = format!("{START}@%p5 st.shared.u32 [%r5], 1;\n{MEET}{copy}{then}");
    assert!(run(&ordered, 8, None).is_ok());
}

/// A second box over the first, once both CTAs have said that they have read it: by arrivals, to a wait. Their scopes
/// do not matter, as a copy follows; that they release and acquire does.
#[test]
fn a_place_is_filled_again_when_all_have_left_it() {
    let arrive = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r14];";
    let wait = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p6, [%r4+8], 0;";
    let body = |arrive: &str, wait: &str| {
        let read = |labels: [&str; 3]| {
            let [w, l, e] = labels;
            let drained = format!("{WAIT}{}", drain(512));
            drained
                .replace("W:", &format!("{w}:"))
                .replace("bra W", &format!("bra {w}"))
                .replace("L:", &format!("{l}:"))
                .replace("bra L", &format!("bra {l}"))
                .replace("E:", &format!("{e}:"))
                .replace("bra E", &format!("bra {e}"))
        };
        format!(
            "{START}@%p1 mbarrier.init.shared::cta.b64 [%r4+8], 2; @%p1 fence.mbarrier_init.release.cluster; {OUT}{MEET_RELAXED}
             {EXPECT}{}{}
             mov.u32 %r13, 0; mapa.shared::cluster.u32 %r14, %r4, %r13; add.u32 %r14, %r14, 8; bar.warp.sync -1; @%p1 {arrive}
             @!%p4 bra F; V: {wait} @!%p6 bra V; F: add.u64 %out, %out, 512;
             {EXPECT}{}{}{MEET}",
            both("%p4", 0, 0),
            read(["W1", "L1", "E1"]),
            both("%p4", 20, 0),
            read(["W2", "L2", "E2"]).replace("[%r4], 0", "[%r4], 1"),
        )
    };
    let of_cta = |text: &str| text.replace(".release.cluster.", ".").replace(".acquire.cluster.", ".");
    for (arrive, wait) in [
        (arrive.to_owned(), wait.to_owned()),
        (of_cta(arrive), of_cta(wait)),
        (arrive.replace(".release.cluster.", ".release.cta."), wait.to_owned()),
        (arrive.to_owned(), wait.replace(".acquire.cluster.", ".acquire.cta.")),
    ] {
        for seed in SEEDS {
            let (seen, values, ..) = run(&body(&arrive, &wait), 8, seed).unwrap_or_else(|error| panic!("{error}"));
            for rank in 0..2 {
                assert_eq!(seen[rank * 1024..][..512], values[..512], "rank {rank}, seed {seed:?}");
                assert_eq!(
                    seen[rank * 1024 + 512..][..512],
                    values[1280..1792],
                    "rank {rank}, seed {seed:?}"
                );
            }
        }
    }
    for (arrive, wait) in [
        (
            arrive.replace(".release.cluster.", ".relaxed.cluster."),
            wait.to_owned(),
        ),
        (
            arrive.to_owned(),
            wait.replace(".acquire.cluster.", ".relaxed.cluster."),
        ),
    ] {
        refused(FaultKind::AsyncCopy, "copies to", &body(&arrive, &wait));
    }
}
