use super::*;
use crate::gate::RouterConfig;
use approx::assert_relative_eq;

const NAN: f64 = f64::NAN;

fn routed(config: RouterConfig, logits: &[f64]) -> (Vec<i32>, Vec<f64>) {
    let gate = config.gate(logits.len()).unwrap();
    let routed = route(logits, 1, &gate, None).unwrap();
    (routed.ids, routed.weights)
}

fn close(found: &[f64], expected: &[f64]) {
    assert_relative_eq!(found, expected, epsilon = 0.0, max_relative = 1e-12);
}

#[test]
fn softmax_by_hand() {
    let logits = [0.0, 2f64.ln(), 3f64.ln(), 4f64.ln()];
    let (ids, weights) = routed(RouterConfig::new(Score::Softmax, 2), &logits);
    assert_eq!(ids, [3, 2]);
    close(&weights, &[0.4, 0.3]);
    let (_, weights) = routed(RouterConfig::new(Score::Softmax, 2).renormalize().scale(7.0), &logits);
    close(&weights, &[4.0, 3.0]);
    let over = RouterConfig::new(Score::Identity, 2).softmax_over_topk();
    close(&routed(over, &logits).1, &[4.0 / 7.0, 3.0 / 7.0]);
}

#[test]
fn a_bias_selects_and_does_not_weigh() {
    let config = RouterConfig::new(Score::Sigmoid, 2).bias(vec![0.0, 0.0, 10.0]);
    let (ids, weights) = routed(config, &[0.0, 3f64.ln(), -(3f64.ln())]);
    assert_eq!(ids, [2, 1]);
    close(&weights, &[0.25, 0.75]);
    let config = RouterConfig::new(Score::Identity, 2).bias_on_logits(vec![0.0, 0.0, 10.0]);
    let (ids, weights) = routed(config, &[0.0, 1.0, 2.0]);
    assert_eq!(ids, [2, 1]);
    close(&weights, &[12.0, 1.0]);
}

#[test]
fn square_roots_of_softplus_reach_far_down() {
    let (ids, weights) = routed(RouterConfig::new(Score::SqrtSoftplus, 3), &[-80.0, 0.0, 100.0]);
    assert_eq!(ids, [2, 1, 0]);
    close(&weights, &[10.0, 2f64.ln().sqrt(), (-40f64).exp()]);
}

#[test]
fn groups_are_chosen_by_their_two_best() {
    // Sums of two: 9, 10, 10.5; best experts: 9, 6, 8.
    let logits = [9.0, 0.0, 6.0, 4.0, 8.0, 2.5];
    let config = |kept| RouterConfig::new(Score::Identity, 2).groups(3, kept);
    assert_eq!(routed(config(1), &logits).0, [4, 5]);
    assert_eq!(routed(config(2), &logits).0, [4, 2]);
    assert_eq!(routed(config(3), &logits).0, [0, 4]);
}

#[test]
fn ties_go_to_the_lowest_id() {
    assert_eq!(
        routed(RouterConfig::new(Score::Softmax, 3), &[1.0, 2.0, 1.0, 2.0, 2.0]).0,
        [1, 3, 4]
    );
    assert_eq!(
        routed(RouterConfig::new(Score::Softmax, 2).groups(2, 1), &[1.0; 4]).0,
        [0, 1]
    );
    // Both sigmoids are 1, and yet the larger logit wins.
    assert_eq!(routed(RouterConfig::new(Score::Sigmoid, 2), &[100.0, 101.0]).0, [1, 0]);
}

#[test]
fn nan_experts_come_last_and_weigh_nothing() {
    for score in [Score::Softmax, Score::Sigmoid, Score::SqrtSoftplus, Score::Identity] {
        let (ids, weights) = routed(RouterConfig::new(score, 3).renormalize(), &[NAN, -3.0, NAN, NAN]);
        assert_eq!(ids, [1, 0, 2]);
        close(&weights, &[1.0, 0.0, 0.0]);
        let (ids, weights) = routed(RouterConfig::new(score, 2).renormalize().groups(2, 1), &[NAN; 4]);
        assert_eq!(ids, [0, 1]);
        assert_eq!(weights, [0.0; 2]);
    }
    let (ids, _) = routed(
        RouterConfig::new(Score::Identity, 1).groups(3, 1),
        &[NAN, NAN, -9.0, NAN, -4.0, -6.0],
    );
    assert_eq!(ids, [2]);
}

