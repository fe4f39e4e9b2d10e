//! Of memory, what `cust`'s bindings lack: pools, rows and boxes, copies between contexts, what an address is.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Ours:
    cuMemAllocPitch_v2(
        address: *mut CUdeviceptr,
        pitch: *mut usize,
        width: usize,
        height: usize,
        element: c_uint,
    ) => memory::alloc_pitched;
    cuMemHostGetDevicePointer_v2(device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint) => host::device_pointer;
    cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(
        stream: CUstream,
        address: CUdeviceptr,
        bytes: usize,
        flags: c_uint,
    ) => memory::attach_async;
    cuMemAdvise_v2(address: CUdeviceptr, count: usize, advice: c_uint, location: CUmemLocation) => memory::advise_at;
    cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz(
        address: CUdeviceptr,
        count: usize,
        location: CUmemLocation,
        flags: c_uint,
        stream: CUstream,
    ) => memory::prefetch_to;
    cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(
        address: *mut CUdeviceptr,
        bytes: usize,
        pool: CUmemoryPool,
        stream: CUstream,
    ) => memory::alloc_from_pool_async;
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) => pool::default_of;
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) => pool::current_of;
    cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) => pool::set_current;
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) => pool::create;
    cuMemPoolDestroy(pool: CUmemoryPool) => pool::destroy;
    cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) => pool::trim;
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) => pool::get_attribute;
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void) => pool::set_attribute;
    cuMemPoolSetAccess(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) => pool::set_access;
    cuMemPoolGetAccess(
        flags: *mut c_uint,
        pool: CUmemoryPool,
        location: *mut CUmemLocation,
    ) => pool::get_access;
    cuPointerGetAttribute(data: *mut c_void, attribute: c_uint, address: CUdeviceptr) => pointer::get_attribute;
    cuPointerGetAttributes(
        count: c_uint,
        attributes: *mut c_uint,
        data: *mut *mut c_void,
        address: CUdeviceptr,
    ) => pointer::get_attributes;
    cuPointerSetAttribute(value: *const c_void, attribute: c_uint, address: CUdeviceptr) => pointer::set_attribute;
    cuMemcpy / cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) => boxes::copy_any;
    cuMemcpyAsync / cuMemcpyAsync_ptsz(
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) => boxes::copy_any_async;
    cuMemcpyPeer / cuMemcpyPeer_ptds(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        bytes: usize,
    ) => boxes::copy_between;
    cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        to: CUdeviceptr,
        to_context: CUcontext,
        from: CUdeviceptr,
        from_context: CUcontext,
        bytes: usize,
        stream: CUstream,
    ) => boxes::copy_between_async;
    cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(copy: *const CUDA_MEMCPY2D) => boxes::copy_rows;
    cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(
        copy: *const CUDA_MEMCPY2D,
        stream: CUstream,
    ) => boxes::copy_rows_async;
    cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds(copy: *const CUDA_MEMCPY3D) => boxes::copy_box;
    cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz(
        copy: *const CUDA_MEMCPY3D,
        stream: CUstream,
    ) => boxes::copy_box_async;
    cuMemcpy3DPeer / cuMemcpy3DPeer_ptds(copy: *const CUDA_MEMCPY3D_PEER) => boxes::copy_box_between;
    cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz(
        copy: *const CUDA_MEMCPY3D_PEER,
        stream: CUstream,
    ) => boxes::copy_box_between_async;
    cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds(
        address: CUdeviceptr,
        pitch: usize,
        value: c_uchar,
        width: usize,
        height: usize,
    ) => boxes::fill_8;
    cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds(
        address: CUdeviceptr,
        pitch: usize,
        value: c_ushort,
        width: usize,
        height: usize,
    ) => boxes::fill_16;
    cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds(
        address: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        width: usize,
        height: usize,
    ) => boxes::fill_32;
    cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(
        address: CUdeviceptr,
        pitch: usize,
        value: c_uchar,
        width: usize,
        height: usize,
        stream: CUstream,
    ) => boxes::fill_8_async;
    cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz(
        address: CUdeviceptr,
        pitch: usize,
        value: c_ushort,
        width: usize,
        height: usize,
        stream: CUstream,
    ) => boxes::fill_16_async;
    cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(
        address: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        width: usize,
        height: usize,
        stream: CUstream,
    ) => boxes::fill_32_async;
}
