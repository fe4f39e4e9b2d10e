//! GEMVs: which of them can and should serve a request, and what they cost.

use super::traffic::Traffic;
use super::{Device, FEW_TOKENS, Op, Reason, Request};
use kernels_gpu::instances::{Format, Gemv};
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, UNIT_WEIGHTS};
use std::cmp::Ordering;

/// Bytes of a BF16 value, and of an FP32 one.
const BF16: usize = 2;
const FP32: usize = 4;

/// Values of x per load of the instances that need aligned rows.
pub(super) const WIDE_X: usize = 8;

/// The GEMVs for an operation and a format.
pub(super) fn instances(request: &Request) -> &'static [Gemv] {
    match request.op {
        Op::Project => request.format.gemvs(),
        Op::Route => request.format.routes(),
    }
}

/// Why an instance of the request's operation and format cannot serve it, if it cannot.
pub(super) fn unfit(instance: &Gemv, request: &Request) -> Option<Reason> {
    (instance.x_values >= WIDE_X && !request.x_wide()).then_some(Reason::Unaligned)
}

/// Why a fitting instance should not serve a request, if it should not. `product` is whether a matrix product can,
/// `tokens` of how many an instance takes care at a time that suits the request.
pub(super) fn unwise(instance: &Gemv, request: &Request, product: bool, tokens: Option<usize>) -> Option<Reason> {
    if product && request.m > FEW_TOKENS {
        return Some(Reason::Walks);
    }
    if instance.x_values < WIDE_X && request.x_wide() {
        return Some(Reason::NarrowLoads);
    }
    match tokens.map(|tokens| instance.tokens().cmp(&tokens)) {
        Some(Ordering::Less) => Some(Reason::SmallBlocks),
        Some(Ordering::Greater) => Some(Reason::EmptyBlocks),
        _ => None,
    }
}

/// Of the instances that load x as it lies, the least number of tokens at a time that are all at once, else the
/// greatest.
pub(super) fn suitable_tokens(request: &Request) -> Option<usize> {
    let loads_well = |i: &&Gemv| (i.x_values >= WIDE_X) == request.x_wide();
    let sizes = || instances(request).iter().filter(loads_well).map(Gemv::tokens);
    let all_at_once = sizes().filter(|&tokens| tokens >= request.m).min();
    all_at_once.or_else(|| sizes().max())
}

/// Whether weights in a format are more than BF16 values.
pub(super) fn is_coded(format: Format) -> bool {
    format.unit_bytes() != UNIT_WEIGHTS * BF16 * format.terms()
}

/// Microseconds that a GEMV takes. Weights come in while its warps load x, then sums go out. The times of weights and
/// of x add up, as the prototypes' do.
pub(super) fn cost(instance: &Gemv, request: &Request, device: &Device) -> f64 {
    let (n, k, m) = (request.shape.n(), request.shape.k(), request.m.max(1));
    // K is dealt out in whole groups, as evenly as they go: short of groups, some warps stream nothing.
    let groups = k.div_ceil(UNIT_K);
    let cta_groups = groups.div_ceil(instance.cluster);
    let group_bytes = (instance.format.unit_bytes() * instance.row_blocks) as f64;
    let tile = (instance.rows() * instance.tokens() * FP32) as f64;
    let traffic = Traffic {
        row_ctas: n.div_ceil(instance.rows()) * instance.cluster,
        token_tiles: m.div_ceil(instance.tokens()),
        cluster: instance.cluster,
        min_ctas: instance.min_ctas,
        weights: n.div_ceil(UNIT_ROWS) as f64 * (groups * instance.format.unit_bytes()) as f64,
        cta_weights: cta_groups as f64 * group_bytes,
        cta_x: 0.0,
        sharing: 1,
        decoded: is_coded(instance.format),
        ring: (instance.warps * instance.stages * instance.groups) as f64 * group_bytes,
        reducing: instance.cluster,
        sums: instance.warps as f64 * tile,
        tile,
    };
    // Once per CTA, and none for tokens that are not there.
    let cta_x = (k.div_ceil(instance.cluster) * instance.tokens().min(m) * BF16) as f64;
    let x = traffic.on_busiest(device) as f64 * cta_x / device.x_loads;
    let joined = match instance.op {
        Op::Project => 0.0,
        Op::Route => {
            let rounds = instance.share_tokens().min(m).div_ceil(instance.warps);
            device.join + device.choice * rounds as f64
        }
    };
    traffic.around(device) + traffic.bring_in(device) + x + device.token_block * instance.token_blocks as f64 + joined
}
