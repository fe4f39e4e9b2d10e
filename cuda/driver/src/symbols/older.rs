//! First names of functions that were given others when their sizes or meanings changed: programs that look functions
//! up by name may still use them.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Ours:
    cuDevicePrimaryCtxRelease(device: CUdevice) => context::primary_release;
    cuDevicePrimaryCtxReset(device: CUdevice) => context::primary_reset;
    cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) => context::primary_set_flags;
    cuCtxDestroy(context: CUcontext) => context::destroy;
    cuCtxPushCurrent(context: CUcontext) => context::push;
    cuCtxPopCurrent(context: *mut CUcontext) => context::pop;
    cuStreamDestroy(stream: CUstream) => stream::destroy;
    cuStreamBeginCapture / cuStreamBeginCapture_ptsz(stream: CUstream) => capture::begin_for_all;
    cuEventDestroy(event: CUevent) => event::destroy;
    cuMemHostRegister(host: *mut c_void, bytes: usize, flags: c_uint) => host::register;
}
