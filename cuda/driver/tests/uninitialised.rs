//! Before `cuInit`, nothing but it serves. A file of its own: the state is the process's.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use hopper_cuda_driver::{Choice, emulated, select};
use std::ptr::null_mut;

#[test]
fn nothing_serves_before_it_is_started() {
    select(Choice::Emulated).expect("the emulated driver is always there");
    let (mut count, mut context, mut address) = (0, null_mut(), 0);
    assert_eq!(code!(cuDeviceGetCount(&mut count)), NOT_INITIALIZED);
    assert_eq!(code!(cuCtxGetCurrent(&mut context)), NOT_INITIALIZED);
    assert_eq!(code!(cuMemAlloc_v2(&mut address, 16)), NOT_INITIALIZED);
    assert_eq!(code!(cuGraphLaunch(null_mut(), null_mut())), NOT_INITIALIZED);
    assert_eq!(emulated::last_fault(), None);
    let anytime = [
        "cuInit",
        "cuDriverGetVersion",
        "cuGetErrorName",
        "cuGetErrorString",
        "cuGetProcAddress",
        "cuGetProcAddress_v2",
        "cuGetProcAddress_ptsz",
        "cuGetProcAddress_v2_ptsz",
    ];
    for (name, address) in hopper_cuda_driver::symbols().filter(|(name, _)| !anytime.contains(name)) {
        assert_eq!(call_with(address, &[]), NOT_INITIALIZED, "{name}");
    }
    assert_eq!(code!(cuInit(1)), INVALID_VALUE);
    assert_eq!(code!(cuDeviceGetCount(&mut count)), NOT_INITIALIZED);

    ok!(cuInit(0));
    ok!(cuDeviceGetCount(&mut count));
    assert_eq!(count, 1);
    assert_eq!(code!(cuMemAlloc_v2(&mut address, 16)), INVALID_CONTEXT);
    assert_eq!(code!(cuGraphLaunch(null_mut(), null_mut())), INVALID_CONTEXT);
}
