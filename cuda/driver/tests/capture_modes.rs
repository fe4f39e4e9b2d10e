//! How captures of one thread bear on calls of another. A file of its own, one test at a time: a global capture stands
//! in the way of every thread of the process.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::{stream_capture_mode as mode, stream_capture_status as capturing, *};
use std::ptr::{null_mut, without_provenance_mut};

/// Allocates on a thread in this mode; what that answers.
fn allocate(context: CUcontext, mode: u32) -> u32 {
    let context = context.addr();
    let there = std::thread::spawn(move || {
        let (mut given, mut address) = (mode, 0);
        ok!(cuThreadExchangeStreamCaptureMode(&mut given));
        assert_eq!(given, self::mode::GLOBAL, "as every thread begins");
        ok!(cuCtxSetCurrent(without_provenance_mut(context)));
        code!(cuMemAlloc_v2(&mut address, 16))
    });
    there.join().expect("it answers")
}

#[test]
fn a_capture_is_minded_by_those_whom_its_mode_and_theirs_concern() {
    let context = Context::new();
    let stream = handle!(cuStreamCreate(1));
    let refused = STREAM_CAPTURE_UNSUPPORTED;
    for (captured, own, on_this_thread, on_another) in [
        (mode::GLOBAL, mode::GLOBAL, refused, refused),
        (mode::GLOBAL, mode::THREAD_LOCAL, refused, SUCCESS),
        (mode::GLOBAL, mode::RELAXED, SUCCESS, SUCCESS),
        (mode::THREAD_LOCAL, mode::GLOBAL, refused, SUCCESS),
        (mode::THREAD_LOCAL, mode::THREAD_LOCAL, refused, SUCCESS),
        (mode::THREAD_LOCAL, mode::RELAXED, SUCCESS, SUCCESS),
        (mode::RELAXED, mode::GLOBAL, SUCCESS, SUCCESS),
        (mode::RELAXED, mode::THREAD_LOCAL, SUCCESS, SUCCESS),
    ] {
        let what = format!("a capture in mode {captured}, a thread in mode {own}");
        let attempt = |call: &dyn Fn() -> u32, expected| {
            ok!(cuStreamBeginCapture_v2(stream, captured));
            assert_eq!(call(), expected, "{what}");
            let mut graph = null_mut();
            let ended = code!(cuStreamEndCapture(stream, &mut graph));
            let invalidated = if expected == SUCCESS {
                SUCCESS
            } else {
                STREAM_CAPTURE_INVALIDATED
            };
            assert_eq!(ended, invalidated, "{what}");
        };
        let here = || {
            let (mut given, mut address) = (own, 0);
            ok!(cuThreadExchangeStreamCaptureMode(&mut given));
            let answer = code!(cuMemAlloc_v2(&mut address, 16));
            ok!(cuThreadExchangeStreamCaptureMode(&mut given));
            assert_eq!(given, own);
            answer
        };
        attempt(&here, on_this_thread);
        attempt(&|| allocate(context.0, own), on_another);
    }

    let mut wrong = 3;
    assert_eq!(code!(cuThreadExchangeStreamCaptureMode(&mut wrong)), INVALID_VALUE);
    assert_eq!(code!(cuThreadExchangeStreamCaptureMode(null_mut())), INVALID_VALUE);

    // Not even a thread that minds nothing may wait for a context with a captured stream.
    let mut relaxed = mode::RELAXED;
    ok!(cuThreadExchangeStreamCaptureMode(&mut relaxed));
    ok!(cuStreamBeginCapture_v2(stream, mode::RELAXED));
    assert_eq!(code!(cuCtxSynchronize()), refused);
    assert_eq!(status(stream), capturing::INVALIDATED);
    assert_eq!(
        code!(cuStreamEndCapture(stream, &mut null_mut())),
        STREAM_CAPTURE_INVALIDATED
    );
    threads_capture_side_by_side(context.0);
}

/// Each thread captures and replays on a stream of its own, in one context.
fn threads_capture_side_by_side(context: CUcontext) {
    let context = context.addr();
    let patient = kernel_of(include_str!("ptx/chain.ptx"), "patient").addr();
    let buffers: Vec<CUdeviceptr> = (0..8).map(|_| upload(&[0_u32])).collect();
    std::thread::scope(|scope| {
        for &buffer in &buffers {
            scope.spawn(move || {
                ok!(cuCtxSetCurrent(without_provenance_mut(context)));
                let stream = handle!(cuStreamCreate(1));
                for _ in 0..20 {
                    let graph = capture(stream, || {
                        for _ in 0..5 {
                            let patient = without_provenance_mut(patient);
                            assert_eq!(launch_on(stream, &[], patient, buffer), SUCCESS);
                        }
                    });
                    let exec = executable(graph);
                    ok!(cuGraphLaunch(exec, stream));
                    ok!(cuStreamSynchronize(stream));
                    ok!(cuGraphExecDestroy(exec));
                    ok!(cuGraphDestroy(graph));
                }
            });
        }
    });
    for buffer in buffers {
        assert_eq!(download::<u32>(buffer, 1), [100]);
    }
}
