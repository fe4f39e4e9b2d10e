//! Events.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuEventCreate(event: *mut CUevent, flags: c_uint) => event::create;
    cuEventRecord / cuEventRecord_ptsz(event: CUevent, stream: CUstream) => event::record;
    cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(event: CUevent, stream: CUstream, flags: c_uint) => event::record_with_flags;
    cuEventQuery(event: CUevent) => event::query;
    cuEventSynchronize(event: CUevent) => event::synchronize;
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) => event::elapsed;
    cuEventDestroy_v2(event: CUevent) => event::destroy;
}
