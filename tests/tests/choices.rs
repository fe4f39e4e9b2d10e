//! Kernels of choice, as those ask for them who measure kernels: each gives the right result, and one that does not fit
//! is refused.

use hopper_proj::bf16;
use hopper_proj::instances::formats::bf16::{BF16_PACKED_GEMM, ROUTE_BF16};
use hopper_proj::instances::{FALLBACK_GEMM, Format, GEMM, Gemm};
use hopper_proj::plan::{Division, Kernel};
use hopper_proj::raw::Overlap;
use hopper_proj::reference::{self, LOGITS_TOLERANCE};
use hopper_proj::{Router, RouterConfig, RouterOptions, RouterWeights, Score, Tokens};
use hopper_proj_tests::{Device, Values, check, prepare, prepare_row_major, shape, there};

/// Kernels of one request that are run; there are hundreds of divisions of a product.
const SHOWN: usize = 12;

#[test]
fn projections_are_right_by_every_kernel_of_choice() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let engine = &device.engine;
    let (shape, stream) = (shape(80, 320), &device.stream);
    let weights = values.bf16(80 * 320);
    let many = prepare_row_major(engine, &weights, shape).unwrap();
    let plain = prepare(engine, &weights, shape).unwrap();
    let packed = device.prepare(Format::Window12, &weights, shape);
    for (projection, m, kinds) in [
        (&many, 9, &["gemv_bf16_", "gemm_bf16_sm90_"][..]),
        (&many, 40, &["gemm_bf16_"]),
        (&plain, 9, &["gemv_bf16_", "gemm_bf16_units_"]),
        (&plain, 40, &["gemm_bf16_units_"]),
        (&packed, 9, &["gemv_window12_", "gemm_window12_"]),
        (&packed, 40, &["gemm_window12_"]),
    ] {
        let x = values.bf16(m * 320);
        let x_there = engine.upload(&x).unwrap();
        let kernels = engine.choices(projection, &x_there, m).unwrap();
        let starts = |kernel: &Kernel, kind: &str| kernel.name().starts_with(kind);
        assert!(
            kernels
                .iter()
                .all(|kernel| kinds.iter().any(|kind| starts(kernel, kind)))
        );
        let of = |kind: &'static str| {
            kernels
                .iter()
                .filter(move |kernel| starts(kernel, kind))
                .take(SHOWN / kinds.len())
        };
        assert!(
            kinds.iter().all(|kind| of(kind).count() > 1),
            "{kinds:?} of {kernels:?}"
        );
        for kernel in kinds.iter().flat_map(|kind| of(kind)) {
            for overlap in [Overlap::None, Overlap::Programmatic] {
                let mut y = engine.upload(&vec![bf16::NAN; m * 80]).unwrap();
                let plan = engine.plan_by(kernel, projection, &x_there, m).unwrap();
                engine
                    .project_as(plan.as_ref(), projection, &x_there, m, &mut y, stream, overlap)
                    .unwrap();
                engine.synchronize(stream).unwrap();
                check(&engine.download(&y, stream).unwrap(), &x, &weights, shape, m).unwrap();
            }
        }
    }
}

#[test]
fn routers_are_right_by_every_kernel_of_choice() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (shape, stream) = (shape(40, 320), &device.stream);
    let weights = values.fp32(40 * 320);
    let config = RouterConfig::new(Score::Softmax, 2);
    let options = RouterOptions::default().max_tokens(64);
    let router = Router::prepare(&device.engine, RouterWeights::Fp32(&weights), shape, &config, options).unwrap();
    for m in [9, 40] {
        let x = values.bf16(m * 320);
        let expected = reference::logits(&x, &weights, shape, m).unwrap();
        let x_there = device.engine.upload(&x).unwrap();
        let tokens = Tokens::new(&x_there, m);
        let kernels = router.kernels(tokens).unwrap();
        // Of the kernels for few tokens, one suits their number and how x lies.
        assert!(kernels.len() > if m > 32 { 2 } else { 0 });
        for kernel in kernels.iter().take(SHOWN) {
            let mut logits = there(&vec![f32::NAN; m * 40]);
            router
                .logits_by(Some(kernel), tokens, &mut logits, stream, Overlap::Programmatic)
                .unwrap();
            let seen = device.engine.download(&logits, stream).unwrap();
            let error = reference::relative_error_fp32(&seen, &expected);
            assert!(error <= LOGITS_TOLERANCE, "{error:e} by {kernel:?} at m = {m}");
        }
    }
}

/// What would not be chosen, but fits, gives the right result too.
#[test]
fn kernels_for_other_numbers_of_tokens_are_right_all_the_same() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let engine = &device.engine;
    let (shape, stream) = (shape(40, 136), &device.stream);
    let weights = values.bf16(40 * 136);
    let projection = prepare_row_major(engine, &weights, shape).unwrap();
    let product = |table: &'static [Gemm]| Kernel::Gemm(Division::whole(&table[0]));
    for (kernel, m) in [
        (product(FALLBACK_GEMM), 3),
        (product(FALLBACK_GEMM), 40),
        (product(BF16_PACKED_GEMM), 8),
        (product(BF16_PACKED_GEMM), 40),
        (Kernel::Gemv(&Format::Bf16.gemvs()[0]), 40),
    ] {
        let x = values.bf16(m * 136);
        let x_there = engine.upload(&x).unwrap();
        let mut y = engine.upload(&vec![bf16::NAN; m * 40]).unwrap();
        assert!(!engine.choices(&projection, &x_there, m).unwrap().contains(&kernel));
        let plan = engine.plan_by(&kernel, &projection, &x_there, m).unwrap();
        engine
            .project_as(plan.as_ref(), &projection, &x_there, m, &mut y, stream, Overlap::None)
            .unwrap();
        engine.synchronize(stream).unwrap();
        check(&engine.download(&y, stream).unwrap(), &x, &weights, shape, m).unwrap();
    }
}

#[test]
fn a_kernel_for_something_else_is_refused() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let engine = &device.engine;
    let shape = shape(16, 64);
    let weights = values.bf16(16 * 64);
    let projection = prepare_row_major(engine, &weights, shape).unwrap();
    let packed = device.prepare(Format::Window12, &weights, shape);
    let plain = prepare(engine, &weights, shape).unwrap();
    let x = engine.upload(&values.bf16(41 * 64)).unwrap();
    let product = Kernel::Gemm(Division::whole(&GEMM[0]));
    let few = Kernel::Gemv(&Format::Bf16.gemvs()[0]);
    let router = Kernel::Gemv(&ROUTE_BF16[0]);
    for (kernel, projection, first, m, words) in [
        (product, &packed, 0, 40, "another format"),
        (product, &plain, 0, 40, "no copy is kept"),
        (product, &projection, 1, 40, "not aligned"),
        (few, &projection, 1, 8, "not aligned"),
        (few, &packed, 0, 8, "another format"),
        (router, &projection, 0, 8, "another operation"),
    ] {
        let x = x.slice(first..first + m * 64).unwrap();
        let refused = engine.plan_by(&kernel, projection, x, m);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    let none = x.slice(..0).unwrap();
    assert_eq!(engine.plan_by(&few, &projection, none, 0).unwrap(), None);
    assert!(engine.choices(&projection, none, 0).unwrap().is_empty());
}
