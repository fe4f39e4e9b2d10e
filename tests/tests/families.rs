//! Families of kernels are loaded when weights are prepared that need them, and by nothing else.

use hopper_proj::formats::{PackFormat, Weights, window12};
use hopper_proj::instances::{Family, Format, GEMM};
use hopper_proj::plan::{Division, Kernel};
use hopper_proj::{
    Choices, DriverChoice, Engine, EngineOptions, Error, PrepareOptions, Router, RouterConfig, RouterOptions,
    RouterWeights, RowMajorCopy, Score, Tokens, bf16,
};
use hopper_proj_tests::{Values, check, poisoned, shape, there};
use std::ops::RangeInclusive;

fn engine() -> Engine {
    Engine::new(EngineOptions::on(DriverChoice::Emulated)).unwrap()
}

fn loaded(engine: &Engine) -> Vec<Family> {
    engine.kernels().loaded().collect()
}

#[test]
fn an_engine_loads_what_is_prepared_for() {
    let (engine, mut values) = (engine(), Values::fresh());
    assert_eq!(loaded(&engine), []);
    let (n, k) = (64, 640);
    let w = values.bf16(n * k);
    let prepare = |options: PrepareOptions| {
        let weights = Weights::bf16(&w, shape(n, k)).unwrap();
        engine.prepare(weights, &options).unwrap();
        loaded(&engine)
    };
    assert_eq!(prepare(PrepareOptions::tokens(0..=0)), []);
    assert_eq!(prepare(PrepareOptions::tokens(1..=8)), [Family::GemvBf16]);
    let window12 = PrepareOptions::tokens(1..=8).format(PackFormat::Window12);
    assert_eq!(prepare(window12), [Family::GemvBf16, Family::GemvWindow12]);
    let many = PrepareOptions::tokens(64..=64).row_major(RowMajorCopy::Keep);
    assert_eq!(
        prepare(many),
        [Family::GemvBf16, Family::GemvWindow12, Family::GemmBf16]
    );
}

/// A call within the prepared range loads nothing, for any alignment of x; one outside is refused, however it comes.
#[test]
fn calls_keep_to_the_range_that_was_prepared() {
    let mut values = Values::fresh();
    let (n, k) = (40, 128);
    let (w, x) = (values.bf16(n * k), values.bf16(60 * k + 1));
    let ranges: [(RangeInclusive<usize>, &[usize], &[usize]); 3] = [
        (1..=32, &[0, 1, 17, 32], &[33, 60]),
        (9..=40, &[0, 9, 33, 40], &[1, 8, 41]),
        (60..=60, &[0, 60], &[1, 32, 59]),
    ];
    for (range, inside, outside) in ranges {
        let engine = engine();
        let stream = engine.stream().unwrap();
        let weights = Weights::bf16(&w, shape(n, k)).unwrap();
        let projection = engine.prepare(weights, &PrepareOptions::tokens(range.clone())).unwrap();
        assert_eq!(projection.tokens(), range);
        let before = loaded(&engine);
        let there = engine.upload(&x).unwrap();
        for &m in inside {
            for lead in [0, 1] {
                let mut y = poisoned(m * n);
                let x_there = there.slice(lead..lead + m * k).unwrap();
                engine.project(&projection, x_there, m, &mut y, &stream).unwrap();
                engine.synchronize(&stream).unwrap();
                let y = engine.download(&y, &stream).unwrap();
                check(&y, &x[lead..lead + m * k], &w, shape(n, k), m).unwrap();
            }
        }
        assert_eq!(loaded(&engine), before);
        for &m in outside {
            let x_there = there.slice(..m * k).unwrap();
            let refused = engine.project(&projection, x_there, m, &mut poisoned(m * n), &stream);
            let err = refused.unwrap_err();
            assert!(matches!(err, Error::NotPrepared { .. }), "{err}");
            let words = format!("m = {} to {} tokens, and this call has {m}", range.start(), range.end());
            assert!(err.to_string().contains(&words), "{err}");
        }
        assert_eq!(loaded(&engine), before);
    }
}

