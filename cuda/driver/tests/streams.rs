//! Streams and events.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ptr::{null_mut, without_provenance_mut};

#[test]
fn streams_tell_how_they_were_made() {
    let context = Context::new();
    let (mut least, mut greatest) = (1, 1);
    ok!(cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    assert!(greatest < least);
    let stream = handle!(cuStreamCreateWithPriority(1, -1000));
    let (mut flags, mut priority) = (0, 0);
    ok!(cuStreamGetFlags(stream, &mut flags));
    ok!(cuStreamGetPriority(stream, &mut priority));
    assert_eq!((flags, priority), (1, greatest));
    let mut owner = null_mut();
    ok!(cuStreamGetCtx(stream, &mut owner));
    assert_eq!(owner, context.0);
    ok!(cuStreamQuery(stream));
    let mut capturing = 9;
    ok!(cuStreamIsCapturing(stream, &mut capturing));
    assert_eq!(capturing, 0);
    let mut out = null_mut();
    assert_eq!(code!(cuStreamCreate(&mut out, 2)), INVALID_VALUE);
    assert_eq!(code!(cuStreamCreate(null_mut(), 0)), INVALID_VALUE);
}

#[test]
fn wrong_handles_are_refused() {
    let context = Context::new();
    let stream = handle!(cuStreamCreate(0));
    let event = handle!(cuEventCreate(0));
    let address = get!(cuMemAlloc_v2(16));
    for wrong in [event, context.0, without_provenance_mut(0x7fff_0000)] {
        assert_eq!(code!(cuStreamSynchronize(wrong)), INVALID_HANDLE);
        assert_eq!(code!(cuStreamDestroy_v2(wrong)), INVALID_HANDLE);
        assert_eq!(code!(cuMemsetD8Async(address, 0, 16, wrong)), INVALID_HANDLE);
        assert_eq!(code!(cuEventRecord(event, wrong)), INVALID_HANDLE);
    }
    for wrong in [stream, null_mut()] {
        assert_eq!(code!(cuEventRecord(wrong, null_mut())), INVALID_HANDLE);
        assert_eq!(code!(cuEventSynchronize(wrong)), INVALID_HANDLE);
        assert_eq!(code!(cuEventDestroy_v2(wrong)), INVALID_HANDLE);
        assert_eq!(code!(cuStreamWaitEvent(stream, wrong, 0)), INVALID_HANDLE);
    }
    assert_eq!(code!(cuStreamDestroy_v2(null_mut())), INVALID_HANDLE);
    ok!(cuStreamDestroy_v2(stream));
    assert_eq!(code!(cuStreamDestroy_v2(stream)), INVALID_HANDLE);
    assert_eq!(code!(cuStreamSynchronize(stream)), INVALID_HANDLE);
    ok!(cuEventDestroy_v2(event));
    assert_eq!(code!(cuEventQuery(event)), INVALID_HANDLE);
}

#[test]
fn a_stream_belongs_to_its_context() {
    let _first = Context::new();
    let stream = handle!(cuStreamCreate(0));
    let event = handle!(cuEventCreate(0));
    let _second = Context::new();
    let address = get!(cuMemAlloc_v2(16));
    assert_eq!(code!(cuMemsetD8Async(address, 0, 16, stream)), INVALID_HANDLE);
    assert_eq!(
        code!(cuEventRecord(event, null_mut())),
        INVALID_HANDLE,
        "the default stream is the second context's"
    );
    ok!(cuEventRecord(event, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuStreamWaitEvent(null_mut(), event, 0));
}

#[test]
fn events_take_the_time_between_them() {
    let _context = Context::new();
    let stream = handle!(cuStreamCreate(0));
    let (first, second) = (handle!(cuEventCreate(0)), handle!(cuEventCreate(0)));
    let mut milliseconds = 0.0;
    assert_eq!(
        code!(cuEventElapsedTime(&mut milliseconds, first, second)),
        INVALID_HANDLE,
        "not recorded yet"
    );
    ok!(cuEventQuery(first));
    let around = std::time::Instant::now();
    ok!(cuEventRecord(first, stream));
    std::thread::sleep(std::time::Duration::from_millis(5));
    ok!(cuEventRecordWithFlags(second, stream, 0));
    ok!(cuEventSynchronize(second));
    ok!(cuEventElapsedTime(&mut milliseconds, first, second));
    // A record is at the latest when it has been waited for.
    let most = around.elapsed().as_secs_f32() * 1.001e3;
    assert!((5.0..=most).contains(&milliseconds), "{milliseconds} of {most} ms");
    ok!(cuEventElapsedTime(&mut milliseconds, second, first));
    assert!(milliseconds <= -5.0, "{milliseconds} ms");

    let untimed = handle!(cuEventCreate(2));
    ok!(cuEventRecord(untimed, stream));
    assert_eq!(
        code!(cuEventElapsedTime(&mut milliseconds, first, untimed)),
        INVALID_HANDLE
    );
    let mut out = null_mut();
    assert_eq!(code!(cuEventCreate(&mut out, 8)), INVALID_VALUE);
    assert_eq!(
        code!(cuEventCreate(&mut out, 4)),
        INVALID_VALUE,
        "shared with other processes, and timed"
    );
    assert_eq!(code!(cuStreamWaitEvent(stream, first, 7)), INVALID_VALUE);
}

/// Counts its calls, and notes what a call of the driver's answers within it.
unsafe extern "C" fn count(calls: *mut c_void) {
    // SAFETY: the test passes two numbers.
    let calls = unsafe { &mut *calls.cast::<[u32; 2]>() };
    calls[0] += 1;
    calls[1] = code!(cuCtxSynchronize());
}

unsafe extern "C" fn count_callback(_stream: CUstream, status: CUresult, calls: *mut c_void) {
    assert_eq!(status, SUCCESS);
    // SAFETY: the test passes two numbers.
    unsafe { count(calls) };
}

#[test]
fn streams_call_the_host() {
    let _context = Context::new();
    let stream = handle!(cuStreamCreate(0));
    let mut calls = [0_u32; 2];
    let data = calls.as_mut_ptr().cast::<c_void>();
    ok!(cuLaunchHostFunc(stream, Some(count), data));
    ok!(cuStreamAddCallback(stream, Some(count_callback), data, 0));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(calls, [2, NOT_PERMITTED], "no call of the driver's is allowed in there");
    assert_eq!(code!(cuLaunchHostFunc(stream, None, data)), INVALID_VALUE);
    assert_eq!(
        code!(cuStreamAddCallback(stream, Some(count_callback), data, 1)),
        INVALID_VALUE
    );
}
