//! Which groups of experts a gate keeps, by raw launches of a router for few tokens: where sums of scores saturate, and
//! against the FP64 reference.

use hopper_proj::RouterConfig;
use hopper_proj::instances::Score;
use hopper_proj::reference::gate;
use hopper_proj_tests::Values;
use hopper_proj_tests::gate::{GateKernel, K};

const SCORES: [Score; 4] = [Score::Softmax, Score::Sigmoid, Score::SqrtSoftplus, Score::Identity];

const NAN: f32 = f32::NAN;
const INFINITY: f32 = f32::INFINITY;

/// The groups that the kernel and the reference keep of each token, by the experts they choose: all of these groups.
fn kept(kernel: &GateKernel, score: Score, tokens: &[Vec<f32>], size: usize, count: usize) -> Vec<[Vec<usize>; 2]> {
    let experts = tokens[0].len();
    let groups_of = |ids: &[usize]| {
        let mut groups: Vec<usize> = ids.iter().map(|id| id / size).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    };
    let config = RouterConfig::new(score, (count * size).min(32)).groups(experts / size, count);
    let gate = config.gate(experts).unwrap();
    let routed = kernel.route(&tokens.concat(), experts, &config);
    let of_token = |(at, logits): (usize, &Vec<f32>)| {
        let ids = routed.token(at, tokens.len()).ids;
        let ids: Vec<usize> = ids.into_iter().map(|id| id as usize).collect();
        let exact: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
        [
            groups_of(&ids),
            groups_of(&gate::choose(&exact, &gate).unwrap().experts),
        ]
    };
    tokens.iter().enumerate().map(of_token).collect()
}

#[test]
fn saturated_groups_keep_the_order_of_their_logits() {
    use Score::{Identity, Sigmoid, Softmax, SqrtSoftplus};
    let kernel = GateKernel::load();
    // Groups of two, of which the second is the better one.
    for (score, logits) in [
        (Sigmoid, [17.5, 18.0, 30.0, 31.0]),
        (Sigmoid, [-31.0, -30.0, -18.0, -17.5]),
        (Sigmoid, [-300.0, -301.0, -200.0, -310.0]),
        (Sigmoid, [18.0, 17.5, INFINITY, 18.0]),
        (Sigmoid, [3e38, 1e38, 3e38, 2e38]),
        (Sigmoid, [-2e38, -3e38, -1e38, -3e38]),
        (Sigmoid, [f32::NEG_INFINITY, -3e38, -3e38, -3e38]),
        // Sums that are 1 as they are rounded: just above, and just below.
        (Sigmoid, [20.0, -20.0, 20.0, -19.0]),
        (Sigmoid, [-95.0, 300.0, 200.0, -94.0]),
        (Sigmoid, [-90.0, 80.0, 81.0, -300.0]),
        (Sigmoid, [5.0, -4.999_999, 5.0, -4.999_998]),
        (Sigmoid, [-30.0, 30.0, 31.0, -30.0]),
        (Sigmoid, [-31.0, 30.0, -30.0, 30.0]),
        // One expert that hides the other.
        (Sigmoid, [17.0, 60.0, 100.0, 17.0]),
        (Sigmoid, [-17.0, -100.0, -60.0, -17.0]),
        (Softmax, [30.0, 5.0, 6.0, 30.0]),
        (Softmax, [1000.0, 920.0, 1000.0, 921.0]),
        (Softmax, [-5001.0, -5001.0, -5000.0, -5002.0]),
        (Softmax, [-3e38, -3.1e38, -2e38, -3.4e38]),
        (SqrtSoftplus, [-400.0, -401.0, -399.0, -410.0]),
        (SqrtSoftplus, [-20.0, -100.0, -99.0, -20.0]),
        (SqrtSoftplus, [1e6, -90.0, 1e6, -89.0]),
        (SqrtSoftplus, [-3e38, -3.4e38, -2e38, -3e38]),
        (Identity, [1e30, 1.0, 2.0, 1e30]),
        (Identity, [-3e38, -3.4e38, -2e38, -3.4e38]),
        // NaN is no expert, whatever the others are; one alone is compared with the sum of two.
        (Sigmoid, [NAN, 18.0, NAN, 30.0]),
        (Sigmoid, [NAN, 90.0, 0.0, 0.1]),
        (Sigmoid, [0.0, -0.1, 90.0, NAN]),
        (Sigmoid, [NAN, NAN, f32::NEG_INFINITY, NAN]),
        (Softmax, [NAN, NAN, NAN, f32::NEG_INFINITY]),
        (Softmax, [1.0, NAN, 1.0, -50.0]),
        (SqrtSoftplus, [NAN, NAN, -3e38, -3e38]),
        (SqrtSoftplus, [-80.0, NAN, -80.0, -110.0]),
    ] {
        let mirrored = [logits[2], logits[3], logits[0], logits[1]];
        // One by one: a logit that is not finite would spoil that of the other token.
        for (logits, expected) in [(logits, 1), (mirrored, 0)] {
            let found = kept(&kernel, score, &[logits.to_vec()], 2, 1);
            assert_eq!(found, [[[expected]; 2]], "{score:?} {logits:?}");
        }
    }
}

