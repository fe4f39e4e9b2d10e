//! Routers' logits against FP64, in every format, for every number of tokens, and however x lies.

use hopper_proj::plan::{Kernel, Plan};
use hopper_proj::reference::{self, LOGITS_GOAL, LOGITS_TOLERANCE};
use hopper_proj::{Router, RouterConfig, RouterOptions, RouterWeights, Score, Tokens};
use hopper_proj::{bf16, instances::Loads};
use hopper_proj_tests::router::{Hidden, check_gate};
use hopper_proj_tests::{Device, Values, shape, there};

fn config() -> RouterConfig {
    RouterConfig::new(Score::Sigmoid, 8)
        .groups(8, 4)
        .renormalize()
        .scale(2.5)
}

/// Routes and holds logits and gate against FP64; gives the logits' relative error.
fn check(device: &Device, router: &Router, weights: &[f32], hidden: Hidden<'_>) -> f64 {
    let m = hidden.m;
    let routed = device
        .route(router, hidden)
        .unwrap_or_else(|err| panic!("m = {m}: {err}"));
    check_gate(&routed, router.gate(), hidden.mask).unwrap_or_else(|wrong| panic!("m = {m}: {wrong}"));
    let exact = reference::logits(hidden.x, weights, router.shape(), m).unwrap();
    reference::relative_error_fp32(&routed.logits, &exact)
}

/// [`check`] for logits alone.
fn check_alone(device: &Device, router: &Router, weights: &[f32], hidden: Hidden<'_>) -> f64 {
    let logits = device.logits(router, hidden).unwrap();
    let exact = reference::logits(hidden.x, weights, router.shape(), hidden.m).unwrap();
    reference::relative_error_fp32(&logits, &exact)
}

/// The router's own shape, at numbers of tokens around every tile.
#[test]
fn logits_at_the_routers_shape_are_as_good_as_fp32() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k) = (256, 8192);
    let weights = values.fp32(experts * k);
    let router = device.fp32_router(&weights, experts, &config());
    for m in [1, 5, 7, 8, 9, 16, 32, 33, 64, 100, 128, 129, 256, 1000] {
        let x = values.bf16(m * k);
        let error = check(&device, &router, &weights, Hidden::new(&x, m));
        println!("m = {m}: {error:e}");
        assert!(error < LOGITS_GOAL, "m = {m}: {error:e}");
    }
    for m in [8, 40] {
        let x = values.bf16(m * k);
        let error = check_alone(&device, &router, &weights, Hidden::new(&x, m));
        assert!(error < LOGITS_GOAL, "m = {m}: {error:e}");
    }
}

/// Other shapes, odd ones among them.
#[test]
fn logits_of_other_shapes_are_as_good_as_fp32() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    for (experts, k, tokens) in [
        (16, 8192, &[1, 40][..]),
        (72, 509, &[7, 8, 100]),
        (40, 128, &[16, 129]),
        (1024, 64, &[3, 65]),
    ] {
        let weights = values.fp32(experts * k);
        let router = device.fp32_router(&weights, experts, &config());
        for &m in tokens {
            let x = values.bf16(m * k);
            let error = check(&device, &router, &weights, Hidden::new(&x, m));
            assert!(error < LOGITS_GOAL, "{experts} × {k}, m = {m}: {error:e}");
            let alone = check_alone(&device, &router, &weights, Hidden::new(&x, m));
            assert!(alone < LOGITS_GOAL, "{experts} × {k}, m = {m}: {alone:e}");
        }
    }
}

#[test]
fn three_terms_are_no_worse_than_two() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k) = (24, 1024);
    let weights = values.fp32(experts * k);
    let options = RouterOptions::default().terms(3);
    let router = device.router(RouterWeights::Fp32(&weights), experts, &config(), options);
    for m in [3, 40] {
        let x = values.bf16(m * k);
        let error = check(&device, &router, &weights, Hidden::new(&x, m));
        assert!(error < LOGITS_GOAL / 2.0, "m = {m}: {error:e}");
    }
}

/// Weights of any magnitude keep their residuals; a single BF16 term does not do.
#[test]
fn logits_of_tiny_and_huge_weights_are_within_the_tolerance() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k) = (48, 512);
    let weights = values.fp32(experts * k);
    let config = RouterConfig::new(Score::Identity, 4);
    for exponent in [-120, -100, 100, 115] {
        let scaled: Vec<f32> = weights.iter().map(|w| w * 2f32.powi(exponent)).collect();
        let router = device.fp32_router(&scaled, experts, &config);
        for m in [7, 40] {
            let x = values.bf16(m * k);
            let error = check(&device, &router, &scaled, Hidden::new(&x, m));
            assert!(error < LOGITS_TOLERANCE, "2^{exponent}, m = {m}: {error:e}");
            let rounded: Vec<bf16> = scaled.iter().map(|&w| bf16::from_f32(w)).collect();
            let router = device.router(
                RouterWeights::Bf16(&rounded),
                experts,
                &config,
                RouterOptions::default(),
            );
            let one_term = device.logits(&router, Hidden::new(&x, m)).unwrap();
            let exact = reference::logits(&x, &scaled, shape(experts, k), m).unwrap();
            let error = reference::relative_error_fp32(&one_term, &exact);
            assert!(
                error > LOGITS_TOLERANCE,
                "2^{exponent}, m = {m}: one term is off by {error:e}"
            );
        }
    }
}