#[test]
fn infinities_are_the_largest_numbers() {
    let (ids, weights) = routed(
        RouterConfig::new(Score::Softmax, 3),
        &[f64::NEG_INFINITY, f64::INFINITY, 0.0],
    );
    assert_eq!(ids, [1, 2, 0]);
    close(&weights, &[1.0, 0.0, 0.0]);
}

#[test]
fn a_sum_of_nothing_divides_nothing() {
    let (_, weights) = routed(RouterConfig::new(Score::Identity, 2).renormalize(), &[0.0, 0.0]);
    assert_eq!(weights, [0.0, 0.0]);
}

#[test]
fn padding_has_no_experts() {
    let gate = RouterConfig::new(Score::Softmax, 1).gate(2).unwrap();
    let routed = route(&[0.0, 1.0, 1.0, 0.0], 2, &gate, Some(&[0, 7])).unwrap();
    assert_eq!(routed.ids, [-1, 0]);
    assert_eq!(routed.weights[0], 0.0);
    assert!(route(&[0.0, 1.0], 1, &gate, Some(&[0, 7])).is_err());
    assert!(route(&[0.0, 1.0], 2, &gate, None).is_err());
    assert!(route(&[], 0, &gate, None).unwrap().ids.is_empty());
}

#[test]
fn the_margin_is_the_smallest_difference_that_decides() {
    let margin =
        |config: RouterConfig, logits: &[f64]| choose(logits, &config.gate(logits.len()).unwrap()).unwrap().margin;
    let identity = |top_k| RouterConfig::new(Score::Identity, top_k);
    assert_eq!(margin(identity(1), &[5.0, 3.0, 2.5]), 2.0);
    assert_eq!(margin(identity(2), &[5.0, 3.0, 2.5]), 0.5);
    assert_eq!(margin(identity(3), &[5.0, 3.0, 2.5]), 0.5);
    assert_eq!(margin(identity(1).groups(2, 1), &[5.0, 1.0, 3.0, 2.75]), 0.25);
    assert_eq!(margin(identity(1), &[5.0, NAN]), f64::INFINITY);
}

/// A score of e^-100 keeps five bits in FP32, and a small sum makes a large weight of it.
#[test]
fn a_check_allows_what_small_fp32_scores_lose() {
    let gate = RouterConfig::new(Score::Softmax, 1)
        .bias(vec![-2.0, 0.0])
        .renormalize()
        .gate(2)
        .unwrap();
    let weight = |logit: f32| ((-f64::from(logit)).exp() as f32) / 1e-20;
    let holds = |logit: f32, weight: f32| check(&[1], &[weight], &[logit, 0.0], &gate, None).is_ok();
    assert!(holds(100.0, weight(100.0)));
    assert!(holds(60.0, weight(60.0)));
    assert!(!holds(60.0, weight(60.0) * 1.0001));
}

#[test]
fn a_check_sees_each_kind_of_wrong_result() {
    let logits: Vec<f32> = (0..3 * 20).map(|i| ((i * 7) % 20) as f32 / 4.0).collect();
    let wide: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
    let mask = [1, 0, 1];
    for config in [
        RouterConfig::new(Score::Softmax, 3).renormalize(),
        RouterConfig::new(Score::Sigmoid, 3).bias(vec![0.25; 20]).groups(4, 2),
    ] {
        let gate = config.gate(20).unwrap();
        let right = route(&wide, 3, &gate, Some(&mask)).unwrap();
        let ids = right.ids;
        let weights: Vec<f32> = right.weights.iter().map(|&weight| weight as f32).collect();
        assert_eq!(
            check(&ids, &weights, &logits, &gate, Some(&mask)),
            Ok(Seen {
                compared: 3 - 1,
                open: 0
            })
        );
        for at in 0..9 {
            for id in [-1, 20, ids[(at + 1) % 9], (ids[at] + 1) % 20] {
                let mut wrong = ids.clone();
                if wrong[at] != id {
                    wrong[at] = id;
                    assert!(
                        check(&wrong, &weights, &logits, &gate, Some(&mask)).is_err(),
                        "{wrong:?}"
                    );
                }
            }
            for weight in [f32::NAN, weights[at] * 1.001 + 1e-3, -1.0] {
                let mut wrong = weights.clone();
                wrong[at] = weight;
                assert!(check(&ids, &wrong, &logits, &gate, Some(&mask)).is_err(), "{wrong:?}");
            }
        }
        assert!(check(&ids[1..], &weights, &logits, &gate, None).is_err());
        assert!(check(&ids, &weights, &logits, &gate, None).is_err());
    }
}
