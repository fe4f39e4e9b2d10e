//! What routers need of device memory.

use super::FEW_TOKENS;
use super::gemm::CLUSTERS;
use crate::{Result, Shape};
use kernels_gpu::instances::{FALLBACK_GEMM, Format, GEMM};

/// What a router's launches of up to some number of tokens need of device memory, beside weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceSize {
    /// FP32 values, of any content.
    pub sums: usize,
    /// FP32 values, zeros; none where matrix products are not used.
    pub shared_sums: usize,
    /// `u32` values, zeros.
    pub counters: usize,
}

/// The workspace for any launch of up to `max_tokens` tokens; `row_major` as in
/// [`Request::row_major`](super::Request::row_major).
pub fn route_workspace(format: Format, shape: Shape, max_tokens: usize, row_major: bool) -> Result<WorkspaceSize> {
    let sums = Shape::area("the router's workspace", max_tokens, shape.n())?;
    let products = row_major && max_tokens > FEW_TOKENS;
    let largest_cluster = CLUSTERS.into_iter().max().unwrap_or(1);
    // Fewer tokens may be served by an instance that takes less of them at a time.
    let of_gemvs = format.routes().iter().map(|i| i.counters(max_tokens));
    let of_products = GEMM
        .iter()
        .chain(FALLBACK_GEMM)
        .filter(|i| products && i.terms == format.terms())
        .map(|i| i.row_tiles(shape.n()) * i.parts(largest_cluster) * max_tokens.div_ceil(i.tokens()));
    Ok(WorkspaceSize {
        sums,
        shared_sums: if products { sums } else { 0 },
        counters: of_gemvs.chain(of_products).max().unwrap_or(0),
    })
}
