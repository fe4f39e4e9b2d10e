//! Memory of the host's that kernels reach, and what an address is.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::{pointer_attribute as attribute, *};
use std::ptr::null_mut;

const ADD: &str = include_str!("ptx/add.ptx");

/// Doubles values with a kernel that reads and writes at the same device address.
fn double(address: CUdeviceptr, count: u32) {
    let add = kernel_of(ADD, "add");
    let parameters = [
        parameter(&address),
        parameter(&address),
        parameter(&address),
        parameter(&count),
    ];
    assert_eq!(launch(&config(1, 128), add, &parameters), SUCCESS);
    ok!(cuCtxSynchronize());
}

/// The values at an address of the host's.
fn values(host: *mut c_void, count: usize) -> &'static mut [f32] {
    // SAFETY: the tests give memory of so many values, and use the slice only while it is there.
    unsafe { std::slice::from_raw_parts_mut(host.cast(), count) }
}

fn ask<T: Default>(which: u32, address: u64) -> Result<T, u32> {
    let mut value = T::default();
    match code!(cuPointerGetAttribute((&raw mut value).cast(), which, address)) {
        SUCCESS => Ok(value),
        code => Err(code),
    }
}

#[test]
fn kernels_reach_page_locked_memory() {
    let context = Context::new();
    let host = handle!(cuMemHostAlloc(4 * 100, 2));
    values(host, 100).fill(1.5);
    let device: CUdeviceptr = get!(cuMemHostGetDevicePointer_v2(host, 0));
    assert_eq!(device, host.addr() as u64, "one address for both");
    double(device, 100);
    assert_eq!(values(host, 100), [3.0; 100]);
    let part: CUdeviceptr = get!(cuMemHostGetDevicePointer_v2(host.wrapping_byte_add(40), 0));
    assert_eq!(part, device + 40);
    assert_eq!(ask(attribute::MEMORY_TYPE, device), Ok(memory_type::HOST));
    assert_eq!(ask(attribute::CONTEXT, device), Ok(context.0.addr()));
    assert_eq!(ask(attribute::RANGE_SIZE, device + 8), Ok(400_usize));
    assert_eq!(ask(attribute::IS_MANAGED, device), Ok(0_u32));
    let mut out = 0;
    assert_eq!(code!(cuMemHostGetDevicePointer_v2(&mut out, host, 1)), INVALID_VALUE);
    ok!(cuMemFreeHost(host));
    assert_eq!(code!(cuMemHostGetDevicePointer_v2(&mut out, host, 0)), INVALID_VALUE);
    let stale = kernel_of(ADD, "add");
    let parameters = [
        parameter(&device),
        parameter(&device),
        parameter(&device),
        parameter(&1),
    ];
    assert_eq!(launch(&config(1, 32), stale, &parameters), SUCCESS);
    assert_eq!(code!(cuCtxSynchronize()), ILLEGAL_ADDRESS, "it is gone for kernels too");
}

#[test]
fn kernels_reach_registered_memory_at_another_address() {
    let _context = Context::new();
    let mut own = vec![0_u64; 25];
    let host = own.as_mut_ptr().cast::<c_void>();
    values(host, 50).fill(0.5);
    ok!(cuMemHostRegister_v2(host, 200, 2));
    let device = get!(cuMemHostGetDevicePointer_v2(host, 0));
    assert_ne!(device, host.addr() as u64);
    double(device, 50);
    assert_eq!(values(host, 50), [1.0; 50]);
    assert_eq!(ask(attribute::HOST_POINTER, device + 4), Ok(host.addr() as u64 + 4));
    assert_eq!(ask(attribute::DEVICE_POINTER, host.addr() as u64 + 4), Ok(device + 4));
    ok!(cuMemHostUnregister(host));
    assert_eq!(ask::<u64>(attribute::DEVICE_POINTER, device), Err(INVALID_VALUE));
    assert_eq!(
        code!(cuMemHostRegister_v2(host, 8, 4)),
        NOT_SUPPORTED,
        "memory of a device"
    );
    drop(own);
}

