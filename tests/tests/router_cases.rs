//! Faults that routers have had, each with what ours does instead.

use approx::assert_abs_diff_eq;
use hopper_proj::Error;
use hopper_proj::bf16;
use hopper_proj::{RouterConfig, RouterOptions, RouterWeights, Score};
use hopper_proj_tests::router::{Given, Hidden, Routed, check_gate};
use hopper_proj_tests::{Device, Values};

const SCORES: [Score; 4] = [Score::Softmax, Score::Sigmoid, Score::SqrtSoftplus, Score::Identity];
const NAN: f32 = f32::NAN;

/// Runs given logits and holds the results against FP64.
fn run(logits: &[Vec<f32>], config: &RouterConfig, mask: Option<&[u8]>) -> Routed {
    let device = Device::of_the_run();
    let routed = Given::new(logits).route(&device, config, mask);
    let gate = config.gate(logits[0].len()).unwrap();
    check_gate(&routed, &gate, mask).unwrap_or_else(|wrong| panic!("{wrong}"));
    routed
}

/// Logits without equals.
fn spread(experts: usize, token: usize) -> Vec<f32> {
    (0..experts)
        .map(|e| ((e * 37 + token * 11) % experts) as f32 / 16.0 - 2.0)
        .collect()
}

/// A row of NaN, as padding may be, chose one expert several times.
#[test]
fn a_token_of_nan_has_distinct_experts_that_weigh_nothing() {
    for score in SCORES {
        let config = RouterConfig::new(score, 4).renormalize().scale(2.5);
        let routed = run(&[spread(40, 0), vec![NAN; 40], spread(40, 2)], &config, None);
        assert_eq!(routed.ids[4..8], [0, 1, 2, 3]);
        assert_eq!(routed.weights[4..8], [0.0; 4]);
        let alone = run(&[spread(40, 0), spread(40, 1), spread(40, 2)], &config, None);
        for token in [0, 2] {
            let own = 4 * token..4 * token + 4;
            assert_eq!(routed.ids[own.clone()], alone.ids[own.clone()]);
            assert_eq!(routed.weights[own.clone()], alone.weights[own]);
        }
    }
}

/// Rows of nothing but NaN gave ids that do not exist; so did experts that are NaN for every token.
#[test]
fn nan_never_leads_to_an_expert_that_does_not_exist() {
    for (experts, top_k) in [(3, 3), (32, 32), (33, 2), (257, 8)] {
        for score in SCORES {
            let config = RouterConfig::new(score, top_k).renormalize();
            let routed = run(&[vec![NAN; experts], vec![NAN; experts]], &config, None);
            let expected: Vec<i32> = (0..2).flat_map(|_| 0..top_k as i32).collect();
            assert_eq!(routed.ids, expected);
            assert!(routed.weights.iter().all(|&weight| weight == 0.0));
        }
    }
    // Experts 1 and 3 have a weight that is NaN, for every token.
    let logits: Vec<Vec<f32>> = (0..3).map(|t| vec![t as f32, NAN, -(t as f32), NAN, 0.5]).collect();
    for (groups, kept) in [(1, 1), (5, 5)] {
        let config = RouterConfig::new(Score::Sigmoid, 5).groups(groups, kept).renormalize();
        let routed = run(&logits, &config, None);
        for token in 0..3 {
            assert_eq!(routed.ids[5 * token + 3..5 * token + 5], [1, 3]);
            assert_eq!(routed.weights[5 * token + 3..5 * token + 5], [0.0; 2]);
        }
    }
}

/// A running maximum that starts at zero beat every negative logit.
#[test]
fn negative_logits_rank_like_any_others() {
    for score in SCORES {
        let logits: Vec<f32> = (0..70).map(|e| -50.0 + ((e * 29) % 70) as f32 / 4.0).collect();
        let routed = run(std::slice::from_ref(&logits), &RouterConfig::new(score, 3), None);
        let best = |value: f32| logits.iter().position(|&l| l == value).unwrap() as i32;
        assert_eq!(routed.ids, [best(-32.75), best(-33.0), best(-33.25)]);
    }
}