/// Whatever is loaded during a capture would break it: see `graphs.rs` for what a capture allows.
#[test]
fn the_first_calls_may_be_captured() {
    let (engine, mut values) = (engine(), Values::fresh());
    let stream = engine.stream().unwrap();
    let (n, k, experts, m) = (64, 96, 16, 5);
    let (w, gate) = (values.bf16(n * k), values.fp32(experts * n));
    let weights = Weights::bf16(&w, shape(n, k)).unwrap();
    let projection = engine.prepare(weights, &PrepareOptions::tokens(1..=8)).unwrap();
    let config = RouterConfig::new(Score::Softmax, 2);
    let options = RouterOptions::default().max_tokens(8);
    let router = Router::prepare(&engine, RouterWeights::Fp32(&gate), shape(experts, n), &config, options).unwrap();
    let x_here = values.bf16(m * k);
    let x = engine.upload(&x_here).unwrap();
    let mut y = poisoned(m * n);
    let (mut ids, mut chosen) = (there(&vec![-9i32; m * 2]), there(&vec![f32::NAN; m * 2]));
    let mut graph = engine
        .capture(&stream, || {
            engine.project(&projection, &x, m, &mut y, &stream)?;
            let choices = Choices::new(&mut ids, &mut chosen);
            router.route(Tokens::new(&y, m), choices, &stream)
        })
        .unwrap();
    // SAFETY: all buffers of the capture live.
    unsafe { graph.launch(&stream) }.unwrap();
    engine.synchronize(&stream).unwrap();
    check(&engine.download(&y, &stream).unwrap(), &x_here, &w, shape(n, k), m).unwrap();
}

#[test]
fn a_kernel_that_is_not_loaded_is_an_error_of_the_launch() {
    let engine = engine();
    let kernel = Kernel::Gemm(Division::whole(&GEMM[0]));
    let err = engine.kernels().function(&kernel).unwrap_err().to_string();
    assert!(err.contains(kernel.name()) && err.contains("gemm_bf16"), "{err}");
    engine.kernels().load(kernel.family()).unwrap();
    engine.kernels().function(&kernel).unwrap();
}

/// Nothing packs or unpacks weights unasked.
#[test]
fn weights_keep_the_format_that_they_come_in() {
    let engine = engine();
    let (values, shape) = (vec![bf16::ONE; 64 * 64], shape(64, 64));
    let packed = window12::pack(&values, shape).unwrap();
    let format = |weights: Weights<'_>, options: PrepareOptions| engine.prepare(weights, &options).unwrap().format();
    let rows = || Weights::bf16(&values, shape).unwrap();
    let asked = |format| PrepareOptions::default().format(format);
    assert_eq!(format(rows(), PrepareOptions::default()), Format::Bf16);
    assert_eq!(
        format(packed.clone().into(), PrepareOptions::default()),
        Format::Window12
    );
    assert_eq!(format(packed.clone().into(), asked(PackFormat::Auto)), Format::Window12);
    assert_eq!(format(packed.clone().into(), asked(PackFormat::Bf16)), Format::Bf16);
    assert_eq!(format(rows(), asked(PackFormat::Window12)), Format::Window12);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let engine = engine();
    let prepare = |options: PrepareOptions| {
        let weights = Weights::bf16(&[bf16::ONE; 64], shape(8, 8)).unwrap();
        engine.prepare(weights, &options).map(drop)
    };
    let packed = PrepareOptions::default().format(PackFormat::Window12);
    let err = prepare(packed.row_major(RowMajorCopy::Keep)).unwrap_err();
    assert!(matches!(err, Error::NoRowMajor { .. }), "{err}");
    let (first, last) = (5, 1);
    let err = prepare(PrepareOptions::tokens(first..=last)).unwrap_err();
    assert!(err.to_string().contains("m = 5 to 1 tokens"), "{err}");
    for (rows, cols, words) in [(0..9, 0..8, "rows 0..9"), (0..8, 3..3, "columns 3..3")] {
        let err = prepare(PrepareOptions::default().rows(rows).cols(cols)).unwrap_err();
        assert!(err.to_string().contains(words), "{err}");
    }
    prepare(PrepareOptions::default().rows(1..4).cols(2..7)).unwrap();
}
