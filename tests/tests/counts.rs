//! What a projection moves, as the emulator counts it: weights once, x seldom, y once, no bank conflicts.

use hopper_proj::formats::window12;
use hopper_proj::instances::{Format, Gemv};
use hopper_proj::plan::Kernel;
use hopper_proj::raw::{DeviceWeights, Overlap};
use hopper_proj::{Shape, bf16};
use hopper_proj_tests::{Device, Values, shape};

/// The bytes of a sector of the L2 cache.
const SECTOR: f64 = 32.0;

/// Tokens, what the name of the kernel has, and the most that sectors of x may come to beside the weights.
const ROWS: [(usize, &str, f64); 5] = [
    (1, "gemv_", 0.25),
    (8, "gemv_", 0.25),
    (32, "gemv_", 0.6),
    (32, "gemm_", 0.26),
    (32, "_w16", 0.2),
];

/// One test, since engines share a context and with it the counters.
#[test]
fn qkv_gate_reads_its_weights_and_exceptions_once() {
    for format in [Format::Bf16, Format::Window12] {
        reads_weights_once(format);
    }
}

/// Loads of four rows' sums: of each warp, for all outputs of a CTA, and of each CTA of a cluster, for its share.
fn loads_of_sums(gemv: &Gemv, n: usize, m: usize) -> usize {
    let by_warps = |tokens: usize| (tokens * gemv.rows() / 4).div_ceil(32);
    let share = |rank: usize| gemv.share_tokens().min(m.saturating_sub(rank * gemv.share_tokens()));
    let of_cluster: usize = match gemv.cluster {
        1 => 0,
        ctas => (0..ctas).map(|rank| ctas * by_warps(share(rank))).sum(),
    };
    n / gemv.rows() * (gemv.cluster * gemv.warps * by_warps(m) + of_cluster)
}

/// Weights that the best palette for them lacks.
fn exceptions_of(weights: &[bf16], shape: Shape) -> usize {
    window12::pack(weights, shape).unwrap().exceptions().len()
}

fn reads_weights_once(format: Format) {
    let (device, mut values) = (Device::emulated(), Values::fixed(1));
    let engine = &device.engine;
    let (n, k) = (2304, 8192);
    let weights_in = values.bf16(n * k);
    let projection = device.prepare(format, &weights_in, shape(n, k));
    for (m, kind, most) in ROWS {
        let x = engine.upload(&values.bf16(m * k)).unwrap();
        let mut y = engine.zeroed(m * n).unwrap();
        let kernels = engine.choices(&projection, &x, m).unwrap();
        let kernel = kernels.iter().find(|kernel| kernel.name().contains(kind)).unwrap();
        let is_product = matches!(kernel, Kernel::Gemm(_));
        let plan = engine.plan_by(kernel, &projection, &x, m).unwrap();
        engine.take_counters().unwrap();
        engine
            .project_as(
                plan.as_ref(),
                &projection,
                &x,
                m,
                &mut y,
                &device.stream,
                Overlap::Programmatic,
            )
            .unwrap();
        engine.synchronize(&device.stream).unwrap();
        let counters = engine.take_counters().unwrap().expect("the emulator counts");
        let traffic = |base: u64| counters.traffic.get(&base).copied().unwrap_or_default();

        let weights = traffic(projection.pointer());
        assert_eq!(weights.read_bytes as usize, projection.unit_bytes(), "m = {m}");
        assert_eq!(projection.unit_bytes(), n / 16 * (k / 64) * format.unit_bytes());
        let (mut buffers, mut apart) = (3, 0);
        if let DeviceWeights::Window12(window12::OnDevice { starts, exceptions, .. }) = projection.weights() {
            let found = exceptions_of(&weights_in, shape(n, k));
            assert!(found > 0, "the weights have exceptions to count");
            // A GEMV deals them out; each part of K of a product looks through those of its row blocks, 32 at a time.
            let readers = if is_product { kernel.cluster() } else { 1 };
            let read = traffic(exceptions).read_bytes as usize;
            assert!(
                (found * 8..=found * 8 * readers).contains(&read),
                "m = {m}: {read} bytes of {found}"
            );
            assert!(traffic(starts).read_bytes > 0, "m = {m}");
            (buffers, apart) = (5, found);
        }
        assert_eq!(weights.written_bytes, 0, "m = {m}");

        let activations = traffic(x.address());
        // Beside the BF16 weights, whatever the format: x costs the same. An exception reads one value of each token.
        let sectors = activations.read_sectors as f64 - (apart * m) as f64;
        let share = sectors * SECTOR / (n * k * 2) as f64;
        println!("m = {m}: sectors of x come to {share:.3} of the BF16 weights' bytes, beside {apart} exceptions");
        assert!(
            share <= most,
            "m = {m}: sectors of x come to {share:.3} of the weights' bytes"
        );
        // Fewer than once would mean that values of x were skipped, or not counted.
        assert!(activations.read_bytes as usize >= m * k * 2, "m = {m}");
        assert_eq!(activations.written_bytes, 0, "m = {m}");

        let results = traffic(y.address());
        assert_eq!(results.written_bytes as usize, m * n * 2, "m = {m}");
        assert_eq!(results.read_bytes, 0, "m = {m}");
        assert_eq!(counters.traffic.len(), buffers, "m = {m}: buffers touched");

        let (loads, stores) = (counters.load_conflicts, counters.store_conflicts);
        println!("m = {m}: bank conflicts: {loads} extra passes of loads, {stores} of stores");
        assert_eq!((loads, stores), (0, 0), "m = {m}: bank conflicts");

        // One tensor-core instruction per step of a unit: of a warp for a block of 8 tokens, or of its warpgroup for
        // all.
        let fragments = (n / 16 * (k / 64) * 4) as u64;
        if is_product {
            assert_eq!(counters.count("wgmma.mma_async"), fragments, "m = {m}");
            continue;
        }
        assert_eq!(counters.count("mma.sync"), fragments * m.div_ceil(8) as u64, "m = {m}");
        // 16 bytes per lane and load.
        let Kernel::Gemv(gemv) = kernel else {
            panic!("{kernel}");
        };
        let loads = projection.unit_bytes() / 512 + loads_of_sums(gemv, n, m);
        assert_eq!(counters.count("ld.shared.v4"), loads as u64, "m = {m}");
    }
}
