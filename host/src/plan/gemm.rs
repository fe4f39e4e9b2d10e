//! Matrix products: which of them can and should serve a request, in which division, and what that costs.
//!
//! A product takes
//!
//! * the longest of what comes in, the tensor cores' work in the busiest multiprocessor, and what it takes there to
//!   bring packed units into the order of K; tiles of rows that are there only to bring their part of a shared x count
//!   as the others do;
//! * a launch, and a start for each further wave of CTAs;
//! * what it takes to put sums together: in shared memory, inside clusters, and through global memory where slices or a
//!   gate need that;
//! * a router's choice of experts.

use super::gemv::is_coded;
use super::traffic::Traffic;
use super::{Device, Division, FEW_TOKENS, Op, Reason, Request};
use crate::formats::permute_unit_us;
use kernels_gpu::instances::{Gemm, Loads, WARP, gemms};
use kernels_gpu::layout::{UNIT_K, UNIT_WEIGHTS};

/// The most slices of K that a plan makes.
pub const MAX_SLICES: usize = 16;

/// Slices of K that are considered.
const SLICES: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, MAX_SLICES];

/// CTAs per cluster that a launch may have.
pub(super) const CLUSTERS: [usize; 4] = [1, 2, 4, 8];

/// Whether an instance can run in clusters of so many CTAs.
pub(super) fn runs_in(instance: &Gemm, cluster: usize) -> bool {
    CLUSTERS.contains(&cluster) && cluster.is_multiple_of(instance.multicast)
}

/// The divisions of an instance that are considered. The first one is [`Division::whole`]; a projection has no
/// workspace for several slices.
pub(super) fn divisions(instance: &'static Gemm, op: Op) -> impl Iterator<Item = Division> {
    let slices = match op {
        Op::Project => &SLICES[..1],
        Op::Route => &SLICES[..],
    };
    let clusters = CLUSTERS.into_iter().filter(|&cluster| runs_in(instance, cluster));
    clusters.flat_map(move |cluster| {
        slices.iter().map(move |&slices| Division {
            instance,
            cluster,
            slices,
        })
    })
}

/// Why no division of an instance of the request's operation and format can serve it, if none can.
pub(super) fn unfit(instance: &Gemm, request: &Request, device: &Device) -> Option<Reason> {
    if instance.loads.reads_rows() && !request.row_major {
        return Some(Reason::NotKept);
    }
    if instance.loads.has_map_of_x() && !request.x_aligned {
        return Some(Reason::Unaligned);
    }
    device.miscompiled.contains(instance).then_some(Reason::Miscompiled)
}

/// Why a division of an instance that fits cannot serve a request, if it cannot.
pub(super) fn unfit_division(division: &Division, request: &Request) -> Option<Reason> {
    if !runs_in(division.instance, division.cluster) || !(1..=MAX_SLICES).contains(&division.slices) {
        return Some(Reason::Division);
    }
    (division.slices > 1 && request.op == Op::Project).then_some(Reason::NoWorkspace)
}

/// Why a fitting division should not serve a request, if it should not. `by_rows` is whether a product over row-major
/// weights can.
pub(super) fn unwise(division: &Division, request: &Request, by_rows: bool) -> Option<Reason> {
    if request.m <= FEW_TOKENS {
        if request.op == Op::Route {
            return Some(Reason::FixedOrder);
        }
        if division.instance.loads == Loads::Masked {
            return Some(Reason::FewTokens);
        }
        if division.instance.multicast > 1 {
            return Some(Reason::LittleToShare);
        }
        if division.instance.tokens() > smallest_tile(division.instance) {
            return Some(Reason::EmptyBlocks);
        }
    }
    match division.instance.loads {
        Loads::Masked if request.x_aligned => return Some(Reason::NarrowLoads),
        Loads::Packed(_) if by_rows => return Some(Reason::RowMajorKept),
        _ => {}
    }
    let parts = division.instance.parts(division.cluster) * division.slices;
    (parts > 1 && parts > request.shape.k().div_ceil(UNIT_K)).then_some(Reason::ShortK)
}

/// The fewest tokens of a tile that products for the same weights have. Those for more are families of their own, which
/// a decoder does not load.
fn smallest_tile(instance: &Gemm) -> usize {
    let alike =
        gemms().filter(|other| (other.op, other.loads, other.terms) == (instance.op, instance.loads, instance.terms));
    alike.map(Gemm::tokens).min().unwrap_or(instance.tokens())
}

/// Microseconds that a product takes.
pub(super) fn cost(division: &Division, request: &Request, device: &Device) -> f64 {
    let Division {
        instance,
        cluster,
        slices,
    } = *division;
    let (n, k, m) = (request.shape.n(), request.shape.k(), request.m);
    let row_tiles = instance.row_tiles(n);
    let parts = instance.parts(cluster) * slices;
    let cta_groups = k.div_ceil(UNIT_K).div_ceil(parts);
    let group_weights = (instance.terms * instance.weight_tile_bytes()) as f64;
    let bytes_per_weight = match instance.loads {
        Loads::Tma | Loads::Masked => (2 * instance.terms) as f64,
        Loads::Packed(format) => format.unit_bytes() as f64 / UNIT_WEIGHTS as f64,
    };
    let traffic = Traffic {
        row_ctas: row_tiles.saturating_mul(parts),
        token_tiles: m.div_ceil(instance.tokens()),
        cluster,
        min_ctas: instance.min_ctas,
        weights: n as f64 * k as f64 * bytes_per_weight,
        cta_weights: cta_groups as f64 * group_weights,
        // Of a tile that has more rows than there are tokens, only those that there are.
        cta_x: (cta_groups * m.min(instance.tokens()) * instance.row_bytes()) as f64,
        sharing: instance.multicast,
        decoded: matches!(instance.loads, Loads::Packed(format) if is_coded(format)),
        ring: (instance.stages * instance.groups) as f64 * group_weights,
        reducing: instance.parts(cluster),
        sums: instance.partial_bytes() as f64,
        // Of the tokens that there are.
        tile: (instance.partial_bytes() / instance.tokens() * m.min(instance.tokens())) as f64,
    };
    let on_busiest = traffic.on_busiest(device);

    let products = (instance.rows() * instance.tokens() * UNIT_K * instance.terms) as f64;
    let rate = match instance.loads {
        Loads::Tma | Loads::Packed(_) => device.products,
        Loads::Masked => device.products / 2.0,
    };
    let multiplied = on_busiest as f64 * cta_groups as f64 * products / rate;
    let unit = match instance.loads {
        Loads::Tma | Loads::Masked => 0.0,
        Loads::Packed(format) => permute_unit_us(format) / device.clock,
    };
    let decoded = on_busiest as f64 * (cta_groups * instance.warps) as f64 * unit;

    let chosen = match request.op {
        Op::Project => 0.0,
        Op::Route => {
            // A CTA chooses for its share of the tile's tokens, with all its warps; those of a wave at once.
            let share = m.min(instance.tokens()).div_ceil(instance.parts(cluster));
            device.choice * (traffic.waves(device) * share.div_ceil(instance.threads() / WARP)) as f64
        }
    };
    let joined = match (slices, request.op) {
        (1, Op::Project) => 0.0,
        (1, Op::Route) => device.join,
        (slices, _) => device.join + device.slice * slices as f64,
    };
    traffic.around(device) + device.pipeline + traffic.bring_in(device).max(multiplied).max(decoded) + joined + chosen
}

#[cfg(test)]
#[path = "gemm_tests.rs"]
mod tests;
