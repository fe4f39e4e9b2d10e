//! What must not be done around matrix products is refused, under every interleaving, and its well-ordered twin is not.

mod support;

use ptx_emulator::FaultKind;
use support::{Run, leaves, refuses};

/// Thread in %r1, warp in %r2, shared memory in %r4. A (2048 bytes) and B (256 bytes) are zero and visible to
/// everybody; their descriptors are %d1 and %d2. %p1 is true in warp 0, %p2 in thread 0, %p5 everywhere.
const START: &str = "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mov.u32 %r4, smem; setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r1, 0;
    setp.lt.u32 %p3, %r1, 16; setp.ne.b32 %p5, 1, 0; mov.b32 %r9, 0; mov.b32 %f1, 0; mov.b32 %f2, 0; mov.b32 %f3, 0; mov.b32 %f4, 0;
    shl.b32 %r5, %r1, 4; add.u32 %r5, %r4, %r5; shr.u32 %r6, %r4, 4; cvt.u64.u32 %d1, %r6; add.u64 %d1, %d1, 0x1000080000; add.u64 %d2, %d1, 128;\n";
const FILL_A: &str = "st.shared.v4.b32 [%r5], {%r9, %r9, %r9, %r9};\n";
const FILL_B: &str = "@%p3 st.shared.v4.b32 [%r5+2048], {%r9, %r9, %r9, %r9};\n";
const VISIBLE: &str = "fence.proxy.async.shared::cta; bar.sync 0;\n";
const FENCE: &str = "wgmma.fence.sync.aligned;\n";
const MULTIPLY: &str =
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %d1, %d2, %p5, 1, 1, 0, 0;\n";
const OTHERS: &str =
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f5,%f6,%f7,%f8}, %d1, %d2, %p5, 1, 1, 0, 0;\n";
const FROM_REGISTERS: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, {%r20,%r21,%r22,%r23}, %d2, %p5, 1, 1, 0;\n";
const COMMIT: &str = "wgmma.commit_group.sync.aligned;\n";
const WAIT: &str = "wgmma.wait_group.sync.aligned 0;\n";
const STORE: &str = "st.shared.u32 [%r4+4], 7;\n";

fn run() -> Run<'static> {
    Run::new("k").block(128).shared(4096)
}

fn filled(body: &str) -> String {
    format!("{START}{FILL_A}{FILL_B}{VISIBLE}{body}")
}

fn refused(says: &str, body: &str) {
    refuses(FaultKind::AsyncMatrix, says, &filled(body), &run());
}

fn fine(body: &str) {
    leaves(&[0], &filled(body), &run());
}

#[test]
fn accumulators_touched_before_the_wait() {
    let between = |what: &str| format!("{FENCE}{MULTIPLY}{COMMIT}{what}{WAIT}");
    refused("accumulator 0", &between("st.global.f32 [%out], %f1;"));
    refused("accumulator 1", &between("mov.f32 %f2, 0f00000000;"));
    refused("accumulator 3", &between("add.f32 %f9, %f9, %f4;"));
    refused("accumulator 2", &between("@%p2 mov.f32 %f3, %f9;"));
    refused("mma_async", &between("cvt.rn.bf16x2.f32 %r10, %f2, %f1;"));
    refused("wait", &format!("{FENCE}{MULTIPLY}{WAIT}st.global.f32 [%out], %f1;"));
    fine(&format!(
        "{}st.global.f32 [%out], %f1;",
        between("mov.f32 %f9, 0f00000000;")
    ));
    // Nobody executes it.
    fine(&between("setp.ne.b32 %p6, 0, 0; @%p6 mov.f32 %f1, %f9;"));
    // Groups end in order.
    let two = |left: u32, what: &str| {
        format!("{FENCE}{MULTIPLY}{COMMIT}{OTHERS}{COMMIT}wgmma.wait_group.sync.aligned {left};{what}{WAIT}")
    };
    fine(&two(1, "st.global.f32 [%out], %f1;"));
    refused("accumulator 0", &two(1, "st.global.f32 [%out], %f5;"));
    refused("accumulator 0", &two(2, "st.global.f32 [%out], %f1;"));
    // An empty group counts.
    let empty = format!("{FENCE}{MULTIPLY}{COMMIT}{COMMIT}wgmma.wait_group.sync.aligned 1;st.global.f32 [%out], %f1;");
    fine(&empty);
}

