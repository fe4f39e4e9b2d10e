//! Stream capture.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: c_uint) => capture::begin;
    cuStreamEndCapture / cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut CUgraph) => capture::end;
    cuStreamIsCapturing / cuStreamIsCapturing_ptsz(stream: CUstream, status: *mut c_uint) => capture::is_capturing;
    cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(stream: CUstream, status: *mut c_uint, id: *mut u64) => capture::info;
    cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        count: *mut usize,
    ) => capture::info_v2;
    cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz(
        stream: CUstream,
        dependencies: *mut CUgraphNode,
        count: usize,
        flags: c_uint,
    ) => capture::update_dependencies;
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) => capture::exchange_mode;
}
