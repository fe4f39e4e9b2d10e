//! Many threads at once, each on streams of its own, in one context or several. `cargo xtask sanitize` runs these tests
//! under a thread sanitizer too.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::emulated;
use hopper_cuda_driver::ffi::*;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Held by a test: what is left over is counted for the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const THREADS: u32 = 8;
const ROUNDS: u32 = 20;

/// What a thread uses for itself.
struct Own {
    stream: CUstream,
    /// For what goes on beside it.
    side: CUstream,
    kernel: CUfunction,
    /// Memory of the host's that copies need not wait for.
    pinned: *mut u32,
}

impl Own {
    fn new(kernel: CUfunction) -> Own {
        Own {
            stream: stream(),
            side: handle!(cuStreamCreateWithPriority(1, -3)),
            kernel,
            pinned: handle!(cuMemHostAlloc(64, 0)).cast(),
        }
    }

    fn end(self) {
        ok!(cuMemFreeHost(self.pinned.cast()));
        ok!(cuStreamDestroy_v2(self.side));
        ok!(cuStreamDestroy_v2(self.stream));
    }

    fn add_one(&self, stream: CUstream, buffer: CUdeviceptr) {
        assert_eq!(launch_on(stream, &[], self.kernel, buffer), SUCCESS);
    }

    /// Does something on the side stream, after what the own one has been given and before what it will be.
    fn beside(&self, work: impl FnOnce(CUstream)) {
        let (fork, join) = (handle!(cuEventCreate(2)), handle!(cuEventCreate(2)));
        ok!(cuEventRecord(fork, self.stream));
        ok!(cuStreamWaitEvent(self.side, fork, 0));
        work(self.side);
        ok!(cuEventRecord(join, self.side));
        ok!(cuStreamWaitEvent(self.stream, join, 0));
        ok!(cuEventDestroy_v2(fork));
        ok!(cuEventDestroy_v2(join));
    }
}

/// Memory in a stream's order, launches, a function of the host's, and a graph whose capture forks and joins, launched
/// three times.
fn in_order(own: &Own, step: u32) {
    let stream = own.stream;
    let buffer = get!(cuMemAllocAsync(4, stream));
    ok!(cuMemsetD32Async(buffer, step, 1, stream));
    own.add_one(stream, buffer);
    own.beside(|side| own.add_one(side, buffer));
    let mut calls = 0_u32;
    ok!(cuLaunchHostFunc(stream, Some(increment), (&raw mut calls).cast()));
    let graph = capture(stream, || {
        own.add_one(stream, buffer);
        own.beside(|side| own.add_one(side, buffer));
    });
    let exec = executable(graph);
    (0..3).for_each(|_| ok!(cuGraphLaunch(exec, stream)));
    let event = handle!(cuEventCreate(0));
    ok!(cuMemcpyDtoHAsync_v2(own.pinned.cast(), buffer, 4, stream));
    ok!(cuEventRecord(event, stream));
    ok!(cuMemFreeAsync(buffer, stream));
    ok!(cuEventSynchronize(event));
    // SAFETY: the copy has ended, and nothing else uses the memory.
    assert_eq!((unsafe { own.pinned.read() }, calls), (step + 8, 1));
    ok!(cuGraphExecDestroy(exec));
    ok!(cuGraphDestroy(graph));
    ok!(cuEventDestroy_v2(event));
}

/// A module of the thread's own, memory without an order, and a grid whose blocks the emulator may run on several
/// threads.
fn without_order(own: &Own, step: u32) {
    const BLOCKS: u32 = 24;
    let module = load(CHAIN);
    let (ranks, bytes) = (kernel(module, "ranks"), 4 * BLOCKS as usize);
    let from = upload(&vec![step; BLOCKS as usize]);
    let to = get!(cuMemAlloc_v2(bytes));
    ok!(cuMemcpyDtoDAsync_v2(to, from, bytes, own.stream));
    ok!(cuStreamSynchronize(own.stream));
    assert_eq!(download::<u32>(to, BLOCKS as usize), [step; BLOCKS as usize]);
    let config = CUlaunchConfig {
        hStream: own.stream,
        ..config(BLOCKS, 1)
    };
    assert_eq!(launch(&config, ranks, &[parameter(&to)]), SUCCESS);
    ok!(cuStreamSynchronize(own.stream));
    assert_eq!(download::<u32>(to, BLOCKS as usize), [100; BLOCKS as usize]);
    ok!(cuMemFree_v2(from));
    ok!(cuMemFree_v2(to));
    ok!(cuModuleUnload(module));
}

