//! How good groups are: by their two best experts together.

use super::best_first;
use crate::gate::Score;
use std::cmp::Ordering;
use std::f64::consts::LN_2;

/// How good a group is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Worth {
    /// Grows with the sum of the scores, one part after the other: numbers of which none saturates.
    order: [f64; 3],
    /// Grows with it too, continuously, and by no more than the sum of what the two values grow by.
    measure: f64,
}

impl Worth {
    /// Of a group whose experts have these values: logits, or scores with their bias where `biased`. `None` where all
    /// are NaN.
    pub(super) fn new(values: &[f64], score: Score, biased: bool) -> Option<Self> {
        let mut there: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        there.sort_by(|&a, &b| best_first(a, b));
        let best = *there.first()?;
        // An expert that is not there scores 0.
        let second = there.get(1).copied();
        let least = second.unwrap_or(f64::NEG_INFINITY);
        Some(match score {
            Score::Identity => Self::of_sum(best, second.unwrap_or(0.0)),
            _ if biased => Self::of_sum(best, second.unwrap_or(0.0)),
            Score::Softmax => Self::of_sum(best, (least - best).exp().ln_1p()),
            Score::Sigmoid => Self::of_sigmoids(best, least),
            Score::SqrtSoftplus => Self::of_sqrt_softplus(best, least),
        })
    }

    fn of_sum(a: f64, b: f64) -> Self {
        let [sum, lost] = two_sum(a, b);
        Worth {
            order: [0.0, sum, lost],
            measure: sum,
        }
    }

    /// With S = σ(a) + σ(b): first whether S is below, at or above 1, then ln(|S − 1| / (1 − |S − 1|)), which grows
    /// with the distance from 1. The measure is ln S − ln(2 − S).
    fn of_sigmoids(best: f64, second: f64) -> Self {
        let (sign, a, b) = match (best + second).partial_cmp(&0.0) {
            Some(Ordering::Greater) => (1.0, best, second),
            Some(Ordering::Less) => (-1.0, -second, -best),
            _ => return Self::of_sum(0.0, 0.0),
        };
        // Of the four exponents none is positive.
        let u = a + b;
        let more = (b - a).exp() + 2.0 * (-a).exp();
        let less = ((-u).exp() + more) / (1.0 + more);
        let rest = if less < 0.5 {
            (-less).ln_1p()
        } else {
            (-(-u).exp_m1() / (1.0 + more)).ln()
        };
        let [sum, lost] = two_sum(b, rest);
        // S / (2 − S) = 1 + 2 |S − 1| / (1 − |S − 1|), or one over that.
        Worth {
            order: [sign, sign * sum, sign * lost],
            measure: sign * softplus(sum + LN_2),
        }
    }

    /// With S the sum of the scores: S itself from ½ on, ln S below.
    fn of_sqrt_softplus(a: f64, b: f64) -> Self {
        const FROM: f64 = 0.5;
        let [of_a, of_b] = [a, b].map(|l| softplus(l).sqrt());
        if of_a + of_b > FROM {
            let [sum, lost] = two_sum(of_a, of_b);
            return Worth {
                order: [1.0, sum, lost],
                measure: sum - FROM + FROM.ln(),
            };
        }
        // Both logits are negative, and ln(1 + e^l) is e^l times this.
        let factor = |l: f64| {
            let power = l.exp();
            if power > 0.0 { power.ln_1p() / power } else { 1.0 }
        };
        let ratio = (0.5 * (b - a)).exp() * (factor(b) / factor(a)).sqrt();
        let [sum, lost] = two_sum(0.5 * (a + factor(a).ln()), ratio.ln_1p());
        Worth {
            order: [-1.0, sum, lost],
            measure: sum,
        }
    }

    /// By how much the first is better than the second, where both can be compared: about as much as logits may be off
    /// without another order.
    pub(super) fn margin(best: Option<Self>, next: Option<Self>) -> f64 {
        match (best, next) {
            (Some(best), Some(next)) => best.measure - next.measure,
            _ => f64::INFINITY,
        }
    }

    /// Descending, and what is nothing last.
    pub(super) fn best_first(a: Option<Self>, b: Option<Self>) -> Ordering {
        let order = |worth: Option<Self>| worth.map(|worth| worth.order);
        order(b).partial_cmp(&order(a)).unwrap_or(Ordering::Equal)
    }
}

/// The sum, and exactly what its rounding takes away.
fn two_sum(a: f64, b: f64) -> [f64; 2] {
    let sum = a + b;
    let of_b = sum - a;
    [sum, (a - (sum - of_b)) + (b - of_b)]
}