/// Weights that were recovered as (score + bias) - bias cancelled to zero.
#[test]
fn weights_come_from_the_unbiased_score() {
    let mut bias = vec![0.0; 24];
    bias[7] = 1e6;
    bias[9] = -1e6;
    let config = RouterConfig::new(Score::Sigmoid, 2).bias(bias);
    let mut logits = vec![-20.0; 24];
    logits[7] = -15.0;
    let routed = run(&[logits], &config, None);
    assert_eq!(routed.ids, [7, 0]);
    let exact = 1.0 / (1.0 + 15f64.exp());
    assert_abs_diff_eq!(f64::from(routed.weights[0]), exact, epsilon = 1e-5 * exact);
}

/// 0 / 0 gave NaN.
#[test]
fn scores_of_nothing_weigh_nothing() {
    let zeros = vec![0.0; 20];
    let routed = run(
        &[zeros, vec![-200.0; 20]],
        &RouterConfig::new(Score::Identity, 3).renormalize(),
        None,
    );
    assert_eq!(routed.weights[..3], [0.0; 3]);
    let routed = run(
        &[vec![-200.0; 20]],
        &RouterConfig::new(Score::Sigmoid, 3).renormalize(),
        None,
    );
    assert_eq!(routed.ids, [0, 1, 2]);
    assert!(
        routed.weights.iter().all(|&weight| weight == 0.0),
        "{:?}",
        routed.weights
    );
}

/// A bias rounded to BF16 made many experts equal.
#[test]
fn a_bias_keeps_every_bit_of_fp32() {
    let bias: Vec<f32> = (0..256).map(|e| 1.0 + ((e * 101) % 256) as f32 * 1e-6).collect();
    assert!(bias.iter().all(|&b| bf16::from_f32(b) == bf16::ONE));
    for config in [
        RouterConfig::new(Score::Sigmoid, 8).bias(bias.clone()),
        RouterConfig::new(Score::Identity, 8).bias_on_logits(bias.clone()),
    ] {
        let routed = run(&[vec![0.0; 256]], &config, None);
        let mut order: Vec<i32> = (0..256).collect();
        order.sort_by(|&a, &b| bias[b as usize].total_cmp(&bias[a as usize]));
        assert_eq!(routed.ids, order[..8]);
    }
}

/// Ties picked whichever came first.
#[test]
fn ties_go_to_the_lowest_id() {
    for score in SCORES {
        for experts in [9, 64, 100, 300, 1024] {
            let top_k = 8;
            let mut logits = vec![0.5; experts];
            (logits[0], logits[experts / 2]) = (-1.0, 0.75);
            let config = RouterConfig::new(score, top_k);
            let expected: Vec<i32> = std::iter::once(experts / 2)
                .chain((1..experts).filter(|&e| e != experts / 2))
                .take(top_k)
                .map(|e| e as i32)
                .collect();
            assert_eq!(
                run(&[logits.clone()], &config, None).ids,
                expected,
                "{score:?} of {experts}"
            );
            let with_bias = config.bias(vec![0.25; experts]);
            assert_eq!(run(&[logits], &with_bias, None).ids, expected, "{score:?} of {experts}");
        }
    }
    // Zeros of either sign are equal, and so are groups.
    let routed = run(
        &[vec![-0.0, 0.0, -0.0, 0.0]],
        &RouterConfig::new(Score::Identity, 4),
        None,
    );
    assert_eq!(routed.ids, [0, 1, 2, 3]);
    let grouped = RouterConfig::new(Score::Sigmoid, 4).groups(8, 2);
    assert_eq!(run(&[vec![1.0; 64]], &grouped, None).ids, [0, 1, 2, 3]);
}

/// No tokens crashed.
#[test]
fn no_tokens_are_no_work() {
    let device = Device::of_the_run();
    let config = RouterConfig::new(Score::Softmax, 2);
    let router = device.router(RouterWeights::Fp32(&[1.0; 5 * 9]), 5, &config, RouterOptions::default());
    let routed = device.route(&router, Hidden::new(&[], 0).masked(&[])).unwrap();
    assert!(routed.bits().is_empty());
    assert!(device.logits(&router, Hidden::new(&[], 0)).unwrap().is_empty());
}

