//! Launches captured once and replayed on new values. A file of its own, one test at a time: seeds belong to all.

use hopper_cuda_driver::emulated::set_seed;
use hopper_cuda_driver::ffi::{self, stream_capture_mode as mode};
use hopper_proj::instances::Format;
use hopper_proj::reference::{self, LOGITS_GOAL, gate};
use hopper_proj::{Choices, Router, RouterConfig, RouterOptions, RouterWeights, Score, Tokens};
use hopper_proj::{DriverChoice, Engine, EngineOptions, Error, Graph, PrepareOptions, bf16};
use hopper_proj_tests::chain::{Chain, Layer, layers};
use hopper_proj_tests::{Device, Values, check, here, poisoned, prepare, prepare_row_major, shape, there};
use std::panic::AssertUnwindSafe;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The right to use the device.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Launches a graph and waits for it.
fn replay(device: &Device, graph: &mut Graph) {
    // SAFETY: the tests keep the buffers that were captured until the launch has ended.
    unsafe { graph.launch(&device.stream) }.unwrap();
    device.engine.synchronize(&device.stream).unwrap();
}

/// Captures a chain of projections, each on the result of the one before and overlapping it, and replays it many times.
fn replay_chain(device: &Device, values: &mut Values, layers: &[Layer], m: usize, replays: usize) {
    let mut chain = Chain::new(layers, m);
    let mut graph = device.engine.capture(&device.stream, || chain.queue(device)).unwrap();
    assert!(chain.is_unwritten(device), "captured, so not done");
    for at in 0..replays {
        let x = chain.refresh(device, values);
        replay(device, &mut graph);
        if at % 10 == 0 {
            chain.check(device, x);
        }
    }
}

#[test]
fn a_chain_of_projections_is_replayed_on_new_values() {
    let (_alone, device, mut values) = (alone(), Device::of_the_run(), Values::fresh());
    let layers = layers(&mut values, &[96, 200, 72, 130], |w, shape| {
        prepare(&device.engine, w, shape)
    });
    for m in [1, 8] {
        replay_chain(&device, &mut values, &layers, m, 100);
    }
}

/// Their kernels take tensor maps by value: the captured launch has copies.
#[test]
fn projections_of_many_tokens_are_replayed_on_new_values() {
    let (_alone, device, mut values) = (alone(), Device::of_the_run(), Values::fresh());
    let kept = |w: &[bf16], shape| prepare_row_major(&device.engine, w, shape);
    let layers = layers(&mut values, &[128, 72, 64], kept);
    replay_chain(&device, &mut values, &layers, 70, 11);
}

#[test]
fn a_router_is_replayed_on_new_values() {
    let (_alone, device, mut values) = (alone(), Device::of_the_run(), Values::fresh());
    let (engine, stream) = (&device.engine, &device.stream);
    let (k, experts) = (128, 24);
    let weights = values.fp32(experts * k);
    let config = RouterConfig::new(Score::Softmax, 2);
    let router = device.fp32_router(&weights, experts, &config);
    for m in [8, 48] {
        let mut x = engine.upload(&vec![bf16::NAN; m * k]).unwrap();
        let (mut ids, mut chosen) = (there(&vec![-9i32; m * 2]), there(&vec![f32::NAN; m * 2]));
        let mut logits = there(&vec![f32::NAN; m * experts]);
        let captured = engine.capture(stream, || {
            let choices = Choices::new(&mut ids, &mut chosen).logits(&mut logits);
            router.route(Tokens::new(&x, m), choices, stream)
        });
        let mut graph = captured.unwrap();
        for _ in 0..20 {
            let given = values.bf16(m * k);
            engine.write(&mut x, &given, stream).unwrap();
            replay(&device, &mut graph);
            let exact = reference::logits(&given, &weights, router.shape(), m).unwrap();
            let logits = here(&logits);
            assert!(reference::relative_error_fp32(&logits, &exact) < LOGITS_GOAL);
            gate::check(&here(&ids), &here(&chosen), &logits, router.gate(), None).unwrap();
        }
    }
}

