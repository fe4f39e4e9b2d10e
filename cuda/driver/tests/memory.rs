//! Memory, copies and fills.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ptr::{null, null_mut, without_provenance_mut};

#[test]
fn bytes_go_there_across_and_back() {
    let _context = Context::new();
    let given: Vec<u16> = (0..5000).collect();
    let first = upload(&given);
    let second = get!(cuMemAlloc_v2(10_000));
    assert!(first.is_multiple_of(256) && second.is_multiple_of(256));
    let stream = handle!(cuStreamCreate(1));
    ok!(cuMemcpyDtoDAsync_v2(second + 2, first, 9998, stream));
    let mut seen = vec![0_u16; 4999];
    ok!(cuMemcpyDtoHAsync_v2(seen.as_mut_ptr().cast(), second + 2, 9998, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(seen, given[..4999]);
    ok!(cuMemcpyHtoDAsync_v2(second, given[10..].as_ptr().cast(), 20, stream));
    ok!(cuMemcpyDtoD_v2(first, second, 20));
    assert_eq!(download::<u16>(first, 10), given[10..20]);
}

#[test]
fn fills_write_their_pattern_and_no_more() {
    let _context = Context::new();
    let address = upload(&[0xFF_u8; 32]);
    ok!(cuMemsetD8_v2(address + 1, 0xAB, 3));
    ok!(cuMemsetD16_v2(address + 4, 0x1234, 2));
    ok!(cuMemsetD32_v2(address + 8, 0x0102_0304, 2));
    let mut expected = [0xFF_u8; 32];
    expected[1..4].fill(0xAB);
    expected[4..8].copy_from_slice(&[0x34, 0x12, 0x34, 0x12]);
    expected[8..16].copy_from_slice(&[4, 3, 2, 1, 4, 3, 2, 1]);
    assert_eq!(download::<u8>(address, 32), expected);
    let stream = handle!(cuStreamCreate(0));
    ok!(cuMemsetD8Async(address, 0, 32, stream));
    ok!(cuMemsetD16Async(address, 0x0101, 4, stream));
    ok!(cuMemsetD32Async(address + 16, 0x0202_0202, 4, stream));
    assert_eq!(download::<u8>(address, 32), [[1; 8], [0; 8], [2; 8], [2; 8]].concat());
}

#[test]
fn ranges_outside_an_allocation_are_refused() {
    let _context = Context::new();
    let address = get!(cuMemAlloc_v2(100));
    let mut bytes = [0_u8; 200];
    let host = bytes.as_mut_ptr().cast::<c_void>();
    for (device, count) in [
        (address, 101),
        (address + 100, 1),
        (address - 1, 1),
        (0, 1),
        (u64::MAX, 1),
        (address + 50, 51),
    ] {
        assert_eq!(
            code!(cuMemcpyHtoD_v2(device, host, count)),
            INVALID_VALUE,
            "{count} bytes to {device:#x}"
        );
        assert_eq!(
            code!(cuMemcpyDtoH_v2(host, device, count)),
            INVALID_VALUE,
            "{count} bytes from {device:#x}"
        );
        assert_eq!(code!(cuMemcpyDtoD_v2(address, device, count)), INVALID_VALUE);
        assert_eq!(code!(cuMemcpyDtoD_v2(device, address, count)), INVALID_VALUE);
        assert_eq!(code!(cuMemsetD8_v2(device, 0, count)), INVALID_VALUE);
    }
    for count in [usize::MAX, isize::MAX as usize + 1, usize::MAX / 4 + 2] {
        assert_eq!(code!(cuMemcpyHtoD_v2(address, host, count)), INVALID_VALUE);
        assert_eq!(code!(cuMemcpyDtoH_v2(host, address, count)), INVALID_VALUE);
        assert_eq!(code!(cuMemcpyDtoD_v2(address, address, count)), INVALID_VALUE);
        assert_eq!(code!(cuMemsetD32_v2(address, 0, count)), INVALID_VALUE);
    }
    assert_eq!(code!(cuMemcpyHtoD_v2(address, null(), 1)), INVALID_VALUE);
    assert_eq!(code!(cuMemcpyDtoH_v2(null_mut(), address, 1)), INVALID_VALUE);
    ok!(cuMemcpyHtoD_v2(address, null(), 0));
    assert_eq!(code!(cuMemsetD16_v2(address + 1, 0, 1)), INVALID_VALUE, "misaligned");
    assert_eq!(code!(cuMemsetD32_v2(address + 2, 0, 1)), INVALID_VALUE, "misaligned");
}

#[test]
fn memory_is_freed_once_by_its_first_address() {
    let _context = Context::new();
    let address = get!(cuMemAlloc_v2(1000));
    assert_eq!(code!(cuMemFree_v2(address + 256)), INVALID_VALUE);
    assert_eq!(code!(cuMemFree_v2(0)), INVALID_VALUE);
    ok!(cuMemFree_v2(address));
    assert_eq!(code!(cuMemFree_v2(address)), INVALID_VALUE);
    assert_eq!(code!(cuMemsetD8_v2(address, 0, 1)), INVALID_VALUE);
    let mut out = 0;
    assert_eq!(code!(cuMemAlloc_v2(&mut out, 0)), INVALID_VALUE);
    assert_eq!(code!(cuMemAlloc_v2(null_mut(), 16)), INVALID_VALUE);
    assert_eq!(code!(cuMemAlloc_v2(&mut out, 140 << 30)), OUT_OF_MEMORY);
    assert_eq!(code!(cuMemAlloc_v2(&mut out, usize::MAX)), OUT_OF_MEMORY);
    let stream = handle!(cuStreamCreate(0));
    let address: CUdeviceptr = get!(cuMemAllocAsync(16, stream));
    ok!(cuMemFreeAsync(address, stream));
    assert_eq!(code!(cuMemFreeAsync(address, stream)), INVALID_VALUE);
}

#[test]
fn what_is_allocated_is_counted_and_can_be_looked_up() {
    let _context = Context::new();
    let (mut free, mut total) = (0, 0);
    let bytes = 8_usize << 30;
    let address = get!(cuMemAlloc_v2(bytes));
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!(total, 139 << 30);
    assert!(
        free <= total - bytes,
        "other tests allocate too, so {free} is no exact number"
    );
    let (mut base, mut size) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&mut base, &mut size, address + 12345));
    assert_eq!((base, size), (address, bytes));
    assert_eq!(code!(cuMemGetAddressRange_v2(&mut base, &mut size, 16)), NOT_FOUND);
    ok!(cuMemFree_v2(address));
}

