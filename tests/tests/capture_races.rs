//! Captures while other threads, other engines and other values come and go: what is captured is whole, and what is not
//! runs.

use hopper_proj::{Buffer, Choices, Engine, Error, Event, Graph, Projection, Slice, SliceMut};
use hopper_proj::{DriverChoice, EngineOptions, Router, RouterConfig, RouterOptions, RouterWeights, Score};
use hopper_proj::{Stream, Tokens, bf16};
use hopper_proj_tests::router_call::Call;
use hopper_proj_tests::{Device, Values, prepare, shape, there};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const K: usize = 16;
const EXPERTS: usize = 8;
const TOP_K: usize = 2;

fn router(device: &Device, values: &mut Values) -> (Router, Vec<f32>) {
    let weights = values.fp32(EXPERTS * K);
    let config = RouterConfig::new(Score::Softmax, TOP_K);
    // Three terms keep all bits: over so few columns, what two of them lose need not cancel.
    let options = RouterOptions::default().terms(3);
    (
        device.router(RouterWeights::Fp32(&weights), EXPERTS, &config, options),
        weights,
    )
}

fn another_engine() -> Engine {
    Engine::new(EngineOptions::from_environment_or(DriverChoice::Auto).unwrap()).unwrap()
}

/// Launches a graph and waits for it.
fn replay(graph: &mut Graph, stream: &Stream) {
    // SAFETY: the tests keep the buffers that were captured until the launch has ended.
    unsafe { graph.launch(stream) }.unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn values_may_go_to_other_threads() {
    fn is_send_and_sync<T: Send + Sync>() {}
    fn is_send<T: Send>() {}
    is_send_and_sync::<(Engine, Stream, Event, Router, Projection, Buffer<bf16>)>();
    is_send_and_sync::<(
        Slice<'static, f32>,
        SliceMut<'static, f32>,
        Tokens<'static>,
        Choices<'static>,
    )>();
    is_send::<Graph>();
}

/// The engines of a device share its context, so that each takes what the others made.
#[test]
fn an_engine_captures_the_routers_of_another() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (router, weights) = router(&device, &mut values);
    let (engine, mut call) = (another_engine(), Call::new(&router, &mut values, 3));
    let stream = engine.stream().unwrap();
    let mut graph = engine.capture(&stream, || call.queue(&router, &stream)).unwrap();
    assert!(call.is_unwritten());
    drop(engine);
    for stream in [&stream, &device.stream] {
        replay(&mut graph, stream);
        call.check(&router, &weights).unwrap();
    }
}

#[test]
fn a_graph_outlives_the_streams_of_its_capture() {
    let device = Device::of_the_run();
    let mut graph = {
        let [stream, side] = [(); 2].map(|()| device.engine.stream().unwrap());
        let record = || {
            stream.barrier()?;
            side.wait_for(&stream)?;
            side.barrier()?;
            stream.wait_for(&side)
        };
        device.engine.capture(&stream, record).unwrap()
    };
    replay(&mut graph, &device.stream);
}

/// Whatever is dropped while a stream is captured, on this thread or another, with or without a context.
#[test]
fn a_capture_outlives_what_is_dropped_meanwhile() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (kept, weights) = router(&device, &mut values);
    let mut call = Call::new(&kept, &mut values, 2);
    let mut much = || {
        let engine = another_engine();
        let (router, _) = router(&device, &mut values);
        let projection = prepare(&engine, &[bf16::ONE; 15], shape(3, 5)).unwrap();
        let stream = engine.stream().unwrap();
        let mut used = Call::new(&router, &mut values, 1);
        let graph = engine.capture(&stream, || used.queue(&router, &stream)).unwrap();
        used.queue(&router, &stream).unwrap();
        let events = (engine.event().unwrap(), engine.timing_event().unwrap());
        stream.record(&events.0).unwrap();
        (router, projection, graph, events, used, stream, engine)
    };
    for elsewhere in [false, true] {
        let what = much();
        let record = || {
            call.queue(&kept, &device.stream)?;
            match elsewhere {
                false => drop(what),
                true => std::thread::spawn(|| drop(what)).join().unwrap(),
            }
            Ok(())
        };
        let mut graph = device.engine.capture(&device.stream, record).unwrap();
        replay(&mut graph, &device.stream);
        call.check(&kept, &weights).unwrap();
    }
}

#[test]
fn a_capture_that_fails_leaves_its_routers_as_they_were() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (router, weights) = router(&device, &mut values);
    let (engine, stream) = (&device.engine, engine_stream(&device));
    let mut call = Call::new(&router, &mut values, 3);
    for how in 0..3 {
        let record = || {
            router.reset(&stream)?;
            call.queue(&router, &stream)?;
            match how {
                0 => panic!("on purpose"),
                1 => stream.synchronize(),
                _ => Err(Error::OneTerm),
            }
        };
        let captured = std::panic::catch_unwind(AssertUnwindSafe(|| engine.capture(&stream, record)));
        assert_eq!(captured.is_err(), how == 0);
        assert!(captured.is_err() || captured.is_ok_and(|captured| captured.is_err()));
        assert!(call.is_unwritten());
        for stream in [&stream, &device.stream] {
            call.queue(&router, stream).unwrap();
            stream.synchronize().unwrap();
            call.check(&router, &weights).unwrap();
        }
    }
}