#[test]
fn equal_groups_go_to_the_lowest_id() {
    let kernel = GateKernel::load();
    for score in SCORES {
        for [a, b] in [
            [18.0, 90.0],
            [-0.0, 0.0],
            [NAN, NAN],
            [-200.0, -300.0],
            [INFINITY, NAN],
            [2.0, -2.0],
        ] {
            for size in [2, 3, 4] {
                let group = [vec![a, b], vec![NAN; size - 2]].concat();
                let swapped = [vec![NAN; size - 2], vec![b, a]].concat();
                for groups in [2, 5, 32] {
                    let token: Vec<f32> = (0..groups)
                        .flat_map(|g| if g % 2 == 0 { swapped.clone() } else { group.clone() })
                        .collect();
                    for count in [1, groups / 2] {
                        // No more experts than can be chosen.
                        let count = count.min(32 / size);
                        let expected: Vec<usize> = (0..count).collect();
                        let [found] = &kept(&kernel, score, std::slice::from_ref(&token), size, count)[..] else {
                            unreachable!("one token");
                        };
                        assert_eq!(found, &[&expected[..]; 2], "{score:?} {a} {b} {size} {groups} {count}");
                    }
                }
            }
        }
    }
    // Different experts, and the same sum.
    for (score, logits) in [
        (Score::Sigmoid, [2.0, -2.0, 300.0, -300.0]),
        (Score::Sigmoid, [300.0, -300.0, 2.0, -2.0]),
        (Score::Identity, [2.0, 2.0, 3.0, 1.0]),
    ] {
        assert_eq!(
            kept(&kernel, score, &[logits.to_vec()], 2, 1),
            [[[0], [0]]],
            "{logits:?}"
        );
    }
}

#[test]
fn groups_of_one_expert_are_ordered_as_experts() {
    let (kernel, mut values) = (GateKernel::load(), Values::fresh());
    for score in SCORES {
        for scale in [1.0, 100.0, 1e30] {
            for experts in [2, 7, 32] {
                let token: Vec<f32> = (values.fp32(experts).iter()).map(|l| l * scale).collect();
                for count in [1, experts.div_ceil(2)] {
                    let mut best: Vec<usize> = (0..experts).collect();
                    best.sort_by(|&a, &b| token[b].total_cmp(&token[a]));
                    best.truncate(count);
                    best.sort_unstable();
                    let expected = [[&best[..], &best[..]]];
                    let found = kept(&kernel, score, std::slice::from_ref(&token), 1, count);
                    assert_eq!(found, expected, "{score:?} {token:?}");
                }
            }
        }
    }
}

/// Groups whose two best both grow from each to the next, in any order: those that are better in both are kept.
#[test]
fn a_group_with_the_better_experts_stays() {
    let (kernel, mut values) = (GateKernel::load(), Values::fresh());
    for score in SCORES {
        for (scale, from) in [
            (1.0, 0.0),
            (3.0, 40.0),
            (3.0, -40.0),
            (20.0, 0.0),
            (40.0, -1000.0),
            (1e35, 0.0),
        ] {
            let (groups, size, tokens) = (12, 3, K);
            let mut expected = Vec::new();
            let tokens: Vec<Vec<f32>> = (0..tokens)
                .map(|_| {
                    // Steps are larger than what is rounded.
                    let mut random = values.fp32(5 * groups);
                    let mut at = [0, 1].map(|i| from + random[i] * scale - 3.0 * scale);
                    let mut order: Vec<usize> = (0..groups).collect();
                    order.sort_by(|&a, &b| random[a].total_cmp(&random[b]));
                    let mut token = vec![0.0; groups * size];
                    for &group in &order {
                        for (i, at) in at.iter_mut().enumerate() {
                            let step = random.pop().unwrap().abs().max(1e-2) * scale;
                            *at += step + at.abs() * 1e-3;
                            token[group * size + i] = *at;
                        }
                        token[group * size + 2] = at[0].min(at[1]) - random.pop().unwrap().abs() * scale;
                    }
                    let mut best = order[groups - 5..].to_vec();
                    best.sort_unstable();
                    expected.push(best);
                    token
                })
                .collect();
            for (at, found) in kept(&kernel, score, &tokens, size, 5).iter().enumerate() {
                let expected = &expected[at];
                assert_eq!(found, &[&expected[..]; 2], "{score:?} {scale} {from} {:?}", tokens[at]);
            }
        }
    }
}

/// Random groups, wherever the margin is more than the error of what orders them.
#[test]
fn groups_are_kept_as_in_fp64() {
    const ERROR: f64 = 3e-6;
    let (kernel, mut values) = (GateKernel::load(), Values::fresh());
    let (mut compared, mut all) = (0, 0);
    for score in SCORES {
        for (scale, from) in [
            (1.0, 0.0),
            (4.0, 0.0),
            (2.0, 20.0),
            (2.0, -20.0),
            (2.0, -200.0),
            (30.0, 0.0),
            (1e30, 0.0),
        ] {
            for (groups, size) in [(2, 2), (8, 3), (16, 2), (31, 5)] {
                let tokens: Vec<Vec<f32>> = (0..K)
                    .map(|_| (values.fp32(groups * size).iter()).map(|l| from + l * scale).collect())
                    .collect();
                let count = (groups / 2).min(32 / size);
                let gate = RouterConfig::new(score, count * size).groups(groups, count);
                let gate = gate.gate(groups * size).unwrap();
                for (token, [found, exact]) in tokens.iter().zip(kept(&kernel, score, &tokens, size, count)) {
                    let token: Vec<f64> = token.iter().map(|&l| f64::from(l)).collect();
                    let largest = token.iter().fold(1.0, |most: f64, l| most.max(l.abs()));
                    all += 1;
                    if gate::choose(&token, &gate).unwrap().margin > ERROR * (largest + 1.0) {
                        compared += 1;
                        assert_eq!(found, exact, "{score:?} {groups} × {size}: {token:?}");
                    }
                }
            }
        }
    }
    println!("{compared} of {all} tokens compared");
    assert!(compared * 10 > all * 8, "{compared} of {all}");
}