/// One stream forks into two, and joins them: a chain on one, a router twice on the other.
#[test]
fn several_streams_are_one_graph() {
    let (_alone, device, mut values) = (alone(), Device::of_the_run(), Values::fresh());
    let (engine, m, experts) = (&device.engine, 9, 16);
    let (stream, side) = (&device.stream, engine.stream().unwrap());
    let shapes = [shape(72, 136), shape(88, 72), shape(72, 88)];
    let weights = shapes.map(|shape| values.bf16(shape.n() * shape.k()));
    let formats = [Format::Bf16, Format::Window12, Format::Bf16];
    let projections: Vec<_> = (0..3)
        .map(|at| device.prepare(formats[at], &weights[at], shapes[at]))
        .collect();
    let routing = values.fp32(experts * 72);
    let router = device.fp32_router(&routing, experts, &RouterConfig::new(Score::Sigmoid, 2));
    let mut x = poisoned(m * 136);
    let [mut hidden, mut wide, mut narrow] = shapes.map(|shape| poisoned(m * shape.n()));
    let (mut ids, mut chosen) = (there(&vec![-9i32; m * 2]), there(&vec![f32::NAN; m * 2]));
    let mut logits = there(&vec![f32::NAN; m * experts]);
    let captured = engine.capture(stream, || {
        engine.project(&projections[0], &x, m, &mut hidden, stream)?;
        side.wait_for(stream)?;
        engine.project(&projections[1], &hidden, m, &mut wide, stream)?;
        engine.project(&projections[2], &wide, m, &mut narrow, stream)?;
        for _ in 0..2 {
            let choices = Choices::new(&mut ids, &mut chosen).logits(&mut logits);
            router.route(Tokens::new(&hidden, m), choices, &side)?;
        }
        stream.wait_for(&side)?;
        Ok(())
    });
    let mut graph = captured.unwrap();
    for seed in 0..8 {
        set_seed(Some(seed));
        let given = values.bf16(m * 136);
        engine.write(&mut x, &given, stream).unwrap();
        replay(&device, &mut graph);
        let [hidden, wide, narrow] = [&hidden, &wide, &narrow].map(|y| engine.download(y, stream).unwrap());
        for (at, (x, y)) in [(&given, &hidden), (&hidden, &wide), (&wide, &narrow)]
            .into_iter()
            .enumerate()
        {
            check(y, x, &weights[at], shapes[at], m).unwrap();
        }
        let exact = reference::logits(&hidden, &routing, router.shape(), m).unwrap();
        let logits = here(&logits);
        assert!(reference::relative_error_fp32(&logits, &exact) < LOGITS_GOAL);
        gate::check(&here(&ids), &here(&chosen), &logits, router.gate(), None).unwrap();
    }
    set_seed(None);
}

/// What `record` does, in vain; then the stream serves as before.
fn fails(device: &Device, record: impl FnOnce(&Engine) -> hopper_proj::Result<()>) -> Error {
    let (engine, stream) = (&device.engine, &device.stream);
    let err = engine.capture(stream, || record(engine)).map(drop).unwrap_err();
    serves(device);
    err
}

/// Projects.
fn serves(device: &Device) {
    let (engine, stream) = (&device.engine, &device.stream);
    let projection = prepare(engine, &[bf16::ONE; 15], shape(3, 5)).unwrap();
    let (x, mut y) = (engine.upload(&[bf16::ONE; 5]).unwrap(), poisoned(3));
    engine.project(&projection, &x, 1, &mut y, stream).unwrap();
    engine.synchronize(stream).unwrap();
    assert_eq!(engine.download(&y, stream).unwrap(), [bf16::from_f32(5.0); 3]);
}

#[test]
fn a_panic_ends_the_capture() {
    let (_alone, device) = (alone(), Device::of_the_run());
    let record = || device.engine.capture(&device.stream, || panic!("on purpose"));
    assert!(std::panic::catch_unwind(AssertUnwindSafe(record)).is_err());
    serves(&device);
}

