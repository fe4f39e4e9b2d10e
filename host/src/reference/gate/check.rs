//! Holding a router's results against the FP64 gate.

use super::{Shares, choose};
use crate::gate::{BiasOn, Gate, Score};
use crate::{Result, Shape};

/// What was seen of a gate's results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Tokens whose ids were compared one by one.
    pub compared: usize,
    /// Tokens whose choice the error bound leaves open.
    pub open: usize,
}

/// Holds ids and weights, `[m, top_k]` each, against the FP64 gate of the logits `[m, experts]` that came with them;
/// says what is wrong.
///
/// Ids must be equal wherever every decision's margin is more than what FP32 scores of these logits may be off by;
/// everywhere, they must be distinct experts. Weights are held against the FP64 weights of the very ids that were
/// chosen, so that open choices do not hide wrong weights. Padding must have ids of -1 and weights of 0.
pub fn check(ids: &[i32], weights: &[f32], logits: &[f32], gate: &Gate, mask: Option<&[u8]>) -> Result<Seen, String> {
    let (experts, top_k) = (gate.experts, gate.top_k);
    let m = logits.len() / experts;
    let lengths = [
        Shape::check_len("the logits", logits.len(), m, experts),
        Shape::check_len("ids", ids.len(), m, top_k),
        Shape::check_len("weights", weights.len(), m, top_k),
        mask.map_or(Ok(()), |mask| Shape::check_len("the token mask", mask.len(), m, 1)),
    ];
    lengths
        .into_iter()
        .collect::<Result<()>>()
        .map_err(|err| err.to_string())?;
    let mut seen = Seen::default();
    let tokens = ids
        .chunks_exact(top_k)
        .zip(weights.chunks_exact(top_k))
        .zip(logits.chunks_exact(experts));
    for (token, ((ids, weights), logits)) in tokens.enumerate() {
        let there = mask.is_none_or(|mask| mask[token] != 0);
        check_token(ids, weights, logits, gate, there, &mut seen)
            .map_err(|wrong| format!("token {token}: {wrong}; ids {ids:?}, weights {weights:?}"))?;
    }
    Ok(seen)
}

fn check_token(
    ids: &[i32],
    weights: &[f32],
    logits: &[f32],
    gate: &Gate,
    there: bool,
    seen: &mut Seen,
) -> Result<(), String> {
    if !there {
        let padded = ids.iter().all(|&id| id == -1) && weights.iter().all(|&weight| weight.to_bits() == 0);
        return if padded {
            Ok(())
        } else {
            Err("padding was routed".to_owned())
        };
    }
    let chosen: Vec<usize> = ids.iter().filter_map(|&id| usize::try_from(id).ok()).collect();
    if chosen.len() < ids.len() || chosen.iter().any(|&id| id >= gate.experts) {
        return Err("an id is out of range".to_owned());
    }
    let mut distinct = chosen.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() < chosen.len() {
        return Err("an id came twice".to_owned());
    }
    let logits: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
    let exact = choose(&logits, gate).map_err(|err| err.to_string())?;
    if exact.margin >= open_margin(&logits, gate) {
        seen.compared += 1;
        if chosen != exact.experts {
            return Err(format!("FP64 chooses {:?} by {:e}", exact.experts, exact.margin));
        }
    } else {
        seen.open += 1;
    }
    let shares = Shares::new(&logits, gate, &chosen).map_err(|err| err.to_string())?;
    let expected = shares.weights(gate);
    let allowed = weight_error(&expected, gate);
    // A score that FP32 holds with few bits or not at all may make a weight of any size.
    let of_score = f64::from(f32::MIN_POSITIVE) * (f64::from(gate.scale) / shares.divisor).abs();
    let lost = of_score.max(NOTHING);
    for (&weight, &exact) in weights.iter().zip(&expected) {
        // False where the weight is NaN.
        let right = (f64::from(weight) - exact).abs() <= allowed * exact.abs() + lost;
        if !right {
            return Err(format!("a weight is {weight:e}, in FP64 {exact:e}"));
        }
    }
    Ok(())
}

/// Weights that FP32 may lose.
const NOTHING: f64 = 1e-36;

/// What decides without doubt: more than FP32 scores, sums with a bias, and what groups are ordered by may be off by.
/// Without bias and groups logits are compared as they are.
fn open_margin(logits: &[f64], gate: &Gate) -> f64 {
    if gate.bias.is_none() && gate.groups == 1 {
        return 0.0;
    }
    let bias = gate.bias.iter().flatten().fold(0f32, |most, b| most.max(b.abs()));
    let biases_scores = gate.bias.is_some() && gate.bias_on == BiasOn::Selection;
    let value = match gate.score {
        Score::Softmax | Score::Sigmoid if biases_scores => 1.0,
        // Where no bias is added to scores, groups are ordered by numbers as large as logits.
        _ => logits
            .iter()
            .filter(|l| l.is_finite())
            .fold(1.0, |most, l| l.abs().max(most)),
    };
    1e-5 * (value + f64::from(bias))
}

/// How far FP32 weights may be off, relatively: sums of scores of either sign that cancel lose what they cancel.
fn weight_error(weights: &[f64], gate: &Gate) -> f64 {
    const EACH: f64 = 3e-5;
    if !gate.renormalize {
        return EACH;
    }
    let total: f64 = weights.iter().map(|weight| weight.abs()).sum();
    let sum = weights.iter().sum::<f64>().abs().max(f64::MIN_POSITIVE);
    EACH * (total / sum).max(1.0)
}
