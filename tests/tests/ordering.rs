//! In which order the library asks the driver for things: the log of a stand-in for NVIDIA's shows it.

use hopper_cuda_stand_in::{Call, StandIn};
use hopper_proj::formats::Weights;
use hopper_proj::{
    Choices, DriverChoice, Engine, EngineOptions, PrepareOptions, Router, RouterConfig, RouterOptions, RouterWeights,
    RowMajorCopy, Score, Stream, Tokens, bf16,
};
use hopper_proj_tests::shape;

/// The calls of the test of this name in a process that has the stand-in on loan.
fn calls_of(test: &str) -> Vec<Call> {
    let stand_in = StandIn::new().unwrap();
    let output = stand_in.test(test).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stand_in.calls().unwrap()
}

fn engine() -> Engine {
    Engine::new(EngineOptions::on(DriverChoice::Cuda)).unwrap()
}

fn router(engine: &Engine) -> Router {
    let weights = vec![1f32; 16 * 256];
    let config = RouterConfig::new(Score::Sigmoid, 2).bias(vec![0.5; 16]);
    let options = RouterOptions::default();
    Router::prepare(engine, RouterWeights::Fp32(&weights), shape(16, 256), &config, options).unwrap()
}

/// Calls that may still be under way when they return, and the streams that they are on.
const ASYNCHRONOUS: [&str; 4] = [
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuMemsetD32Async",
    "cuLaunchKernelEx",
];

/// Nothing of the calls uses the context's default stream, and whatever was started has been waited for: on its own
/// stream, after it.
fn all_is_waited_for(calls: &[Call]) {
    let old = [
        "cuMemcpyHtoD_v2",
        "cuMemsetD8_v2",
        "cuMemsetD32_v2",
        "cuMemcpyDtoH_v2",
        "cuCtxSynchronize",
    ];
    assert!(!calls.iter().any(|call| old.contains(&call.name.as_str())), "{calls:?}");
    let started = calls
        .iter()
        .enumerate()
        .filter(|(_, call)| ASYNCHRONOUS.contains(&call.name.as_str()));
    let mut count = 0;
    for (at, call) in started {
        let stream = call.number("stream");
        assert_ne!(stream, Some(0), "{call:?} is on the default stream");
        let waited = calls[at..]
            .iter()
            .any(|later| later.name == "cuStreamSynchronize" && later.number("stream") == stream);
        assert!(waited, "nobody waits for {call:?}");
        count += 1;
    }
    assert!(count > 0, "{calls:?}");
}

/// Calls that a capture elsewhere would forbid come in the thread's relaxed capture mode. The exchange after a call
/// shows the mode that it came in.
fn all_is_relaxed(calls: &[Call]) {
    const RELAXED: u64 = 2;
    let minded = [
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuModuleLoadDataEx",
        "cuMemcpyHtoDAsync_v2",
        "cuStreamCreate",
    ];
    let mut seen = 0;
    for (at, call) in calls
        .iter()
        .enumerate()
        .filter(|(_, call)| minded.contains(&call.name.as_str()))
    {
        let exchange = calls[at..]
            .iter()
            .find(|call| call.name == "cuThreadExchangeStreamCaptureMode");
        assert_eq!(exchange.unwrap().number("mode"), Some(RELAXED), "{call:?}");
        seen += 1;
    }
    assert!(seen > 0);
}

/// What the child did between the two events that it made; the library makes none of its own there.
fn between_marks(calls: Vec<Call>) -> Vec<Call> {
    let marks: Vec<usize> = (0..calls.len())
        .filter(|&at| calls[at].name == "cuEventCreate")
        .collect();
    let [first, last] = marks[..] else {
        panic!("{} marks in {calls:?}", marks.len())
    };
    calls[first + 1..last].to_vec()
}

#[test]
fn what_prepare_starts_is_done_when_it_returns() {
    const TEST: &str = "what_prepare_starts_is_done_when_it_returns";
    if StandIn::is_loaned() {
        let engine = engine();
        let weights = vec![bf16::ONE; 64 * 256];
        let _start = engine.event().unwrap();
        // With self-tests and a row-major copy.
        let options = PrepareOptions::tokens(1..=100).row_major(RowMajorCopy::Keep);
        let rows = Weights::bf16(&weights, shape(64, 256)).unwrap();
        let projection = engine.prepare(rows, &options).unwrap();
        let packed = hopper_proj::formats::window12::pack(&weights, shape(64, 256)).unwrap();
        let packed = engine.prepare(packed, &PrepareOptions::tokens(1..=100)).unwrap();
        let router = router(&engine);
        let own = router.with_own_workspace().unwrap();
        let _end = engine.event().unwrap();
        drop((projection, packed, router, own));
        return;
    }
    let calls = between_marks(calls_of(TEST));
    all_is_waited_for(&calls);
    all_is_relaxed(&calls);
    assert!(calls.iter().any(|call| call.name == "cuMemsetD8Async"), "{calls:?}");
}