#[test]
fn host_memory_is_locked_and_registered_once() {
    let _context = Context::new();
    let host = handle!(cuMemAllocHost_v2(1000));
    // SAFETY: these bytes were allocated just now.
    unsafe { host.cast::<u8>().add(999).write(5) };
    assert_eq!(code!(cuMemHostRegister_v2(host, 10, 0)), HOST_MEMORY_ALREADY_REGISTERED);
    assert_eq!(code!(cuMemHostUnregister(host)), HOST_MEMORY_NOT_REGISTERED);
    ok!(cuMemFreeHost(host));
    assert_eq!(code!(cuMemFreeHost(host)), INVALID_VALUE);
    assert_eq!(code!(cuMemFreeHost(null_mut())), INVALID_VALUE);
    assert_eq!(code!(cuMemAllocHost_v2(null_mut(), 10)), INVALID_VALUE);
    let mut out = null_mut();
    assert_eq!(code!(cuMemAllocHost_v2(&mut out, 0)), INVALID_VALUE);
    assert_eq!(code!(cuMemAllocHost_v2(&mut out, usize::MAX)), OUT_OF_MEMORY);
    assert_eq!(code!(cuMemHostAlloc(&mut out, 10, 0x80)), INVALID_VALUE);

    let mut own = vec![0_u8; 100];
    let own = own.as_mut_ptr().cast::<c_void>();
    ok!(cuMemHostRegister_v2(own, 100, 1));
    assert_eq!(get!(cuMemHostGetFlags(own)), 1);
    assert_eq!(
        code!(cuMemHostRegister_v2(own.wrapping_byte_add(99), 10, 0)),
        HOST_MEMORY_ALREADY_REGISTERED
    );
    assert_eq!(
        code!(cuMemHostRegister_v2(own.wrapping_byte_sub(9), 10, 0)),
        HOST_MEMORY_ALREADY_REGISTERED
    );
    assert_eq!(code!(cuMemFreeHost(own)), INVALID_VALUE, "registered, not allocated");
    ok!(cuMemHostUnregister(own));
    assert_eq!(code!(cuMemHostUnregister(own)), HOST_MEMORY_NOT_REGISTERED);
    assert_eq!(
        code!(cuMemHostRegister_v2(without_provenance_mut(usize::MAX), 10, 0)),
        INVALID_VALUE
    );
}

#[test]
fn memory_that_is_not_emulated_is_not_supported() {
    let _context = Context::new();
    let mut array = null_mut();
    assert_eq!(code!(cuArray3DCreate_v2(&mut array, null())), NOT_SUPPORTED);
}
