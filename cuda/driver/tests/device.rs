//! The device and its numbers, error texts, functions by name.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

fn attribute(number: u32) -> i32 {
    get!(cuDeviceGetAttribute(number, 0))
}

#[test]
fn the_device_is_an_sm_90_part_with_the_numbers_of_an_h200() {
    start();
    assert_eq!((attribute(75), attribute(76)), (9, 0), "compute capability");
    assert_eq!(attribute(16), 132, "SMs");
    assert_eq!(attribute(10), 32, "lanes of a warp");
    assert_eq!(
        (attribute(1), attribute(39)),
        (1024, 2048),
        "threads of a block and an SM"
    );
    assert_eq!(
        (attribute(8), attribute(97), attribute(81)),
        (49152, 232_448, 233_472),
        "shared memory"
    );
    assert_eq!(attribute(120), 1, "cluster launch");
    assert_eq!(get!(cuDeviceTotalMem_v2(0)), 139_usize << 30);
}

#[test]
fn what_is_not_there_is_refused() {
    start();
    let mut value = 0;
    assert_eq!(code!(cuDeviceGet(&mut value, 1)), INVALID_DEVICE);
    assert_eq!(code!(cuDeviceGet(&mut value, -1)), INVALID_DEVICE);
    assert_eq!(code!(cuDeviceGetAttribute(&mut value, 0, 0)), INVALID_VALUE);
    assert_eq!(code!(cuDeviceGetAttribute(&mut value, 100_000, 0)), INVALID_VALUE);
    assert_eq!(code!(cuDeviceGetAttribute(&mut value, 1, 7)), INVALID_DEVICE);
    assert_eq!(code!(cuDeviceGetAttribute(null_mut(), 1, 0)), INVALID_VALUE);
    assert_eq!(code!(cuDeviceGetCount(null_mut())), INVALID_VALUE);
}

#[test]
fn a_name_is_cut_to_the_room_it_is_given() {
    start();
    let mut name = [1_i8; 16].map(|byte| byte as c_char);
    for (room, shown) in [(16, "Emulated sm_90 "), (9, "Emulated"), (1, "")] {
        ok!(cuDeviceGetName(name.as_mut_ptr(), room, 0));
        assert_eq!(code!(CStr::from_ptr(name.as_ptr())).to_str(), Ok(shown));
    }
    assert_eq!(code!(cuDeviceGetName(name.as_mut_ptr(), 0, 0)), INVALID_VALUE);
    assert_eq!(code!(cuDeviceGetName(name.as_mut_ptr(), -1, 0)), INVALID_VALUE);
    assert_eq!(code!(cuDeviceGetName(null_mut(), 16, 0)), INVALID_VALUE);
}

#[test]
fn codes_have_names_and_words() {
    start();
    let mut text = null();
    ok!(cuGetErrorName(912, &mut text));
    assert_eq!(code!(CStr::from_ptr(text)), c"CUDA_ERROR_INVALID_CLUSTER_SIZE");
    ok!(cuGetErrorString(700, &mut text));
    assert_eq!(code!(CStr::from_ptr(text)), c"an illegal memory access was encountered");
    assert_eq!(code!(cuGetErrorName(12345, &mut text)), INVALID_VALUE);
    assert!(text.is_null());
    assert_eq!(code!(cuGetErrorString(1, null_mut())), INVALID_VALUE);
}

/// Asks for a function of a version of CUDA and says what came back: the code, the address, the status.
fn look_up(name: &str, version: i32) -> (u32, usize, u32) {
    let name = CString::new(name).expect("a name has no zero bytes");
    let (mut address, mut status) = (null_mut(), 7);
    let code = code!(cuGetProcAddress_v2(
        name.as_ptr(),
        &mut address,
        version,
        0,
        &mut status
    ));
    (code, address.addr(), status)
}