#[test]
fn a_in_registers_changed_before_the_wait() {
    let between = |what: &str| format!("{FENCE}{FROM_REGISTERS}{COMMIT}{what}{WAIT}");
    refused("a register of A", &between("mov.u32 %r22, 1;"));
    refused("a register of A", &between("ld.shared.v2.u32 {%r23, %r24}, [%r4];"));
    fine(&between("mov.u32 %r24, 1;"));
    // Two products may read them at once, and none may write them.
    let also = FROM_REGISTERS.replace("%f1,%f2,%f3,%f4", "%f5,%f6,%f7,%f8");
    fine(&format!("{FENCE}{FROM_REGISTERS}{also}{COMMIT}{WAIT}"));
    let reads_its_own = FROM_REGISTERS.replace("%r20,", "%f1,");
    refused(
        "both an accumulator and",
        &format!("{FENCE}{reads_its_own}{COMMIT}{WAIT}"),
    );
    let reads_result = FROM_REGISTERS.replace("%r20,", "%f5,");
    refused(
        "follow each other",
        &format!("{FENCE}{OTHERS}{reads_result}{COMMIT}{WAIT}"),
    );
}

#[test]
fn fences_left_out() {
    refused("no `wgmma.fence`", &format!("{MULTIPLY}{COMMIT}{WAIT}"));
    let late = format!("{FENCE}mov.f32 %f1, 0f00000000; {MULTIPLY}{COMMIT}{WAIT}");
    refused("no `wgmma.fence` between", &late);
    let input = format!("{FENCE}mov.u32 %r20, 0; {FROM_REGISTERS}{COMMIT}{WAIT}");
    refused("no `wgmma.fence` between", &input);
    let again = |fence: &str| {
        format!("{FENCE}{MULTIPLY}{COMMIT}{WAIT}st.global.f32 [%out], %f1; {fence}{MULTIPLY}{COMMIT}{WAIT}")
    };
    refused("st.global.f32", &again(""));
    fine(&again(FENCE));
    // One shape on the same accumulators needs none, waited for or not.
    fine(&format!(
        "{FENCE}{MULTIPLY}{MULTIPLY}{COMMIT}{WAIT}{MULTIPLY}{COMMIT}{WAIT}"
    ));
    let wide = "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, %d1, %d2, %p5, 1, 1, 0, 0;\n";
    let (more, shapes) = (
        "st.shared.v4.b32 [%r5+2048], {%r9, %r9, %r9, %r9}; fence.proxy.async; bar.sync 0;",
        |between: &str| format!("{FENCE}{MULTIPLY}{between}{wide}{COMMIT}{WAIT}"),
    );
    refused("of one shape", &format!("{more}{}", shapes("")));
    refused("of one shape", &format!("{more}{}", shapes(FENCE)));
    refused(
        "no `wgmma.fence` between",
        &format!("{more}{}", shapes(&format!("{COMMIT}{WAIT}"))),
    );
    fine(&format!("{more}{}", shapes(&format!("{COMMIT}{WAIT}{FENCE}"))));
}

#[test]
fn matrices_overwritten_while_they_are_read() {
    let product = format!("{FENCE}{MULTIPLY}{COMMIT}");
    // By a warp of the group itself, and by one of another group.
    refused("matrix product", &format!("{product}@%p2 {STORE}{WAIT}"));
    let other = |between: &str| {
        let body =
            format!("setp.ge.u32 %p6, %r1, 128; @%p6 bra OTHER; {product}{between}ret; OTHER: {between}@%p6 {STORE}");
        // The fifth warp fills nothing that others do.
        filled(&body).replace(FILL_A, &format!("setp.lt.u32 %p7, %r1, 128; @%p7 {FILL_A}"))
    };
    let five = run().block(160);
    refuses(
        FaultKind::AsyncMatrix,
        "",
        &other(WAIT).replace("OTHER: wgmma.wait_group.sync.aligned 0;", "OTHER: "),
        &five,
    );
    let met = |before: &str| other("bar.sync 1;").replacen("bar.sync 1;", &format!("{before}bar.sync 1;"), 1);
    leaves(&[0], &met(WAIT), &five);
    let early = met("").replacen("bar.sync 1;", &format!("bar.sync 1;{WAIT}"), 1);
    refuses(FaultKind::AsyncMatrix, "matrix product", &early, &five);
}