#[test]
fn uploads_are_there_when_they_return() {
    const TEST: &str = "uploads_are_there_when_they_return";
    if StandIn::is_loaned() {
        let engine = engine();
        let stream = engine.stream().unwrap();
        let _start = engine.event().unwrap();
        let mut buffer = engine.upload(&[bf16::ONE; 24]).unwrap();
        let zeros = engine.zeroed::<f32>(7).unwrap();
        engine
            .write(buffer.slice_mut(2..4).unwrap(), &[bf16::ZERO; 2], &stream)
            .unwrap();
        let mut expected = vec![bf16::ONE; 24];
        expected[2..4].fill(bf16::ZERO);
        assert_eq!(engine.download(&buffer, &stream).unwrap(), expected);
        let _end = engine.event().unwrap();
        drop((buffer, zeros));
        return;
    }
    all_is_waited_for(&between_marks(calls_of(TEST)));
}

/// Queues a call whose results nobody reads.
fn route(engine: &Engine, router: &Router, streams: &[&Stream]) {
    let x = engine.upload(&[bf16::ONE; 3 * 256]).unwrap();
    let (mut ids, mut weights) = (engine.zeroed(3 * 2).unwrap(), engine.zeroed(3 * 2).unwrap());
    for stream in streams {
        let choices = Choices::new(&mut ids, &mut weights);
        router.route(Tokens::new(&x, 3), choices, stream).unwrap();
    }
}

/// The launches, and between two of them what orders their streams, as pairs of name and stream.
fn launches_and_orders(calls: &[Call]) -> Vec<(&str, u64)> {
    let of_interest = ["cuLaunchKernelEx", "cuEventRecord", "cuStreamWaitEvent"];
    let found = calls.iter().filter(|call| of_interest.contains(&call.name.as_str()));
    found
        .map(|call| (call.name.as_str(), call.number("stream").unwrap()))
        .collect()
}

/// A call waits, by an event, for the router's last one where that was on another stream, and for nothing else.
#[test]
fn a_routers_calls_wait_for_each_other() {
    const TEST: &str = "a_routers_calls_wait_for_each_other";
    if StandIn::is_loaned() {
        let engine = engine();
        let router = router(&engine);
        let (one, other) = (engine.stream().unwrap(), engine.stream().unwrap());
        route(&engine, &router, &[&one, &one, &other, &other, &one]);
        route(&engine, &router.with_own_workspace().unwrap(), &[&other]);
        return;
    }
    let calls = calls_of(TEST);
    let of_routers: Vec<Call> = {
        // Self-tests come first, in `prepare`.
        let first = calls
            .iter()
            .rposition(|call| call.name == "cuModuleLoadDataEx")
            .unwrap();
        let streams: Vec<usize> = (first..calls.len())
            .filter(|&at| calls[at].name == "cuLaunchKernelEx")
            .collect();
        calls[streams[streams.len() - 6]..].to_vec()
    };
    let found = launches_and_orders(&of_routers);
    let (one, other) = (found[0].1, found.last().unwrap().1);
    assert_ne!(one, other);
    let launch = |stream| ("cuLaunchKernelEx", stream);
    let follow = |from, to| [("cuEventRecord", from), ("cuStreamWaitEvent", to)];
    let expected = [
        &[launch(one), launch(one)][..],
        &follow(one, other),
        &[launch(other), launch(other)],
        &follow(other, one),
        &[launch(one), launch(other)],
    ]
    .concat();
    assert_eq!(found, expected);
}

/// A memset is no kernel, so nothing overlaps it: `overlap_chain.rs` shows what that does.
#[test]
fn barriers_are_memsets() {
    const TEST: &str = "barriers_are_memsets";
    if StandIn::is_loaned() {
        let engine = engine();
        let stream = engine.stream().unwrap();
        let _start = engine.event().unwrap();
        stream.barrier().unwrap();
        let _end = engine.event().unwrap();
        return;
    }
    let calls = between_marks(calls_of(TEST));
    // The event that marks the end asks for the context first.
    let [barrier, _] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(barrier.name, "cuMemsetD32Async");
    assert_ne!(barrier.number("stream"), Some(0));
}
