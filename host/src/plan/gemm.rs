//! Matrix products for many tokens: which instance, how many CTAs per cluster, how many slices of K.
//!
//! Every way to split the work is either rejected with a reason or given a cost by a small model of the device
//! ([`gemm_candidates`] shows the list), and the cheapest wins. A product takes
//!
//! * the longest of four streams: tiles from L2 into the busiest multiprocessor, weights from memory, the tensor cores' work there, and what
//!   it takes to bring packed units into the order of K;
//! * a start for each wave of CTAs;
//! * what it takes to put the parts of K together: inside clusters, and through global memory where slices or a gate need that;
//! * a router's choice of experts.

use super::measured::{self, Kernel, Op, Table};
use super::{Verdict, device};
use crate::{Error, Result, Shape};
use kernels_gpu::instances::{Format, Gemm, Loads, Purpose, WARP, gemms};
use kernels_gpu::layout::{UNIT_K, UNIT_WEIGHTS};
use std::fmt;

/// What a matrix product is planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GemmRequest {
    /// What becomes of the sums.
    pub purpose: Purpose,
    /// BF16 terms per weight.
    pub terms: usize,
    /// The weights' shape.
    pub shape: Shape,
    /// Tokens.
    pub m: usize,
    /// How operands can be loaded: [`Loads::Tensor`] where tensor maps can describe them.
    pub loads: Loads,
    /// Multiprocessors of the device.
    pub multiprocessors: usize,
    /// Slices of K that the caller's workspace can join: 1 where there is none.
    pub max_slices: usize,
    /// Instances that this device cannot be trusted with.
    pub left_out: LeftOut,
}

/// Instances whose results were wrong when they were checked on the device at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// A bit for each of [`gemms`].
    bits: u64,
}

impl LeftOut {
    /// No instances.
    pub const NONE: LeftOut = LeftOut { bits: 0 };

    /// Adds an instance.
    pub fn insert(&mut self, instance: &Gemm) {
        self.bits |= Self::bit(instance);
    }

    /// Whether it is one of them.
    pub fn contains(&self, instance: &Gemm) -> bool {
        self.bits & Self::bit(instance) != 0
    }

    /// All of them, in the order of their table.
    pub fn iter(&self) -> impl Iterator<Item = &'static Gemm> {
        gemms().filter(|instance| self.contains(instance))
    }

    fn bit(instance: &Gemm) -> u64 {
        let at = gemms().position(|compiled| compiled == instance);
        at.and_then(|at| 1u64.checked_shl(at as u32)).unwrap_or(0)
    }
}

impl fmt::Display for GemmRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.loads {
            Loads::Tensor => "tensor copies",
            Loads::Plain => "plain loads",
            Loads::Units(_) => "packed units",
        };
        write!(
            f,
            "{} weights of {} BF16 terms at m = {} by {how}",
            self.shape, self.terms, self.m
        )
    }
}

/// The most slices of K that a plan makes.
pub const MAX_SLICES: usize = 16;

/// Slices of K that are considered.
const SLICES: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, MAX_SLICES];

/// CTAs per cluster that a launch may have.
pub(super) const CLUSTERS: [usize; 4] = [1, 2, 4, 8];

/// One way to split a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// The kernel.
    pub instance: &'static Gemm,
    /// CTAs per cluster.
    pub cluster: usize,
    /// Slices of K.
    pub slices: usize,
}

/// One launch of a matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GemmPlan {
    /// The kernel.
    pub instance: &'static Gemm,
    /// Row tiles times CTAs per cluster along x, slices of K along y, token tiles along z.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub block: [u32; 3],
    /// CTAs per cluster.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Slices of K.
    pub slices: u32,
    /// Whether slices have sums of their own, added in their order. Else they share zeroed ones, to which they add as they come; several
    /// slices always do that, as it is faster.
    pub serial: bool,
}

