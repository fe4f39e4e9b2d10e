//! Any text as PTX: it is refused, or its kernels run to their end, to a fault or to their limits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ptx_emulator::{Launch, Memory, Module, Options, launch};

fuzz_target!(|text: &str| {
    let Ok(module) = Module::parse(text) else { return };
    let memory = Memory::new(1 << 24);
    let Some(buffer) = memory.allocate(1 << 16) else { return };
    let mut options = Options {
        seed: Some(1),
        ..Options::default()
    };
    options.limits.idle_instructions = 20_000;
    options.limits.total_instructions = 200_000;
    for entry in module.entries() {
        // Every parameter points at the buffer, or says what half of its address says.
        let mut params: Vec<u8> = buffer.to_le_bytes().repeat(entry.param_bytes as usize / 8 + 1);
        params.truncate(entry.param_bytes as usize);
        let what = Launch {
            entry: &entry.name,
            grid: [2, 1, 1],
            block: [64, 1, 1],
            cluster: [1, 1, 1],
            dynamic_shared: 4096,
            params: &params,
            overlaps: None,
        };
        let _ = launch(&module, &memory, &what, &options);
    }
});
