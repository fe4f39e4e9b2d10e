//! Of the device, contexts and streams, what `cust`'s bindings lack.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Ours:
    cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CUdevice) => about::bus_id;
    cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char) => about::by_bus_id;
    cuDeviceGetProperties(properties: *mut CUdevprop, device: CUdevice) => about::properties;
    cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) => peer::can_access_peer;
    cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, from: CUdevice, to: CUdevice) => peer::peer_attribute;
    cuDeviceGetExecAffinitySupport(supported: *mut c_int, kind: c_uint, device: CUdevice) => about::affinity_support;
    cuProfilerStart() => about::profiler;
    cuProfilerStop() => about::profiler;
    cuCtxCreate_v3(
        context: *mut CUcontext,
        affinity: *mut c_void,
        affinities: c_int,
        flags: c_uint,
        device: CUdevice,
    ) => context::create_v3;
    cuCtxCreate_v4(
        context: *mut CUcontext,
        parameters: *mut CUctxCreateParams,
        flags: c_uint,
        device: CUdevice,
    ) => context::create_v4;
    cuCtxSetFlags(flags: c_uint) => context::set_flags;
    cuCtxGetId(context: CUcontext, id: *mut u64) => context::id;
    cuCtxGetDevice_v2(device: *mut CUdevice, context: CUcontext) => context::device_of;
    cuCtxSynchronize_v2(context: CUcontext) => context::synchronize_that;
    cuCtxAttach(context: *mut CUcontext, flags: c_uint) => context::attach;
    cuCtxDetach(context: CUcontext) => context::detach;
    cuCtxResetPersistingL2Cache() => context::reset_persisting;
    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) => peer::enable_peer;
    cuCtxDisablePeerAccess(peer: CUcontext) => peer::disable_peer;
    cuStreamGetId / cuStreamGetId_ptsz(stream: CUstream, id: *mut u64) => stream::id;
    cuStreamGetDevice / cuStreamGetDevice_ptsz(stream: CUstream, device: *mut CUdevice) => stream::device;
    cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz(
        stream: CUstream,
        context: *mut CUcontext,
        green: *mut *mut c_void,
    ) => stream::context_v2;
    cuStreamGetAttribute / cuStreamGetAttribute_ptsz(
        stream: CUstream,
        attribute: c_uint,
        value: *mut CUlaunchAttributeValue,
    ) => stream::get_attribute;
    cuStreamSetAttribute / cuStreamSetAttribute_ptsz(
        stream: CUstream,
        attribute: c_uint,
        value: *const CUlaunchAttributeValue,
    ) => stream::set_attribute;
    cuStreamCopyAttributes / cuStreamCopyAttributes_ptsz(to: CUstream, from: CUstream) => stream::copy_attributes;
    cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) => event::elapsed;
}
