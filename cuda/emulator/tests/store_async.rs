//! `st.async`: stores to other CTAs of the cluster that an mbarrier there counts.

mod support;

use ptx_emulator::{Error, FaultKind};
use support::{Run, memory, module, read_u32};

const SEEDS: u64 = 20;

/// Each of two CTAs sends a word per thread to the other one, whose mbarrier lies at the start of its shared memory and
/// expects `bytes`; it waits as `wait` says, and stores what it has got.
fn exchange(store: &str, bytes: u32, wait: &str, end: &str) -> String {
    format!(
        ".version 8.1\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 smem[];\n\
         .visible .entry k(.param .u64 out) {{\n\
         .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %d<4>;\n\
         ld.param.u64 %d0, [out];\n\
         mov.u32 %r0, smem;\n\
         mov.u32 %r1, %tid.x;\n\
         mov.u32 %r2, %cluster_ctarank;\n\
         setp.ne.u32 %p0, %r1, 0;\n\
         @%p0 bra $ready;\n\
         mbarrier.init.shared::cta.b64 [%r0], 1;\n\
         fence.mbarrier_init.release.cluster;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], {bytes};\n\
         $ready:\n\
         bar.sync 0;\n\
         barrier.cluster.arrive.aligned;\n\
         barrier.cluster.wait.aligned;\n\
         xor.b32 %r3, %r2, 1;\n\
         shl.b32 %r4, %r1, 2;\n\
         add.u32 %r5, %r0, %r4;\n\
         add.u32 %r5, %r5, 128;\n\
         mapa.shared::cluster.u32 %r6, %r5, %r3;\n\
         mapa.shared::cluster.u32 %r7, %r0, %r3;\n\
         shl.b32 %r8, %r2, 10;\n\
         add.u32 %r8, %r8, %r1;\n\
         {store}\n\
         {wait}\n\
         ld.shared.u32 %r9, [%r5];\n\
         shl.b32 %r10, %r2, 5;\n\
         add.u32 %r10, %r10, %r1;\n\
         mul.wide.u32 %d1, %r10, 4;\n\
         add.u64 %d1, %d0, %d1;\n\
         st.global.u32 [%d1], %r9;\n\
         {end}\n\
         ret;\n}}\n"
    )
}

const STORE: &str = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %r8, [%r7];";
const WAIT: &str = "$wait:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r0], 0;\n@!%p1 bra $wait;";

/// Runs it under each seed; the results of the last run.
fn run(text: &str) -> Result<Vec<u32>, Error> {
    let (module, mut results) = (module(text), Vec::new());
    for seed in 0..SEEDS {
        let memory = memory();
        let out = memory.allocate(256).unwrap();
        let launch = Run::new("k").cluster(2).shared(512).seed(seed);
        launch.u64(out).on(&module, &memory)?;
        results = read_u32(&memory, out, 64);
    }
    Ok(results)
}

fn kind(text: &str) -> FaultKind {
    match run(text) {
        Err(Error::Fault(fault)) => fault.kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn words_come_to_the_other_cta() {
    let expected: Vec<u32> = (1024..1056).chain(0..32).collect();
    assert_eq!(run(&exchange(STORE, 128, WAIT, "")).unwrap(), expected);
    // Some words may be left out.
    let short = "st.async.mbarrier::complete_tx::bytes.b32 [%r6], %r8, [%r7];";
    assert_eq!(run(&exchange(short, 128, WAIT, "")).unwrap(), expected);
}

#[test]
fn vectors_count_all_their_bytes() {
    // Lanes 0, 4, … send four words each.
    let four = "and.b32 %r11, %r1, 3;\nsetp.eq.u32 %p2, %r11, 0;\nadd.u32 %r12, %r8, 1;\nadd.u32 %r13, %r8, 2;\nadd.u32 %r14, %r8, 3;\n\
                @%p2 st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r6], {%r8, %r12, %r13, %r14}, [%r7];";
    let expected: Vec<u32> = (1024..1056).chain(0..32).collect();
    assert_eq!(run(&exchange(four, 128, WAIT, "")).unwrap(), expected);
}

#[test]
fn who_does_not_wait_for_all_bytes_is_found() {
    let unordered = [
        FaultKind::AsyncCopy,
        FaultKind::SharedRace,
        FaultKind::UninitialisedShared,
    ];
    let found = kind(&exchange(STORE, 128, "", WAIT));
    assert!(unordered.contains(&found), "{found:?}");
    let found = kind(&exchange(STORE, 124, WAIT, ""));
    assert!(unordered.contains(&found), "{found:?}");
    // More than come: it waits for ever.
    assert_eq!(kind(&exchange(STORE, 132, WAIT, "")), FaultKind::Deadlock);
}

#[test]
fn a_cta_that_exits_before_its_bytes_have_come_is_found() {
    // Neither of the two waits.
    let text = exchange(STORE, 128, "ret;", "");
    assert_eq!(kind(&text), FaultKind::RemoteAfterExit);
}

#[test]
fn the_mbarrier_is_there_and_counts_for_its_own_cta() {
    let own = STORE.replace("[%r7]", "[%r0]");
    assert_eq!(kind(&exchange(&own, 128, WAIT, "")), FaultKind::BadInstruction);
    let nowhere = STORE.replace("[%r7]", "[%r7+64]");
    assert_eq!(kind(&exchange(&nowhere, 128, WAIT, "")), FaultKind::Mbarrier);
}

#[test]
fn addresses_are_aligned() {
    let odd = STORE.replace("[%r6]", "[%r6+2]");
    assert_eq!(kind(&exchange(&odd, 128, WAIT, "")), FaultKind::Misaligned);
}

#[test]
fn other_forms_are_refused() {
    for store in [
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u16 [%r6], %r8, [%r7];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b64 [%r6], {%d0, %d0, %d0, %d0}, [%r7];",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%r6], %r8, [%r7];",
        "st.async.shared::cta.b32 [%r6], %r8, [%r7];",
        "st.async.mbarrier::complete_tx::bytes.b32 [%r6], %r8;",
        "st.async.b32 [%r6], %r8, [%r7];",
    ] {
        let text = exchange(store, 128, WAIT, "");
        assert!(ptx_emulator::Module::parse(&text).is_err(), "{store}");
    }
}
