//! From a shape to a kernel instance and its launch: pure functions over tables, with no device in sight.
//!
//! A choice is made in two steps. Where the shape and the batch size were [measured], the fastest instance is taken. Elsewhere
//! every compiled instance is either rejected with a reason or given a cost by a small model of the device ([`candidates`] shows the
//! list), and the cheapest wins; of two equally cheap ones, the one that stands first in the table of instances.

mod gemm;
pub mod measured;
mod route;

pub use gemm::{Division, GemmPlan, GemmRequest, LeftOut, MAX_SLICES, gemm, gemm_candidates, gemm_kernels, gemm_with};
pub use route::{
    FEW_TOKENS, RoutePlan, RouteRequest, WorkspaceSize, route, route_kernels, route_with, route_workspace,
};

use crate::{Error, Result, Shape};
use kernels_gpu::instances::{Format, Gemv, gemvs};
use kernels_gpu::layout::UNIT_K;
use measured::Kernel;
use std::cmp::Ordering;
use std::fmt;

/// What a plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The weights' format.
    pub format: Format,
    /// The weights' shape.
    pub shape: Shape,
    /// Tokens: rows of x.
    pub m: usize,
    /// Whether every row of x starts at a multiple of 16 bytes; see [`Request::new`].
    pub x_aligned: bool,
}

impl Request {
    /// A request for an `x` that starts at device address `x`: its rows are aligned where the address is and K is a multiple of 8.
    pub fn new(format: Format, shape: Shape, m: usize, x: u64) -> Self {
        Request {
            format,
            shape,
            m,
            x_aligned: x.is_multiple_of(16) && shape.k().is_multiple_of(WIDE_X),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = if self.x_aligned { "16-byte" } else { "2-byte" };
        write!(
            f,
            "{} {} weights at m = {} with {rows} aligned rows of x",
            self.shape,
            self.format.name(),
            self.m
        )
    }
}

/// One launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The kernel.
    pub instance: &'static Gemv,
    /// CTAs along x (row blocks times CTAs per cluster) and y (tiles of tokens).
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub block: [u32; 3],
    /// CTAs per cluster.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
}

/// The device that the cost model describes: an H200, as measured with a cold L2.
mod device {
    /// Streaming multiprocessors.
    pub(super) const SMS: usize = 132;
    /// Bytes that one of them streams from memory in a microsecond (4.35 TB/s over all).
    pub(super) const STREAM: f64 = 32_900.0;
    /// Bytes that one of them loads from L2 in a microsecond.
    pub(super) const L2: f64 = 60_000.0;
    /// Bytes that must be in flight per multiprocessor for the full streaming rate.
    pub(super) const IN_FLIGHT: f64 = 32_768.0;
    /// Microseconds that a CTA takes to start, fill its ring and drain it.
    pub(super) const CTA: f64 = 0.8;
    /// Microseconds that a cluster's reduction adds, and again for each doubling of the cluster.
    pub(super) const REDUCTION: f64 = 0.15;
    /// Microseconds that it takes to put sums together in global memory: to add them, to count, and to read them again.
    pub(super) const JOIN: f64 = 0.9;
    /// Microseconds that a CTA takes to choose experts for one more token of each of its warps: instructions of the machine code, counted,
    /// not timed.
    pub(super) const CHOICE: f64 = 0.35;
    /// Microseconds that each slice of K adds to that, as all add to the same sums.
    pub(super) const SLICE: f64 = 0.05;
    /// Products of two BF16 values that a multiprocessor's tensor cores add up in a microsecond.
    pub(super) const PRODUCTS: f64 = 3.7e6;
    /// Microseconds that a multiprocessor takes to bring a unit of BF16 weights into the order of K, and to decode one of `window12` weights:
    /// the instructions of the machine code, counted, not timed.
    pub(super) const BF16_UNIT: f64 = 0.015;
    pub(super) const WINDOW12_UNIT: f64 = 0.03;
}

/// Values of x per load of the instances that need aligned rows.
const WIDE_X: usize = 8;

/// What the second step makes of one instance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// It can serve the request, in about this many microseconds.
    Cost(f64),
    /// It cannot, or should not, for this reason.
    Rejected(&'static str),
}

/// Chooses the kernel and the launch for a request. `m = 0` has no launch and gets none.
pub fn plan(request: &Request) -> Result<Option<Plan>> {
    if request.m == 0 {
        return Ok(None);
    }
    let instance = match measured::gemv(request) {
        Some(instance) => instance,
        None => cheapest(request)?,
    };
    launch_of(instance, request).map(Some)
}

/// The launch of one given instance for a request, whether or not [`plan`](plan()) would choose it.
pub fn plan_with(instance: &'static Gemv, request: &Request) -> Result<Option<Plan>> {
    if request.m == 0 {
        return Ok(None);
    }
    if let Some(reason) = unfit(instance, request) {
        return Err(Error::NoInstance {
            request: request.to_string(),
            reason: format!("{} {reason}", instance.name),
        });
    }
    launch_of(instance, request).map(Some)
}

/// Every compiled instance with its verdict, in the order of the table of instances.
pub fn candidates(request: &Request) -> impl Iterator<Item = (&'static Gemv, Verdict)> {
    request.format.gemvs().iter().map(|instance| {
        let verdict = match unfit(instance, request).or_else(|| unwise(instance, request)) {
            Some(reason) => Verdict::Rejected(reason),
            None => Verdict::Cost(cost(instance, request)),
        };
        (instance, verdict)
    })
}

