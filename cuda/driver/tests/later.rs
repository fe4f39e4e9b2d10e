//! Work that waits for a function of the host's: it runs beside the caller, and streams keep their order meanwhile.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ptr::null_mut;
use std::sync::mpsc::{Receiver, Sender, channel};

const NOT_READY: u32 = 600;

/// A host function that returns when it is told to.
struct Gate(Sender<()>);

unsafe extern "C" fn wait(receiver: *mut c_void) {
    // SAFETY: `Gate::close` passes a receiver of its own for each call.
    let receiver = unsafe { Box::from_raw(receiver.cast::<Receiver<()>>()) };
    // When the sender is gone, the test has failed, and its reason is what should be seen.
    let _ = receiver.recv();
}

impl Gate {
    /// Holds a stream up.
    fn close(stream: CUstream) -> Gate {
        let (sender, receiver) = channel();
        let receiver = Box::into_raw(Box::new(receiver));
        ok!(cuLaunchHostFunc(stream, Some(wait), receiver.cast()));
        Gate(sender)
    }

    fn open(self) {
        self.0.send(()).expect("the function waits");
    }
}

fn busy(stream: CUstream) -> bool {
    match code!(cuStreamQuery(stream)) {
        SUCCESS => false,
        NOT_READY => true,
        code => panic!("a stream answers {code}"),
    }
}

#[test]
fn what_follows_waits_and_the_caller_does_not() {
    let _context = Context::new();
    let (first, second) = (stream(), stream());
    let buffer = upload(&[1_u32]);
    let kernel = kernel_of(CHAIN, "patient");
    let (event, early) = (handle!(cuEventCreate(0)), handle!(cuEventCreate(0)));
    ok!(cuEventRecord(early, first));
    let gate = Gate::close(first);
    assert_eq!(launch_on(first, &[], kernel, buffer), SUCCESS);
    ok!(cuEventRecord(event, first));
    ok!(cuStreamWaitEvent(second, event, 0));
    ok!(cuMemsetD32Async(buffer, 7, 1, second));
    assert!(busy(first) && busy(second));
    assert_eq!(code!(cuEventQuery(event)), NOT_READY);
    assert_eq!(code!(cuEventElapsedTime(&mut 0.0, early, event)), NOT_READY);
    ok!(cuEventSynchronize(early));
    let third = stream();
    assert!(!busy(third), "other streams go on");
    assert_eq!(launch_on(third, &[], kernel, buffer), SUCCESS);
    ok!(cuStreamSynchronize(third));
    gate.open();
    ok!(cuEventSynchronize(event));
    let mut milliseconds = -1.0;
    ok!(cuEventElapsedTime(&mut milliseconds, early, event));
    assert!(milliseconds > 0.0);
    ok!(cuStreamSynchronize(second));
    assert_eq!(
        download::<u32>(buffer, 1),
        [7],
        "1, and 1 of each launch, and then the fill"
    );
    assert!(!busy(first) && !busy(second));
}

#[test]
fn the_default_stream_and_the_blocking_ones_wait_for_each_other() {
    let _context = Context::new();
    let blocking = handle!(cuStreamCreate(0));
    let buffer = upload(&[0_u32]);
    let gate = Gate::close(blocking);
    ok!(cuMemsetD32Async(buffer, 1, 1, null_mut()));
    assert!(busy(null_mut()), "the default stream waits for it");
    let other = handle!(cuStreamCreate(0));
    ok!(cuMemsetD32Async(buffer, 2, 1, other));
    assert!(busy(other), "and this one for the default stream");
    assert!(!busy(stream()), "but none that does not block");
    gate.open();
    assert_eq!(download::<u32>(buffer, 1), [2]);
    let gate = Gate::close(null_mut());
    ok!(cuMemsetD32Async(buffer, 3, 1, blocking));
    assert!(busy(blocking));
    gate.open();
    ok!(cuCtxSynchronize());
    assert_eq!(download::<u32>(buffer, 1), [3]);
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let context = Context::new();
    let buffer = upload(&[0_u32]);
    let per_thread = std::ptr::without_provenance_mut(2);
    let gate = Gate::close(per_thread);
    ok!(cuMemsetD32Async_ptsz(buffer, 1, 1, null_mut()));
    assert_eq!(code!(cuStreamQuery_ptsz(null_mut())), NOT_READY);
    let handle = context.0.expose_provenance();
    std::thread::spawn(move || {
        ok!(cuCtxSetCurrent(std::ptr::with_exposed_provenance_mut(handle)));
        ok!(cuStreamQuery_ptsz(null_mut()));
    })
    .join()
    .expect("the other thread's stream is free");
    gate.open();
    ok!(cuStreamSynchronize_ptsz(null_mut()));
    let mut found = 0_u32;
    ok!(cuMemcpyDtoH_v2_ptds((&raw mut found).cast(), buffer, 4));
    assert_eq!(found, 1);
}