#[test]
fn what_cannot_be_captured_is_an_error_and_nothing_worse() {
    let (_alone, device) = (alone(), Device::of_the_run());
    let (x, mut y) = (poisoned(5), poisoned(3));
    let projection = prepare(&device.engine, &[bf16::ONE; 15], shape(3, 5)).unwrap();
    let err = fails(&device, |engine| {
        engine.project(&projection, &x, 2, &mut y, &device.stream)
    });
    assert!(err.to_string().contains("x holds 5 elements"), "{err}");
    let err = fails(&device, |engine| engine.synchronize(&device.stream));
    assert!(matches!(err, Error::Device { code: 900, .. }), "{err}");
    let err = fails(&device, |engine| engine.download(&x, &device.stream).map(drop));
    assert!(matches!(err, Error::Device { code: 900, .. }), "{err}");
    let err = fails(&device, |engine| engine.capture(&device.stream, || Ok(())).map(drop));
    assert!(matches!(err, Error::Device { code: 401, .. }), "{err}");
    // A stream that was drawn in, and that nothing waits for.
    let side = device.engine.stream().unwrap();
    let err = fails(&device, |engine| {
        side.wait_for(&device.stream)?;
        engine.project(&projection, &x, 1, &mut y, &side)
    });
    assert!(matches!(err, Error::Device { code: 904, .. }), "{err}");
    // Here the recording hides what went wrong.
    let err = fails(&device, |engine| {
        let hidden = engine.synchronize(&device.stream);
        assert!(hidden.is_err());
        Ok(())
    });
    assert!(matches!(err, Error::Device { code: 901, .. }), "{err}");
}

/// A family of kernels that no other test loads, memory and weights.
fn prepare_much(engine: &Engine) -> hopper_proj::Result<()> {
    let before = engine.kernels().loaded().count();
    let weights = hopper_proj::formats::window12::pack(&[bf16::ONE; 64 * 64], shape(64, 64))?;
    let projection = engine.prepare(weights, &PrepareOptions::tokens(300..=300))?;
    assert!(engine.kernels().loaded().count() > before, "with a self-test");
    let config = RouterConfig::new(Score::Softmax, 2);
    let router = Router::prepare(
        engine,
        RouterWeights::Fp32(&[1.0; 16 * 64]),
        shape(16, 64),
        &config,
        RouterOptions::default(),
    )?;
    drop(router.with_own_workspace()?);
    drop((projection, router, engine.upload(&[1f32; 7])?, engine.zeroed::<u32>(7)?));
    Ok(())
}

/// On the thread that captures, on another one, and on one beside a capture that is everybody's business.
#[test]
fn weights_are_prepared_while_a_stream_is_captured() {
    let _alone = alone();
    let modes = [
        (Some(mode::THREAD_LOCAL), true),
        (Some(mode::THREAD_LOCAL), false),
        (Some(mode::GLOBAL), true),
        (Some(mode::GLOBAL), false),
        (None, true),
        (None, false),
    ];
    for (foreign, here) in modes {
        // An engine of its own: nothing is loaded yet.
        let engine = Engine::new(EngineOptions::from_environment_or(DriverChoice::Auto).unwrap()).unwrap();
        let stream = engine.stream().unwrap();
        let prepare = || {
            if here {
                return prepare_much(&engine);
            }
            std::thread::scope(|scope| {
                let there = scope.spawn(|| {
                    engine.make_current()?;
                    prepare_much(&engine)?;
                    let mut mode = mode::RELAXED;
                    // SAFETY: reads and writes a number.
                    assert_eq!(unsafe { ffi::cuThreadExchangeStreamCaptureMode(&raw mut mode) }, 0);
                    assert_eq!(mode, self::mode::GLOBAL, "as it was before");
                    Ok(())
                });
                there.join().unwrap()
            })
        };
        let Some(foreign) = foreign else {
            engine.capture(&stream, prepare).unwrap();
            continue;
        };
        let (handle, mut graph) = (stream.handle().cast(), null_mut());
        // SAFETY: a live stream of the current context; the graph is destroyed once.
        unsafe {
            assert_eq!(ffi::cuStreamBeginCapture_v2(handle, foreign), 0);
            prepare().unwrap();
            assert_eq!(ffi::cuStreamEndCapture(handle, &raw mut graph), 0, "{foreign}, {here}");
            assert_eq!(ffi::cuGraphDestroy(graph), 0);
        }
    }
}