/// Every instance that can and should serve a request, the cheapest first.
pub fn kernels(request: &Request) -> Vec<Kernel> {
    let costs = candidates(request).filter_map(|(instance, verdict)| match verdict {
        Verdict::Cost(cost) => Some((Kernel::Gemv(instance), cost)),
        Verdict::Rejected(_) => None,
    });
    cheapest_first(costs)
}

fn cheapest_first(costs: impl Iterator<Item = (Kernel, f64)>) -> Vec<Kernel> {
    let mut costs: Vec<_> = costs.collect();
    costs.sort_by(|a, b| a.1.total_cmp(&b.1));
    costs.into_iter().map(|(kernel, _)| kernel).collect()
}

/// The instance of that name.
pub fn instance(name: &str) -> Option<&'static Gemv> {
    gemvs().find(|instance| instance.name == name)
}

fn launch_of(instance: &'static Gemv, request: &Request) -> Result<Plan> {
    gemv_launch(instance, request.shape, request.m)
}

fn gemv_launch(instance: &'static Gemv, shape: Shape, m: usize) -> Result<Plan> {
    let too_large = || Error::Grid {
        n: shape.n(),
        m,
        instance: instance.name,
    };
    // The kernels count tokens in 32 bits.
    u32::try_from(m).map_err(|_| too_large())?;
    let grid = instance.grid(m, shape.n()).ok_or_else(too_large)?;
    Ok(Plan {
        instance,
        grid,
        block: [instance.threads() as u32, 1, 1],
        cluster: [instance.cluster as u32, 1, 1],
        shared_bytes: instance.shared_bytes() as u32,
    })
}

fn cheapest(request: &Request) -> Result<&'static Gemv> {
    let mut best: Option<(&'static Gemv, f64)> = None;
    for (instance, verdict) in candidates(request) {
        let Verdict::Cost(cost) = verdict else { continue };
        if best.is_none_or(|(_, least)| cost < least) {
            best = Some((instance, cost));
        }
    }
    best.map(|(instance, _)| instance).ok_or_else(|| Error::NoInstance {
        request: request.to_string(),
        reason: "every compiled instance is rejected".to_owned(),
    })
}

/// Why an instance cannot serve a request, if it cannot.
fn unfit(instance: &Gemv, request: &Request) -> Option<&'static str> {
    if instance.format != request.format {
        return Some("reads weights of another format");
    }
    if !request.format.gemvs().contains(instance) {
        return Some("is no kernel of this build");
    }
    (instance.x_values >= WIDE_X && !request.x_aligned)
        .then_some("loads x in 16-byte pieces, and these rows of x are not aligned to them")
}

/// Why an instance should not serve a request, if it should not.
fn unwise(instance: &Gemv, request: &Request) -> Option<&'static str> {
    if instance.x_values < WIDE_X && request.x_aligned {
        return Some("loads x in narrow pieces, and these rows of x are aligned for wide ones");
    }
    let sizes = || request.format.gemvs().iter().map(Gemv::tokens);
    let fitting = sizes().filter(|&tokens| tokens >= request.m).min().or(sizes().max());
    match fitting.map(|fitting| instance.tokens().cmp(&fitting)) {
        Some(Ordering::Less) => {
            Some("reads the weights once for every few tokens, where a larger instance reads them less often")
        }
        Some(Ordering::Greater) => Some("computes token blocks that would stay empty"),
        _ => None,
    }
}

/// Microseconds that the busiest multiprocessor takes.
fn cost(instance: &Gemv, request: &Request) -> f64 {
    let (n, k, m) = (request.shape.n(), request.shape.k(), request.m.max(1));
    let row_ctas = n.div_ceil(instance.rows()) * instance.cluster;
    let ctas = row_ctas.saturating_mul(m.div_ceil(instance.tokens()));

    // K is dealt out in whole groups, as evenly as they go: short of groups, some warps stream nothing.
    let groups = k.div_ceil(UNIT_K);
    let unit_bytes = (instance.format.unit_bytes() * instance.row_blocks) as f64;
    let cta_groups = groups.div_ceil(instance.cluster);
    let cta_in_flight = cta_groups.min(instance.warps * instance.stages * instance.groups) as f64 * unit_bytes;

    let on_busiest = ctas.div_ceil(device::SMS);
    let together = on_busiest.min(instance.min_ctas) as f64;
    let rate = device::STREAM * (together * cta_in_flight / device::IN_FLIGHT).min(1.0);
    let stream = on_busiest as f64 * cta_groups as f64 * unit_bytes / rate;

    // x comes from L2, once per CTA and padded to whole token blocks.
    let x_bytes = (k.div_ceil(instance.cluster) * instance.tokens() * 2) as f64;
    let x = on_busiest as f64 * x_bytes / device::L2;

    let waves = on_busiest.div_ceil(instance.min_ctas) as f64;
    let reduction = if instance.cluster > 1 {
        device::REDUCTION * (1.0 + (instance.cluster as f64).log2())
    } else {
        0.0
    };
    stream + x + waves * device::CTA + reduction
}

#[cfg(test)]
mod tests;