#[test]
fn managed_memory_is_used_by_both() {
    let _context = Context::new();
    let address: CUdeviceptr = get!(cuMemAllocManaged(400, 1));
    let host = std::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
    values(host, 100).fill(2.0);
    double(address, 100);
    assert_eq!(values(host, 100), [4.0; 100]);
    assert_eq!(ask(attribute::IS_MANAGED, address), Ok(1_u32));
    assert_eq!(ask(attribute::MEMORY_TYPE, address), Ok(memory_type::DEVICE));
    let here = CUmemLocation {
        r#type: mem_location::DEVICE,
        id: 0,
    };
    ok!(cuMemAdvise(address, 400, 3, 0));
    ok!(cuMemAdvise_v2(address, 400, 1, here));
    ok!(cuMemPrefetchAsync(address, 400, -1, null_mut()));
    ok!(cuMemPrefetchAsync_v2(address, 400, here, 0, null_mut()));
    ok!(cuStreamAttachMemAsync(null_mut(), address, 0, 1));
    assert_eq!(code!(cuMemAdvise(address, 401, 3, 0)), INVALID_VALUE);
    assert_eq!(code!(cuMemAdvise(address, 400, 9, 0)), INVALID_VALUE);
    assert_eq!(code!(cuMemPrefetchAsync(address, 400, 5, null_mut())), INVALID_DEVICE);
    assert_eq!(code!(cuStreamAttachMemAsync(null_mut(), address, 0, 3)), INVALID_VALUE);
    let plain = get!(cuMemAlloc_v2(16));
    assert_eq!(code!(cuMemAdvise(plain, 16, 3, 0)), INVALID_VALUE);
    let mut out = 0;
    assert_eq!(code!(cuMemAllocManaged(&mut out, 16, 4)), INVALID_VALUE);
    assert_eq!(code!(cuMemAllocManaged(&mut out, 0, 1)), INVALID_VALUE);
    ok!(cuMemFree_v2(address));
    assert_eq!(code!(cuMemFree_v2(address)), INVALID_VALUE);
}

#[test]
fn addresses_tell_what_they_are() {
    let context = Context::new();
    let address = get!(cuMemAlloc_v2(1000));
    assert_eq!(ask(attribute::CONTEXT, address + 5), Ok(context.0.addr()));
    assert_eq!(ask(attribute::DEVICE_POINTER, address + 5), Ok(address + 5));
    assert_eq!(ask(attribute::RANGE_START_ADDR, address + 5), Ok(address));
    assert_eq!(ask(attribute::DEVICE_ORDINAL, address), Ok(0));
    assert_eq!(ask::<u64>(attribute::HOST_POINTER, address), Err(INVALID_VALUE));
    assert_eq!(ask::<u64>(attribute::P2P_TOKENS, address), Err(NOT_SUPPORTED));
    assert_eq!(ask::<u64>(99, address), Err(INVALID_VALUE));
    assert_eq!(ask::<u64>(attribute::CONTEXT, 16), Err(INVALID_VALUE));
    let (mut kind, mut start) = (9_u32, 9_u64);
    let mut attributes = [attribute::MEMORY_TYPE, attribute::RANGE_START_ADDR];
    let mut to = [(&raw mut kind).cast(), (&raw mut start).cast()];
    ok!(cuPointerGetAttributes(
        2,
        attributes.as_mut_ptr(),
        to.as_mut_ptr(),
        address + 1
    ));
    assert_eq!((kind, start), (memory_type::DEVICE, address));
    ok!(cuPointerGetAttributes(2, attributes.as_mut_ptr(), to.as_mut_ptr(), 16));
    assert_eq!((kind, start), (0, 0), "of an address of nobody's");
    let on = 1_u32;
    ok!(cuPointerSetAttribute(parameter(&on), attribute::SYNC_MEMOPS, address));
    assert_eq!(
        code!(cuPointerSetAttribute(parameter(&on), attribute::CONTEXT, address)),
        INVALID_VALUE
    );
}
