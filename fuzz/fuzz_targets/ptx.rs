//! Any text as PTX: it is refused, or its kernels run to their end, to a fault or to their limits.

#![no_main]

#[path = "../../cuda/emulator/tests/support/damage.rs"]
mod damage;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use ptx_emulator::{Launch, Memory, Module, Options, launch};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// One of each family of instructions, whose words other texts are given.
const BREADTH: &str = include_str!("../../cuda/emulator/tests/ptx/breadth.ptx");

fuzz_target!(|text: &str| {
    let Ok(module) = Module::parse(text) else { return };
    let memory = Memory::new(1 << 24);
    let Some(buffer) = memory.allocate(1 << 16) else { return };
    let mut options = Options {
        seed: Some(1),
        ..Options::default()
    };
    options.limits.idle_instructions = 2_000;
    options.limits.total_instructions = 20_000;
    for entry in module.entries() {
        // Every parameter points at the buffer, or says what half of its address says.
        let mut params: Vec<u8> = buffer.to_le_bytes().repeat(entry.param_bytes as usize / 8 + 1);
        params.truncate(entry.param_bytes as usize);
        // What the kernel asks for, or else what the text's length says.
        let threads = [32, 64, 96, 128][text.len() % 4];
        let cluster = [1, 2][text.len() / 4 % 2];
        let what = Launch {
            entry: &entry.name,
            grid: entry.required_cluster.unwrap_or([2, 1, 1]),
            block: entry.required_threads.or(entry.max_threads).unwrap_or([threads, 1, 1]),
            cluster: entry.required_cluster.unwrap_or([cluster, 1, 1]),
            dynamic_shared: 4096,
            params: &params,
            overlaps: None,
        };
        let _ = launch(&module, &memory, &what, &options);
    }
});

// Bytes that are changed one by one are seldom PTX, so three times of four lines and words are.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = StdRng::seed_from_u64(seed.into());
    match std::str::from_utf8(&data[..size]) {
        Ok(text) if random.random_ratio(3, 4) => {
            let damaged = damage::damaged(text, BREADTH, 0, &mut random);
            let length = damaged.len().min(max_size);
            data[..length].copy_from_slice(&damaged.as_bytes()[..length]);
            length
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
});
