//! What can be asked of the device besides its attributes: where it is, what it was asked in older times.

use crate::codes::{Answer, Code};
use crate::emulated::context::ready;
use crate::emulated::device::{self, check};
use crate::emulated::state::put;
use crate::types::*;
use std::ffi::CStr;

/// On no bus; the address that a device's attributes come to.
const BUS_ID: &CStr = c"0000:00:00.0";
/// `CUexecAffinityType` has one kind.
const AFFINITIES: c_uint = 1;

pub(crate) unsafe fn bus_id(id: *mut c_char, len: c_int, device: CUdevice) -> Answer {
    ready()?;
    check(device)?;
    let text = BUS_ID.to_bytes_with_nul();
    let len = usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?;
    if id.is_null() || len < text.len() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises `len` bytes, which are enough.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), id, text.len()) };
    Ok(())
}

pub(crate) unsafe fn by_bus_id(device: *mut CUdevice, id: *const c_char) -> Answer {
    ready()?;
    if device.is_null() || id.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a C string, the caller promises.
    let id = unsafe { CStr::from_ptr(id) };
    // Domain and function are optional.
    let known = [BUS_ID, c"0000:00:00", c"00:00.0"].contains(&id);
    if !known {
        return Err(Code::INVALID_DEVICE);
    }
    // SAFETY: the caller promises that `device` is valid for a write.
    unsafe { put(device, device::ORDINAL) }
}

/// What devices were asked for before they had attributes.
pub(crate) unsafe fn properties(properties: *mut CUdevprop, device: CUdevice) -> Answer {
    ready()?;
    check(device)?;
    let number = |attribute| device::number(attribute);
    let answer = CUdevprop {
        maxThreadsPerBlock: number(1)?,
        maxThreadsDim: [number(2)?, number(3)?, number(4)?],
        maxGridSize: [number(5)?, number(6)?, number(7)?],
        sharedMemPerBlock: number(8)?,
        totalConstantMemory: number(9)?,
        SIMDWidth: number(10)?,
        memPitch: number(11)?,
        regsPerBlock: number(12)?,
        clockRate: number(13)?,
        textureAlign: number(14)?,
    };
    // SAFETY: the caller promises that `properties` is valid for a write.
    unsafe { put(properties, answer) }
}

pub(crate) unsafe fn affinity_support(supported: *mut c_int, kind: c_uint, device: CUdevice) -> Answer {
    ready()?;
    check(device)?;
    if kind >= AFFINITIES {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises that `supported` is valid for a write.
    unsafe { put(supported, 0) }
}

/// Profilers may start and stop; there is none that listens.
pub(crate) unsafe fn profiler() -> Answer {
    crate::emulated::context::current().map(|_| ())
}
