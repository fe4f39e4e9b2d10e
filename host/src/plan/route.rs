//! A router's launch: a GEMV for few tokens, a matrix product for many.

use super::measured::{self, Kernel};
use super::{GemmPlan, GemmRequest, LeftOut, MAX_SLICES, Plan, WIDE_X, gemm, gemm_with};
use crate::{Error, Result, Shape};
use kernels_gpu::instances::{Format, GEMM, Gemv, Loads, PLAIN_GEMM, Purpose};
use std::fmt;

/// Up to so many tokens, a router's launch is a GEMV: it reads every weight once.
pub const FEW_TOKENS: usize = 32;

/// What a router's launch is planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteRequest {
    /// The weights' format.
    pub format: Format,
    /// The weights' shape: experts × columns.
    pub shape: Shape,
    /// Tokens.
    pub m: usize,
    /// Whether the tokens of x can be loaded in pieces of 16 bytes: they start at multiples of that, and K is a multiple of 8.
    pub x_wide: bool,
    /// How matrix products can load their operands: [`Loads::Tensor`] where tensor maps can describe x.
    pub loads: Loads,
    /// Whether matrix products may be used: there are row-major weights, and a token's sums may differ in their last bits with the tokens
    /// around it. Else every number of tokens is served by GEMVs, which add up a token's logits in the same order always.
    pub many: bool,
    /// Multiprocessors of the device.
    pub multiprocessors: usize,
}

impl RouteRequest {
    /// The matrix product that serves it, if one does.
    fn product(&self) -> Option<GemmRequest> {
        (self.many && self.m > FEW_TOKENS).then_some(GemmRequest {
            purpose: Purpose::Route,
            terms: self.format.terms(),
            shape: self.shape,
            m: self.m,
            loads: self.loads,
            multiprocessors: self.multiprocessors,
            max_slices: MAX_SLICES,
            left_out: LeftOut::NONE,
        })
    }

    /// Whether a GEMV loads x in the pieces in which it lies.
    fn fits(&self, instance: &Gemv) -> bool {
        (instance.x_values >= WIDE_X) == self.x_wide
    }
}

impl fmt::Display for RouteRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a router of {} {} weights at m = {}",
            self.shape,
            self.format.name(),
            self.m
        )
    }
}

/// One launch of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoutePlan {
    /// Of a GEMV.
    Few(Plan),
    /// Of a matrix product.
    Many(GemmPlan),
}

impl RoutePlan {
    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        match self {
            RoutePlan::Few(plan) => plan.instance.name,
            RoutePlan::Many(plan) => plan.instance.name,
        }
    }
}

/// Chooses the kernel and the launch. `m = 0` has no launch and gets none.
pub fn route(request: &RouteRequest) -> Result<Option<RoutePlan>> {
    if request.m == 0 {
        return Ok(None);
    }
    if let Some(product) = request.product() {
        return Ok(gemm(&product)?.map(RoutePlan::Many));
    }
    few(request).map(|plan| Some(RoutePlan::Few(plan)))
}

/// The launch of one given kernel, whether or not [`route`] would choose it.
pub fn route_with(kernel: &Kernel, request: &RouteRequest) -> Result<Option<RoutePlan>> {
    if request.m == 0 {
        return Ok(None);
    }
    let refused = |reason: &str| Error::NoInstance {
        request: request.to_string(),
        reason: format!("{} {reason}", kernel.name()),
    };
    match (kernel, request.product()) {
        (Kernel::Gemm(division), Some(product)) => Ok(gemm_with(division, &product)?.map(RoutePlan::Many)),
        (Kernel::Gemm(_), None) => Err(refused("is for many tokens, and for row-major weights")),
        (Kernel::Gemv(_), Some(_)) => Err(refused("is for few tokens")),
        (Kernel::Gemv(instance), None) if !request.format.routes().contains(instance) => {
            Err(refused("is no router over weights of this format"))
        }
        (Kernel::Gemv(instance), None) if !request.fits(instance) => Err(refused(
            "loads x in pieces of another size than these rows of x are for",
        )),
        (Kernel::Gemv(instance), None) => {
            let plan = super::gemv_launch(instance, request.shape, request.m)?;
            Ok(Some(RoutePlan::Few(plan)))
        }
    }
}

/// Every kernel that [`route_with`] has a sensible launch of; of matrix products, those first that should be the fastest.
pub fn route_kernels(request: &RouteRequest) -> Vec<Kernel> {
    if request.m == 0 {
        return Vec::new();
    }
    match request.product() {
        Some(product) => super::gemm_kernels(&product),
        None => {
            let fitting = request.format.routes().iter().filter(|i| request.fits(i));
            fitting.map(Kernel::Gemv).collect()
        }
    }
}

/// The smallest instance that takes all tokens at once, else the largest.
fn few(request: &RouteRequest) -> Result<Plan> {
    let instances = || request.format.routes().iter().filter(|i| request.fits(i));
    let smallest = || {
        let holds_all = instances().filter(|i| i.tokens() >= request.m);
        holds_all.min_by_key(|i| i.tokens())
    };
    // Every GEMV adds up a token's logits in the same order, so that the choice among them changes no bits.
    let instance = measured::route_gemv(request, |i| request.fits(i))
        .or_else(smallest)
        .or_else(|| instances().max_by_key(|i| i.tokens()));
    let instance = instance.ok_or_else(|| Error::NoInstance {
        request: request.to_string(),
        reason: "no router reads weights of this format".to_owned(),
    })?;
    super::gemv_launch(instance, request.shape, request.m)
}

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

/// The workspace for any launch of up to `max_tokens` tokens; see [`RouteRequest::many`] for `many`.
pub fn route_workspace(format: Format, shape: Shape, max_tokens: usize, many: bool) -> Result<WorkspaceSize> {
    let sums = Shape::area("the router's workspace", max_tokens, shape.n())?;
    let many = many && max_tokens > FEW_TOKENS;
    // Fewer tokens may be served by an instance that takes less of them at a time.
    let of_gemvs = format.routes().iter().map(|i| i.counters(max_tokens));
    let of_products = GEMM
        .iter()
        .chain(PLAIN_GEMM)
        .filter(|i| many && i.terms == format.terms())
        .map(|i| shape.n().div_ceil(i.rows()) * LARGEST_CLUSTER * max_tokens.div_ceil(i.tokens()));
    Ok(WorkspaceSize {
        sums,
        shared_sums: if many { sums } else { 0 },
        counters: of_gemvs.chain(of_products).max().unwrap_or(0),
    })
}

/// CTAs per cluster of a matrix product, at most.
const LARGEST_CLUSTER: usize = 8;

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