/// Chooses the kernel and the launch. `m = 0` has no launch and gets none.
pub fn gemm(request: &GemmRequest) -> Result<Option<GemmPlan>> {
    if request.m == 0 {
        return Ok(None);
    }
    if let Some(division) = measured_division(request) {
        return launch_of(&division, request).map(Some);
    }
    let mut best: Option<(Division, f64)> = None;
    for (division, verdict) in gemm_candidates(request) {
        let Verdict::Cost(cost) = verdict else { continue };
        if best.is_none_or(|(_, least)| cost < least) {
            best = Some((division, cost));
        }
    }
    match best {
        Some((division, _)) => launch_of(&division, request).map(Some),
        None => Err(refused(request, "every compiled instance is rejected")),
    }
}

/// The launch of one given division, whether or not [`gemm`] would choose it.
pub fn gemm_with(division: &Division, request: &GemmRequest) -> Result<Option<GemmPlan>> {
    if request.m == 0 {
        return Ok(None);
    }
    let known = || gemms().any(|compiled| compiled == division.instance);
    let allowed = CLUSTERS.contains(&division.cluster) && (1..=MAX_SLICES).contains(&division.slices);
    let reason = if !known() {
        Some("is no kernel of this build")
    } else if !allowed {
        Some("splits K over clusters of 1, 2, 4 or 8 CTAs and over 1 to 16 slices")
    } else {
        unfit(division, request)
    };
    match reason {
        Some(reason) => Err(refused(request, &format!("{} {reason}", division.instance.name))),
        None => launch_of(division, request).map(Some),
    }
}

/// Every compiled instance, in the order of their table, in every division with its verdict.
pub fn gemm_candidates(request: &GemmRequest) -> impl Iterator<Item = (Division, Verdict)> {
    let divisions = gemms().flat_map(|instance| {
        let clusters = CLUSTERS.into_iter();
        clusters.flat_map(move |cluster| {
            SLICES.into_iter().map(move |slices| Division {
                instance,
                cluster,
                slices,
            })
        })
    });
    divisions.map(|division| {
        let verdict = match unfit(&division, request).or_else(|| unwise(&division, request)) {
            Some(reason) => Verdict::Rejected(reason),
            None => Verdict::Cost(cost(&division, request)),
        };
        (division, verdict)
    })
}

/// The division that was measured to be the fastest. Beyond the measured numbers of tokens there is none: more tokens want another one.
fn measured_division(request: &GemmRequest) -> Option<Division> {
    measured::tables().find_map(|table| measured_of(table, request))
}

pub(super) fn measured_of(table: &Table, request: &GemmRequest) -> Option<Division> {
    let op = match request.purpose {
        Purpose::Product => Op::Project,
        Purpose::Route => Op::Route,
    };
    let format = match (request.loads, request.terms) {
        (Loads::Units(format), _) => format,
        (_, 1) => Format::Bf16,
        (_, 2) => Format::Bf16x2,
        (_, 3) => Format::Bf16x3,
        _ => return None,
    };
    let fits = |division: &Division| {
        let rejected = unfit(division, request).or_else(|| unwise(division, request));
        // One for few tokens may be listed for more than a launch of it can address, where others can.
        rejected.is_none() && launch_of(division, request).is_ok()
    };
    table.division((op, format, request.shape), request.m, fits)
}

/// Every division that can and should serve a request, the cheapest first.
pub fn gemm_kernels(request: &GemmRequest) -> Vec<Kernel> {
    let costs = gemm_candidates(request).filter_map(|(division, verdict)| match verdict {
        Verdict::Cost(cost) => Some((Kernel::Gemm(division), cost)),
        Verdict::Rejected(_) => None,
    });
    super::cheapest_first(costs)
}

fn refused(request: &GemmRequest, reason: &str) -> Error {
    Error::NoInstance {
        request: request.to_string(),
        reason: reason.to_owned(),
    }
}

/// Why a division cannot serve a request, if it cannot.
fn unfit(division: &Division, request: &GemmRequest) -> Option<&'static str> {
    let Division { instance, slices, .. } = *division;
    if instance.purpose != request.purpose {
        return Some("is for another purpose");
    }
    if instance.terms != request.terms {
        return Some("reads weights of another number of terms");
    }
    if instance.loads != request.loads {
        return Some("loads its operands in another way");
    }
    if request.left_out.contains(instance) {
        return Some("gave a wrong result when it was checked on this device");
    }
    (slices > request.max_slices).then_some("splits K over slices, and there is no workspace to join so many")
}

