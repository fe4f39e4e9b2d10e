//! Matrix products for many tokens: which of them can and should serve a request, in which division, and what that costs.
//!
//! A product takes
//!
//! * the longest of four streams: tiles from L2 into the busiest multiprocessor, weights from memory, the tensor cores' work there, and what
//!   it takes to bring packed units into the order of K. x that CTAs share leaves L2 once for all of them; tiles of rows that are there only to
//!   bring their part of it count as the others do;
//! * a start for each wave of CTAs;
//! * what it takes to put the parts of K together: inside clusters, and through global memory where slices or a gate need that;
//! * a router's choice of experts.

use super::{Device, Division, FEW_TOKENS, Op, Reason, Request};
use kernels_gpu::instances::{Format, Gemm, Loads, WARP};
use kernels_gpu::layout::{UNIT_K, UNIT_WEIGHTS};

/// The most slices of K that a plan makes.
pub const MAX_SLICES: usize = 16;

/// Slices of K that are considered.
const SLICES: [usize; 8] = [1, 2, 3, 4, 6, 8, 12, MAX_SLICES];

/// CTAs per cluster that a launch may have.
pub(super) const CLUSTERS: [usize; 4] = [1, 2, 4, 8];

/// Whether an instance can run in clusters of so many CTAs.
pub(super) fn runs_in(instance: &Gemm, cluster: usize) -> bool {
    CLUSTERS.contains(&cluster) && cluster.is_multiple_of(instance.sharing)
}

/// The divisions of an instance that are considered. The first one is of nothing.
pub(super) fn divisions(instance: &'static Gemm) -> impl Iterator<Item = Division> {
    let clusters = CLUSTERS.into_iter().filter(|&cluster| runs_in(instance, cluster));
    clusters.flat_map(move |cluster| {
        SLICES.into_iter().map(move |slices| Division {
            instance,
            cluster,
            slices,
        })
    })
}

/// Whether an instance reads row-major weights.
pub(super) fn reads_rows(instance: &Gemm) -> bool {
    matches!(instance.loads, Loads::Tensor | Loads::Plain)
}

/// Why no division of an instance of the request's operation and format can serve it, if none can.
pub(super) fn unfit(instance: &Gemm, request: &Request, device: &Device) -> Option<Reason> {
    if reads_rows(instance) && !request.row_major {
        return Some(Reason::NotKept);
    }
    if instance.loads.has_map_of_x() && !request.x_aligned {
        return Some(Reason::Unaligned);
    }
    device.left_out.contains(instance).then_some(Reason::Wrong)
}

/// Why a division of an instance that fits cannot serve a request, if it cannot.
pub(super) fn unfit_division(division: &Division, request: &Request) -> Option<Reason> {
    if !runs_in(division.instance, division.cluster) || !(1..=MAX_SLICES).contains(&division.slices) {
        return Some(Reason::Division);
    }
    (division.slices > 1 && request.op == Op::Project).then_some(Reason::NoWorkspace)
}

/// Why a fitting division should not serve a request, if it should not. `by_rows` is whether a product over row-major weights can.
pub(super) fn unwise(division: &Division, request: &Request, by_rows: bool) -> Option<Reason> {
    if request.m <= FEW_TOKENS {
        return Some(Reason::FewTokens);
    }
    match division.instance.loads {
        Loads::Plain if request.x_aligned => return Some(Reason::NarrowLoads),
        Loads::Units(_) if by_rows => return Some(Reason::RowMajorKept),
        _ => {}
    }
    let parts = division.instance.parts(division.cluster) * division.slices;
    (parts > 1 && parts > request.shape.k().div_ceil(UNIT_K)).then_some(Reason::ShortK)
}

/// Microseconds that a product takes.
pub(super) fn cost(division: &Division, request: &Request, device: &Device) -> f64 {
    let Division {
        instance,
        cluster,
        slices,
    } = *division;
    let (n, k, m) = (request.shape.n(), request.shape.k(), request.m);
    let multiprocessors = device.multiprocessors.max(1);
    let row_tiles = instance.row_tiles(n);
    let token_tiles = m.div_ceil(instance.tokens());
    let parts = instance.parts(cluster) * slices;
    let ctas_of_tokens = row_tiles.saturating_mul(parts);
    let on_busiest = ctas_of_tokens.saturating_mul(token_tiles).div_ceil(multiprocessors);
    let together = on_busiest.min(instance.min_ctas) as f64;

    let cta_groups = k.div_ceil(UNIT_K).div_ceil(parts);
    // What a CTA sends for is read from L2 once, and arrives once in each of those that share it. L2 can give less to all multiprocessors than
    // these can take in, so that either may be the limit.
    let stage_bytes = instance.stage_bytes();
    let bytes_read =
        stage_bytes - instance.groups * (instance.x_tile_bytes() - instance.x_tile_bytes() / instance.sharing);
    let of_cta = |bytes: usize| (cta_groups * bytes / instance.groups) as f64;
    let in_flight = together * of_cta(bytes_read).min((instance.stages * bytes_read) as f64);
    let read = of_cta(bytes_read) / (device.l2 * (in_flight / device.in_flight).min(1.0));
    let tiles_in = on_busiest as f64 * read.max(of_cta(stage_bytes) / device.port);

    let bytes_per_weight = match instance.loads {
        Loads::Tensor | Loads::Plain => (2 * instance.terms) as f64,
        Loads::Units(format) => format.unit_bytes() as f64 / UNIT_WEIGHTS as f64,
    };
    let weight_bytes = n as f64 * k as f64 * bytes_per_weight;
    // Tiles of tokens that run at different times read weights again, from memory where L2 does not hold them.
    let at_a_time = (multiprocessors * instance.min_ctas / ctas_of_tokens.max(1)).max(1);
    let passes = if weight_bytes > device.l2_bytes as f64 {
        token_tiles.div_ceil(at_a_time)
    } else {
        1
    };
    let weights_in = passes as f64 * weight_bytes / (multiprocessors as f64 * device.stream);

    let products = (instance.rows() * instance.tokens() * UNIT_K * instance.terms) as f64;
    let rate = match instance.loads {
        Loads::Tensor | Loads::Units(_) => device.products,
        Loads::Plain => device.products / 2.0,
    };
    let multiplied = on_busiest as f64 * cta_groups as f64 * products / rate;
    let unit = match instance.loads {
        Loads::Tensor | Loads::Plain => 0.0,
        Loads::Units(Format::Window12) => device.window12_unit,
        Loads::Units(_) => device.bf16_unit,
    };
    let decoded = on_busiest as f64 * (cta_groups * instance.warps) as f64 * unit;

    let waves = on_busiest.div_ceil(instance.min_ctas) as f64;
    let chosen = match request.op {
        Op::Project => 0.0,
        Op::Route => {
            // A CTA chooses for its share of the tile's tokens, with all its warps.
            let share = m.min(instance.tokens()).div_ceil(instance.parts(cluster));
            device.choice * share.div_ceil(instance.threads() / WARP) as f64
        }
    };
    let joined = match (slices, request.op) {
        (1, Op::Project) => 0.0,
        (1, Op::Route) => device.join,
        (slices, _) => device.join + device.slice * slices as f64,
    };
    let streams = tiles_in.max(weights_in).max(multiplied).max(decoded);
    streams + waves * device.cta + device.reduction_of(cluster) + joined + chosen
}

#[cfg(test)]
#[path = "gemm_tests.rs"]
mod tests;
