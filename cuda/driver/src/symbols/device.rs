//! Initialisation, versions, error texts, devices.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuInit(flags: c_uint) => device::init;
    cuDriverGetVersion(version: *mut c_int) => device::driver_version;
    cuGetErrorName(error: CUresult, text: *mut *const c_char) => device::error_name;
    cuGetErrorString(error: CUresult, text: *mut *const c_char) => device::error_string;
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int) => device::get;
    cuDeviceGetCount(count: *mut c_int) => device::count;
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) => device::name;
    cuDeviceGetUuid(uuid: *mut [u8; 16], device: CUdevice) => device::uuid;
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice) => device::uuid;
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) => device::total_memory;
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: CUdevice) => device::attribute;
    cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: CUdevice) => device::compute_capability;
}
