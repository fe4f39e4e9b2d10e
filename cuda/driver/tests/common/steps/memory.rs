//! Memory, modules and contexts.

use super::super::{Bytes, Things};
use super::{Common, ignore, make};
use hopper_cuda_driver::ffi::*;
use std::ptr::null_mut;

#[allow(clippy::cognitive_complexity)]
pub(super) fn step(what: usize, common: &Common, b: &mut Bytes<'_>, t: &mut Things<'_>) {
    let &Common {
        stream,
        size,
        address,
        host,
    } = common;
    // SAFETY: host memory is the room, which no copy overruns; all else is looked up, null, or a place for a result.
    unsafe {
        match what {
            0 if t.contexts.len() < 4 => make!(t.contexts, cuCtxCreate_v2(0, 0)),
            1 => ignore(cuCtxSetCurrent(b.pick(&t.contexts))),
            2 => ignore(cuCtxPushCurrent_v2(b.pick(&t.contexts))),
            3 => ignore(cuCtxPopCurrent_v2(null_mut())),
            4 if b.next().is_multiple_of(8) => ignore(cuCtxDestroy_v2(b.pick(&t.contexts))),
            5 => make!(t.contexts, cuDevicePrimaryCtxRetain(0)),
            6 => ignore(cuDevicePrimaryCtxRelease_v2(0)),
            7 if b.next().is_multiple_of(4) => ignore(cuDevicePrimaryCtxReset_v2(0)),
            8 => ignore(cuCtxSynchronize()),
            9..=11 => make!(t.addresses, cuMemAlloc_v2(size)),
            12..=14 => make!(t.addresses, cuMemAllocAsync(size, stream)),
            15 => make!(t.addresses, cuMemAllocFromPoolAsync(size, b.pick(&t.pools), stream)),
            16 => make!(t.addresses, cuMemAllocManaged(size, 1)),
            17 => make!(t.addresses, cuMemAllocPitch_v2(&mut 0, size, b.next() % 4, 4)),
            18 | 19 => ignore(cuMemFree_v2(b.pick(&t.addresses))),
            20..=22 => ignore(cuMemFreeAsync(b.pick(&t.addresses), stream)),
            23 | 24 => ignore(cuMemcpyHtoDAsync_v2(address, host, size, stream)),
            25 | 26 => ignore(cuMemcpyDtoHAsync_v2(host, address, size, stream)),
            27 => ignore(cuMemcpyDtoDAsync_v2(address, b.pick(&t.addresses), size, stream)),
            28 => ignore(cuMemcpyDtoH_v2(host, address, size)),
            29 => ignore(cuMemcpyPeerAsync(
                address,
                b.pick(&t.contexts),
                b.pick(&t.addresses),
                b.pick(&t.contexts),
                size,
                stream,
            )),
            30 | 31 => ignore(cuMemsetD8Async(address, 7, size, stream)),
            32 => ignore(cuMemsetD2D32_v2(address, b.next() % 32, 7, 1, size)),
            33 => ignore(cuMemsetD2D16Async(address, b.next() % 32, 7, 2, size, stream)),
            34 => {
                let copy = box_copy(common, b, t);
                ignore(cuMemcpy3DAsync_v2(&copy, stream));
            }
            35 => make!(t.pinned, cuMemHostAlloc(size, b.next() as u32 % 9)),
            36 => ignore(cuMemFreeHost(b.pick(&t.pinned))),
            37 => ignore(cuMemHostRegister_v2(host, size, b.next() as u32 % 4)),
            38 => ignore(cuMemHostUnregister(host)),
            39 => make!(t.addresses, cuMemHostGetDevicePointer_v2(b.pick(&t.pinned), 0)),
            40 => make!(t.addresses, cuMemHostGetDevicePointer_v2(host, 0)),
            41 => {
                let (mut attribute, mut found) = (b.next() as u32 % 24, [0_u64; 2]);
                let mut data = [found.as_mut_ptr().cast()];
                cuPointerGetAttributes(1, &mut attribute, data.as_mut_ptr(), address);
            }
            42 => ignore(cuMemGetAddressRange_v2(&mut 0, &mut 0, address)),
            43 => ignore(cuPointerSetAttribute(
                (&raw const size).cast(),
                b.next() as u32 % 24,
                address,
            )),
            44 => make!(t.pools, cuMemPoolCreate(&pool_of(b))),
            45 => ignore(cuMemPoolDestroy(b.pick(&t.pools))),
            46 => ignore(cuDeviceSetMemPool(0, b.pick(&t.pools))),
            47 => make!(t.pools, cuDeviceGetMemPool(0)),
            48 => {
                let mut value = b.next() as u64;
                cuMemPoolSetAttribute(b.pick(&t.pools), b.next() as u32 % 10, (&raw mut value).cast());
            }
            49 => ignore(cuMemPoolTrimTo(b.pick(&t.pools), size)),
            50 if t.modules.len() < 8 => make!(t.modules, cuModuleLoadData(t.ptx.as_ptr().cast())),
            51 | 52 => make!(t.functions, cuModuleGetFunction(b.pick(&t.modules), t.kernel.as_ptr())),
            53 if b.next().is_multiple_of(4) => ignore(cuModuleUnload(b.pick(&t.modules))),
            54 if t.libraries.len() < 6 => {
                let (image, none) = (t.ptx.as_ptr().cast(), null_mut());
                make!(
                    t.libraries,
                    cuLibraryLoadData(image, none, null_mut(), 0, null_mut(), null_mut(), 0)
                );
            }
            55 | 56 => make!(t.kernels, cuLibraryGetKernel(b.pick(&t.libraries), t.kernel.as_ptr())),
            57 | 58 => make!(t.functions, cuKernelGetFunction(b.pick(&t.kernels))),
            59 => make!(t.modules, cuLibraryGetModule(b.pick(&t.libraries))),
            60 if b.next().is_multiple_of(4) => ignore(cuLibraryUnload(b.pick(&t.libraries))),
            61 => ignore(cuFuncSetAttribute(
                b.pick(&t.functions),
                b.next() as u32 % 18,
                size as c_int - 2,
            )),
            62 => ignore(cuFuncGetModule(&mut null_mut(), b.pick(&t.functions))),
            63 => ignore(cuMemPrefetchAsync(address, size, 0, stream)),
            _ => {}
        }
    }
}

