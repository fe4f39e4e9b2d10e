//! The gate at its edges, by raw launches of the routers for few tokens, against the FP64 reference.
//!
//! Logits come out exactly, so that what is compared is the gate alone. `gate_groups` holds more of groups.

use approx::abs_diff_eq;
use hopper_proj::instances::Score;
use hopper_proj::reference::gate;
use hopper_proj::{BiasOn, RouterConfig};
use hopper_proj_tests::Values;
use hopper_proj_tests::gate::{GateKernel, K};
use hopper_proj_tests::route::Routed;

/// Numbers of experts around every edge of the gate.
const EXPERTS: [usize; 11] = [1, 7, 8, 60, 128, 144, 256, 384, 512, 1000, 1024];

const SCORES: [Score; 4] = [Score::Softmax, Score::Sigmoid, Score::SqrtSoftplus, Score::Identity];

/// The gate's own part of the relative error of a weight.
const ERROR: f64 = 2e-6;

/// Random choices from words of any bits.
struct Random<'a>(&'a mut Values);

impl Random<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.0.words(1)[0] as usize % bound
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    /// Between -1 and 1.
    fn unit(&mut self) -> f32 {
        (f64::from(self.0.words(1)[0]) / f64::from(u32::MAX) * 2.0 - 1.0) as f32
    }

    fn logits(&mut self, experts: usize) -> Vec<f32> {
        let kind = self.below(5);
        let mut logit = || match kind {
            0 => self.unit() * 4.0,
            // Where scores saturate or leave the range of FP32.
            1 => self.unit() * 190.0,
            2 => self.unit() * 1e30,
            3 => -0.0,
            _ => -20.0 - self.unit().abs() * 100.0,
        };
        (0..experts).map(|_| logit()).collect()
    }

    fn config(&mut self, experts: usize) -> RouterConfig {
        let divisors: Vec<usize> = (1..=32).filter(|&groups| experts.is_multiple_of(groups)).collect();
        let groups = if self.flip() {
            1
        } else {
            divisors[self.below(divisors.len())]
        };
        let kept = 1 + self.below(groups);
        let most = (kept * (experts / groups)).min(32);
        let top_k = match self.below(3) {
            0 => most,
            _ => 1 + self.below(most.min(10)),
        };
        let score = SCORES[self.below(SCORES.len())];
        let mut config = RouterConfig::new(score, top_k).groups(groups, kept);
        let bias: Vec<f32> = (0..experts).map(|_| self.unit()).collect();
        config = match self.below(3) {
            0 => config,
            1 => config.bias(bias),
            _ => config.bias_on_logits(bias),
        };
        if score == Score::Identity && self.flip() {
            config = config.softmax_over_topk();
        } else if self.flip() {
            config = config.renormalize();
        }
        config.scale(if self.flip() { 1.0 } else { 2.5 })
    }
}

/// Holds one token's experts and weights against the reference for its logits.
fn check(routed: &Routed, logits: &[f32], config: &RouterConfig) {
    let experts = logits.len();
    let mut without_numbers = config.clone();
    without_numbers.bias = None;
    let what = || {
        format!(
            "{experts} experts, {without_numbers:?}, bias: {}",
            config.bias.is_some()
        )
    };
    // -0 comes out as +0.
    for (found, logit) in routed.logits.iter().zip(logits) {
        assert!(
            found == logit || found.is_nan() && logit.is_nan(),
            "{found} is not {logit}: {}",
            what()
        );
    }
    let exact: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
    let gate = config.gate(experts).unwrap();
    let choice = gate::choose(&exact, &gate).unwrap();
    let found: Vec<usize> = routed.ids.iter().map(|&id| id as usize).collect();

    // Where experts are chosen by the logits as they are, nothing is rounded and ties are ties.
    let by_logits = config.bias.is_none() && config.groups == 1;
    let finite = || exact.iter().filter(|l| l.is_finite()).map(|l| l.abs());
    let largest = finite().fold(1.0, f64::max);
    let biases_scores = config.bias.is_some() && config.bias_on == BiasOn::Selection;
    let size = match config.score {
        // Then groups are ordered by numbers as large as logits.
        _ if !biases_scores => largest,
        Score::Identity => largest,
        Score::SqrtSoftplus => largest.sqrt(),
        Score::Softmax | Score::Sigmoid => 1.0,
    };
    if by_logits || choice.margin > 2.0 * ERROR * (size + 1.0) {
        assert_eq!(found, choice.experts, "{}", what());
    }
    let mut distinct = found.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), config.top_k, "{found:?}: {}", what());

    let expected = gate::weigh(&exact, &gate, &found).unwrap();
    // A difference of logits is rounded before it is an exponent; beyond this many the exponential is zero.
    let error = ERROR + 2.5e-7 * largest.min(110.0);
    let total = expected.iter().sum::<f64>().abs();
    let spread = expected.iter().map(|w| w.abs()).sum::<f64>();
    // Weights of both signs may cancel in their sum, and logits of both signs where a bias is added.
    let (cancelled, most) = match config.score {
        Score::Identity => {
            let cancelled = if config.renormalize && total > 0.0 {
                spread / total
            } else {
                1.0
            };
            (cancelled, expected.iter().fold(0.0, |most: f64, w| most.max(w.abs())))
        }
        _ => (1.0, 0.0),
    };
    // Scores below the normal range of FP32 have few bits; dividing by their sum lifts these errors.
    let mut as_scored = config.clone();
    (as_scored.renormalize, as_scored.scale) = (false, 1.0);
    let scores = gate::weigh(&exact, &as_scored.gate(experts).unwrap(), &found);
    let sum = scores.unwrap().iter().sum::<f64>().abs();
    let least = 1e-37 / if config.renormalize { sum.clamp(1e-20, 1.0) } else { 1.0 };
    for (&found, &expected) in routed.weights.iter().zip(&expected) {
        let allowed = error * cancelled * (expected.abs() + most) + least;
        assert!(
            abs_diff_eq!(f64::from(found), expected, epsilon = allowed),
            "weight {found:e}, exactly {expected:e}: {}",
            what()
        );
    }
}

