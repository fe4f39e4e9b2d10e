//! What a router's gate does: its configuration as callers and files write it, and the same once checked.

use super::ConfigError;
use crate::Result;
use kernels_gpu::instances::{MAX_EXPERTS, MAX_GROUPS, MAX_TOP_K, Score};
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize};

/// How a router chooses experts and weighs them, as callers build it and JSON files spell it. Only the score and
/// `top_k` are required.
///
/// ```
/// use hopper_proj::gate::{RouterConfig, Score};
///
/// let config = RouterConfig::new(Score::Sigmoid, 8).bias(vec![0.0; 256]).groups(8, 4).renormalize().scale(2.5);
/// assert!(config.gate(256).is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RouterConfig {
    /// How a logit becomes a score.
    #[serde(serialize_with = "ScoreName::serialize", deserialize_with = "score_name")]
    pub score: Score,
    /// Experts per token.
    pub top_k: usize,
    /// One number per expert, added where [`RouterConfig::bias_on`] says. It stays FP32 from end to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<Bias>,
    /// What the bias is added to.
    #[serde(default, deserialize_with = "bias_on_name")]
    pub bias_on: BiasOn,
    /// Groups of experts, equally large: the best groups are chosen first, and experts inside them. A group is as
    /// good as the sum of its two best experts' scores, also where scores saturate.
    #[serde(default = "one")]
    pub groups: usize,
    /// Groups to choose; all where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_kept: Option<usize>,
    /// Whether the weights of a token are divided by their sum.
    #[serde(default)]
    pub renormalize: bool,
    /// Whether the weights are the softmax over the chosen experts' logits.
    #[serde(default)]
    pub softmax_over_topk: bool,
    /// A factor on the weights.
    #[serde(default = "unit")]
    pub scale: f32,
    /// Where the token mask is, `FILE:TENSOR`: one U8 or BOOL value per token, not zero for a token, zero for padding.
    /// It is for the command line; a call of the library takes the mask itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_mask: Option<String>,
    /// Whether the logits are wanted too. It is for the command line; a call of the library says so by passing a
    /// buffer.
    #[serde(default)]
    pub logits: bool,
}

/// A bias: its numbers, or where they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "`bias` is a list of numbers, or \"FILE:TENSOR\"")]
pub enum Bias {
    /// One number per expert.
    Numbers(Vec<f32>),
    /// `FILE:TENSOR`, for the command line to read.
    Tensor(String),
}

/// What a bias is added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BiasOn {
    /// The scores, for the selection alone: the weights are made of the unbiased scores.
    #[default]
    Selection,
    /// The logits, before they are scored.
    Logits,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Score", rename_all = "snake_case")]
enum ScoreName {
    Softmax,
    Sigmoid,
    SqrtSoftplus,
    Identity,
}

// Left alone, an enum could also be spelled as an object with one key.
fn score_name<'de, D: Deserializer<'de>>(from: D) -> Result<Score, D::Error> {
    ScoreName::deserialize(String::deserialize(from)?.into_deserializer())
}

fn bias_on_name<'de, D: Deserializer<'de>>(from: D) -> Result<BiasOn, D::Error> {
    BiasOn::deserialize(String::deserialize(from)?.into_deserializer())
}

fn one() -> usize {
    1
}

fn unit() -> f32 {
    1.0
}

impl RouterConfig {
    /// A configuration with everything else left out: no bias, no groups, weights as they are scored.
    pub fn new(score: Score, top_k: usize) -> Self {
        RouterConfig {
            score,
            top_k,
            bias: None,
            bias_on: BiasOn::Selection,
            groups: 1,
            groups_kept: None,
            renormalize: false,
            softmax_over_topk: false,
            scale: 1.0,
            token_mask: None,
            logits: false,
        }
    }

    /// Reads a JSON object; a key that is not one of the fields is an error.
    pub fn from_json(text: &str) -> Result<Self> {
        // Left alone, a list of the fields' values would do as well.
        if text.trim_start().starts_with('[') {
            return Err(ConfigError::Json("it is a list".to_owned()).into());
        }
        Ok(serde_json::from_str(text).map_err(|err| ConfigError::Json(err.to_string()))?)
    }

    /// Adds a bias to the scores, for the selection alone.
    #[must_use]
    pub fn bias(mut self, bias: Vec<f32>) -> Self {
        self.bias = Some(Bias::Numbers(bias));
        self.bias_on = BiasOn::Selection;
        self
    }

