//! Contexts: the device's primary one and others, and each thread's stack of them.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) => context::primary_retain;
    cuDevicePrimaryCtxRelease_v2(device: CUdevice) => context::primary_release;
    cuDevicePrimaryCtxReset_v2(device: CUdevice) => context::primary_reset;
    cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) => context::primary_set_flags;
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) => context::primary_state;
    cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) => context::create;
    cuCtxDestroy_v2(context: CUcontext) => context::destroy;
    cuCtxPushCurrent_v2(context: CUcontext) => context::push;
    cuCtxPopCurrent_v2(context: *mut CUcontext) => context::pop;
    cuCtxSetCurrent(context: CUcontext) => context::set_current;
    cuCtxGetCurrent(context: *mut CUcontext) => context::get_current;
    cuCtxGetDevice(device: *mut CUdevice) => context::device;
    cuCtxGetFlags(flags: *mut c_uint) => context::flags;
    cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) => context::api_version;
    cuCtxSynchronize() => context::synchronize;
    cuCtxSetLimit(limit: c_uint, value: usize) => context::set_limit;
    cuCtxGetLimit(value: *mut usize, limit: c_uint) => context::get_limit;
    cuCtxGetCacheConfig(config: *mut c_uint) => context::get_cache_config;
    cuCtxSetCacheConfig(config: c_uint) => context::set_cache_config;
    cuCtxGetSharedMemConfig(config: *mut c_uint) => context::get_shared_config;
    cuCtxSetSharedMemConfig(config: c_uint) => context::set_shared_config;
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) => context::stream_priority_range;
}
