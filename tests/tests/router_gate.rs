//! The gate against its formulas in FP64, over the whole space of configurations.

use hopper_proj::bf16;
use hopper_proj::{RouterConfig, RouterOptions, RouterWeights, Score};
use hopper_proj_tests::router::{Given, Hidden, check_gate};
use hopper_proj_tests::{Device, Values};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;

/// A gate and the logits of some tokens.
#[derive(Debug, Clone)]
struct Case {
    config: RouterConfig,
    logits: Vec<Vec<f32>>,
    mask: Option<Vec<u8>>,
}

/// What logits look like.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Spread evenly, to so much on either side.
    Even(f32),
    /// Few different values, so that many are equal. Exact under addition of a bias of their kind.
    Coarse,
    /// Even ones, some of them NaN.
    Holes,
}

fn experts() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 1usize..=64,
        2 => 65usize..=300,
        1 => 301usize..=1024,
        2 => prop::sample::select(vec![32usize, 128, 144, 160, 256, 384, 512]),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let score = prop::sample::select(vec![
        Score::Softmax,
        Score::Sigmoid,
        Score::SqrtSoftplus,
        Score::Identity,
    ]);
    let kind = prop_oneof![
        prop::sample::select(vec![0.01f32, 1.0, 8.0, 60.0]).prop_map(Kind::Even),
        Just(Kind::Coarse),
        Just(Kind::Holes),
    ];
    let flags = (
        any::<bool>(),
        any::<bool>(),
        0usize..3,
        prop::option::weighted(0.3, any::<u8>()),
    );
    let numbers = (
        0f64..1.0,
        0f64..1.0,
        0f64..1.0,
        prop::sample::select(vec![1.0f32, 2.5, 0.25, -1.5]),
    );
    (experts(), score, kind, flags, numbers, 1usize..=9, any::<u64>()).prop_map(
        |(experts, score, kind, (renormalize, over, bias, mask), (groups, kept, top_k, scale), m, seed)| {
            let mut values = Values::fixed(seed);
            let pick = |from: usize, to: usize, at: f64| from + ((to - from + 1) as f64 * at) as usize;
            let divisors: Vec<usize> = (1..=32).filter(|g| experts.is_multiple_of(*g)).collect();
            // Every other gate has no groups.
            let groups = if groups < 0.5 {
                1
            } else {
                divisors[pick(0, divisors.len() - 1, 2.0 * groups - 1.0)]
            };
            let kept = pick(1, groups, kept);
            let top_k = pick(1, 32.min(kept * experts / groups), top_k);
            let mut config = RouterConfig::new(score, top_k).groups(groups, kept).scale(scale);
            // Sums of scores of both signs may cancel to anything: not with scores that are as large as they like.
            config.renormalize = renormalize && score != Score::Identity;
            config.softmax_over_topk = over && score == Score::Identity;
            let kind = if score == Score::Identity && bias == 2 {
                Kind::Coarse
            } else {
                kind
            };
            let coarse = matches!(kind, Kind::Coarse);
            let mut number = |spread: f32| {
                let value = values.fp32(1)[0];
                if coarse {
                    (value * 8.0).round() / 4.0
                } else {
                    value * spread
                }
            };
            let bias_values: Vec<f32> = (0..experts).map(|_| number(1.0)).collect();
            config = match bias {
                0 => config,
                1 => config.bias(bias_values),
                _ => config.bias_on_logits(bias_values),
            };
            let spread = if let Kind::Even(spread) = kind { spread } else { 4.0 };
            let mut logits: Vec<Vec<f32>> = (0..m).map(|_| (0..experts).map(|_| number(spread)).collect()).collect();
            if let Kind::Holes = kind {
                // A weight that is NaN spoils its expert for all tokens; a token of NaN, all its experts.
                for _ in 0..=values.below(experts) {
                    logits[0][values.below(experts)] = f32::NAN;
                }
                let token = values.below(m);
                logits[token].fill(f32::NAN);
            }
            let mask = mask.map(|bits| (0..m).map(|t| bits >> (t % 8) & 1).collect());
            Case { config, logits, mask }
        },
    )
}

