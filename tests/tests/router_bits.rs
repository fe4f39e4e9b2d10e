//! What a router's results may depend on: in its deterministic mode, on nothing but the token; and no call on those
//! before it.

use hopper_cuda_driver::emulated::set_seed;
use hopper_proj::{Choices, DriverInUse, Router, RouterConfig, RouterOptions, RouterWeights, Score, Tokens};
use hopper_proj_tests::router::{Hidden, check_gate};
use hopper_proj_tests::{Device, Values, here, there};

const SEEDS: u64 = 50;

fn config() -> RouterConfig {
    RouterConfig::new(Score::Sigmoid, 4).groups(4, 2).renormalize()
}

/// A router in the deterministic mode.
fn deterministic(device: &Device, weights: &[f32], experts: usize) -> Router {
    let options = RouterOptions::default().deterministic();
    device.router(RouterWeights::Fp32(weights), experts, &config(), options)
}

#[test]
fn fifty_seeds_agree_bit_for_bit_in_the_deterministic_mode() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    if device.engine.device().driver != DriverInUse::Emulated {
        println!("a GPU has no seeds: calls are repeated instead");
    }
    // Two tiles of rows, and two of tokens.
    let (experts, k, m) = (24, 640, 40);
    let (weights, x) = (values.fp32(experts * k), values.bf16(m * k));
    let router = deterministic(&device, &weights, experts);
    let first = device.route(&router, Hidden::new(&x, m)).unwrap();
    check_gate(&first, router.gate(), None).unwrap();
    for seed in 0..SEEDS {
        set_seed(Some(seed));
        assert_eq!(
            device.route(&router, Hidden::new(&x, m)).unwrap().bits(),
            first.bits(),
            "seed {seed}"
        );
    }
}

/// Alone, in a batch of 32 and in one of 256, and wherever x lies.
#[test]
fn a_token_has_its_bits_whatever_is_around_it() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k, m) = (24, 512, 256);
    let (weights, x) = (values.fp32(experts * k), values.bf16(m * k));
    let router = deterministic(&device, &weights, experts);
    let all = device.route(&router, Hidden::new(&x, m)).unwrap();
    let some = |first: usize, m: usize, lead: usize, gap: usize| {
        let x = &x[first * k..(first + m) * k];
        device.route(&router, Hidden::new(x, m).apart(lead, gap)).unwrap()
    };
    for (first, m, lead, gap) in [
        (0, 1, 8, 0),
        (255, 1, 1, 0),
        (17, 1, 8, 0),
        (64, 32, 8, 8),
        (100, 32, 3, 1),
        (30, 9, 8, 0),
        (200, 16, 8, 0),
    ] {
        let part = some(first, m, lead, gap);
        let own = |columns: usize| first * columns..(first + m) * columns;
        assert_eq!(part.ids, all.ids[own(4)]);
        assert_eq!(part.weights, all.weights[own(4)]);
        assert_eq!(part.logits, all.logits[own(experts)]);
    }
    // The fast mode gives few tokens the same bits.
    let fast = device.fp32_router(&weights, experts, &config());
    let few = device.route(&fast, Hidden::new(&x[..32 * k], 32)).unwrap();
    assert_eq!(few.logits, all.logits[..32 * experts]);
}

/// Queues a call again and again on one workspace, with nothing between, and holds the last results against the first.
fn replay(
    device: &Device,
    (experts, k): (usize, usize),
    m: usize,
    options: RouterOptions,
    times: usize,
    values: &mut Values,
) {
    let (weights, x) = (values.fp32(experts * k), values.bf16(m * k));
    let config = RouterConfig::new(Score::Softmax, 2);
    let router = device.router(RouterWeights::Fp32(&weights), experts, &config, options);
    let x = device.engine.upload(&x).unwrap();
    let run = |times: usize| {
        let mut ids = there(&vec![-7i32; m * 2]);
        let mut weights = there(&vec![f32::NAN; m * 2]);
        for _ in 0..times {
            let choices = Choices::new(&mut ids, &mut weights);
            router.route(Tokens::new(&x, m), choices, &device.stream).unwrap();
        }
        device.engine.synchronize(&device.stream).unwrap();
        (
            here(&ids),
            here(&weights).into_iter().map(f32::to_bits).collect::<Vec<_>>(),
        )
    };
    let first = run(1);
    assert_eq!(run(times), first, "m = {m}");
}

#[test]
fn a_thousand_calls_on_one_workspace_give_the_first_ones_bits() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    replay(&device, (16, 64), 3, RouterOptions::default(), 1000, &mut values);
}

/// Matrix products whose slices add up in the order of arrival may change their last bits, and must keep everything
/// else: with values of which every sum is exact, no order shows.
#[test]
fn calls_that_share_sums_leave_them_as_they_were() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k, m) = (16, 8192, 33);
    let small =
        |values: &mut Values, len: usize| -> Vec<f32> { (0..len).map(|_| values.below(9) as f32 - 4.0).collect() };
    let weights = small(&mut values, experts * k);
    let x: Vec<_> = small(&mut values, m * k)
        .into_iter()
        .map(hopper_proj::bf16::from_f32)
        .collect();
    let config = RouterConfig::new(Score::Softmax, 2);
    let router = device.fp32_router(&weights, experts, &config);
    let there = device.engine.upload(&x).unwrap();
    let plan = router.plan(Tokens::new(&there, m)).unwrap();
    assert!(
        matches!(plan, Some(plan) if plan.kernel.slices() > 1 && !plan.serial()),
        "{plan:?}"
    );
    let first = device.route(&router, Hidden::new(&x, m)).unwrap();
    let exact = hopper_proj::reference::logits(&x, &weights, router.shape(), m).unwrap();
    assert!(
        first
            .logits
            .iter()
            .zip(&exact)
            .all(|(&got, &exact)| f64::from(got) == exact)
    );
    check_gate(&first, router.gate(), None).unwrap();
    for seed in 0..20 {
        set_seed(Some(seed));
        // The kernels for few tokens, logits alone and plain loads use the same counters.
        device.route(&router, Hidden::new(&x[..5 * k], 5)).unwrap();
        device.logits(&router, Hidden::new(&x, m)).unwrap();
        assert_eq!(
            device.route(&router, Hidden::new(&x, m)).unwrap().bits(),
            first.bits(),
            "seed {seed}"
        );
        assert_eq!(
            device.route(&router, Hidden::new(&x, m).apart(1, 0)).unwrap().bits(),
            first.bits(),
            "seed {seed}"
        );
    }
}