#[test]
fn one_warp_may_tell_for_all_that_matrices_are_free() {
    // Thread 0 of a warpgroup that has waited says so; whoever hears it may write.
    let init = "@%p2 mbarrier.init.shared.b64 [%r4+4032], 1;";
    let body = format!(
        "{FENCE}{MULTIPLY}{COMMIT}{WAIT}@%p2 mbarrier.arrive.shared.b64 _, [%r4+4032];
         setp.eq.u32 %p6, %r2, 3; @!%p6 bra END;
         FREE: mbarrier.try_wait.parity.shared.b64 %p7, [%r4+4032], 0; @!%p7 bra FREE; {STORE} END: add.u32 %r10, %r10, 1;"
    );
    let text = format!("{START}{init}{FILL_A}{FILL_B}{VISIBLE}{body}");
    leaves(&[0], &text, &run());
    let early = text
        .replace("@%p2 mbarrier.arrive", "nanosleep.u32 1; @%p2 mbarrier.arrive")
        .replace(WAIT, "")
        .replace("END: ", &format!("END: {WAIT}"));
    refuses(FaultKind::AsyncMatrix, "matrix product", &early, &run());
}

#[test]
fn copies_and_products() {
    let init = "@%p2 mbarrier.init.shared.b64 [%r4+4032], 1; @%p2 fence.mbarrier_init.release.cluster;";
    let copy = "@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r4+4032], 256;
        @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4+2048], [%out], 256, [%r4+4032];\n";
    let landed = "L: mbarrier.try_wait.parity.shared.b64 %p7, [%r4+4032], 0; @!%p7 bra L;\n";
    let product = format!("{FENCE}{MULTIPLY}{COMMIT}{WAIT}");
    let text = |body: &str| format!("{START}{init}{FILL_A}{VISIBLE}{body}");
    leaves(&[0; 64], &text(&format!("{copy}{landed}{product}")), &run());
    // B has not been seen to arrive: by nobody, or only by others.
    refuses(
        FaultKind::AsyncCopy,
        "",
        &text(&format!("{copy}bar.sync 0; {product}{landed}")),
        &run(),
    );
    let some = format!("{copy}bar.sync 0; @!%p1 bra SKIP; {landed} SKIP: {product}");
    refuses(FaultKind::AsyncCopy, "multiplies with", &text(&some), &run());
    // A copy over B while it is read.
    let over = |wait: &str, last: &str| {
        format!("{START}{init}{FILL_A}{FILL_B}{VISIBLE}{FENCE}{MULTIPLY}{COMMIT}{wait}bar.sync 0;{copy}{landed}{last}")
    };
    leaves(&[0; 64], &over(WAIT, ""), &run());
    refuses(FaultKind::AsyncMatrix, "matrix product", &over("", WAIT), &run());
}

#[test]
fn other_ctas_overwrite_matrices() {
    let meet = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n";
    let body = |before: &str, after: &str| {
        format!(
            "{START}{FILL_A}{FILL_B}{VISIBLE}{meet}{FENCE}{MULTIPLY}{COMMIT}{before}{meet}
             mov.u32 %r10, %cluster_ctarank; xor.b32 %r10, %r10, 1; mapa.shared::cluster.u32 %r11, %r4, %r10;
             @%p2 st.shared::cluster.u32 [%r11], 5; {after}{meet}"
        )
    };
    leaves(&[0], &body(WAIT, ""), &run().cluster(2));
    refuses(
        FaultKind::AsyncMatrix,
        "matrix product",
        &body("", WAIT),
        &run().cluster(2),
    );
}

