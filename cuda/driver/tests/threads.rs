//! Many threads at once, each on a stream of its own, in one context.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::emulated;
use hopper_cuda_driver::ffi::*;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Mutex;

/// Held by a test: what is left over is counted for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const THREADS: u32 = 8;
const ROUNDS: u32 = 40;

/// What one thread does over and over: memory in order, a launch, an event, a graph, a function of the host's.
fn round(stream: CUstream, kernel: CUfunction, step: u32) {
    let buffer = get!(cuMemAllocAsync(4, stream));
    ok!(cuMemsetD32Async(buffer, step, 1, stream));
    assert_eq!(launch_on(stream, &[], kernel, buffer), SUCCESS);
    let event = handle!(cuEventCreate(0));
    let mut calls = 0_u32;
    ok!(cuLaunchHostFunc(stream, Some(increment), (&raw mut calls).cast()));
    let graph = capture(stream, || {
        assert_eq!(launch_on(stream, &[], kernel, buffer), SUCCESS);
    });
    let exec = executable(graph);
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuEventRecord(event, stream));
    let mut found = 0_u32;
    ok!(cuMemcpyDtoHAsync_v2((&raw mut found).cast(), buffer, 4, stream));
    ok!(cuEventSynchronize(event));
    ok!(cuMemFreeAsync(buffer, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!((found, calls), (step + 2, 1));
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(graph));
    ok!(cuEventDestroy_v2(event));
}

#[test]
fn eight_threads_on_eight_streams_do_not_disturb_each_other() {
    let _alone = ONE_AT_A_TIME.lock();
    let context = Context::new();
    let (handle, kernel) = (context.0.addr(), kernel_of(CHAIN, "patient").addr());
    let before = emulated::live();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                ok!(cuCtxSetCurrent(without_provenance_mut(handle)));
                let stream = if thread % 2 == 0 {
                    stream()
                } else {
                    handle!(cuStreamCreateWithPriority(1, -3))
                };
                (0..ROUNDS).for_each(|step| round(stream, without_provenance_mut(kernel), 1000 * thread + step));
                ok!(cuStreamDestroy_v2(stream));
                ok!(cuCtxSetCurrent(null_mut()));
            });
        }
    });
    ok!(cuCtxSynchronize());
    assert_eq!(emulated::live(), before, "nothing is left over");
}

#[test]
fn contexts_come_and_go_beside_each_other() {
    let _alone = ONE_AT_A_TIME.lock();
    start();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for step in 0..ROUNDS / 4 {
                    let _context = Context::new();
                    let kernel = kernel_of(CHAIN, "patient");
                    round(stream(), kernel, 1000 * thread + step);
                }
            });
        }
    });
}
