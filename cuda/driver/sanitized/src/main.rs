//! A program with a data race between the driver and its caller, by which `cargo xtask sanitize` sees that races are
//! found.

use hopper_cuda_driver::ffi::*;
use hopper_cuda_driver::{Choice, select};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A call that must succeed.
macro_rules! ok {
    ($call:expr) => {
        // SAFETY: every pointer is to what the function takes.
        assert_eq!(unsafe { $call }, 0, "{}", stringify!($call))
    };
}

fn main() {
    select(Choice::Emulated).expect("the emulated driver is always there");
    let (mut context, mut address, mut host) = (std::ptr::null_mut(), 0, [1_u32; 16]);
    ok!(cuInit(0));
    ok!(cuCtxCreate_v2(&mut context, 0, 0));
    ok!(cuMemAlloc_v2(&mut address, size_of_val(&host)));
    race(context.addr(), address, &mut host);
}

/// Copies on one thread what another reads without waiting for it.
fn race(context: usize, from: CUdeviceptr, to: &mut [u32; 16]) {
    let target = (&raw mut *to).expose_provenance();
    // These order nothing, which is the mistake.
    let (copied, seen) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ok!(cuCtxSetCurrent(std::ptr::without_provenance_mut(context)));
            let target = std::ptr::with_exposed_provenance_mut(target);
            ok!(cuMemcpyDtoH_v2(target, from, size_of::<[u32; 16]>()));
            copied.store(true, Relaxed);
            wait_for(&seen);
        });
        wait_for(&copied);
        // SAFETY: none: the copy may still be going on, as far as this thread knows.
        let found = unsafe { std::ptr::with_exposed_provenance::<u32>(target).read_volatile() };
        assert_eq!(found, 0);
        seen.store(true, Relaxed);
    });
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Relaxed) {
        std::thread::yield_now();
    }
}