#[test]
fn any_gate_agrees_with_fp64() {
    let device = Device::of_the_run();
    let (compared, open) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(Config {
        cases: 128,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&case(), |case| {
        let mask = case.mask.as_deref();
        let routed = Given::new(&case.logits).route(&device, &case.config, mask);
        let gate = case.config.gate(case.logits[0].len()).unwrap();
        let seen = check_gate(&routed, &gate, mask).map_err(TestCaseError::fail)?;
        compared.set(compared.get() + seen.compared);
        open.set(open.get() + seen.open);
        // Logits that were given come back: unless others of the token are NaN, which a product with zero spreads.
        for (given, routed) in case.logits.iter().flatten().zip(&routed.logits) {
            prop_assert!(routed.is_nan() || given == routed, "{given} came back as {routed}");
        }
        Ok(())
    });
    result.unwrap_or_else(|err| panic!("{err}"));
    // A bound that excused everything would prove nothing.
    assert!(
        compared.get() > open.get(),
        "{} of {} choices are open",
        open.get(),
        compared.get() + open.get()
    );
}

/// A bias chooses experts whose scores FP32 holds with few bits or not at all. Renormalising makes them larger.
#[test]
fn scores_that_fp32_barely_holds_weigh_as_far_as_it_does() {
    let device = Device::of_the_run();
    let mut bias = vec![1.0; 40];
    bias[0] = -1.0;
    for scale in [1.0, 2.5] {
        let config = RouterConfig::new(Score::Softmax, 8)
            .bias(bias.clone())
            .renormalize()
            .scale(scale);
        // Scores from e^-109 to 1: subnormal ones below e^-87, and sums around the least that divides below e^-46.
        for best in [40.0, 46.0, 80.0, 88.0, 95.0, 102.0] {
            let logits: Vec<f32> = (0..40)
                .map(|i| if i == 0 { 0.0 } else { -best - i as f32 * 0.17 })
                .collect();
            let routed = Given::new(&[logits]).route(&device, &config, None);
            check_gate(&routed, &config.gate(40).unwrap(), None).unwrap_or_else(|wrong| panic!("{best}: {wrong}"));
        }
    }
}

/// Logits beyond FP32 count as its largest numbers.
#[test]
fn infinite_logits_are_the_largest_numbers() {
    let device = Device::of_the_run();
    let huge = bf16::MAX;
    // One column decides: infinity, minus infinity, and finite ones.
    let column = [0.0, f32::MAX, 1.0, -f32::MAX, -2.0, 3.0];
    let weights: Vec<bf16> = column
        .iter()
        .flat_map(|&w| {
            let w = if w.abs() == f32::MAX {
                huge.to_f32().copysign(w)
            } else {
                w * 2f32.powi(-20)
            };
            [bf16::from_f32(w), bf16::ZERO]
        })
        .collect();
    for score in [Score::Softmax, Score::Sigmoid, Score::SqrtSoftplus, Score::Identity] {
        let config = RouterConfig::new(score, 6);
        let router = device.router(RouterWeights::Bf16(&weights), 6, &config, RouterOptions::default());
        let x = [bf16::from_f32(2f32.powi(20)), bf16::ZERO];
        let routed = device.route(&router, Hidden::new(&x, 1)).unwrap();
        assert_eq!(routed.logits, [0.0, f32::INFINITY, 1.0, f32::NEG_INFINITY, -2.0, 3.0]);
        assert_eq!(routed.ids, [1, 5, 2, 0, 4, 3]);
        assert!(
            routed.weights.iter().all(|weight| weight.is_finite()),
            "{score:?}: {:?}",
            routed.weights
        );
        check_gate(&routed, router.gate(), None).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}