#[test]
fn copies_of_ordinary_memory_are_waited_for() {
    let _context = Context::new();
    let stream = stream();
    let buffer = upload(&[5_u32]);
    let pinned = handle!(cuMemAllocHost_v2(4));
    let gate = Gate::close(stream);
    ok!(cuMemcpyDtoHAsync_v2(pinned, buffer, 4, stream));
    assert!(busy(stream));
    std::thread::scope(|scope| {
        let (stream, context) = (stream.addr(), handle!(cuCtxGetCurrent()).addr());
        let copy = scope.spawn(move || {
            ok!(cuCtxSetCurrent(std::ptr::without_provenance_mut(context)));
            let mut ordinary = 0_u32;
            let to = (&raw mut ordinary).cast();
            ok!(cuMemcpyDtoHAsync_v2(
                to,
                buffer,
                4,
                std::ptr::without_provenance_mut(stream)
            ));
            ordinary
        });
        gate.open();
        assert_eq!(
            copy.join().expect("the copy ends"),
            5,
            "it has been done when the call returns"
        );
    });
    // SAFETY: allocated above, and the copy has ended with the one behind it.
    assert_eq!(unsafe { pinned.cast::<u32>().read() }, 5);
    ok!(cuMemFreeHost(pinned));
}

#[test]
fn graphs_with_host_functions_run_beside_the_caller() {
    let _context = Context::new();
    let (stream, buffer) = (stream(), upload(&[0_u32]));
    let (sender, receiver) = channel::<()>();
    let receiver = Box::into_raw(Box::new(receiver));
    let graph = capture(stream, || {
        ok!(cuMemsetD32Async(buffer, 1, 1, stream));
        ok!(cuLaunchHostFunc(stream, Some(wait), receiver.cast()));
        ok!(cuMemsetD32Async(buffer, 2, 1, stream));
    });
    let exec = executable(graph);
    ok!(cuGraphLaunch(exec, stream));
    assert!(busy(stream));
    // What was launched stays as it was.
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(graph));
    sender.send(()).expect("the function waits");
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download::<u32>(buffer, 1), [2]);
}

#[test]
fn what_goes_wrong_later_is_the_contexts_fault() {
    let _context = Context::new();
    let stream = stream();
    let buffer = upload(&[0_u32]);
    let gate = Gate::close(stream);
    assert_eq!(launch_on(stream, &[], kernel_of(CHAIN, "patient"), buffer + 4), SUCCESS);
    gate.open();
    assert_eq!(code!(cuStreamSynchronize(stream)), ILLEGAL_ADDRESS);
    assert_eq!(code!(cuMemsetD32_v2(buffer, 0, 1)), ILLEGAL_ADDRESS, "it stays");
}

#[test]
fn what_is_freed_in_order_is_there_until_then() {
    let _context = Context::new();
    let (stream, out) = (stream(), upload(&[0_u32]));
    let address = get!(cuMemAllocAsync(4, stream));
    let gate = Gate::close(stream);
    ok!(cuMemsetD32Async(address, 9, 1, stream));
    ok!(cuMemcpyDtoDAsync_v2(out, address, 4, stream));
    ok!(cuMemFreeAsync(address, stream));
    assert_eq!(code!(cuMemFreeAsync(address, stream)), INVALID_VALUE, "once");
    gate.open();
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download::<u32>(out, 1), [9]);
    assert_eq!(code!(cuMemsetD32_v2(address, 0, 1)), INVALID_VALUE, "gone");
}
