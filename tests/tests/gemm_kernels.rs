//! Matrix products for many tokens: every compiled instance, in every division of the work, over ragged shapes.

use hopper_cuda_driver::emulated;
use hopper_proj::formats::split::Split;
use hopper_proj::instances::{Gemm, Loads, Op, gemms};
use hopper_proj::reference;
use hopper_proj_tests::driver::{Function, Module, OwnContext, emulated_device};
use hopper_proj_tests::product::{Division, Operands, Product, chain, chain_sizes, clusters};
use hopper_proj_tests::statements::without;
use hopper_proj_tests::{Values, shape, shipped};

fn operands(values: &mut Values, instance: &Gemm, [m, n, k]: [usize; 3]) -> Operands {
    let terms = (0..instance.terms).map(|_| values.bf16(n * k)).collect();
    let factors = (instance.terms > 1).then(|| (0..n).map(|row| 2f32.powi(row as i32 % 7 - 3)).collect());
    Operands {
        m,
        n,
        k,
        x: values.bf16(m * k),
        terms,
        factors,
    }
}

fn exact(operands: &Operands) -> Vec<f64> {
    let Operands { m, n, k, .. } = *operands;
    let mut sums = vec![0.0; m * n];
    for term in &operands.terms {
        let part = reference::project(&operands.x, term, shape(n, k), m).unwrap();
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
    }
    if let Some(factors) = &operands.factors {
        for row in sums.chunks_mut(n) {
            row.iter_mut()
                .zip(factors)
                .for_each(|(sum, &factor)| *sum *= f64::from(factor));
        }
    }
    sums
}

fn tolerance(division: Division) -> f64 {
    if division.fp32 {
        reference::LOGITS_GOAL
    } else {
        reference::TOLERANCE
    }
}

/// Holds the results of a call against FP64, and the workspace against what the next call expects.
fn check(product: &Product<'_>, exact: &[f64], division: Division) -> Vec<f32> {
    let y = product.y().unwrap();
    let error = reference::relative_error_fp32(&y, exact);
    assert!(error <= tolerance(division), "{product:?}: relative error {error:e}");
    assert!(
        product.workspace_is_clean().unwrap(),
        "{product:?} left its workspace changed"
    );
    y
}

/// Every size of clusters, every number of slices in either ending, and results of both types.
fn divisions(values: &mut Values, instance: &Gemm) -> Vec<Division> {
    let clusters = clusters(instance);
    let mut divisions: Vec<Division> = clusters
        .iter()
        .map(|&cluster| Division {
            cluster,
            ..Division::NONE
        })
        .collect();
    for slices in 2..=4 {
        for serial in [false, true] {
            divisions.push(Division {
                cluster: clusters[values.below(clusters.len())],
                slices,
                serial,
                ..Division::NONE
            });
        }
    }
    let first = values.below(2);
    for (at, division) in divisions.iter_mut().enumerate() {
        division.fp32 = (first + at).is_multiple_of(2);
    }
    divisions
}

#[test]
fn every_instance_in_every_division() {
    emulated_device();
    let mut values = Values::fresh();
    for instance in gemms() {
        let _context = OwnContext::new();
        let function = Function::shipped(instance.name);
        for division in divisions(&mut values, instance) {
            let sizes = [1 + values.below(142), 1 + values.below(150), 1 + values.below(500)];
            let operands = operands(&mut values, instance, sizes);
            let product = Product::new(function, instance, &operands, division);
            product.call().unwrap();
            check(&product, &exact(&operands), division);
        }
    }
}

/// Small ones, whose CTAs share x where the instance lets them, add parts of K, and finish slices one after the other.
#[test]
fn every_instance_agrees_bit_for_bit_in_any_interleaving() {
    emulated_device();
    let mut values = Values::fresh();
    for instance in gemms() {
        let _context = OwnContext::new();
        let division = Division {
            cluster: clusters(instance)[1],
            slices: 2,
            serial: true,
            ..Division::NONE
        };
        let operands = operands(&mut values, instance, [9, instance.rows() - 3, 328]);
        let product = Product::new(Function::shipped(instance.name), instance, &operands, division);
        let exact = exact(&operands);
        emulated::set_seed(None);
        product.call().unwrap();
        let first = check(&product, &exact, division);
        // Five of twenty, others in every run: all of them take a minute.
        for seed in (values.below(4) as u64..20).step_by(4) {
            emulated::set_seed(Some(seed));
            product.call().unwrap();
            assert_eq!(
                check(&product, &exact, division),
                first,
                "{}, seed {seed}",
                instance.name
            );
        }
    }
    emulated::set_seed(None);
}