fn pool_of(b: &mut Bytes<'_>) -> CUmemPoolProps {
    CUmemPoolProps {
        allocType: 1,
        handleTypes: b.next() as u32 / 128,
        location: CUmemLocation {
            r#type: mem_location::DEVICE,
            id: 0,
        },
        win32SecurityAttributes: null_mut(),
        maxSize: b.next(),
        reserved: [0; 56],
    }
}

/// A copy of a box between the device and the host, or another place of the device's; it fits the host's memory.
pub(super) fn box_copy(common: &Common, b: &mut Bytes<'_>, t: &Things<'_>) -> CUDA_MEMCPY3D {
    let kinds = [
        memory_type::DEVICE,
        memory_type::HOST,
        memory_type::UNIFIED,
        memory_type::ARRAY,
    ];
    let kind = b.next();
    let (pitch, other) = (common.size % 16, b.pick(&t.addresses));
    CUDA_MEMCPY3D {
        srcMemoryType: kinds[kind % 4],
        srcHost: common.host,
        srcDevice: common.address,
        srcPitch: pitch,
        srcHeight: 2,
        dstMemoryType: kinds[kind / 4 % 4],
        dstHost: common.host,
        dstDevice: other,
        dstPitch: 16,
        dstHeight: 2,
        WidthInBytes: kind / 16,
        Height: 1 + common.size % 2,
        Depth: 1 + common.size / 2 % 2,
        ..CUDA_MEMCPY3D::default()
    }
}