/// Numbers of experts and choices, and a scale, that were refused or wrong.
#[test]
fn any_number_of_experts_and_choices_is_right() {
    for (experts, top_k) in [
        (144, 6),
        (144, 10),
        (384, 16),
        (384, 6),
        (1, 1),
        (2, 2),
        (31, 31),
        (1023, 32),
        (1024, 32),
    ] {
        for score in [Score::Sigmoid, Score::Softmax] {
            let config = RouterConfig::new(score, top_k).renormalize().scale(2.5);
            let logits: Vec<Vec<f32>> = (0..2).map(|t| spread(experts, t)).collect();
            let routed = run(&logits, &config, None);
            let sum: f32 = routed.weights[..top_k].iter().sum();
            assert_abs_diff_eq!(sum, 2.5, epsilon = 1e-4);
        }
    }
}

/// The id -1 of padding was used as an index.
#[test]
fn a_mask_marks_padding() {
    let logits: Vec<Vec<f32>> = (0..5).map(|t| spread(48, t)).collect();
    let config = RouterConfig::new(Score::Softmax, 3).renormalize();
    let all = run(&logits, &config, None);
    let mask = [1, 0, 255, 0, 2];
    let some = run(&logits, &config, Some(&mask));
    for (token, &there) in mask.iter().enumerate() {
        let own = 3 * token..3 * token + 3;
        if there == 0 {
            assert_eq!(
                (&some.ids[own.clone()], &some.weights[own]),
                (&[-1; 3][..], &[0.0; 3][..])
            );
        } else {
            assert_eq!(some.ids[own.clone()], all.ids[own.clone()]);
            assert_eq!(some.weights[own.clone()], all.weights[own]);
        }
    }
    // Padding has logits like any token.
    assert_eq!(some.logits, all.logits);
}

/// Sums in the order of arrival changed results from run to run: see `router_bits.rs` for more seeds and more tokens.
#[test]
fn the_deterministic_mode_repeats_every_bit() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k, m) = (64, 1024, 40);
    let (weights, x) = (values.fp32(experts * k), values.bf16(m * k));
    let config = RouterConfig::new(Score::Sigmoid, 4).renormalize();
    let options = RouterOptions::default().deterministic();
    let router = device.router(RouterWeights::Fp32(&weights), experts, &config, options);
    let first = device.route(&router, Hidden::new(&x, m)).unwrap();
    for seed in 0..5 {
        hopper_cuda_driver::emulated::set_seed(Some(seed));
        assert_eq!(device.route(&router, Hidden::new(&x, m)).unwrap().bits(), first.bits());
    }
    let alone = device.route(&router, Hidden::new(&x[39 * k..], 1)).unwrap();
    assert_eq!(alone.logits, first.logits[39 * experts..]);
    assert_eq!(alone.weights, first.weights[39 * 4..]);
}

/// FP32 was asked for, and BF16 silently used.
#[test]
fn the_type_asked_for_is_the_type_computed() {
    let device = Device::of_the_run();
    // In BF16, both experts are equal.
    let weights = [1.0f32, 0.0, 1.0 + 2f32.powi(-12), 0.0];
    let config = RouterConfig::new(Score::Identity, 2);
    let x = [bf16::ONE, bf16::ZERO];
    let router = device.fp32_router(&weights, 2, &config);
    let routed = device.route(&router, Hidden::new(&x, 1)).unwrap();
    assert_eq!(
        (routed.ids, routed.logits),
        (vec![1, 0], vec![1.0, 1.0 + 2f32.powi(-12)])
    );
    let rounded: Vec<bf16> = weights.iter().map(|&w| bf16::from_f32(w)).collect();
    let router = device.router(RouterWeights::Bf16(&rounded), 2, &config, RouterOptions::default());
    assert_eq!(device.route(&router, Hidden::new(&x, 1)).unwrap().ids, [0, 1]);

    let shape = hopper_proj_tests::shape(2, 2);
    let prepare = |terms| {
        let options = RouterOptions::default().terms(terms);
        hopper_proj::Router::prepare(&device.engine, RouterWeights::Fp32(&weights), shape, &config, options)
    };
    let err = prepare(1).unwrap_err();
    assert!(
        matches!(err, Error::OneTerm) && err.to_string().contains("cast the weights"),
        "{err}"
    );
    for terms in [0, 4] {
        assert!(prepare(terms).unwrap_err().to_string().contains("1, 2 or 3"));
    }
}