/// Rows of all magnitudes side by side: each row's logits are as good as if it were alone.
#[test]
fn rows_of_different_magnitudes_do_not_disturb_each_other() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k) = (20, 256);
    let mut weights = values.fp32(experts * k);
    for (row, weights) in weights.chunks_mut(k).enumerate() {
        weights.iter_mut().for_each(|w| *w *= 2f32.powi(row as i32 * 12 - 118));
    }
    let config = RouterConfig::new(Score::Identity, 2);
    let router = device.fp32_router(&weights, experts, &config);
    for m in [2, 48] {
        let x = values.bf16(m * k);
        let logits = device.logits(&router, Hidden::new(&x, m)).unwrap();
        let exact = reference::logits(&x, &weights, shape(experts, k), m).unwrap();
        for row in 0..experts {
            let of = |at: usize| at * experts + row;
            let got: Vec<f32> = (0..m).map(|t| logits[of(t)]).collect();
            let exact: Vec<f64> = (0..m).map(|t| exact[of(t)]).collect();
            let error = reference::relative_error_fp32(&got, &exact);
            assert!(error < LOGITS_TOLERANCE, "row {row}, m = {m}: {error:e}");
        }
    }
}

#[test]
fn bf16_routers_are_exact_up_to_their_sums() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k) = (33, 600);
    let weights = values.bf16(experts * k);
    let config = RouterConfig::new(Score::SqrtSoftplus, 6).renormalize();
    let router = device.router(
        RouterWeights::Bf16(&weights),
        experts,
        &config,
        RouterOptions::default(),
    );
    for m in [1, 12, 32, 70] {
        let x = values.bf16(m * k);
        let routed = device.route(&router, Hidden::new(&x, m)).unwrap();
        check_gate(&routed, router.gate(), None).unwrap_or_else(|wrong| panic!("m = {m}: {wrong}"));
        let exact = reference::project(&x, &weights, shape(experts, k), m).unwrap();
        let error = reference::relative_error_fp32(&routed.logits, &exact);
        assert!(error < LOGITS_GOAL, "m = {m}: {error:e}");
    }
}

/// Any address that BF16 allows, any stride, any K: wide and narrow loads for few tokens, tensor copies and plain loads
/// for many.
#[test]
fn x_may_lie_anywhere() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let experts = 24;
    let config = RouterConfig::new(Score::Softmax, 3);
    for k in [128, 125] {
        let weights = values.fp32(experts * k);
        let router = device.fp32_router(&weights, experts, &config);
        for m in [5, 37] {
            let x = values.bf16(m * k);
            let mask: Vec<u8> = (0..m).map(|t| (t % 5 != 1).into()).collect();
            // NaNs before the tokens, and between them.
            for (lead, gap) in [(8, 0), (1, 0), (8, 8 - k % 8), (8, 3), (3, 64)] {
                let hidden = Hidden::new(&x, m).masked(&mask).apart(lead, gap);
                let error = check(&device, &router, &weights, hidden);
                assert!(
                    error < LOGITS_GOAL,
                    "k = {k}, m = {m}, lead {lead}, gap {gap}: {error:e}"
                );
            }
        }
    }
}

#[test]
fn the_plan_tells_the_kernel() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k) = (16, 128);
    let weights = values.fp32(experts * k);
    let config = RouterConfig::new(Score::Softmax, 1);
    let router = device.router(
        RouterWeights::Fp32(&weights),
        experts,
        &config,
        RouterOptions::default().max_tokens(64),
    );
    let x = device.engine.upload(&values.bf16(200 * k + 8)).unwrap();
    let plan = |lead: usize, m: usize| {
        let x = x.slice(lead..lead + m * k).unwrap();
        router.plan(Tokens::new(x, m)).unwrap()
    };
    assert_eq!(plan(0, 0), None);
    assert_eq!(plan(0, 1).unwrap().name(), "route_bf16x2_sm90_w8c8s2g1n1r1x8");
    assert_eq!(plan(1, 32).unwrap().name(), "route_bf16x2_sm90_w8c8s2g1n4r1x1");
    let loads = |plan: Option<Plan>| match plan.map(|plan| plan.kernel) {
        Some(Kernel::Gemm(division)) => Some(division.instance.loads),
        _ => None,
    };
    assert_eq!(loads(plan(0, 33)), Some(Loads::Tma));
    assert_eq!(loads(plan(8, 200)), Some(Loads::Tma));
    assert_eq!(loads(plan(1, 33)), Some(Loads::Masked));
}