/// Why a division should not serve a request, if it should not.
fn unwise(division: &Division, request: &GemmRequest) -> Option<&'static str> {
    let workers = division.cluster * division.slices;
    (workers > 1 && workers > request.shape.k().div_ceil(UNIT_K)).then_some("splits K into more parts than it has")
}

fn launch_of(division: &Division, request: &GemmRequest) -> Result<GemmPlan> {
    let Division {
        instance,
        cluster,
        slices,
    } = *division;
    let GemmRequest { shape, m, .. } = *request;
    let too_large = || Error::Grid {
        n: shape.n(),
        m,
        instance: instance.name,
    };
    // The kernels count tokens in 32 bits.
    u32::try_from(m).map_err(|_| too_large())?;
    let grid = instance.grid(m, shape.n(), cluster, slices).ok_or_else(too_large)?;
    Ok(GemmPlan {
        instance,
        grid,
        block: [instance.threads() as u32, 1, 1],
        cluster: [cluster as u32, 1, 1],
        shared_bytes: instance.shared_bytes() as u32,
        slices: slices as u32,
        serial: slices == 1,
    })
}

/// Microseconds that a product takes.
fn cost(division: &Division, request: &GemmRequest) -> f64 {
    let Division {
        instance,
        cluster,
        slices,
    } = *division;
    let (n, k, m) = (request.shape.n(), request.shape.k(), request.m);
    let multiprocessors = request.multiprocessors.max(1);
    let tiles = n
        .div_ceil(instance.rows())
        .saturating_mul(m.div_ceil(instance.tokens()));
    let on_busiest = tiles.saturating_mul(cluster * slices).div_ceil(multiprocessors);
    let together = on_busiest.min(instance.min_ctas) as f64;

    let cta_groups = k.div_ceil(UNIT_K).div_ceil(cluster * slices);
    let cta_bytes = (cta_groups * instance.stage_bytes() / instance.groups) as f64;
    let in_flight = together * cta_bytes.min((instance.stages * instance.stage_bytes()) as f64);
    let tiles_in = on_busiest as f64 * cta_bytes / (device::L2 * (in_flight / device::IN_FLIGHT).min(1.0));

    let bytes_per_weight = match instance.loads {
        Loads::Tensor | Loads::Plain => (2 * request.terms) as f64,
        Loads::Units(format) => format.unit_bytes() as f64 / UNIT_WEIGHTS as f64,
    };
    let weight_bytes = n as f64 * k as f64 * bytes_per_weight;
    let weights_in = weight_bytes / (multiprocessors as f64 * device::STREAM);

    let products = (instance.rows() * instance.tokens() * UNIT_K * request.terms) as f64;
    let rate = match instance.loads {
        Loads::Tensor | Loads::Units(_) => device::PRODUCTS,
        Loads::Plain => device::PRODUCTS / 2.0,
    };
    let multiplied = on_busiest as f64 * cta_groups as f64 * products / rate;
    let unit = match instance.loads {
        Loads::Tensor | Loads::Plain => 0.0,
        Loads::Units(Format::Window12) => device::WINDOW12_UNIT,
        Loads::Units(_) => device::BF16_UNIT,
    };
    let decoded = on_busiest as f64 * (cta_groups * instance.warps) as f64 * unit;

    let waves = on_busiest.div_ceil(instance.min_ctas) as f64;
    let clusters = if cluster > 1 {
        device::REDUCTION * (1.0 + f64::from(cluster.trailing_zeros()))
    } else {
        0.0
    };
    let joined = match (slices, request.purpose) {
        (1, Purpose::Product) => 0.0,
        (1, Purpose::Route) => device::JOIN,
        (slices, _) => device::JOIN + device::SLICE * slices as f64,
    };
    let chosen = match request.purpose {
        Purpose::Product => 0.0,
        Purpose::Route => {
            // A CTA chooses for its share of the tile's tokens, with all its warps.
            let share = m.min(instance.tokens()).div_ceil(cluster);
            device::CHOICE * share.div_ceil(instance.threads() / WARP) as f64
        }
    };
    tiles_in.max(weights_in).max(multiplied).max(decoded) + waves * device::CTA + clusters + joined + chosen
}

#[cfg(test)]
#[path = "gemm_tests.rs"]
mod tests;
