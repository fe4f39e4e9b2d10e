//! A system without threads to spare. A process of its own: how large threads are is read once.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;

fn main() {
    // SAFETY: the process has one thread.
    unsafe { std::env::set_var("RUST_MIN_STACK", (1_u64 << 50).to_string()) };
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "no room for a stack");
    let _context = Context::new();
    let (stream, buffer) = (stream(), upload(&[5_u32]));
    let kernel = kernel_of(CHAIN, "patient");
    let mut calls = 0_u32;
    for _ in 0..2 {
        // A function of the host's runs on a thread of the stream's.
        let called = code!(cuLaunchHostFunc(stream, Some(increment), (&raw mut calls).cast()));
        assert_eq!(called, OPERATING_SYSTEM);
        assert_eq!(launch_on(stream, &[], kernel, buffer), SUCCESS, "and nothing else does");
    }
    ok!(cuStreamSynchronize(stream));
    assert_eq!((calls, download::<u32>(buffer, 1)[0]), (0, 7));
    println!("functions of the host are refused where no thread can be had ... ok");
}