/// More tokens than the workspace is for are several launches.
#[test]
fn tokens_beyond_the_workspace_are_walked() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (experts, k, m) = (16, 192, 100);
    let (weights, x) = (values.fp32(experts * k), values.bf16(m * k));
    let mask: Vec<u8> = (0..m).map(|t| (t % 3 != 0).into()).collect();
    let config = RouterConfig::new(Score::Sigmoid, 2).bias(values.fp32(experts));
    for max_tokens in [1, 7, 33, 64] {
        let options = RouterOptions::default().max_tokens(max_tokens);
        let router = device.router(RouterWeights::Fp32(&weights), experts, &config, options);
        let error = check(&device, &router, &weights, Hidden::new(&x, m).masked(&mask));
        assert!(error < LOGITS_GOAL, "{max_tokens}: {error:e}");
    }
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let device = Device::of_the_run();
    let config = RouterConfig::new(Score::Softmax, 2);
    let router = device.router(
        RouterWeights::Bf16(&[bf16::ONE; 4 * 6]),
        4,
        &config,
        RouterOptions::default(),
    );
    let x = device.engine.upload(&[bf16::ONE; 30]).unwrap();
    let mask = there(&[1u8; 4]);
    let route = |tokens: Tokens<'_>, ids_len, weights_len, logits_len: Option<usize>| {
        let (mut ids, mut weights) = (there(&vec![0i32; ids_len]), there(&vec![0f32; weights_len]));
        let mut logits = logits_len.map(|len| there(&vec![0f32; len]));
        let mut choices = hopper_proj::Choices::new(&mut ids, &mut weights);
        if let Some(logits) = &mut logits {
            choices = choices.logits(logits);
        }
        router.route(tokens, choices, &device.stream)
    };
    let tokens = |len, m| (x.slice(..len).unwrap(), m);
    for (given, stride, with_mask, lengths, words) in [
        (
            tokens(12, 2),
            None,
            false,
            (3, 4, None),
            "ids holds 3 elements, but [2, 2] needs exactly 4",
        ),
        (
            tokens(12, 2),
            None,
            false,
            (4, 5, None),
            "weights holds 5 elements, but [2, 2]",
        ),
        (
            tokens(12, 2),
            None,
            false,
            (4, 4, Some(9)),
            "logits holds 9 elements, but [2, 4]",
        ),
        (
            tokens(13, 2),
            None,
            false,
            (4, 4, None),
            "x holds 13 elements, but [2, 6] needs exactly 12",
        ),
        (
            tokens(12, 2),
            Some(5),
            false,
            (4, 4, None),
            "a stride of 5 elements, less than its 6 columns",
        ),
        (
            tokens(14, 2),
            Some(9),
            false,
            (4, 4, None),
            "x holds 14 elements, but 2 tokens at a stride of 9 need 15",
        ),
        (
            tokens(12, 2),
            None,
            true,
            (4, 4, None),
            "the token mask holds 4 elements, but [2, 1]",
        ),
        (
            tokens(12, 2),
            Some(usize::MAX),
            false,
            (4, 4, None),
            "does not fit in memory",
        ),
    ] {
        let ((x, m), (ids, weights, logits)) = (given, lengths);
        let mut tokens = Tokens::new(x, m);
        if let Some(stride) = stride {
            tokens = tokens.stride(stride);
        }
        if with_mask {
            tokens = tokens.mask(&mask);
        }
        let err = route(tokens, ids, weights, logits).expect_err(words).to_string();
        assert!(err.contains(words), "{err}\ndoes not say: {words}");
    }
    let none = RouterOptions::default().max_tokens(0);
    let weights = RouterWeights::Bf16(&[bf16::ONE; 24]);
    let prepare = |experts, k, config: &RouterConfig, options| {
        hopper_proj::Router::prepare(&device.engine, weights, shape(experts, k), config, options)
    };
    for (result, words) in [
        (prepare(4, 6, &config, none), "max_tokens is 0"),
        (prepare(4, 7, &config, RouterOptions::default()), "needs exactly 28"),
        (
            prepare(1, 24, &config, RouterOptions::default()),
            "of 1 experts, 1 to 1 can be chosen",
        ),
    ] {
        let err = result.expect_err(words).to_string();
        assert!(err.contains(words), "{err}");
    }
    device.engine.synchronize(&device.stream).unwrap();
}
