//! What breaks a capture, and how it comes back.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::{stream_capture_mode as mode, stream_capture_status as capturing, *};
use std::ptr::{null_mut, without_provenance_mut};

#[test]
fn a_capture_ends_where_and_how_it_must() {
    let _context = Context::new();
    let (stream, other) = (stream(), stream());
    let mut graph = null_mut();
    assert_eq!(code!(cuStreamBeginCapture_v2(stream, 3)), INVALID_VALUE);
    assert_eq!(
        code!(cuStreamBeginCapture_v2(null_mut(), 0)),
        STREAM_CAPTURE_UNSUPPORTED
    );
    let gone = handle!(cuEventCreate(0));
    assert_eq!(code!(cuStreamBeginCapture_v2(gone, 0)), INVALID_HANDLE);
    assert_eq!(code!(cuStreamEndCapture(stream, &mut graph)), ILLEGAL_STATE);
    begin(stream);
    assert_eq!(code!(cuStreamBeginCapture_v2(stream, 1)), ILLEGAL_STATE);
    assert_eq!(code!(cuStreamEndCapture(stream, null_mut())), INVALID_VALUE);
    let event = handle!(cuEventCreate(0));
    ok!(cuEventRecord(event, stream));
    ok!(cuStreamWaitEvent(other, event, 0));
    assert_eq!(code!(cuStreamEndCapture(other, &mut graph)), STREAM_CAPTURE_UNMATCHED);
    let address = stream.addr();
    let elsewhere = std::thread::spawn(move || {
        let mut graph = null_mut();
        code!(cuStreamEndCapture(without_provenance_mut(address), &mut graph))
    });
    assert_eq!(elsewhere.join().expect("it answers"), STREAM_CAPTURE_WRONG_THREAD);
    ok!(cuStreamEndCapture(stream, &mut graph));
    assert!(nodes(graph).is_empty());

    ok!(cuStreamBeginCapture_v2(stream, mode::RELAXED));
    let elsewhere = std::thread::spawn(move || {
        let mut graph = null_mut();
        code!(cuStreamEndCapture(without_provenance_mut(address), &mut graph))
    });
    assert_eq!(elsewhere.join().expect("it answers"), SUCCESS);
}

#[test]
fn forked_work_must_be_joined() {
    let _context = Context::new();
    let (first, second, buffer) = (stream(), stream(), upload(&[0_u32]));
    let event = handle!(cuEventCreate(0));
    begin(first);
    ok!(cuEventRecord(event, first));
    ok!(cuStreamWaitEvent(second, event, 0));
    ok!(cuMemsetD32Async(buffer, 1, 1, second));
    ok!(cuEventRecord(event, second));
    ok!(cuStreamWaitEvent(first, event, 0));
    // Joined so far, but this is not.
    ok!(cuMemsetD32Async(buffer, 2, 1, second));
    end_failed(first, STREAM_CAPTURE_UNJOINED);
    assert_eq!(status(second), capturing::NONE);
}

/// What a call answers within a capture that it must break, and what the capture does from then on.
fn breaks(what: &str, expected: u32, call: impl FnOnce(CUstream, CUevent, CUdeviceptr) -> u32) {
    let _context = Context::new();
    let (stream, event, buffer) = (stream(), handle!(cuEventCreate(0)), upload(&[0_u32; 4]));
    ok!(cuEventRecord(event, stream));
    begin(stream);
    assert_eq!(call(stream, event, buffer), expected, "{what}");
    assert_eq!(status(stream), capturing::INVALIDATED, "{what}");
    assert_eq!(
        code!(cuMemsetD32Async(buffer, 1, 1, stream)),
        STREAM_CAPTURE_INVALIDATED,
        "{what}"
    );
    end_failed(stream, STREAM_CAPTURE_INVALIDATED);
    ok!(cuMemsetD32Async(buffer, 1, 1, stream));
    ok!(cuStreamSynchronize(stream));
}

unsafe extern "C" fn callback(_: CUstream, _: CUresult, _: *mut c_void) {}

