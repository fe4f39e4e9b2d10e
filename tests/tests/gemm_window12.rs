//! Matrix products over packed units: 12 bits per weight give the bits that 16 give, with exceptions and without.

use hopper_cuda_driver::emulated;
use hopper_proj::formats::window12;
use hopper_proj::instances::formats::{bf16::BF16_PACKED_GEMM, window12::WINDOW12_PACKED_GEMM};
use hopper_proj::instances::{GEMM, Gemm};
use hopper_proj::reference;
use hopper_proj_tests::driver::{Function, OwnContext, emulated_device};
use hopper_proj_tests::exceptions::weights;
use hopper_proj_tests::product::{Division, Operands, Product, clusters};
use hopper_proj_tests::{Values, shape};

/// Shares of the weights that the palette lacks.
const RATES: [f64; 4] = [0.0, 1e-4, 1e-2, 0.5];
const TOKENS: [usize; 8] = [33, 64, 65, 100, 128, 129, 256, 300];
/// Rows and columns of a unit.
const UNIT: (usize, usize) = (16, 64);

/// Kernels that differ in how they read operands alone: weights from units of 12 and of 16 bits, and by tensor copies
/// where there is one; x for one CTA, and for several where some share it. And a number of parts of K that all can make
/// of a cluster.
fn alike(at: usize, parts: usize) -> (&'static Gemm, Vec<&'static Gemm>, usize) {
    let window12 = &WINDOW12_PACKED_GEMM[at];
    let tile = |i: &Gemm| (i.op, i.terms, i.warps, i.groups, i.token_blocks);
    let others = BF16_PACKED_GEMM.iter().chain(GEMM).chain(WINDOW12_PACKED_GEMM);
    let others: Vec<_> = others.filter(|i| tile(i) == tile(window12) && *i != window12).collect();
    let most_sharing = others.iter().copied().max_by_key(|i| i.multicast).unwrap_or(window12);
    let possible = clusters(most_sharing);
    (window12, others, possible[parts % possible.len()])
}

fn operands(values: &mut Values, [m, n, k]: [usize; 3], rate: f64) -> Operands {
    Operands {
        m,
        n,
        k,
        x: values.bf16(m * k),
        terms: vec![weights(values, n * k, rate)],
        factors: None,
    }
}

fn result(instance: &'static Gemm, operands: &Operands, division: Division) -> Vec<u32> {
    let product = Product::new(Function::shipped(instance.name), instance, operands, division);
    product.call().unwrap();
    product.y().unwrap().into_iter().map(f32::to_bits).collect()
}

fn check(y: &[u32], operands: &Operands) {
    let Operands { m, n, k, .. } = *operands;
    let exact = reference::project(&operands.x, &operands.terms[0], shape(n, k), m).unwrap();
    let y: Vec<f32> = y.iter().copied().map(f32::from_bits).collect();
    let error = reference::relative_error_fp32(&y, &exact);
    assert!(error <= reference::LOGITS_GOAL, "m = {m}, n = {n}, k = {k}: {error:e}");
}

#[test]
fn twelve_bits_give_the_bits_of_sixteen() {
    emulated_device();
    let mut values = Values::fresh();
    let mut tensor_copies = 0;
    for (r, rate) in RATES.into_iter().enumerate() {
        for (at, m) in TOKENS.into_iter().enumerate() {
            let _context = OwnContext::new();
            let (window12, others, cluster) = alike((at + r) % WINDOW12_PACKED_GEMM.len(), at / 2 + r);
            // Exceptions cost the emulator a hundred times what other weights do.
            let most = if rate < 0.1 { [300, 900] } else { [70, 300] };
            let sizes = [m, 1 + values.below(most[0]), 1 + values.below(most[1])];
            let operands = operands(&mut values, sizes, rate);
            let division = Division {
                cluster,
                ..Division::NONE
            };
            let y = result(window12, &operands, division);
            check(&y, &operands);
            for other in others {
                let same = result(other, &operands, division) == y;
                assert!(same, "{sizes:?}, {division:?}: {} and {}", window12.name, other.name);
                tensor_copies += usize::from(GEMM.contains(other));
            }
        }
    }
    assert!(tensor_copies >= 10, "{tensor_copies} comparisons with tensor copies");
}

