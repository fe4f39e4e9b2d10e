//! Stands in for NVIDIA's library in the forwarding test: it loads under the same name and answers so that one can tell
//! who did.

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

#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapReplaceAddress(map: *mut [u64; 16], address: *mut c_void) -> u32 {
    // SAFETY: the caller passes a place for a map.
    unsafe { *map = [address.addr() as u64; 16] };
    0
}

/// Shows that every argument came through: the map is filled with a number made of them all.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u64; 16],
    data_type: c_uint,
    rank: c_uint,
    address: *mut c_void,
    dimensions: *const u64,
    strides: *const u64,
    box_dimensions: *const c_uint,
    element_strides: *const c_uint,
    interleave: c_uint,
    swizzle: c_uint,
    l2_promotion: c_uint,
    out_of_bounds_fill: c_uint,
) -> u32 {
    // SAFETY: the caller passes arrays of at least one value.
    let arrays = unsafe { [*dimensions, *strides, (*box_dimensions).into(), (*element_strides).into()] };
    let numbers = [interleave, swizzle, l2_promotion, out_of_bounds_fill].map(u64::from);
    let all = [data_type.into(), rank.into(), address.addr() as u64];
    let number = all.iter().chain(&arrays).chain(&numbers).fold(0, |number, digit| number * 10 + digit);
    // SAFETY: the caller passes a place for a map.
    unsafe { *map = [number; 16] };
    0
}

#[cfg(marked)]
#[unsafe(no_mangle)]
extern "C" fn hopper_cuda_driver_marker() {}