#[test]
fn gates_agree_with_fp64_where_scores_leave_their_range() {
    const ROUNDS: usize = 3;
    let (kernel, mut values) = (GateKernel::load(), Values::fresh());
    let mut random = Random(&mut values);
    for experts in EXPERTS {
        for _ in 0..ROUNDS {
            let config = random.config(experts);
            let m = 1 + random.below(3);
            let logits: Vec<f32> = (0..m).flat_map(|_| random.logits(experts)).collect();
            let routed = kernel.route(&logits, experts, &config);
            for (token, logits) in logits.chunks_exact(experts).enumerate() {
                check(&routed.token(token, m), logits, &config);
            }
        }
    }
}

#[test]
fn what_is_not_finite_is_chosen_last_or_first_and_spoils_nothing() {
    let (kernel, mut values) = (GateKernel::load(), Values::fresh());
    let mut random = Random(&mut values);
    for experts in EXPERTS {
        for specials in 0..4 {
            let config = random.config(experts);
            let mut logits: Vec<f32> = (0..experts).map(|_| random.unit() * 3.0).collect();
            // Some, half, and all but one of the logits.
            let count = [experts.min(3), experts / 2, experts - 1, experts][specials];
            for at in 0..count {
                let at = if specials < 2 { random.below(experts) } else { at };
                logits[at] = f32::NAN;
            }
            check(&kernel.route(&logits, experts, &config), &logits, &config);
        }
        for infinity in [f32::INFINITY, f32::NEG_INFINITY] {
            let mut logits: Vec<f32> = (0..experts).map(|_| random.unit()).collect();
            logits[random.below(experts)] = infinity;
            let config = RouterConfig::new(SCORES[random.below(3)], experts.min(8));
            let routed = kernel.route(&logits, experts, &config);
            let ids = routed.ids.clone();
            check(&routed, &logits, &config);
            assert_eq!(logits[ids[0] as usize] == f32::INFINITY, infinity > 0.0);
        }
    }
}

#[test]
fn a_row_of_nan_gives_the_first_experts_and_no_weight() {
    let kernel = GateKernel::load();
    for experts in EXPERTS {
        for score in SCORES {
            let top_k = experts.min(32);
            let config = RouterConfig::new(score, top_k).renormalize();
            let routed = kernel.route(&vec![f32::NAN; experts], experts, &config);
            assert!(
                routed.ids.iter().copied().eq(0..top_k as i32),
                "{experts} experts: {:?}",
                routed.ids
            );
            assert!(
                routed.weights.iter().all(|&w| w == 0.0),
                "{experts} experts: {:?}",
                routed.weights
            );
        }
    }
}

#[test]
fn equal_logits_choose_the_first_experts() {
    let kernel = GateKernel::load();
    for experts in EXPERTS {
        for top_k in [1, 8, 32] {
            let top_k = experts.min(top_k);
            let config = RouterConfig::new(Score::Sigmoid, top_k).bias(vec![-0.25; experts]);
            let routed = kernel.route(&vec![0.5; experts], experts, &config);
            assert!(
                routed.ids.iter().copied().eq(0..top_k as i32),
                "{experts} experts: {:?}",
                routed.ids
            );
        }
    }
}