fn round(own: &Own, step: u32) {
    in_order(own, step);
    without_order(own, step);
}

/// Makes a context the thread's while this runs.
fn within(context: usize, work: impl FnOnce()) {
    ok!(cuCtxSetCurrent(without_provenance_mut(context)));
    work();
    ok!(cuCtxSetCurrent(null_mut()));
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
                within(handle, || {
                    let own = Own::new(without_provenance_mut(kernel));
                    (0..ROUNDS).for_each(|step| round(&own, 1000 * thread + step));
                    own.end();
                });
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
                    let own = Own::new(kernel_of(CHAIN, "patient"));
                    round(&own, 1000 * thread + step);
                    own.end();
                }
            });
        }
    });
}

/// A number in the device's memory, and an event after the last of the work on it: their handles.
type Baton = (CUdeviceptr, usize);

/// Takes a number from the thread before, whenever its stream has got to it, adds one on the own stream and hands it
/// on.
fn relay(own: &Own, from: &Receiver<Baton>, to: &Sender<Baton>) {
    for _ in 0..ROUNDS {
        let Ok((number, before)) = from.recv() else { return };
        let before = without_provenance_mut(before);
        ok!(cuStreamWaitEvent(own.stream, before, 0));
        // On some threads the stream has still to get there when the number is handed on.
        ok!(cuLaunchHostFunc(own.stream, Some(increment), own.pinned.cast()));
        own.add_one(own.stream, number);
        let after = handle!(cuEventCreate(2));
        ok!(cuEventRecord(after, own.stream));
        ok!(cuEventDestroy_v2(before));
        if to.send((number, after.addr())).is_err() {
            return;
        }
    }
}

#[test]
fn streams_of_different_threads_wait_for_each_other() {
    const BATONS: u32 = 3;
    let _alone = ONE_AT_A_TIME.lock();
    let context = Context::new();
    let (handle, kernel) = (context.0.addr(), kernel_of(CHAIN, "patient").addr());
    // From each thread to the next, and from the last to here.
    let (ends, starts): (Vec<_>, Vec<_>) = (0..=THREADS).map(|_| channel::<Baton>()).unzip();
    for baton in 0..BATONS {
        let event = handle!(cuEventCreate(2));
        ok!(cuEventRecord(event, null_mut()));
        ends[0]
            .send((upload(&[baton]), event.addr()))
            .expect("somebody listens");
    }
    let mut starts: Vec<_> = starts.into_iter().map(Some).collect();
    let last = starts[THREADS as usize].take().expect("it was made above");
    std::thread::scope(|scope| {
        let mut ends = ends.into_iter();
        let first = ends.next().expect("it was made above");
        for (start, end) in starts.into_iter().flatten().zip(ends) {
            scope.spawn(move || {
                within(handle, || {
                    let own = Own::new(without_provenance_mut(kernel));
                    relay(&own, &start, &end);
                    ok!(cuStreamSynchronize(own.stream));
                    // SAFETY: what the stream had to do has ended.
                    assert!(unsafe { own.pinned.read() } > 0);
                    own.end();
                });
            });
        }
        drop(first);
        for (number, event) in last {
            let event = without_provenance_mut(event);
            ok!(cuEventSynchronize(event));
            ok!(cuEventDestroy_v2(event));
            let found = download::<u32>(number, 1)[0];
            assert!((THREADS..THREADS + BATONS).contains(&found), "{found}");
        }
    });
}
