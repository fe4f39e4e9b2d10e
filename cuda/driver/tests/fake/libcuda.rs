//! Stands in for NVIDIA's library in the forwarding test: it loads under the same name and answers so that one can tell who did.

use std::ffi::{c_int, c_uint, c_void};

fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> u32 {
    number("FAKE_INIT").unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> u32 {
    // SAFETY: the caller passes a place for the count.
    unsafe { *count = number("FAKE_DEVICES").unwrap_or(1) as c_int };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> u32 {
    // SAFETY: the caller passes a place for the version.
    unsafe { *version = 4321 };
    0
}

/// A code that `cust`'s result type lacks.
const NEW_CODE: u32 = 912;

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> u32 {
    NEW_CODE
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernelEx(_: *const c_void, _: *mut c_void, _: *mut c_void, _: *mut c_void) -> u32 {
    NEW_CODE
}

#[cfg(marked)]
#[unsafe(no_mangle)]
extern "C" fn hopper_cuda_driver_marker() {}