#[test]
fn calls_that_cannot_be_captured_invalidate() {
    let (mut number, mut address, mut host) = (0_u32, 0, null_mut());
    let unsupported = STREAM_CAPTURE_UNSUPPORTED;
    breaks("synchronise the stream", unsupported, |stream, _, _| {
        code!(cuStreamSynchronize(stream))
    });
    breaks("ask whether it is done", unsupported, |stream, _, _| {
        code!(cuStreamQuery(stream))
    });
    breaks("synchronise another", unsupported, |_, _, _| {
        code!(cuStreamSynchronize(self::stream()))
    });
    breaks("synchronise the context", unsupported, |_, _, _| {
        code!(cuCtxSynchronize())
    });
    breaks("ask about an event", unsupported, |_, event, _| {
        code!(cuEventQuery(event))
    });
    breaks("wait for an event", unsupported, |_, event, _| {
        code!(cuEventSynchronize(event))
    });
    breaks("allocate", unsupported, |_, _, _| {
        code!(cuMemAlloc_v2(&mut address, 16))
    });
    breaks("free", unsupported, |_, _, buffer| code!(cuMemFree_v2(buffer)));
    breaks("allocate host memory", unsupported, |_, _, _| {
        code!(cuMemAllocHost_v2(&mut host, 16))
    });
    breaks("copy and wait", unsupported, |_, _, buffer| {
        code!(cuMemcpyDtoH_v2((&raw mut number).cast(), buffer, 4))
    });
    breaks("load a module", unsupported, |_, _, _| {
        code!(cuModuleLoadData(&mut host, c".version 8.0".as_ptr().cast()))
    });
    breaks("call back", unsupported, |stream, _, _| {
        code!(cuStreamAddCallback(stream, Some(callback), null_mut(), 0))
    });
    breaks(
        "wait for what was not captured",
        STREAM_CAPTURE_ISOLATION,
        |stream, event, _| code!(cuStreamWaitEvent(stream, event, 0)),
    );
    breaks("ask about a captured event", CAPTURED_EVENT, |stream, event, _| {
        ok!(cuEventRecord(event, stream));
        code!(cuEventQuery(event))
    });
    breaks("time a captured event", CAPTURED_EVENT, |stream, event, _| {
        ok!(cuEventRecord(event, stream));
        code!(cuEventElapsedTime(&mut 0.0, event, event))
    });
    breaks("pull in the default stream", unsupported, |stream, event, _| {
        ok!(cuEventRecord(event, stream));
        code!(cuStreamWaitEvent(null_mut(), event, 0))
    });
    breaks("destroy a stream of the capture", SUCCESS, |stream, event, _| {
        let forked = self::stream();
        ok!(cuEventRecord(event, stream));
        ok!(cuStreamWaitEvent(forked, event, 0));
        code!(cuStreamDestroy_v2(forked))
    });
    breaks(
        "wait for an event of a capture that has ended",
        CAPTURED_EVENT,
        |stream, event, _| {
            let other = self::stream();
            begin(other);
            ok!(cuEventRecord(event, other));
            ok!(cuStreamEndCapture(other, &mut null_mut()));
            code!(cuStreamWaitEvent(stream, event, 0))
        },
    );
    breaks("upload a graph", unsupported, |stream, _, _| {
        let exec = executable(handle!(cuGraphCreate(0)));
        code!(cuGraphUpload(exec, stream))
    });
}

#[test]
fn two_captures_do_not_merge() {
    let _context = Context::new();
    let (first, second, event) = (stream(), stream(), handle!(cuEventCreate(0)));
    begin(first);
    begin(second);
    ok!(cuEventRecord(event, first));
    assert_eq!(code!(cuStreamWaitEvent(second, event, 0)), STREAM_CAPTURE_MERGE);
    let third = stream();
    assert_eq!(code!(cuStreamWaitEvent(third, event, 0)), STREAM_CAPTURE_INVALIDATED);
    end_failed(first, STREAM_CAPTURE_INVALIDATED);
    end_failed(second, STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn the_default_stream_is_out_of_use_while_a_blocking_stream_is_captured() {
    let _context = Context::new();
    let (blocking, buffer) = (handle!(cuStreamCreate(0)), upload(&[0_u32; 4]));
    let mut id = 0;
    let attempts: [(&str, &dyn Fn() -> u32); 4] = [
        ("fill", &|| code!(cuMemsetD32_v2(buffer, 1, 1))),
        ("copy", &|| {
            code!(cuMemcpyDtoH_v2([0_u32; 1].as_mut_ptr().cast(), buffer, 4))
        }),
        ("synchronise", &|| code!(cuStreamSynchronize(null_mut()))),
        ("record", &|| {
            let event = handle!(cuEventCreate(0));
            code!(cuEventRecord(event, null_mut()))
        }),
    ];
    for (what, attempt) in attempts {
        begin(blocking);
        let mut status_of_default = 9;
        assert_eq!(
            code!(cuStreamIsCapturing(null_mut(), &mut status_of_default)),
            STREAM_CAPTURE_IMPLICIT
        );
        assert_eq!(
            code!(cuStreamGetCaptureInfo(null_mut(), &mut status_of_default, &mut id)),
            STREAM_CAPTURE_IMPLICIT
        );
        assert_eq!(status(blocking), capturing::ACTIVE, "to ask changes nothing");
        assert_eq!(attempt(), STREAM_CAPTURE_IMPLICIT, "{what}");
        end_failed(blocking, STREAM_CAPTURE_INVALIDATED);
    }
    let free = stream();
    let graph = capture(free, || ok!(cuMemsetD32_v2(buffer, 5, 4)));
    assert!(nodes(graph).is_empty());
    assert_eq!(
        download::<u32>(buffer, 4),
        [5; 4],
        "another stream's capture does not touch it"
    );
}

#[test]
fn a_stream_that_is_destroyed_takes_its_capture_along() {
    let _context = Context::new();
    let (stream, forked, event) = (stream(), stream(), handle!(cuEventCreate(0)));
    begin(stream);
    ok!(cuEventRecord(event, stream));
    ok!(cuStreamWaitEvent(forked, event, 0));
    ok!(cuStreamDestroy_v2(stream));
    assert_eq!(status(forked), capturing::NONE);
    ok!(cuCtxSynchronize());
    assert_eq!(code!(cuStreamWaitEvent(forked, event, 0)), CAPTURED_EVENT);
}
