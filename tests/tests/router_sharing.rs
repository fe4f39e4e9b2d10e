//! One router on several streams, threads and graphs: its calls are ordered, whatever runs them.

use hopper_cuda_driver::emulated::set_seed;
use hopper_cuda_driver::ffi::{self, stream_capture_mode as mode};
use hopper_proj::{Engine, Error, Graph, Router, RouterConfig, Score, Stream};
use hopper_proj_tests::router_call::Call;
use hopper_proj_tests::{Device, Values};
use std::ptr::null_mut;

const K: usize = 136;
const EXPERTS: usize = 24;
const TOP_K: usize = 3;

struct Setup {
    device: Device,
    values: Values,
    weights: Vec<f32>,
    router: Router,
}

fn setup() -> Setup {
    let (device, mut values) = (Device::of_the_run(), Values::fresh());
    let weights = values.fp32(EXPERTS * K);
    let config = RouterConfig::new(Score::Sigmoid, TOP_K).renormalize();
    let router = device.fp32_router(&weights, EXPERTS, &config);
    Setup {
        device,
        values,
        weights,
        router,
    }
}

#[test]
fn calls_on_several_streams_follow_each_other() {
    let Setup {
        device,
        mut values,
        weights,
        router,
    } = setup();
    let streams = [(); 3].map(|()| device.engine.stream().unwrap());
    for seed in 0..4 {
        set_seed(Some(seed));
        let mut calls: Vec<Call> = [5, 40, 1, 33, 70, 8]
            .into_iter()
            .map(|m| Call::new(&router, &mut values, m))
            .collect();
        for (at, call) in calls.iter_mut().enumerate() {
            call.queue(&router, &streams[at % 3]).unwrap();
        }
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        for call in &mut calls {
            call.check(&router, &weights).unwrap();
        }
    }
    set_seed(None);
}

#[test]
fn calls_of_several_threads_follow_each_other() {
    let Setup {
        device,
        mut values,
        weights,
        router,
    } = setup();
    let calls: Vec<Call> = (0..4).map(|at| Call::new(&router, &mut values, 3 + 20 * at)).collect();
    std::thread::scope(|scope| {
        for mut call in calls {
            let (engine, router, weights) = (&device.engine, &router, &weights);
            scope.spawn(move || {
                engine.make_current().unwrap();
                let stream = engine.stream().unwrap();
                for _ in 0..5 {
                    call.queue(router, &stream).unwrap();
                    stream.synchronize().unwrap();
                    call.check(router, weights).unwrap();
                }
            });
        }
    });
}

fn captured(engine: &Engine, stream: &Stream, router: &Router, calls: &mut [Call]) -> Graph {
    let record = || calls.iter_mut().try_for_each(|call| call.queue(router, stream));
    engine.capture(stream, record).unwrap()
}

#[test]
fn graphs_and_calls_may_share_a_router() {
    let Setup {
        device,
        mut values,
        weights,
        router,
    } = setup();
    let engine = &device.engine;
    let streams = [(); 2].map(|()| engine.stream().unwrap());
    let mut eager = Call::new(&router, &mut values, 6);
    let mut calls = [4, 41, 9, 2].map(|m| Call::new(&router, &mut values, m));
    let [first, second] = [0, 1].map(|at| {
        let calls = &mut calls[2 * at..2 * at + 2];
        captured(engine, &streams[at], &router, calls)
    });
    let mut graphs = [first, second];
    for round in 0..4 {
        for at in 0..2 {
            // SAFETY: the buffers live until the streams have been waited for.
            unsafe { graphs[at].launch(&streams[(at + round) % 2]) }.unwrap();
            eager.queue(&router, &streams[round % 2]).unwrap();
        }
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        for call in calls.iter_mut().chain([&mut eager]) {
            call.check(&router, &weights).unwrap();
        }
    }
}

#[test]
fn what_nothing_can_order_is_refused() {
    let Setup {
        device,
        mut values,
        weights,
        router,
    } = setup();
    let engine = &device.engine;
    let (stream, side) = (engine.stream().unwrap(), engine.stream().unwrap());
    let mut call = Call::new(&router, &mut values, 5);
    call.queue(&router, &stream).unwrap();
    // The stream of the last call is captured by now: nothing outside can wait for it.
    let captured = engine.capture(&stream, || {
        let err = call.queue(&router, &side).unwrap_err();
        assert!(matches!(err, Error::RouterInCapture), "{err}");
        call.queue(&router.with_own_workspace()?, &side)
    });
    drop(captured.unwrap());
    stream.synchronize().unwrap();
    side.synchronize().unwrap();
    call.check(&router, &weights).unwrap();
    call.queue(&router, &side).unwrap();
    side.synchronize().unwrap();
    call.check(&router, &weights).unwrap();
    // A capture that the engine knows nothing of.
    let (handle, mut graph) = (stream.handle().cast(), null_mut());
    // SAFETY: a live stream of the current context; the graph is destroyed once.
    unsafe {
        assert_eq!(ffi::cuStreamBeginCapture_v2(handle, mode::THREAD_LOCAL), 0);
        let err = call.queue(&router, &stream).unwrap_err();
        assert!(matches!(err, Error::ForeignCapture), "{err}");
        assert_eq!(ffi::cuStreamEndCapture(handle, &raw mut graph), 0);
        assert_eq!(ffi::cuGraphDestroy(graph), 0);
    }
}

/// Streams of one capture: the router orders its calls among them.
#[test]
fn a_capture_of_several_streams_orders_a_routers_calls() {
    let Setup {
        device,
        mut values,
        weights,
        router,
    } = setup();
    let engine = &device.engine;
    let (stream, side) = (engine.stream().unwrap(), engine.stream().unwrap());
    let mut calls = [7, 35].map(|m| Call::new(&router, &mut values, m));
    let captured = engine.capture(&stream, || {
        side.wait_for(&stream)?;
        let [first, second] = &mut calls;
        first.queue(&router, &stream)?;
        second.queue(&router, &side)?;
        stream.wait_for(&side)
    });
    let mut graph = captured.unwrap();
    for seed in 0..6 {
        set_seed(Some(seed));
        // SAFETY: the buffers live until the stream has been waited for.
        unsafe { graph.launch(&stream) }.unwrap();
        stream.synchronize().unwrap();
    }
    set_seed(None);
    for call in &mut calls {
        call.check(&router, &weights).unwrap();
    }
}

#[test]
fn a_reset_makes_a_spoilt_workspace_clean() {
    let Setup {
        device,
        mut values,
        weights,
        router,
    } = setup();
    let (stream, mut call) = (&device.stream, Call::new(&router, &mut values, 48));
    let workspace = router.memory().workspace;
    // SAFETY: what a launch leaves that is cut off half way: a counter and a shared sum that are not 0.
    unsafe {
        assert_eq!(ffi::cuMemsetD32_v2(workspace.counters, 1, 1), 0);
        assert_eq!(ffi::cuMemsetD32_v2(workspace.shared_sums, 1f32.to_bits(), 1), 0);
    }
    call.queue(&router, stream).unwrap();
    stream.synchronize().unwrap();
    assert!(call.check(&router, &weights).is_err(), "the test's own check");
    router.reset(stream).unwrap();
    call.queue(&router, stream).unwrap();
    stream.synchronize().unwrap();
    call.check(&router, &weights).unwrap();
}
