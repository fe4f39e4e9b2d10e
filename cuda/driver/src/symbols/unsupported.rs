//! Arrays, textures, surfaces and external memory: functions that `cust` references, so that a program with
//! `cust` in it links, and that the emulated driver does not have.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds(to: *mut c_void, offset: usize, from: *const c_void, bytes: usize) => unsupported;
    cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds(to: *mut c_void, from: *mut c_void, offset: usize, bytes: usize) => unsupported;
    cuArray3DCreate_v2(array: *mut *mut c_void, description: *const c_void) => unsupported;
    cuArray3DGetDescriptor_v2(description: *mut c_void, array: *mut c_void) => unsupported;
    cuArrayDestroy(array: *mut c_void) => unsupported;
    cuTexObjectCreate(
        texture: *mut u64,
        resource: *const c_void,
        description: *const c_void,
        view: *const c_void,
    ) => unsupported;
    cuTexObjectDestroy(texture: u64) => unsupported;
    cuTexObjectGetResourceDesc(resource: *mut c_void, texture: u64) => unsupported;
    cuTexObjectGetResourceViewDesc(view: *mut c_void, texture: u64) => unsupported;
    cuSurfObjectCreate(surface: *mut u64, resource: *const c_void) => unsupported;
    cuSurfObjectDestroy(surface: u64) => unsupported;
    cuSurfObjectGetResourceDesc(resource: *mut c_void, surface: u64) => unsupported;
    cuImportExternalMemory(memory: *mut *mut c_void, description: *const c_void) => unsupported;
    cuExternalMemoryGetMappedBuffer(
        address: *mut CUdeviceptr,
        memory: *mut c_void,
        description: *const c_void,
    ) => unsupported;
    cuDestroyExternalMemory(memory: *mut c_void) => unsupported;
}