fn engine_stream(device: &Device) -> Stream {
    device.engine.stream().unwrap()
}

/// A graph in a graph, of which the inner one is gone when the outer one is launched.
#[test]
fn a_graph_may_be_captured_with_its_routers() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (engine, stream, side) = (&device.engine, &device.stream, engine_stream(&device));
    let (routers, weights): (Vec<Router>, Vec<Vec<f32>>) = (0..2).map(|_| router(&device, &mut values)).unzip();
    let mut calls = [2, 40].map(|m| Call::new(&routers[0], &mut values, m));
    let mut eager = Call::new(&routers[0], &mut values, 4);
    let mut record = |stream: &Stream| {
        let mut pairs = calls.iter_mut().zip(&routers);
        pairs.try_for_each(|(call, router)| call.queue(router, stream))
    };
    let mut inner = engine.capture(&side, || record(&side)).unwrap();
    // SAFETY: the buffers live until the stream has been waited for.
    let outer = engine.capture(stream, || unsafe { inner.launch(stream) });
    let mut outer = outer.unwrap();
    drop((inner, side));
    for _ in 0..2 {
        assert!(calls.iter().all(Call::is_unwritten));
        eager.queue(&routers[0], &engine_stream(&device)).unwrap();
        replay(&mut outer, stream);
        eager.check(&routers[0], &weights[0]).unwrap();
        for ((call, router), weights) in calls.iter_mut().zip(&routers).zip(&weights) {
            call.check(router, weights).unwrap();
        }
    }
}

#[test]
fn nothing_is_nothing() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let (engine, stream) = (&device.engine, &device.stream);
    let (router, _) = router(&device, &mut values);
    let projection = prepare(engine, &[bf16::ONE; 15], shape(3, 5)).unwrap();
    let mut empty = engine.upload::<bf16>(&[]).unwrap();
    assert!(engine.zeroed::<f32>(0).unwrap().is_empty() && empty.is_empty());
    assert!(engine.download(&empty, stream).unwrap().is_empty());
    engine.write(&mut empty, &[], stream).unwrap();
    let (x, mut call) = (
        engine.upload(&[bf16::ONE; 5]).unwrap(),
        Call::new(&router, &mut values, 0),
    );
    let record = || {
        engine.project(&projection, x.slice(5..)?, 0, &mut empty, stream)?;
        call.queue(&router, stream)
    };
    let mut graph = engine.capture(stream, record).unwrap();
    replay(&mut graph, stream);
    for len in [usize::MAX, usize::MAX / 4, usize::MAX / 4 + 1, 1 << 50] {
        assert!(engine.zeroed::<f32>(len).is_err(), "{len} values");
    }
    let m = usize::MAX;
    assert!(engine.project(&projection, &x, m, &mut empty, stream).is_err());
    for stride in [usize::MAX, usize::MAX / 2, K] {
        let (mut ids, mut weights) = (there(&[0i32; 4]), there(&[0f32; 4]));
        let choices = Choices::new(&mut ids, &mut weights);
        assert!(
            router
                .route(Tokens::new(&x, 2).stride(stride), choices, stream)
                .is_err()
        );
    }
}

/// One thread captures a stream over and over; others use it, and a router that used it, all the while. What a call
/// queued without an error is either in a graph, with its router, or runs; and nothing gets into a capture by chance.
#[test]
fn captures_and_calls_of_other_threads_do_not_mix() {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let engine = &device.engine;
    let (router, weights) = router(&device, &mut values);
    let (shared, done) = (engine_stream(&device), AtomicBool::new(false));
    let mut calls = [(); 2].map(|()| Call::new(&router, &mut values, 1));
    let mut on_shared = Call::new(&router, &mut values, 1);
    std::thread::scope(|scope| {
        let (router, weights, shared, done) = (&router, &weights, &shared, &done);
        scope.spawn(move || {
            engine.make_current().unwrap();
            while !done.load(Relaxed) {
                engine.capture(shared, || Ok(())).unwrap();
            }
        });
        scope.spawn(move || {
            engine.make_current().unwrap();
            while !done.load(Relaxed) {
                on_shared.queue(router, shared).unwrap();
                std::thread::yield_now();
            }
        });
        let users = calls.iter_mut().map(|call| {
            scope.spawn(move || {
                engine.make_current().unwrap();
                let own = engine.stream().unwrap();
                for _ in 0..300 {
                    match call.queue(router, &own) {
                        Ok(()) => {
                            own.synchronize().unwrap();
                            call.check(router, weights).unwrap();
                        }
                        Err(err) => assert!(matches!(err, Error::RouterInCapture), "{err}"),
                    }
                }
            })
        });
        let users: Vec<_> = users.collect();
        let ends: Vec<bool> = users.into_iter().map(|user| user.join().is_ok()).collect();
        done.store(true, Relaxed);
        assert_eq!(ends, [true; 2]);
    });
}