/// ln(1 + e^l).
pub(super) fn softplus(l: f64) -> f64 {
    l.max(0.0) + (-l.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCORES: [Score; 4] = [Score::Softmax, Score::Sigmoid, Score::SqrtSoftplus, Score::Identity];

    fn worth(score: Score, a: f64, b: f64) -> Worth {
        Worth::new(&[a, b], score, false).unwrap()
    }

    /// What is compared with what, in words of the test.
    fn order(score: Score, a: (f64, f64), b: (f64, f64)) -> Ordering {
        Worth::best_first(Some(worth(score, b.0, b.1)), Some(worth(score, a.0, a.1)))
    }

    /// Logits of every size and sign.
    fn logits() -> Vec<f64> {
        let sizes = [
            0.0, 1e-30, 1e-7, 0.1, 0.5, 1.0, 2.5, 17.5, 18.0, 30.0, 90.0, 110.0, 800.0, 1e30,
        ];
        let mut logits: Vec<f64> = sizes.iter().flat_map(|&size| [size, -size * 1.25]).collect();
        logits.extend([f64::from(f32::MAX), -f64::from(f32::MAX)]);
        logits
    }

    #[test]
    fn better_experts_make_no_worse_group() {
        let logits = logits();
        for score in SCORES {
            for &a in &logits {
                for &b in &logits {
                    for &more in logits.iter().filter(|&&more| more >= a) {
                        assert_ne!(
                            order(score, (more, b), (a, b)),
                            Ordering::Less,
                            "{score:?} {more} {a} {b}"
                        );
                        let measure = worth(score, a, b).measure;
                        let grown = worth(score, more, b).measure - measure;
                        let rounded = 1e-9 * (1.0 + more - a) + 1e-15 * measure.abs();
                        assert!(
                            grown >= -rounded && grown <= more - a + rounded,
                            "{score:?} {more} {a} {b}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_order_is_that_of_the_sums_where_these_can_tell() {
        let logits: Vec<f64> = (-24..=24).map(|i| f64::from(i) * 0.5).collect();
        let sigmoid = |l: f64| 1.0 / (1.0 + (-l).exp());
        let scores: [(Score, &dyn Fn(f64) -> f64); 3] = [
            (Score::Softmax, &|l: f64| l.exp()),
            (Score::Sigmoid, &sigmoid),
            (Score::SqrtSoftplus, &|l: f64| (1.0 + l.exp()).ln().sqrt()),
        ];
        let pairs = || logits.iter().flat_map(|&a| logits.iter().map(move |&b| (a, b)));
        for (score, exact) in scores {
            for other in [
                (0.0, 0.0),
                (3.0, -2.5),
                (-4.0, -4.5),
                (11.0, -11.5),
                (-9.0, 0.5),
                (6.0, 9.5),
            ] {
                let sum = |pair: (f64, f64)| exact(pair.0) + exact(pair.1);
                for pair in pairs() {
                    let (here, there) = (sum(pair), sum(other));
                    if (here - there).abs() > 1e-13 * (here + there) {
                        let expected = here.partial_cmp(&there).unwrap();
                        assert_eq!(order(score, pair, other), expected, "{score:?} {pair:?} {other:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn saturated_scores_keep_the_order_of_their_logits() {
        for (score, better, worse) in [
            (Score::Sigmoid, (31.0, 30.0), (18.0, 17.5)),
            (Score::Sigmoid, (-17.5, -18.0), (-30.0, -31.0)),
            (Score::Sigmoid, (900.0, 800.0), (850.0, 790.0)),
            (Score::Sigmoid, (-800.0, -900.0), (-810.0, -820.0)),
            // Here the sum is 1 as it is rounded.
            (Score::Sigmoid, (200.0, -199.0), (300.0, -200.0)),
            (Score::Sigmoid, (199.0, -300.0), (198.0, -200.0)),
            // And here one score hides the other.
            (Score::Sigmoid, (100.0, 40.0), (80.0, 40.0)),
            (Score::Softmax, (100.0, 41.0), (100.0, 40.0)),
            (Score::Softmax, (-5000.0, -5002.0), (-5001.0, -5001.0)),
            (Score::SqrtSoftplus, (-2000.0, -2100.0), (-2001.0, -2050.0)),
            (Score::SqrtSoftplus, (-20.0, -100.0), (-20.0, -101.0)),
            (Score::SqrtSoftplus, (1e6, -90.0), (1e6, -91.0)),
            (Score::Identity, (1e30, 2.0), (1e30, 1.0)),
        ] {
            assert_eq!(
                order(score, better, worse),
                Ordering::Greater,
                "{score:?} {better:?} {worse:?}"
            );
        }
        assert_eq!(order(Score::Sigmoid, (2.0, -2.0), (300.0, -300.0)), Ordering::Equal);
        assert_eq!(order(Score::Identity, (3.0, 1.0), (2.0, 2.0)), Ordering::Equal);
    }

    #[test]
    fn an_expert_alone_counts_as_it_scores() {
        let alone = |score, l: f64| Worth::new(&[f64::NAN, l], score, false);
        let logits = logits();
        let pairs: Vec<(f64, f64)> = logits
            .iter()
            .flat_map(|&a| logits.iter().map(move |&b| (a, b)))
            .collect();
        for score in SCORES {
            for pair in pairs.iter().copied().filter(|(a, b)| (a - b).abs() > 1e-9) {
                let expected = pair.1.total_cmp(&pair.0);
                let order = Worth::best_first(alone(score, pair.0), alone(score, pair.1));
                assert_eq!(order, expected, "{score:?} {pair:?}");
            }
            assert_eq!(
                Worth::best_first(alone(score, -1e38), Worth::new(&[f64::NAN; 2], score, false)),
                Ordering::Less
            );
        }
        // σ(20) is less than σ(0) + σ(0.1), and more than σ(0) + σ(−0.1).
        assert!(alone(Score::Sigmoid, 20.0).map(|w| w.order) < Some(worth(Score::Sigmoid, 0.0, 0.1).order));
        assert!(alone(Score::Sigmoid, 20.0).map(|w| w.order) > Some(worth(Score::Sigmoid, 0.0, -0.1).order));
    }
}