#[test]
fn scores_keep_their_relative_accuracy() {
    const EACH: usize = 32;
    let kernel = GateKernel::load();
    for (score, from, to) in [(Score::Sigmoid, -87.0, 20.0), (Score::SqrtSoftplus, -174.0, 90.0)] {
        let config = RouterConfig::new(score, EACH);
        let gate = config.gate(EACH).unwrap();
        let points = EACH * K;
        for fraction in [0.0, 0.37, 0.71] {
            let step = (to - from) / points as f32;
            let logits: Vec<f32> = (0..points).map(|i| from + (i as f32 + fraction) * step).collect();
            let routed = kernel.route(&logits, EACH, &config);
            for (token, logits) in logits.chunks_exact(EACH).enumerate() {
                let exact: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
                let routed = routed.token(token, K);
                let ids: Vec<usize> = routed.ids.iter().map(|&id| id as usize).collect();
                let expected = gate::weigh(&exact, &gate, &ids).unwrap();
                for ((found, expected), id) in routed.weights.iter().zip(expected).zip(ids) {
                    assert!(
                        abs_diff_eq!(f64::from(*found), expected, epsilon = 1e-6 * expected),
                        "{score:?} of {}: {found:e}, exactly {expected:e}",
                        logits[id]
                    );
                }
            }
        }
    }
}

#[test]
fn groups_are_ranked_where_their_sums_leave_the_range_of_fp32() {
    const NAN: f32 = f32::NAN;
    let kernel = GateKernel::load();
    for (logits, expected) in [
        // Two large experts are better than a larger and a smaller one, and two small ones worse.
        ([3e38, 1e38, 3.3e38, 3.3e38], [2, 3]),
        ([-3.3e38, -3.3e38, -3e38, -3e38], [2, 3]),
        ([f32::INFINITY, 1e38, 3.3e38, 3.3e38], [2, 3]),
        // Whatever the numbers are, NaN is worse.
        ([NAN, NAN, -3e38, -3e38], [2, 3]),
        ([NAN, NAN, f32::NEG_INFINITY, f32::NEG_INFINITY], [2, 3]),
        ([NAN, NAN, f32::NEG_INFINITY, NAN], [2, 3]),
        // One expert alone is compared with the sum of two.
        ([NAN, 3e38, 1e38, 1e38], [1, 0]),
        ([NAN, 1e38, 1e38, 1e38], [2, 3]),
    ] {
        let config = RouterConfig::new(Score::Identity, 2).groups(2, 1);
        let routed = kernel.route(&logits, logits.len(), &config);
        assert_eq!(routed.ids, expected, "{logits:?}");
        check(&routed, &logits, &config);
    }
}

#[test]
fn scores_that_leave_the_range_of_fp32_with_their_bias_are_the_largest_there_are() {
    let kernel = GateKernel::load();
    let logits = [1e38, 2e38, 3e38, -3e38];
    for (bias, expected) in [([3e38; 4], [0, 1, 2, 3]), ([-3e38; 4], [2, 1, 0, 3])] {
        let config = RouterConfig::new(Score::Identity, 4).bias(bias.to_vec());
        let routed = kernel.route(&logits, logits.len(), &config);
        assert_eq!(routed.ids, expected, "{bias:?}");
        check(&routed, &logits, &config);
    }
}

#[test]
fn dividing_by_the_sum_costs_the_least_scores_no_bits() {
    const EACH: usize = 32;
    let kernel = GateKernel::load();
    // Every score is a normal FP32 number. The sums lie above the least one and below.
    for (from, to) in [(-87.0, -20.0), (-87.3, -80.0)] {
        let config = RouterConfig::new(Score::Sigmoid, EACH).renormalize();
        let step = (to - from) / (EACH * K) as f32;
        let logits: Vec<f32> = (0..EACH * K)
            .map(|i| from + (i % K * EACH + i / K) as f32 * step)
            .collect();
        let routed = kernel.route(&logits, EACH, &config);
        for (token, logits) in logits.chunks_exact(EACH).enumerate() {
            let exact: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
            let routed = routed.token(token, K);
            let ids: Vec<usize> = routed.ids.iter().map(|&id| id as usize).collect();
            let expected = gate::weigh(&exact, &config.gate(EACH).unwrap(), &ids).unwrap();
            for ((found, expected), id) in routed.weights.iter().zip(expected).zip(ids) {
                assert!(
                    abs_diff_eq!(f64::from(*found), expected, epsilon = 1.5e-6 * expected),
                    "of {}: {found:e}, exactly {expected:e}",
                    logits[id]
                );
            }
        }
    }
}
