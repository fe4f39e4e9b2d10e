//! What a router's gate is given.

use super::{Counts, WARP};

/// Experts that a gate can choose from, at most.
pub const MAX_EXPERTS: usize = 1024;
/// Experts that a gate can choose, at most.
pub const MAX_TOP_K: usize = 32;
/// Groups of experts, at most.
pub const MAX_GROUPS: usize = 32;

/// Experts that a warp works on at once.
pub const GATE_TILE: usize = 256;

/// Bytes of shared memory that a token takes: for every expert that a power of two has room for, and at least a tile of them, a logit, a
/// key and a pair of words; a pair per lane; and four words.
pub const fn gate_bytes(experts: usize) -> usize {
    let room = experts.next_power_of_two();
    (if room > GATE_TILE { room } else { GATE_TILE }) * 16 + WARP * 8 + 16
}

/// What the election of the last CTA adds to an entry.
pub(super) const ELECTION_COUNTS: Counts = Counts {
    bar_red: 1,
    atom: 1,
    ..Counts::NONE
};

/// What the election of the last CTA and a gate add to an entry.
pub(super) const GATE_COUNTS: Counts = Counts {
    // Between what is done with experts and with tokens, three for scores that need one another; and between batches of tokens.
    bar_sync: 4,
    // Half of them keep loads together.
    bar_warp_sync: 13,
    // For softmax five to add up, two to join the parts of a group, five to compare groups, and one over the chosen.
    shfl_sync: 13,
    // Groups that stay, a bound, and a place for each slot of a tile.
    vote_sync: 10,
    redux_sync: 2,
    ..ELECTION_COUNTS
};

/// How a logit becomes a score; the number is [`GateArgs::score`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Score {
    /// `exp(l) / Σ exp(l)` over all experts.
    Softmax = 0,
    /// `1 / (1 + exp(-l))`.
    Sigmoid = 1,
    /// `sqrt(softplus(l))`.
    SqrtSoftplus = 2,
    /// `l`.
    Identity = 3,
}

/// Bit of [`GateArgs::flags`]: the bias is added to the logits, before they are scored; else to the scores, for the
/// selection alone.
pub const BIAS_ON_LOGITS: u32 = 1;
/// Bit of [`GateArgs::flags`]: the weights of a token are divided by their sum.
pub const RENORMALIZE: u32 = 2;
/// Bit of [`GateArgs::flags`]: the weights are the softmax over the chosen experts' scores.
pub const SOFTMAX_OVER_TOPK: u32 = 4;

/// What a gate is given. Addresses are device addresses in bytes; 0 stands for what is not there.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateArgs {
    /// Bias, FP32 `[experts]`, or 0.
    pub bias: u64,
    /// Token mask, one byte per token, 0 for padding; or 0.
    pub token_mask: u64,
    /// Ids of the chosen experts, I32 `[m, top_k]`: best first.
    pub ids: u64,
    /// Their weights, FP32 `[m, top_k]`.
    pub weights: u64,
    /// Experts to choose; 0 asks for logits alone.
    pub top_k: u32,
    /// A [`Score`].
    pub score: u32,
    /// [`BIAS_ON_LOGITS`], [`RENORMALIZE`] and [`SOFTMAX_OVER_TOPK`].
    pub flags: u32,
    /// Groups of experts, 1 for no groups. They are equally large.
    pub groups: u32,
    /// Experts of a group.
    pub group_size: u32,
    /// Groups to keep.
    pub groups_kept: u32,
    /// Factor on the weights.
    pub scale: f32,
}
