//! What a projection moves, as the emulator counts it: weights once, x seldom, y once, no bank conflicts.

use hopper_proj::cust::memory::DeviceBuffer;
use hopper_proj_tests::{Device, Values, shape};

/// The bytes of a sector of the L2 cache.
const SECTOR: f64 = 32.0;

/// Tokens, and the most that sectors of x may come to beside the weights.
const ROWS: [(usize, f64); 3] = [(1, 0.25), (8, 0.25), (32, 0.6)];

#[test]
fn qkv_gate_reads_its_weights_once() {
    let (device, mut values) = (Device::emulated(), Values::fixed(1));
    let engine = &device.engine;
    let (n, k) = (2304, 8192);
    let projection = engine.prepare(&values.bf16(n * k), shape(n, k)).unwrap();
    for (m, most) in ROWS {
        let x = engine.upload(&values.bf16(m * k)).unwrap();
        let mut y = DeviceBuffer::from_slice(&vec![0u16; m * n]).unwrap();
        engine.take_counters().unwrap();
        engine.project(&projection, &x, m, &mut y, &device.stream).unwrap();
        engine.synchronize(&device.stream).unwrap();
        let counters = engine.take_counters().unwrap().expect("the emulator counts");
        let traffic = |base: u64| counters.traffic.get(&base).copied().unwrap_or_default();

        let weights = traffic(projection.pointer());
        assert_eq!(weights.read_bytes as usize, projection.bytes(), "m = {m}");
        assert_eq!(projection.bytes(), n * k * 2);
        assert_eq!(weights.written_bytes, 0, "m = {m}");

        let activations = traffic(x.as_device_ptr().as_raw());
        let share = activations.read_sectors as f64 * SECTOR / weights.read_bytes as f64;
        println!("m = {m}: sectors of x come to {share:.3} of the weights' bytes");
        assert!(
            share <= most,
            "m = {m}: sectors of x come to {share:.3} of the weights' bytes"
        );
        // Fewer than once would mean that values of x were skipped, or not counted.
        assert!(activations.read_bytes as usize >= m * k * 2, "m = {m}");
        assert_eq!(activations.written_bytes, 0, "m = {m}");

        let results = traffic(y.as_device_ptr().as_raw());
        assert_eq!(results.written_bytes as usize, m * n * 2, "m = {m}");
        assert_eq!(results.read_bytes, 0, "m = {m}");
        assert_eq!(counters.traffic.len(), 3, "m = {m}: buffers touched");

        let (loads, stores) = (counters.load_conflicts, counters.store_conflicts);
        println!("m = {m}: bank conflicts: {loads} extra passes of loads, {stores} of stores");
        assert_eq!((loads, stores), (0, 0), "m = {m}: bank conflicts");

        // One 16-byte fragment per lane and step, and one tensor-core instruction per fragment and block of 8 tokens.
        let fragments = (projection.bytes() / 512) as u64;
        assert_eq!(counters.count("ld.shared.v4"), fragments, "m = {m}");
        assert_eq!(counters.count("mma.sync"), fragments * m.div_ceil(8) as u64, "m = {m}");
    }
}
