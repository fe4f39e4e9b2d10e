//! Memory of the device and of the host, copies and fills.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => memory::info;
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) => memory::alloc;
    cuMemAllocAsync / cuMemAllocAsync_ptsz(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) => memory::alloc_async;
    cuMemFree_v2(address: CUdeviceptr) => memory::free;
    cuMemFreeAsync / cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) => memory::free_async;
    cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) => memory::alloc_managed;
    cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz(
        address: CUdeviceptr,
        count: usize,
        device: CUdevice,
        stream: CUstream,
    ) => memory::prefetch;
    cuMemAdvise(address: CUdeviceptr, count: usize, advice: c_uint, device: CUdevice) => memory::advise;
    cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr) => memory::address_range;
    cuMemAllocHost_v2(host: *mut *mut c_void, bytes: usize) => host::alloc;
    cuMemHostAlloc(host: *mut *mut c_void, bytes: usize, flags: c_uint) => host::alloc_with_flags;
    cuMemFreeHost(host: *mut c_void) => host::free;
    cuMemHostRegister_v2(host: *mut c_void, bytes: usize, flags: c_uint) => host::register;
    cuMemHostUnregister(host: *mut c_void) => host::unregister;
    cuMemHostGetFlags(flags: *mut c_uint, host: *mut c_void) => host::flags;
    cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: *const c_void, bytes: usize) => copy::host_to_device;
    cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: CUdeviceptr, bytes: usize) => copy::device_to_host;
    cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) => copy::device_to_device;
    cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) => copy::host_to_device_async;
    cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy::device_to_host_async;
    cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) => copy::device_to_device_async;
    cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(copy: *const CUDA_MEMCPY2D) => boxes::copy_rows;
    cuMemsetD8_v2 / cuMemsetD8_v2_ptds(address: CUdeviceptr, value: c_uchar, count: usize) => copy::fill_8;
    cuMemsetD16_v2 / cuMemsetD16_v2_ptds(address: CUdeviceptr, value: c_ushort, count: usize) => copy::fill_16;
    cuMemsetD32_v2 / cuMemsetD32_v2_ptds(address: CUdeviceptr, value: c_uint, count: usize) => copy::fill_32;
    cuMemsetD8Async / cuMemsetD8Async_ptsz(address: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) => copy::fill_8_async;
    cuMemsetD16Async / cuMemsetD16Async_ptsz(address: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) => copy::fill_16_async;
    cuMemsetD32Async / cuMemsetD32Async_ptsz(address: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) => copy::fill_32_async;
}