    /// Adds a bias to the logits.
    #[must_use]
    pub fn bias_on_logits(mut self, bias: Vec<f32>) -> Self {
        self.bias = Some(Bias::Numbers(bias));
        self.bias_on = BiasOn::Logits;
        self
    }

    /// Cuts the experts into groups, of which `kept` are chosen first.
    #[must_use]
    pub fn groups(mut self, groups: usize, kept: usize) -> Self {
        (self.groups, self.groups_kept) = (groups, Some(kept));
        self
    }

    /// Divides a token's weights by their sum.
    #[must_use]
    pub fn renormalize(mut self) -> Self {
        self.renormalize = true;
        self
    }

    /// Takes the softmax over the chosen experts' logits as weights.
    #[must_use]
    pub fn softmax_over_topk(mut self) -> Self {
        self.softmax_over_topk = true;
        self
    }

    /// Multiplies the weights by a factor.
    #[must_use]
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = scale;
        self
    }

    /// Checks the configuration for a router of so many experts.
    pub fn gate(&self, experts: usize) -> Result<Gate> {
        let refuse = |what: &'static str, given: String, allowed: String| {
            Err(ConfigError::Value { what, given, allowed }.into())
        };
        if !(1..=MAX_EXPERTS).contains(&experts) {
            let allowed = format!("a router has 1 to {MAX_EXPERTS} of them, one per row of its weights");
            return refuse("the number of experts", experts.to_string(), allowed);
        }
        let most = experts.min(MAX_TOP_K);
        if !(1..=most).contains(&self.top_k) {
            let allowed = format!("of {experts} experts, 1 to {most} can be chosen");
            return refuse("top_k", self.top_k.to_string(), allowed);
        }
        if !(1..=MAX_GROUPS).contains(&self.groups) || !experts.is_multiple_of(self.groups) {
            let allowed = format!("it must lie between 1 and {MAX_GROUPS} and divide the {experts} experts");
            return refuse("groups", self.groups.to_string(), allowed);
        }
        let kept = self.groups_kept.unwrap_or(self.groups);
        if !(1..=self.groups).contains(&kept) {
            let allowed = format!("of {} groups, 1 to {} can be kept", self.groups, self.groups);
            return refuse("groups_kept", kept.to_string(), allowed);
        }
        let within = kept * (experts / self.groups);
        if self.top_k > within {
            let allowed = format!(
                "the {kept} groups that are kept hold {within} experts: keep more groups, or choose fewer experts"
            );
            return refuse("top_k", self.top_k.to_string(), allowed);
        }
        if self.softmax_over_topk && self.score != Score::Identity {
            let allowed =
                "it goes with score \"identity\" alone; for score \"softmax\", renormalize gives the same weights"
                    .to_owned();
            return refuse("softmax_over_topk", "true".to_owned(), allowed);
        }
        if !self.scale.is_finite() {
            let allowed = "it must be a finite FP32 number".to_owned();
            return refuse("scale", self.scale.to_string(), allowed);
        }
        let bias = match &self.bias {
            None => None,
            Some(Bias::Tensor(place)) => {
                let allowed = "the library takes its numbers: read them from the file first".to_owned();
                return refuse("bias", format!("`{place}`"), allowed);
            }
            Some(Bias::Numbers(numbers)) if numbers.len() != experts => {
                let allowed = format!("it needs one for each of the {experts} experts");
                return refuse("bias", format!("{} numbers", numbers.len()), allowed);
            }
            Some(Bias::Numbers(numbers)) => {
                if let Some(at) = numbers.iter().position(|number| !number.is_finite()) {
                    let given = format!("{} for expert {at}", numbers[at]);
                    return refuse("bias", given, "it must be finite FP32 numbers".to_owned());
                }
                Some(numbers.clone())
            }
        };
        Ok(Gate {
            experts,
            top_k: self.top_k,
            score: self.score,
            bias,
            bias_on: self.bias_on,
            groups: self.groups,
            groups_kept: kept,
            renormalize: self.renormalize,
            softmax_over_topk: self.softmax_over_topk,
            scale: self.scale,
        })
    }
}

/// A [`RouterConfig`] that was checked for a number of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    pub(crate) experts: usize,
    pub(crate) top_k: usize,
    pub(crate) score: Score,
    pub(crate) bias: Option<Vec<f32>>,
    pub(crate) bias_on: BiasOn,
    pub(crate) groups: usize,
    pub(crate) groups_kept: usize,
    pub(crate) renormalize: bool,
    pub(crate) softmax_over_topk: bool,
    pub(crate) scale: f32,
}

impl Gate {
    /// Experts to choose from.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Experts per token.
    pub fn top_k(&self) -> usize {
        self.top_k
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
