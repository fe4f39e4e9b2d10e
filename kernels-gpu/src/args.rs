//! What kernels are given: the structures that the host passes as by-value parameters, in the order of their fields.
//!
//! Addresses are device addresses in bytes; 0 stands for what is not there. Formats with parts of their own have their
//! structures with themselves ([`crate::formats`]).

/// What a `gemv` kernel is given, as its one by-value parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemvArgs {
    /// Activations, BF16: `m` tokens of `k` values.
    pub x: u64,
    /// Elements between two tokens of x.
    pub x_stride: u64,
    /// Weights in the order of [`crate::layout`], 16-byte aligned.
    pub weights: u64,
    /// Output, row-major `[m, n]`, BF16 or FP32.
    pub y: u64,
    /// Tokens.
    pub m: u32,
    /// Weight rows.
    pub n: u32,
    /// Weight columns.
    pub k: u32,
    /// Not zero: the output is FP32, the sums as they are.
    pub y_fp32: u32,
}

/// How the chunks of K are dealt out to the CTAs that split it: in order, a slice each. The host divides, which a
/// kernel would pay for ahead of its first load.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KSlices {
    /// Chunks of a slice.
    chunks: u32,
    /// So many slices, the first ones, have a chunk more.
    longer: u32,
}

impl KSlices {
    /// So many chunks for so many CTAs or warps, at least one.
    #[inline(always)]
    pub const fn new(chunks: u32, workers: u32) -> Self {
        let workers = if workers == 0 { 1 } else { workers };
        KSlices {
            chunks: chunks / workers,
            longer: chunks % workers,
        }
    }

    /// The slice `[first, last)` of the CTA or warp with this number.
    #[inline(always)]
    pub const fn of(self, worker: u32) -> (u32, u32) {
        let is_longer = worker < self.longer;
        let before = if is_longer { worker } else { self.longer };
        let first = worker * self.chunks + before;
        (first, first + self.chunks + is_longer as u32)
    }
}

/// The split-K reduction through global memory: where CTAs add their sums, and what the last of them does with these.
///
/// The workspace is left as it was found, so that calls and graph replays can follow each other for ever.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SplitKArgs {
    /// FP32 sums: `[m, n]`, all zeros, where they are added atomically; `[slices, m, n]`, of any content, where each
    /// slice of K has its own.
    pub sums: u64,
    /// Counters of arrivals, `u32`, all zeros.
    pub counters: u64,
    /// FP32 factors of the weight rows, `[n]`, powers of two; or 0 for none.
    pub scales: u64,
    /// Slices into which K is split over the grid.
    pub slices: u32,
    /// Not zero: the slices are added in their order; zero: atomically, in the order of arrival.
    pub serial: u32,
    /// The gate, for kernels that have one.
    pub gate: GateArgs,
}

/// What a `route` kernel for few tokens is given, as its one by-value parameter. [`GemvArgs::y`] takes the logits; 0
/// where they are not asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteArgs {
    /// The operands.
    pub gemv: GemvArgs,
    /// How the logits reach the gate.
    pub split_k: SplitKArgs,
}

/// What a `gemm` or `route` kernel for many tokens is given as its last by-value parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GemmArgs {
    /// Output, row-major `[m, n]`, BF16 or FP32; 0 where a router's logits are not asked for.
    pub y: u64,
    /// Tokens.
    pub m: u32,
    /// Weight rows.
    pub n: u32,
    /// Weight columns.
    pub k: u32,
    /// Not zero: the output is FP32, the sums as they are.
    pub y_fp32: u32,
    /// What of K each of the cluster's parts and of the grid's slices takes:
    /// [`Gemm::k_slices`](crate::instances::Gemm::k_slices).
    pub k_slices: KSlices,
    /// The split-K reduction, and the gate.
    pub split_k: SplitKArgs,
}

/// What a fallback is given, as its one by-value parameter: operands at any address and stride that BF16 allows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FallbackGemmArgs {
    /// Activations, BF16 `[m, k]`.
    pub x: u64,
    /// Elements between two tokens of x.
    pub x_stride: u64,
    /// Weights, BF16 `[terms, n, k]`.
    pub weights: u64,
    /// Elements between two weight rows.
    pub weight_stride: u64,
    /// Elements between two terms.
    pub term_stride: u64,
    /// The rest.
    pub gemm: GemmArgs,
}

/// What a `gemm` kernel is given that reads packed units, as its last by-value parameter. A format without exceptions
/// takes `weights` and `gemm` alone.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PackedGemmArgs {
    /// The units, in the order of [`crate::layout`], 16-byte aligned.
    pub weights: u64,
    /// Where the exceptions of each row block start, as the format says.
    pub starts: u64,
    /// The exceptions, row block by row block, in each by column.
    pub exceptions: u64,
    /// The palette's high bytes, entry i in byte i.
    pub palette: [u32; 2],
    /// The rest.
    pub gemm: GemmArgs,
}

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

/// What a `stream_read` kernel is given, as its one by-value parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamReadArgs {
    /// The bytes to read, 16-byte aligned.
    pub data: u64,
    /// How many; a multiple of 16.
    pub bytes: u64,
    /// One `u32` per warp of the grid: the exclusive or of all words the warp has read.
    pub out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_all_chunks_in_order_and_differ_by_one_at_most() {
        for chunks in 0..70 {
            for workers in 1..20 {
                let slices = KSlices::new(chunks, workers);
                let mut next = 0;
                for worker in 0..workers {
                    let (first, last) = slices.of(worker);
                    assert_eq!(first, next, "{worker} of {workers} for {chunks}");
                    assert!((chunks / workers..=chunks.div_ceil(workers)).contains(&(last - first)));
                    next = last;
                }
                assert_eq!(next, chunks);
            }
        }
        assert_eq!(KSlices::new(5, 0).of(0), (0, 5));
    }
}
