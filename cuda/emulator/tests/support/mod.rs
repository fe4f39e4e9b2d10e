//! What the tests share: a device with a memory, and launches in one line.
#![allow(dead_code)]

pub(crate) mod damage;

use ptx_emulator::{Counters, Error, Fault, FaultKind, Launch, LaunchId, Limits, Memory, Module, Options, launch};

/// A kernel launch in the making: one CTA of one warp unless told otherwise.
#[derive(Clone)]
pub(crate) struct Run<'a> {
    pub(crate) entry: &'a str,
    pub(crate) grid: u32,
    pub(crate) block: u32,
    pub(crate) cluster: u32,
    pub(crate) shared: u32,
    pub(crate) seed: Option<u64>,
    pub(crate) overlaps: Option<LaunchId>,
    pub(crate) limits: Limits,
    pub(crate) count_lines: bool,
    params: Vec<u8>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(entry: &'a str) -> Self {
        Run {
            entry,
            grid: 1,
            block: 32,
            cluster: 1,
            shared: 0,
            seed: None,
            overlaps: None,
            limits: Limits::default(),
            count_lines: false,
            params: Vec::new(),
        }
    }

    pub(crate) fn grid(mut self, grid: u32) -> Self {
        self.grid = grid;
        self
    }

    pub(crate) fn block(mut self, block: u32) -> Self {
        self.block = block;
        self
    }

    pub(crate) fn cluster(mut self, cluster: u32) -> Self {
        self.cluster = cluster;
        self.grid = self.grid.max(cluster);
        self
    }

    pub(crate) fn shared(mut self, bytes: u32) -> Self {
        self.shared = bytes;
        self
    }

    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.params.resize(self.params.len().next_multiple_of(8), 0);
        self.params.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.params.extend(bytes);
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.params.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn on(&self, module: &Module, memory: &Memory) -> Result<(LaunchId, Counters), Error> {
        let what = Launch {
            entry: self.entry,
            grid: [self.grid, 1, 1],
            block: [self.block, 1, 1],
            cluster: [self.cluster, 1, 1],
            dynamic_shared: self.shared,
            params: &self.params,
            overlaps: self.overlaps,
        };
        let options = Options {
            seed: self.seed,
            limits: self.limits.clone(),
            count_lines: self.count_lines,
            ..Options::default()
        };
        launch(module, memory, &what, &options).map(|outcome| (outcome.id, outcome.counters))
    }
}

/// PTX text with the usual header around kernels.
pub(crate) fn ptx(kernels: &str) -> String {
    format!(".version 8.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 smem[];\n{kernels}")
}

/// A kernel `k` with the parameter `out` (in `%out`), and registers to write to.
pub(crate) fn kernel(body: &str) -> String {
    ptx(&format!(
        ".visible .entry k(.param .u64 out) {{\n\
         .reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .f32 %f<32>; .reg .b64 %d<32>;\n\
         .reg .b64 %out;\n\
         ld.param.u64 %out, [out];\n{body}\nret;\n}}\n"
    ))
}

pub(crate) fn module(text: &str) -> Module {
    Module::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

pub(crate) fn memory() -> Memory {
    Memory::new(1 << 32)
}

pub(crate) fn read_u32(memory: &Memory, address: u64, count: usize) -> Vec<u32> {
    let mut bytes = vec![0; count * 4];
    memory.read(address, &mut bytes).unwrap();
    bytes
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

pub(crate) fn write_u32(memory: &Memory, address: u64, values: &[u32]) {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    memory.write(address, &bytes).unwrap();
}

/// Runs kernel `k`, made from a body, with its parameter pointing at `words` zeroed words; answers with these.
pub(crate) fn words(body: &str, run: &Run<'_>, words: usize) -> Vec<u32> {
    let (memory, module) = (memory(), module(&kernel(body)));
    let out = memory.allocate(words as u64 * 4).unwrap();
    run.clone()
        .u64(out)
        .on(&module, &memory)
        .unwrap_or_else(|error| panic!("{error}"));
    read_u32(&memory, out, words)
}

/// The fault that kernel `k`, made from a body, ends in.
pub(crate) fn fault(body: &str, run: &Run<'_>) -> Fault {
    let (memory, module) = (memory(), module(&kernel(body)));
    let out = memory.allocate(4096).unwrap();
    match run.clone().u64(out).on(&module, &memory) {
        Err(Error::Fault(fault)) => *fault,
        Err(other) => panic!("not a fault: {other}"),
        Ok(_) => panic!("no fault"),
    }
}

/// Checks that a body ends in a fault of a kind whatever the interleaving, and that the message contains something.
pub(crate) fn refuses(kind: FaultKind, says: &str, body: &str, run: &Run<'_>) -> Fault {
    let mut last = None;
    for seed in [None, Some(1), Some(2), Some(3), Some(4), Some(5)] {
        let mut run = run.clone();
        run.seed = seed;
        let fault = fault(body, &run);
        assert_eq!(fault.kind, kind, "seed {seed:?}: {fault}");
        assert!(
            fault.to_string().contains(says),
            "seed {seed:?}: `{says}` is not in: {fault}"
        );
        last = Some(fault);
    }
    last.unwrap()
}

/// Checks that a body runs through whatever the interleaving, and leaves these words.
pub(crate) fn leaves(expected: &[u32], body: &str, run: &Run<'_>) {
    for seed in std::iter::once(None).chain((1..12).map(Some)) {
        let mut run = run.clone();
        run.seed = seed;
        assert_eq!(words(body, &run, expected.len()), expected, "seed {seed:?}");
    }
}
