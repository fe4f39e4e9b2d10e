//! Streams.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuStreamCreate(stream: *mut CUstream, flags: c_uint) => stream::create;
    cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) => stream::create_with_priority;
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int) => stream::priority;
    cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) => stream::flags;
    cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) => stream::context;
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) => stream::wait_event;
    cuStreamAddCallback(
        stream: CUstream,
        callback: CUstreamCallback,
        user_data: *mut c_void,
        flags: c_uint,
    ) => stream::add_callback;
    cuLaunchHostFunc(stream: CUstream, function: CUhostFn, user_data: *mut c_void) => stream::launch_host_func;
    cuStreamQuery(stream: CUstream) => stream::query;
    cuStreamSynchronize(stream: CUstream) => stream::synchronize;
    cuStreamDestroy_v2(stream: CUstream) => stream::destroy;
}
