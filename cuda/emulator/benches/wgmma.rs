//! How long the emulator takes for matrix products of a warpgroup: steps of 64 × 128 × 16, eight at a time.

use divan::Bencher;
use divan::counter::ItemsCount;
use ptx_emulator::{Launch, Memory, Module, Options, launch};

/// Products that one launch makes.
const STEPS: usize = 256;

fn main() {
    divan::main();
}

fn text() -> String {
    let each = |f: &dyn Fn(usize) -> String| (0..64).map(f).collect::<Vec<_>>().join(", ");
    let sums = each(&|i| format!("%f{i}"));
    let product =
        format!("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {{{sums}}}, %d1, %d2, %p1, 1, 1, 0, 0;\n");
    format!(
        ".version 8.0 .target sm_90a .address_size 64 .extern .shared .align 1024 .b8 smem[];
         .visible .entry k() {{
         .reg .pred %p<3>; .reg .b32 %r<8>; .reg .f32 %f<64>; .reg .b64 %d<4>;
         mov.u32 %r1, %tid.x; mov.u32 %r2, smem; setp.ne.b32 %p1, 1, 0;
         shl.b32 %r3, %r1, 2; mov.u32 %r4, 0x40003f80;
         FILL: add.u32 %r5, %r2, %r3; st.shared.b32 [%r5], %r4; mad.lo.u32 %r4, %r4, 5, 3; and.b32 %r4, %r4, 0x807f807f; or.b32 %r4, %r4, 0x3f803f80;
         add.u32 %r3, %r3, 512; setp.lt.u32 %p2, %r3, 24576; @%p2 bra FILL;
         fence.proxy.async; bar.sync 0;
         shr.u32 %r5, %r2, 4; cvt.u64.u32 %d1, %r5; add.u64 %d1, %d1, 0x4000004000000000; add.u64 %d2, %d1, 512;
         mov.u32 %r6, 0; wgmma.fence.sync.aligned;
         LOOP: {} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
         add.u32 %r6, %r6, 8; setp.lt.u32 %p2, %r6, {STEPS}; @%p2 bra LOOP; ret; }}",
        product.repeat(8)
    )
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn steps(bencher: Bencher<'_, '_>) {
    let module = Module::parse(&text()).expect("the kernel parses");
    let memory = Memory::new(1 << 20);
    let what = Launch {
        entry: "k",
        grid: [1, 1, 1],
        block: [128, 1, 1],
        cluster: [1, 1, 1],
        dynamic_shared: 24576,
        params: &[],
        overlaps: None,
    };
    (bencher.counter(ItemsCount::new(STEPS)))
        .bench_local(|| launch(&module, &memory, &what, &Options::default()).expect("the kernel runs"));
}