#[test]
fn large_products_over_several_tiles() {
    emulated_device();
    let mut values = Values::fresh();
    for name in [
        "gemm_bf16_sm90_w8s4g1n32",
        "route_bf16x2_sm90_w4s4g1n16",
        "gemm_bf16_plain_sm90_w4s2g1n8",
    ] {
        let _context = OwnContext::new();
        let instance = instance(name);
        let operands = operands(&mut values, instance, [300, 272, 2056]);
        let division = Division {
            cluster: 2,
            slices: 2,
            serial: true,
            ..Division::NONE
        };
        let product = Product::new(Function::shipped(instance.name), instance, &operands, division);
        product.call().unwrap();
        check(&product, &exact(&operands), division);
    }
}

/// The tensor cores cut off what they should round, always towards zero: sums of 8192 columns stay accurate because
/// they are put together from short parts.
#[test]
fn long_sums_of_fp32_weights_stay_accurate() {
    emulated_device();
    let mut values = Values::fresh();
    let (m, n, k) = (40, 32, 8192);
    let (x, weights) = (values.bf16(m * k), values.fp32(n * k));
    let exact = reference::logits(&x, &weights, shape(n, k), m).unwrap();
    for instance in gemms().filter(|instance| instance.terms > 1) {
        let _context = OwnContext::new();
        let split = Split::new(&weights, shape(n, k), instance.terms).unwrap();
        let rows = split.rows().unwrap();
        let operands = Operands {
            m,
            n,
            k,
            x: x.clone(),
            terms: rows.chunks(n * k).map(<[_]>::to_vec).collect(),
            factors: split.factors().map(<[_]>::to_vec),
        };
        let product = Product::new(Function::shipped(instance.name), instance, &operands, Division::NONE);
        product.call().unwrap();
        let error = reference::relative_error_fp32(&product.y().unwrap(), &exact);
        println!("{}: relative error {error:e}", instance.name);
        assert!(
            error < reference::LOGITS_GOAL,
            "{}: relative error {error:e}",
            instance.name
        );
    }
}

#[test]
fn a_gate_takes_joined_logits() {
    emulated_device();
    let mut values = Values::fresh();
    for instance in gemms().filter(|instance| instance.op == Op::Route) {
        let _context = OwnContext::new();
        let function = Function::shipped(instance.name);
        for (cluster, slices, serial) in [(1, 1, true), (4, 1, true), (2, 3, true), (2, 2, false), (8, 4, false)] {
            let sizes = [33 + values.below(70), 33 + values.below(300), 1 + values.below(300)];
            let operands = operands(&mut values, instance, sizes);
            let division = Division {
                cluster,
                slices,
                serial,
                top_k: 1 + values.below(32),
                ..Division::NONE
            };
            let product = Product::new(function, instance, &operands, division);
            for _ in 0..2 {
                product.call().unwrap();
                let logits = check(&product, &exact(&operands), division);
                let (ids, weights) = product.chosen().unwrap();
                for (token, logits) in logits.chunks(operands.n).enumerate() {
                    let mut best: Vec<usize> = (0..operands.n).collect();
                    best.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
                    for (i, &expert) in best[..division.top_k].iter().enumerate() {
                        let at = token * division.top_k + i;
                        assert_eq!(
                            (ids[at], weights[at]),
                            (expert as i32, logits[expert]),
                            "{product:?}: token {token}"
                        );
                    }
                }
            }
        }
    }
}

fn instance(name: &str) -> &'static Gemm {
    gemms()
        .find(|instance| instance.name == name)
        .expect("an instance of the table")
}

/// A split into four slices of clusters of two, and what it multiplies.
fn four_slices(serial: bool) -> Division {
    Division {
        cluster: 2,
        slices: 4,
        serial,
        ..Division::NONE
    }
}

#[test]
fn slices_are_joined_in_any_interleaving() {
    emulated_device();
    let mut values = Values::fresh();
    let instance = instance("gemm_bf16_sm90_w4s6g1n8");
    let operands = operands(&mut values, instance, [40, 24, 512]);
    let exact = exact(&operands);
    for (serial, seeds) in [(false, 1000), (true, 50)] {
        let _context = OwnContext::new();
        let division = four_slices(serial);
        let product = Product::new(Function::shipped(instance.name), instance, &operands, division);
        let mut first = None;
        for seed in 0..seeds {
            emulated::set_seed(Some(seed));
            product.call().unwrap();
            let y = check(&product, &exact, division);
            if serial {
                assert_eq!(
                    *first.get_or_insert_with(|| y.clone()),
                    y,
                    "seed {seed}: serial sums have one order"
                );
            }
        }
    }
}

