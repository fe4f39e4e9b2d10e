//! A compiled kernel, whole: cluster split-K with per-warp rings of bulk copies.

mod support;

use approx::abs_diff_eq;
use half::bf16;
use ptx_emulator::{Counters, Memory};
use support::{Run, memory, module};

const PTX: &str = include_str!("ptx/gemv.ptx");
const WARPS: u32 = 8;
const CLUSTER: u32 = 2;
const STAGES: u32 = 2;
/// Bytes of a chunk: two units of 16 rows × 64 columns.
const CHUNK: u32 = 4096;
const PARTIAL: u32 = 512;

struct Case {
    m: u32,
    n: u32,
    k: u32,
    x: Vec<bf16>,
    weights: Vec<bf16>,
}

impl Case {
    fn new(m: u32, n: u32, k: u32) -> Self {
        let value = |i: usize| bf16::from_f32(((i * 2_654_435_761) >> 7 & 0xff) as f32 / 256.0 - 0.5);
        Case {
            m,
            n,
            k,
            x: (0..(m * k) as usize).map(value).collect(),
            weights: (0..(n * k) as usize).map(|i| value(i + 12345)).collect(),
        }
    }

    /// Units of 16 rows × 64 columns, [step 4][g 8][t 4][j 2][h 2][e 2] within.
    fn packed(&self) -> Vec<u8> {
        let (n, k) = (self.n as usize, self.k as usize);
        let mut bytes = Vec::with_capacity(n * k * 2);
        for unit in 0..n / 16 * (k / 64) {
            let (row_block, group) = (unit / (k / 64), unit % (k / 64));
            for i in 0..1024 {
                let (step, g, t, j, h, e) = (i >> 8, i >> 5 & 7, i >> 3 & 3, i >> 2 & 1, i >> 1 & 1, i & 1);
                let (row, column) = (16 * row_block + 8 * h + g, 64 * group + 16 * t + 4 * step + 2 * j + e);
                bytes.extend(self.weights[row * k + column].to_le_bytes());
            }
        }
        bytes
    }

    fn run(&self, seed: Option<u64>) -> (Vec<bf16>, Counters, [u64; 3]) {
        let (memory, module) = (memory(), module(PTX));
        let put = |bytes: &[u8]| {
            let address = memory.allocate(bytes.len() as u64).unwrap();
            memory.write(address, bytes).unwrap();
            address
        };
        let x = put(&self.x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
        let weights = put(&self.packed());
        let out = memory.allocate(u64::from(self.m * self.n * 2)).unwrap();
        let mut run = Run::new("gemv")
            .cluster(CLUSTER)
            .grid(self.n / 16 * CLUSTER)
            .block(WARPS * 32)
            .shared(1024 + WARPS * STAGES * CHUNK + (WARPS + CLUSTER) * PARTIAL);
        run.seed = seed;
        let run = run
            .u64(x)
            .u64(weights)
            .u64(out)
            .u32(self.m)
            .u32(self.n)
            .u32(self.k)
            .u32(0)
            .u32(0);
        let (_, counters) = run.on(&module, &memory).unwrap_or_else(|error| panic!("{error}"));
        (
            read(&memory, out, (self.m * self.n) as usize),
            counters,
            [x, weights, out],
        )
    }
}

fn read(memory: &Memory, address: u64, count: usize) -> Vec<bf16> {
    let mut bytes = vec![0; count * 2];
    memory.read(address, &mut bytes).unwrap();
    bytes
        .chunks_exact(2)
        .map(|b| bf16::from_le_bytes([b[0], b[1]]))
        .collect()
}

#[test]
fn agrees_with_double_precision() {
    let case = Case::new(5, 48, 4096);
    let (y, ..) = case.run(None);
    for token in 0..case.m as usize {
        for row in 0..case.n as usize {
            let k = case.k as usize;
            let dot: f64 = (0..k)
                .map(|c| case.x[token * k + c].to_f64() * case.weights[row * k + c].to_f64())
                .sum();
            let got = y[token * case.n as usize + row].to_f64();
            assert!(
                abs_diff_eq!(got, dot, epsilon = dot.abs() / 200.0 + 1e-2),
                "token {token}, row {row}: {got} for {dot}"
            );
        }
    }
}

#[test]
fn every_seed_gives_the_same_bits() {
    let case = Case::new(8, 32, 4096);
    let (expected, counters, _) = case.run(None);
    for seed in 0..20 {
        let (y, again, _) = case.run(Some(seed));
        assert_eq!(y, expected, "seed {seed}");
        for opcode in ["mma", "cp", "ld", "st", "bar", "barrier"] {
            assert_eq!(again.count(opcode), counters.count(opcode), "seed {seed}, {opcode}");
        }
    }
}

#[test]
fn counts_what_the_shape_implies() {
    let case = Case::new(1, 64, 8192);
    let (_, counters, [x, weights, out]) = case.run(None);
    let bytes = u64::from(case.n * case.k * 2);
    assert_eq!(counters.traffic[&weights].read_bytes, bytes);
    assert_eq!(counters.traffic[&weights].read_sectors, bytes / 32);
    // One mma per 16 × 16 weights; each lane of a warp loads x for a token, tokens beyond m reading token 0's.
    assert_eq!(counters.count("mma"), u64::from(case.n * case.k / 256));
    // Each of two loads takes one half of a sector.
    assert_eq!(
        counters.traffic[&x].read_sectors,
        2 * u64::from(case.n / 16 * case.k * 2 / 32)
    );
    assert_eq!(counters.traffic[&out].written_bytes, u64::from(case.n * 2));
    assert_eq!(counters.traffic[&out].read_bytes, 0);
}
