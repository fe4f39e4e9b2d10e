//! What kernels are given whose CTAs join their sums through global memory, and finish a router's tokens.

use super::{GateArgs, GemvArgs};

/// Where CTAs join their sums, and what the last of them does with these.
///
/// The workspace is left as it was found, so that calls and graph replays can follow each other for ever.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoinArgs {
    /// FP32 sums: `[m, n]`, all zeros, where they are added atomically; `[slices, m, n]`, of any content, where each slice of K
    /// has its own.
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

/// What a `route` kernel for few tokens is given, as its one by-value parameter. [`GemvArgs::y`] takes the logits; 0 where they
/// are not asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteArgs {
    /// The operands.
    pub gemv: GemvArgs,
    /// How the logits reach the gate.
    pub join: JoinArgs,
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
    /// How slices of K are joined, and the gate.
    pub join: JoinArgs,
}

/// What a kernel is given that loads its operands by plain addresses, of any alignment that BF16 allows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlainGemmArgs {
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

/// What a `gemm` kernel is given that reads packed units, as its last by-value parameter. Only `window12` weights use more than
/// `weights` and `gemm`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitGemmArgs {
    /// The units, in the order of [`crate::layout`], 16-byte aligned.
    pub weights: u64,
    /// As for [`Window12Args::starts`](super::Window12Args::starts).
    pub starts: u64,
    /// The exceptions, row block by row block, in each by column.
    pub exceptions: u64,
    /// The palette's high bytes, entry i in byte i.
    pub palette: [u32; 2],
    /// The rest.
    pub gemm: GemmArgs,
}