#[test]
fn a_second_call_misses_what_the_first_has_not_reset() {
    emulated_device();
    let mut values = Values::fresh();
    const RESET: &str = "st.relaxed.gpu.global.b32";
    for name in ["gemm_bf16_sm90_w4s6g1n8", "gemm_bf16_plain_sm90_w4s2g1n8"] {
        let instance = instance(name);
        let operands = operands(&mut values, instance, [40, 24, 512]);
        let exact = exact(&operands);
        let whole = shipped(&[name]);
        // The counter, and four sums.
        assert_eq!(whole.matches(RESET).count(), 5);
        for which in 0..5 {
            let _context = OwnContext::new();
            let function = Module::load(&without(&whole, RESET, which)).function(name);
            let product = Product::new(function, instance, &operands, four_slices(false));
            product.call().unwrap();
            assert!(
                reference::relative_error_fp32(&product.y().unwrap(), &exact) <= reference::LOGITS_GOAL,
                "the first call"
            );
            assert!(!product.workspace_is_clean().unwrap(), "{name} without reset {which}");
            product.call().unwrap();
            assert!(
                reference::relative_error_fp32(&product.y().unwrap(), &exact) > 1e-3,
                "{name} without reset {which} is right again"
            );
        }
    }
}

/// Statements that order what warps, CTAs, copies and launches do. The emulator orders the proxies of an mbarrier
/// without their fences.
const ORDERING: [&str; 12] = [
    "mbarrier.init",
    "mbarrier.arrive.expect_tx",
    "mbarrier.arrive.shared",
    "mbarrier.try_wait",
    "cp.async.bulk.tensor",
    "griddepcontrol.wait",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "bar.sync",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
];

/// Those of them that a sum in parts needs more of.
const IN_PARTS: [&str; 4] = [
    "mbarrier.arrive.shared",
    "wgmma.fence",
    "wgmma.commit_group",
    "wgmma.wait_group",
];

#[test]
fn no_ordering_statement_can_go() {
    emulated_device();
    let mut values = Values::fresh();
    for (name, ordering) in [
        // Two warpgroups, one of which may be ahead of the other.
        ("gemm_bf16_sm90_w8s4g1n8", &ORDERING[..]),
        ("gemm_bf16_plain_sm90_w4s2g1n8", &ORDERING),
        // Weights through registers, which the tensor cores and the warp use in turn.
        ("gemm_window12_sm90_w8s5g1n8", &ORDERING),
        // Sums in parts, between which stages are left too.
        ("route_bf16x2_sm90_w4s4g1n8", &IN_PARTS),
    ] {
        let instance = instance(name);
        let pair = chain_sizes(instance).map(|sizes| operands(&mut values, instance, sizes));
        let whole = shipped(&[name]);
        let right = chain(&whole, instance, &pair, None).unwrap();
        assert_eq!(chain(&whole, instance, &pair, Some(1)).unwrap(), right);
        let mut tried = 0;
        for &mnemonic in ordering {
            for which in 0..whole.matches(mnemonic).count() {
                let ptx = without(&whole, mnemonic, which);
                let is_missed = |seed| match chain(&ptx, instance, &pair, seed) {
                    Ok(results) => results != right,
                    Err((code, story)) => {
                        assert!(
                            story.contains(name),
                            "{name} without `{mnemonic}` number {which}: {code} {story}"
                        );
                        true
                    }
                };
                // Most are missed at once; one that orders atomics of several CTAs, where these meet in the wrong
                // order.
                let missed = is_missed(None) || (1..100).any(|seed| is_missed(Some(seed)));
                assert!(
                    missed,
                    "{name} runs without `{mnemonic}` number {which}, and nobody complains"
                );
                tried += 1;
            }
        }
        assert!(tried >= 6, "{name}: {tried} statements");
    }
}

#[test]
fn shared_memory_is_accessed_without_bank_conflicts() {
    emulated_device();
    let mut values = Values::fresh();
    for instance in gemms() {
        let _context = OwnContext::new();
        let (m, n, k) = (instance.tokens(), instance.multicast * instance.rows(), 256);
        let operands = operands(&mut values, instance, [m, n, k]);
        let division = Division {
            cluster: 2,
            ..Division::NONE
        };
        let product = Product::new(Function::shipped(instance.name), instance, &operands, division);
        let counters = product.counted().unwrap();
        check(&product, &exact(&operands), division);
        let conflicts = (counters.load_conflicts, counters.store_conflicts);
        assert_eq!(conflicts, (0, 0), "{}: of loads, of stores", instance.name);
        // One instruction per warp, step of 16 columns and term; for all tokens, or for eight of them.
        let products = instance.multicast * instance.warps * k / 16 * instance.terms;
        match instance.loads {
            Loads::Tma | Loads::Packed(_) => assert_eq!(
                counters.count("wgmma.mma_async") as usize,
                products,
                "{}",
                instance.name
            ),
            Loads::Masked => assert_eq!(
                counters.count("mma.sync") as usize,
                products * m / 8,
                "{}",
                instance.name
            ),
        }
    }
}
