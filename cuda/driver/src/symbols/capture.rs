//! Stream capture.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) => capture::begin;
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) => capture::end;
    cuStreamIsCapturing(stream: CUstream, status: *mut c_uint) => capture::is_capturing;
    cuStreamGetCaptureInfo(stream: CUstream, status: *mut c_uint, id: *mut u64) => capture::info;
    cuStreamGetCaptureInfo_v2(
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) => capture::info_v2;
    cuStreamUpdateCaptureDependencies(
        stream: CUstream,
        dependencies: *mut CUgraphNode,
        count: usize,
        flags: c_uint,
    ) => capture::update_dependencies;
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) => capture::exchange_mode;
}