#[test]
fn functions_are_found_by_name_and_version() {
    start();
    for (name, version, address) in [
        ("cuInit", 13000, cuInit as *const ()),
        ("cuMemAlloc", 13000, cuMemAlloc_v2 as *const ()),
        ("cuMemAlloc_v2", 13000, cuMemAlloc_v2 as *const ()),
        ("cuLaunchKernelEx", 11060, cuLaunchKernelEx as *const ()),
        ("cuGetProcAddress", 11030, cuGetProcAddress as *const ()),
        ("cuGetProcAddress", 12000, cuGetProcAddress_v2 as *const ()),
        ("cuCtxCreate", 11030, cuCtxCreate_v2 as *const ()),
        ("cuCtxCreate", 11040, cuCtxCreate_v3 as *const ()),
        ("cuCtxCreate", 13000, cuCtxCreate_v4 as *const ()),
        ("cuCtxSynchronize", 12090, cuCtxSynchronize as *const ()),
        ("cuMemPrefetchAsync", 12010, cuMemPrefetchAsync as *const ()),
        ("cuMemPrefetchAsync", 12020, cuMemPrefetchAsync_v2 as *const ()),
        ("cuGraphInstantiate", 11040, cuGraphInstantiate_v2 as *const ()),
        ("cuGraphInstantiate", 12000, cuGraphInstantiateWithFlags as *const ()),
        ("cuStreamBeginCapture", 13000, cuStreamBeginCapture_v2 as *const ()),
        ("cuStreamGetCaptureInfo", 11020, cuStreamGetCaptureInfo as *const ()),
        ("cuStreamGetCaptureInfo", 12000, cuStreamGetCaptureInfo_v2 as *const ()),
        ("cuStreamGetCaptureInfo", 13000, cuStreamGetCaptureInfo_v3 as *const ()),
        ("cuGraphAddKernelNode", 11040, cuGraphAddKernelNode as *const ()),
        ("cuGraphAddKernelNode", 12000, cuGraphAddKernelNode_v2 as *const ()),
        ("cuGraphAddDependencies", 12000, cuGraphAddDependencies as *const ()),
        ("cuGraphAddDependencies", 13000, cuGraphAddDependencies_v2 as *const ()),
        ("cuGraphExecUpdate", 11040, cuGraphExecUpdate as *const ()),
        ("cuGraphExecUpdate", 12000, cuGraphExecUpdate_v2 as *const ()),
        ("cuGraphLaunch", 13000, cuGraphLaunch as *const ()),
        ("cuEventElapsedTime", 11040, cuEventElapsedTime as *const ()),
        ("cuEventElapsedTime", 12070, cuEventElapsedTime as *const ()),
        ("cuEventElapsedTime", 12080, cuEventElapsedTime_v2 as *const ()),
        ("cuStreamWaitValue32", 11060, cuStreamWaitValue32 as *const ()),
        ("cuStreamWaitValue32", 11070, cuStreamWaitValue32_v2 as *const ()),
        (
            "cuMemBatchDecompressAsync",
            12060,
            cuMemBatchDecompressAsync as *const (),
        ),
        ("cuGreenCtxGetId", 12090, cuGreenCtxGetId as *const ()),
        ("cuTexRefSetAddress2D", 13000, cuTexRefSetAddress2D_v3 as *const ()),
        ("cuCheckpointProcessLock", 12080, cuCheckpointProcessLock as *const ()),
        ("cuTexObjectCreate", 13000, cuTexObjectCreate as *const ()),
    ] {
        assert_eq!(
            look_up(name, version),
            (SUCCESS, address.addr(), 0),
            "{name} of {version}"
        );
    }
    assert_eq!(look_up("cuNothingOfTheKind", 13000), (NOT_FOUND, 0, 1));
    for (name, version) in [
        ("cuLaunchKernelEx", 11050),
        ("cuLibraryLoadData", 11080),
        ("cuGraphAddNode", 12010),
    ] {
        assert_eq!(look_up(name, version), (NOT_FOUND, 0, 2), "{name} came after {version}");
    }
    let with_flags = |name: &CStr, flags| {
        let (mut address, mut status) = (null_mut(), 9);
        let code = code!(cuGetProcAddress_v2(
            name.as_ptr(),
            &mut address,
            13000,
            flags,
            &mut status
        ));
        (code, address.addr())
    };
    for (name, flags, address) in [
        (c"cuMemcpyHtoD", 0, cuMemcpyHtoD_v2 as *const ()),
        (c"cuMemcpyHtoD", 1, cuMemcpyHtoD_v2 as *const ()),
        (c"cuMemcpyHtoD", 2, cuMemcpyHtoD_v2_ptds as *const ()),
        (c"cuStreamQuery", 2, cuStreamQuery_ptsz as *const ()),
        (c"cuInit", 2, cuInit as *const ()),
        (c"cuGetProcAddress", 2, cuGetProcAddress_v2_ptsz as *const ()),
    ] {
        assert_eq!(
            with_flags(name, flags),
            (SUCCESS, address.addr()),
            "{name:?} with flags {flags}"
        );
    }
    assert_eq!(with_flags(c"cuInit", 3), (INVALID_VALUE, 0));
    // Programs that are compiled for a default stream per thread look up by these.
    for (flags, expected) in [(0, cuStreamQuery_ptsz as *const ()), (1, cuStreamQuery as *const ())] {
        let (mut old, mut new, name) = (null_mut(), null_mut(), c"cuStreamQuery".as_ptr());
        ok!(cuGetProcAddress_ptsz(name, &mut old, 11040, flags));
        ok!(cuGetProcAddress_v2_ptsz(name, &mut new, 13000, flags, &mut 9));
        assert_eq!((old.addr(), new.addr()), (expected.addr(), expected.addr()), "{flags}");
    }

    let mut address = null_mut();
    ok!(cuGetProcAddress(c"cuMemFree".as_ptr(), &mut address, 11040, 0));
    assert_eq!(address.addr(), (cuMemFree_v2 as *const ()).addr());
    assert_eq!(code!(cuGetProcAddress(null(), &mut address, 11040, 0)), INVALID_VALUE);
    assert_eq!(
        code!(cuGetProcAddress(c"cuInit".as_ptr(), null_mut(), 11040, 0)),
        INVALID_VALUE
    );
}
