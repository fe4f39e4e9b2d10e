//! Memory of the device and of the host, copies and fills.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => memory::info;
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) => memory::alloc;
    cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) => memory::alloc_async;
    cuMemFree_v2(address: CUdeviceptr) => memory::free;
    cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) => memory::free_async;
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr) => memory::address_range;
    cuMemAllocHost_v2(host: *mut *mut c_void, bytes: usize) => host::alloc;
    cuMemHostAlloc(host: *mut *mut c_void, bytes: usize, flags: c_uint) => host::alloc_with_flags;
    cuMemFreeHost(host: *mut c_void) => host::free;
    cuMemHostRegister_v2(host: *mut c_void, bytes: usize, flags: c_uint) => host::register;
    cuMemHostUnregister(host: *mut c_void) => host::unregister;
    cuMemHostGetFlags(flags: *mut c_uint, host: *mut c_void) => host::flags;
    cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) => copy::host_to_device;
    cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) => copy::device_to_host;
    cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) => copy::device_to_device;
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) => copy::host_to_device_async;
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy::device_to_host_async;
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy::device_to_device_async;
    cuMemsetD8_v2(address: CUdeviceptr, value: c_uchar, count: usize) => copy::fill_8;
    cuMemsetD16_v2(address: CUdeviceptr, value: c_ushort, count: usize) => copy::fill_16;
    cuMemsetD32_v2(address: CUdeviceptr, value: c_uint, count: usize) => copy::fill_32;
    cuMemsetD8Async(address: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) => copy::fill_8_async;
    cuMemsetD16Async(address: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) => copy::fill_16_async;
    cuMemsetD32Async(address: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) => copy::fill_32_async;
}