#[test]
fn matrices_that_are_not_there_yet() {
    let product = format!("{FENCE}{MULTIPLY}{COMMIT}{WAIT}");
    let text = |fill: &str| format!("{START}{FILL_A}{fill}{product}");
    refuses(
        FaultKind::AsyncMatrix,
        "fence.proxy.async",
        &text(&format!("{FILL_B}bar.sync 0;")),
        &run(),
    );
    // The fence may stand on either side of the barrier.
    leaves(&[0], &text(&format!("{FILL_B}bar.sync 0; fence.proxy.async;")), &run());
    refuses(
        FaultKind::UninitialisedShared,
        "multiplies with",
        &text(VISIBLE),
        &run(),
    );
    // Written once more, with nothing that orders the others' products after that.
    let again = format!("{FILL_B}{VISIBLE}{FILL_B}fence.proxy.async;");
    refuses(FaultKind::AsyncMatrix, "nothing that orders", &text(&again), &run());
    let guarded =
        format!("{START}{FILL_A}{FILL_B}{VISIBLE}@%p2 mbarrier.init.shared.b64 [%r4+2048], 1; bar.sync 0;{product}");
    refuses(FaultKind::Mbarrier, "multiplies with", &guarded, &run());
}

#[test]
fn exits_with_products_under_way() {
    refused("exits while", &format!("{FENCE}{MULTIPLY}{COMMIT}"));
    refused("exits while", &format!("{FENCE}{MULTIPLY}{WAIT}"));
    refused(
        "exits while",
        &format!("{FENCE}{MULTIPLY}{COMMIT}{OTHERS}{COMMIT}wgmma.wait_group.sync.aligned 1;"),
    );
}

#[test]
fn warpgroups_that_do_not_agree() {
    let product = format!("{FENCE}{MULTIPLY}{COMMIT}{WAIT}");
    refused(
        "all four",
        &format!("@!%p1 bra END; {product} END: add.u32 %r10, %r10, 1;"),
    );
    refused("all four", &format!("@%p1 ret; {product}"));
    refused("scale-d", &format!("mov.pred %p5, %p1; {product}"));
    refused("descriptors", &format!("@%p1 add.u64 %d1, %d1, 1; {product}"));
    refused(
        "the same instructions",
        &format!("@%p1 bra ONE; {product}ret; ONE: {product}"),
    );
    let extra = format!("@!%p1 bra ON; {FENCE} ON: {product}");
    refused("the same instructions", &extra);
    // A CTA without four whole warps has no warpgroup.
    refuses(FaultKind::AsyncMatrix, "3 warps", &filled(&product), &run().block(96));
    refuses(
        FaultKind::PartialWarp,
        "lanes",
        &filled(&format!("@%p3 bra END; {product} END: ")),
        &run(),
    );
    let bar =
        format!("{FENCE}{MULTIPLY}{COMMIT}@%p1 {WAIT}@!%p1 bra OTHERS; bar.sync 0; ret; OTHERS: {WAIT}bar.sync 0;");
    refused("the same instructions", &bar);
    // The others are blocked for good, so that nothing can be told but that.
    let blocked = filled(&format!("@!%p1 bar.sync 1, 128; {product}"));
    refuses(
        FaultKind::Deadlock,
        "the other warps of its warpgroup",
        &blocked,
        &run(),
    );
}

#[test]
fn descriptors_that_describe_nothing() {
    let with = |change: &str| filled(&format!("{change}{FENCE}{MULTIPLY}{COMMIT}{WAIT}"));
    let bad = |kind: FaultKind, says: &str, change: &str| refuses(kind, says, &with(change), &run());
    bad(FaultKind::BadInstruction, "mean nothing", "or.b64 %d1, %d1, 0xc000;");
    bad(
        FaultKind::BadInstruction,
        "base offset 3",
        "or.b64 %d2, %d2, 0x6000000000000;",
    );
    bad(
        FaultKind::BadInstruction,
        "differs between lanes",
        "@%p2 add.u64 %d2, %d2, 1;",
    );
    bad(FaultKind::BadInstruction, "differs between lanes", "mov.pred %p5, %p2;");
    bad(FaultKind::OutOfBounds, "B: ", "mov.u64 %d2, 0;");
    bad(FaultKind::OutOfBounds, "A: ", "or.b64 %d1, %d1, 0x10000000000;");
    // Swizzled by 128 bytes: rows must start where the pattern does, and step by whole patterns.
    let swizzled = |low: u64| format!("mov.u64 %d2, {:#x};", 1u64 << 62 | 64 << 32 | low);
    bad(FaultKind::Misaligned, "first row of 128 bytes", &swizzled(64 + 8));
    bad(FaultKind::Misaligned, "first row of 128 bytes", &swizzled(64 + 7));
    let stride = "mov.u64 %d1, 0x4000002000000040;";
    bad(FaultKind::Misaligned, "stride byte offset of 512", stride);
}
