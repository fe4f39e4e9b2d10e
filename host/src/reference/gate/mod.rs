//! The whole gate in FP64, written from its formulas.

mod check;
mod groups;

pub use check::{Seen, check};

use crate::gate::{BiasOn, ConfigError, Gate, Score};
use crate::{Result, Shape};
use groups::{Worth, softplus};

/// Weights whose sum is smaller are divided by this instead of their sum.
const LEAST_SUM: f64 = 1e-20;

/// Logits and keys of a larger magnitude count as this.
const MOST: f64 = f32::MAX as f64;

/// Experts and weights of every token.
#[derive(Debug, Clone, PartialEq)]
pub struct Routed {
    /// `[m, top_k]`, best first; -1 for padding.
    pub ids: Vec<i32>,
    /// `[m, top_k]`.
    pub weights: Vec<f64>,
}

/// Which experts a token goes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Best first.
    pub experts: Vec<usize>,
    /// The smallest difference between two numbers whose order decided something. Logits that are off by less than
    /// about that lead to the same experts.
    pub margin: f64,
}

/// Chooses and weighs experts for the logits `[m, experts]`. `mask` holds a byte per token, 0 for padding.
pub fn route(logits: &[f64], m: usize, gate: &Gate, mask: Option<&[u8]>) -> Result<Routed> {
    Shape::check_len("the logits", logits.len(), m, gate.experts)?;
    if let Some(mask) = mask {
        Shape::check_len("the token mask", mask.len(), m, 1)?;
    }
    let mut routed = Routed {
        ids: Vec::new(),
        weights: Vec::new(),
    };
    for (token, logits) in logits.chunks_exact(gate.experts).enumerate() {
        if mask.is_some_and(|mask| mask[token] == 0) {
            routed.ids.extend(vec![-1; gate.top_k]);
            routed.weights.extend(vec![0.0; gate.top_k]);
            continue;
        }
        let experts = choose(logits, gate)?.experts;
        routed.weights.extend(weigh(logits, gate, &experts)?);
        routed.ids.extend(experts.iter().map(|&expert| expert as i32));
    }
    Ok(routed)
}

/// The experts that one token's logits choose.
pub fn choose(logits: &[f64], gate: &Gate) -> Result<Choice> {
    Shape::check_len("the logits", logits.len(), 1, gate.experts)?;
    let (biased, scores) = scored(logits, gate);
    // What experts are ordered by: a score that is not biased orders as its logit does, also where it is saturated.
    let selection = gate.bias.as_ref().filter(|_| gate.bias_on == BiasOn::Selection);
    let keys: Vec<f64> = match selection {
        Some(bias) => (scores.iter().zip(bias))
            .map(|(s, &b)| (s + f64::from(b)).clamp(-MOST, MOST))
            .collect(),
        None => biased,
    };

    let size = gate.experts / gate.groups;
    let worth: Vec<Option<Worth>> = (keys.chunks_exact(size))
        .map(|values| Worth::new(values, gate.score, selection.is_some()))
        .collect();
    let mut groups: Vec<usize> = (0..gate.groups).collect();
    groups.sort_by(|&a, &b| Worth::best_first(worth[a], worth[b]));
    let (kept, dropped) = groups.split_at(gate.groups_kept);
    let between = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::INFINITY } else { a - b };
    let mut margin = match (kept.last(), dropped.first()) {
        (Some(&last), Some(&first)) => Worth::margin(worth[last], worth[first]),
        _ => f64::INFINITY,
    };

    let mut experts: Vec<usize> = (0..gate.experts)
        .filter(|expert| kept.contains(&(expert / size)))
        .collect();
    experts.sort_by(|&a, &b| best_first(keys[a], keys[b]));
    for pair in experts.windows(2).take(gate.top_k) {
        margin = margin.min(between(keys[pair[0]], keys[pair[1]]));
    }
    experts.truncate(gate.top_k);
    Ok(Choice { experts, margin })
}

/// The weights of chosen experts, in their order.
pub fn weigh(logits: &[f64], gate: &Gate, experts: &[usize]) -> Result<Vec<f64>> {
    Ok(Shares::new(logits, gate, experts)?.weights(gate))
}

/// What the weights of chosen experts are made of.
struct Shares {
    /// Scores in the experts' order, 0 for NaN.
    scores: Vec<f64>,
    /// What scores are divided by.
    divisor: f64,
}

impl Shares {
    fn new(logits: &[f64], gate: &Gate, experts: &[usize]) -> Result<Self> {
        Shape::check_len("the logits", logits.len(), 1, gate.experts)?;
        let (_, all) = scored(logits, gate);
        let mut scores = Vec::with_capacity(experts.len());
        for &expert in experts {
            let score = all.get(expert).ok_or_else(|| ConfigError::Value {
                what: "a chosen expert",
                given: expert.to_string(),
                allowed: format!("there are {}", all.len()),
            })?;
            scores.push(*score);
        }
        if gate.softmax_over_topk {
            scores = softmax(&scores);
        }
        // A NaN takes part in nothing.
        scores
            .iter_mut()
            .filter(|score| score.is_nan())
            .for_each(|score| *score = 0.0);
        let sum: f64 = scores.iter().sum();
        let divisor = match gate.renormalize {
            true if sum.abs() < LEAST_SUM => LEAST_SUM,
            true => sum,
            false => 1.0,
        };
        Ok(Shares { scores, divisor })
    }

    fn weights(&self, gate: &Gate) -> Vec<f64> {
        let weight = |score: &f64| score / self.divisor * f64::from(gate.scale);
        self.scores.iter().map(weight).collect()
    }
}

/// The logits that are scored, finite or NaN, and their scores.
fn scored(logits: &[f64], gate: &Gate) -> (Vec<f64>, Vec<f64>) {
    let bias = gate.bias.as_ref().filter(|_| gate.bias_on == BiasOn::Logits);
    let bias = |expert: usize| bias.map_or(0.0, |bias| f64::from(bias[expert]));
    let logits: Vec<f64> = (logits.iter().enumerate())
        // `clamp` keeps a NaN.
        .map(|(expert, l)| (l + bias(expert)).clamp(-MOST, MOST))
        .collect();
    let each = |score: fn(f64) -> f64| logits.iter().map(|&l| score(l)).collect();
    let scores = match gate.score {
        Score::Softmax => softmax(&logits),
        Score::Sigmoid => each(|l| 1.0 / (1.0 + (-l).exp())),
        Score::SqrtSoftplus => each(|l| softplus(l).sqrt()),
        Score::Identity => logits.clone(),
    };
    (logits, scores)
}

/// The softmax over all values that are no NaN; those that are stay so.
fn softmax(values: &[f64]) -> Vec<f64> {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = values.iter().map(|v| (v - most).exp()).collect();
    let sum: f64 = powers.iter().filter(|power| !power.is_nan()).sum();
    powers.into_iter().map(|power| power / sum).collect()
}

/// Descending, NaN last; equals keep their order under a stable sort, which is by index.
fn best_first(a: f64, b: f64) -> std::cmp::Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal),
        (a, b) => a.cmp(&b),
    }
}

#[cfg(test)]
mod tests;
