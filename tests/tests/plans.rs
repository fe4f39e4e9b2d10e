//! Whatever is planned is right: any shape, format, number of tokens and place of x, against FP64.

use approx::abs_diff_eq;
use hopper_proj::instances::Format;
use hopper_proj::reference::{self, LOGITS_TOLERANCE};
use hopper_proj::{Projection, Shape, bf16};
use hopper_proj::{RouterConfig, RouterOptions, RouterWeights, Score};
use hopper_proj_tests::router::Hidden;
use hopper_proj_tests::{Device, Values, check, prepare_row_major, shape};
use proptest::prelude::*;

/// How weights are kept.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Packed,
    RowMajorToo,
    Window12,
}

impl Kept {
    fn prepare(self, device: &Device, weights: &[bf16], shape: Shape) -> Projection {
        match self {
            Kept::Packed => device.prepare(Format::Bf16, weights, shape),
            Kept::RowMajorToo => prepare_row_major(&device.engine, weights, shape).unwrap(),
            Kept::Window12 => device.prepare(Format::Window12, weights, shape),
        }
    }
}

/// One projection held against FP64; the kernel's name.
fn project(kept: Kept, (n, k, m): (usize, usize, usize), lead: usize, values: &mut Values) -> &'static str {
    let (device, shape) = (Device::of_the_run(), shape(n, k));
    let (weights, x) = (values.bf16(n * k), values.bf16(m * k));
    let projection = kept.prepare(&device, &weights, shape);
    let y = device.project(None, &projection, &x, lead, m).unwrap();
    check(&y, &x, &weights, shape, m).unwrap_or_else(|wrong| panic!("{kept:?}, {lead} values in: {wrong}"));
    let there = device.fenced(&x, lead);
    let kernel = device
        .engine
        .kernel(&projection, there.slice(lead..lead + m * k).unwrap(), m);
    kernel.unwrap().unwrap()
}

/// One router's logits held against FP64.
fn route(weights: Kept, (n, k, m): (usize, usize, usize), (lead, gap): (usize, usize), values: &mut Values) {
    let device = Device::of_the_run();
    let config = RouterConfig::new(Score::Softmax, 1);
    let options = RouterOptions::default().max_tokens(m.min(300));
    let (fp32, x) = (values.fp32(n * k), values.bf16(m * k));
    let bf16s: Vec<bf16> = fp32.iter().map(|&weight| bf16::from_f32(weight)).collect();
    let (given, computed, options) = match weights {
        Kept::Packed => (RouterWeights::Fp32(&fp32), fp32.clone(), options.deterministic()),
        Kept::RowMajorToo => (RouterWeights::Fp32(&fp32), fp32.clone(), options.terms(3)),
        Kept::Window12 => (
            RouterWeights::Bf16(&bf16s),
            bf16s.iter().map(|weight| weight.to_f32()).collect(),
            options,
        ),
    };
    let router = device.router(given, n, &config, options);
    let logits = device.logits(&router, Hidden::new(&x, m).apart(lead, gap)).unwrap();
    let magnitude = |values: &[bf16]| {
        values
            .iter()
            .map(|v| bf16::from_f32(v.to_f32().abs()))
            .collect::<Vec<_>>()
    };
    let positive: Vec<f32> = computed.iter().map(|weight| weight.abs()).collect();
    let exact = reference::logits(&x, &computed, shape(n, k), m).unwrap();
    let total = reference::logits(&magnitude(&x), &positive, shape(n, k), m).unwrap();
    // Few logits can cancel to almost nothing, so errors are held against what was added up.
    for ((seen, exact), total) in logits.iter().zip(&exact).zip(&total) {
        assert!(
            abs_diff_eq!(f64::from(*seen), *exact, epsilon = LOGITS_TOLERANCE * total),
            "{n} × {k}, m = {m}, {weights:?}: {seen} is {exact}"
        );
    }
}

/// The most products of a case, all padding apart.
const MOST: usize = 1 << 21;
/// Tokens of a router, at most: it may walk them, with many warps for a few rows.
const ROUTED: usize = 600;

/// Numbers up to `most`, small ones as often as large ones, odd and even, 1 among them.
fn number(most: usize) -> impl Strategy<Value = usize> {
    (0..=most.ilog2(), any::<prop::sample::Index>())
        .prop_map(move |(bits, at)| ((1 << bits) + at.index(1 << bits)).min(most))
}

/// Rows, columns and up to so many tokens.
fn sizes(tokens: usize) -> impl Strategy<Value = (usize, usize, usize)> {
    (number(tokens), number(2048), number(512)).prop_map(|(m, k, n)| {
        let k = k.min(MOST / m).max(1);
        (n.min(MOST / m / k).max(1), k, m)
    })
}

fn kept() -> impl Strategy<Value = Kept> {
    prop::sample::select(vec![Kept::Packed, Kept::RowMajorToo, Kept::Window12])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_projection_is_right(kept in kept(), sizes in sizes(8192), lead in 0usize..=9, seed: u64) {
        project(kept, sizes, lead, &mut Values::fixed(seed));
    }

    #[test]
    fn any_router_is_right(weights in kept(), sizes in sizes(ROUTED), lead in 0usize..=9, gap in 0usize..=9, seed: u64) {
        route(weights, sizes, (lead, gap), &mut Values::fixed(seed));
    }
}

/// Far more tokens than any kernel takes at a time, for each way to keep weights and each way in which x can lie.
#[test]
fn thousands_of_tokens_are_right_by_every_path() {
    let mut values = Values::fresh();
    for (kept, sizes, lead, start) in [
        (Kept::Packed, (20, 72, 8192), 8, "gemm_bf16_units_"),
        (Kept::Packed, (9, 65, 8192), 8, "gemv_bf16_"),
        (Kept::RowMajorToo, (20, 72, 8192), 8, "gemm_bf16_sm90_"),
        (Kept::RowMajorToo, (20, 72, 8191), 3, "gemm_bf16_plain_"),
        (Kept::Window12, (20, 72, 8192), 8, "gemm_window12_"),
        (Kept::Window12, (1, 1, 8192), 8, "gemv_window12_"),
    ] {
        let kernel = project(kept, sizes, lead, &mut values);
        assert!(kernel.starts_with(start), "{kept:?} {sizes:?}: {kernel}");
    }
}