/// Exceptions that lie close together and far apart, in row blocks of their own and slices of K that start in the
/// middle of their lists.
#[test]
fn exceptions_are_put_where_they_belong() {
    emulated_device();
    let mut values = Values::fresh();
    let (n, k, m) = (64, 8 * UNIT.1, 33);
    for parts in 0..4 {
        let _context = OwnContext::new();
        let mut operands = operands(&mut values, [m, n, k], 0.0);
        // Row block r has its exceptions 1, 7, 64 and 131 apart: many per half of a unit, or many halves without.
        for (row, weight) in operands.terms[0].chunks_mut(k).enumerate() {
            let apart = [1, 7, 64, 131][row / UNIT.0];
            let first = row % UNIT.0 * 5 % apart;
            for weight in weight
                .iter_mut()
                .skip(first)
                .step_by(if apart == 1 { 3 } else { apart })
            {
                *weight = weights(&mut values, 1, 1.0)[0];
            }
        }
        let packed = window12::pack(&operands.terms[0], shape(n, k)).unwrap();
        assert!(packed.starts().array_windows().all(|[start, end]| start < end));
        let (window12, others, cluster) = alike(0, parts);
        let division = Division {
            cluster,
            ..Division::NONE
        };
        let y = result(window12, &operands, division);
        check(&y, &operands);
        assert_eq!(result(others[0], &operands, division), y, "{cluster} CTAs");
    }
}

#[test]
fn results_are_the_same_in_any_interleaving() {
    emulated_device();
    let mut values = Values::fresh();
    for (at, window12) in WINDOW12_PACKED_GEMM.iter().enumerate() {
        let _context = OwnContext::new();
        let clusters = clusters(window12);
        let operands = operands(&mut values, [70, 90, 700], 0.01);
        let division = Division {
            cluster: clusters[at % clusters.len()],
            ..Division::NONE
        };
        let product = Product::new(Function::shipped(window12.name), window12, &operands, division);
        let mut results = [None].into_iter().chain((0..4).map(Some)).map(|seed| {
            emulated::set_seed(seed);
            product.call().unwrap();
            product.y().unwrap()
        });
        let first = results.next().unwrap();
        assert!(results.all(|y| y == first), "{}", window12.name);
        emulated::set_seed(None);
    }
}

/// Units are read once per tile of tokens, exceptions once, and a look at where they start.
#[test]
fn weights_are_read_once_per_tile_of_tokens() {
    emulated_device();
    let mut values = Values::fresh();
    for (window12, bf16) in WINDOW12_PACKED_GEMM.iter().zip(BF16_PACKED_GEMM) {
        let (n, k) = (window12.multicast.max(2) * window12.rows(), 8 * UNIT.1);
        let operands = operands(&mut values, [window12.tokens() + 1, n, k], 0.001);
        let packed = window12::pack(&operands.terms[0], shape(n, k)).unwrap();
        let [twelve, sixteen] = [window12, bf16].map(|instance| {
            let _context = OwnContext::new();
            let division = Division {
                cluster: 2,
                ..Division::NONE
            };
            let product = Product::new(Function::shipped(instance.name), instance, &operands, division);
            let counters = product.counted().unwrap();
            let reads = |base: u64| {
                counters
                    .traffic
                    .get(&base)
                    .map_or(0, |traffic| traffic.read_bytes as usize)
            };
            let [units, starts, exceptions] = product.packed_memory().map(reads);
            if instance.name == window12.name {
                let tiles = 2 * 2;
                // A slice reads 64 exceptions from where its own start, at most; the ones of its row block to find
                // that.
                let most = tiles * n / UNIT.0 * 3 * 64 * 8;
                assert!(exceptions > 0 && exceptions <= most, "{}: {exceptions}", instance.name);
                assert!(starts > 0);
            }
            (units, counters.load_conflicts + counters.store_conflicts)
        });
        assert_eq!(twelve, (2 * packed.units().len(), 0), "{}", window12.name);
        assert_eq!(sixteen, (2 * n * k * 2, 0), "{}", bf16.name);
        assert_eq!(twelve.0 * 4, sixteen.0 * 3);
    }
}
