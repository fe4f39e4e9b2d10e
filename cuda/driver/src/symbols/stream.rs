//! Streams.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuStreamCreate(stream: *mut CUstream, flags: c_uint) => stream::create;
    cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) => stream::create_with_priority;
    cuStreamGetPriority / cuStreamGetPriority_ptsz(stream: CUstream, priority: *mut c_int) => stream::priority;
    cuStreamGetFlags / cuStreamGetFlags_ptsz(stream: CUstream, flags: *mut c_uint) => stream::flags;
    cuStreamGetCtx / cuStreamGetCtx_ptsz(stream: CUstream, context: *mut CUcontext) => stream::context;
    cuStreamWaitEvent / cuStreamWaitEvent_ptsz(stream: CUstream, event: CUevent, flags: c_uint) => stream::wait_event;
    cuStreamAddCallback / cuStreamAddCallback_ptsz(
        stream: CUstream,
        callback: CUstreamCallback,
        user_data: *mut c_void,
        flags: c_uint,
    ) => stream::add_callback;
    cuLaunchHostFunc / cuLaunchHostFunc_ptsz(stream: CUstream, function: CUhostFn, user_data: *mut c_void) => stream::launch_host_func;
    cuStreamQuery / cuStreamQuery_ptsz(stream: CUstream) => stream::query;
    cuStreamSynchronize / cuStreamSynchronize_ptsz(stream: CUstream) => stream::synchronize;
    cuStreamDestroy_v2(stream: CUstream) => stream::destroy;
}
