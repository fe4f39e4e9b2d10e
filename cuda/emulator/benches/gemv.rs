//! How long the emulator takes: reading PTX, and a GEMV that streams 37.7 MB of weights.

use divan::Bencher;
use ptx_emulator::{Launch, Limits, Memory, Module, Options, launch};

const PTX: &str = include_str!("../tests/ptx/gemv.ptx");

fn main() {
    divan::main();
}

#[divan::bench]
fn parse() -> Module {
    Module::parse(PTX).expect("the kernel parses")
}

/// 2304 × 8192 at one token; without a seed on all cores, with one on a single core.
#[divan::bench(args = [None, Some(1)], sample_count = 5, sample_size = 1)]
fn gemv(bencher: Bencher<'_, '_>, seed: Option<u64>) {
    let (m, n, k) = (1u32, 2304u32, 8192u32);
    let module = Module::parse(PTX).expect("the kernel parses");
    let memory = Memory::new(1 << 30);
    let buffer = |elements: u32| {
        let bytes = u64::from(elements) * 2;
        let address = memory.allocate(bytes).expect("the memory has room");
        // 1.0 in every element.
        memory
            .fill(address, &[0x80, 0x3f], u64::from(elements))
            .expect("the buffer is live");
        address
    };
    let mut params = Vec::new();
    for elements in [m * k, n * k, m * n] {
        params.extend(buffer(elements).to_le_bytes());
    }
    params.extend([m, n, k, 0, 0].iter().flat_map(|v| v.to_le_bytes()));
    let what = Launch {
        entry: "gemv",
        grid: [n / 16 * 2, 1, 1],
        block: [256, 1, 1],
        cluster: [2, 1, 1],
        dynamic_shared: 1024 + 16 * 4096 + 10 * 512,
        params: &params,
        overlaps: None,
    };
    let options = Options {
        seed,
        limits: Limits::default(),
        ..Options::default()
    };
    bencher.bench_local(|| launch(&module, &memory, &what, &options).expect("the kernel runs"));
}
