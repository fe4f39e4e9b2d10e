//! The start of the driver, the words of its errors, and what can be asked of it without a context.

use crate::codes::{self, Answer, Code};
use crate::emulated::context::ready;
use crate::emulated::device::{TOTAL_MEMORY, check, number};
use crate::emulated::leaks;
use crate::emulated::state::{STATE, put};
use crate::types::*;
use std::ffi::CStr;
use std::sync::atomic::Ordering;

/// Never "H200" alone: no measurement taken here may pass for one taken there.
const NAME: &CStr = c"Emulated sm_90 (H200 numbers)";
const UUID: [u8; 16] = *b"hopper-emulated\0";
/// The driver whose ways are imitated: CUDA 13.0.
const DRIVER_VERSION: c_int = 13000;

pub(crate) unsafe fn init(flags: c_uint) -> Answer {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    leaks::list_at_exit();
    STATE.initialised.store(true, Ordering::Release);
    Ok(())
}

pub(crate) unsafe fn driver_version(version: *mut c_int) -> Answer {
    // SAFETY: the caller promises that `version` is valid for a write.
    unsafe { put(version, DRIVER_VERSION) }
}

/// Gives a text, or null for a number that is no code.
///
/// # Safety
///
/// `to` must be null or valid for a write.
unsafe fn text(to: *mut *const c_char, text: Option<&'static CStr>) -> Answer {
    // SAFETY: the caller keeps the promise.
    unsafe { put(to, text.map_or(std::ptr::null(), CStr::as_ptr)) }?;
    text.map(|_| ()).ok_or(Code::INVALID_VALUE)
}

pub(crate) unsafe fn error_name(error: CUresult, name: *mut *const c_char) -> Answer {
    // SAFETY: the caller promises that `name` is valid for a write.
    unsafe { text(name, codes::name(error)) }
}

pub(crate) unsafe fn error_string(error: CUresult, words: *mut *const c_char) -> Answer {
    // SAFETY: the caller promises that `words` is valid for a write.
    unsafe { text(words, codes::words(error)) }
}

pub(crate) unsafe fn get(device: *mut CUdevice, ordinal: c_int) -> Answer {
    ready()?;
    check(ordinal)?;
    // SAFETY: the caller promises that `device` is valid for a write.
    unsafe { put(device, ordinal) }
}

pub(crate) unsafe fn count(count: *mut c_int) -> Answer {
    ready()?;
    // SAFETY: the caller promises that `count` is valid for a write.
    unsafe { put(count, 1) }
}

pub(crate) unsafe fn name(name: *mut c_char, len: c_int, device: CUdevice) -> Answer {
    ready()?;
    check(device)?;
    let len = usize::try_from(len).map_err(|_| Code::INVALID_VALUE)?;
    if name.is_null() || len == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let text = NAME.to_bytes();
    let shown = text.len().min(len - 1);
    // SAFETY: the caller promises `len` bytes at `name`; `shown` and the closing zero fit in them.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), shown);
        name.add(shown).write(0);
    }
    Ok(())
}

pub(crate) unsafe fn uuid(uuid: *mut [u8; 16], device: CUdevice) -> Answer {
    ready()?;
    check(device)?;
    // SAFETY: the caller promises that `uuid` is valid for a write.
    unsafe { put(uuid, UUID) }
}

pub(crate) unsafe fn total_memory(bytes: *mut usize, device: CUdevice) -> Answer {
    ready()?;
    check(device)?;
    // SAFETY: the caller promises that `bytes` is valid for a write.
    unsafe { put(bytes, usize::try_from(TOTAL_MEMORY).unwrap_or(usize::MAX)) }
}

pub(crate) unsafe fn attribute(value: *mut c_int, attribute: c_uint, device: CUdevice) -> Answer {
    ready()?;
    check(device)?;
    let answer = number(attribute)?;
    // SAFETY: the caller promises that `value` is valid for a write.
    unsafe { put(value, answer) }
}

pub(crate) unsafe fn compute_capability(major: *mut c_int, minor: *mut c_int, device: CUdevice) -> Answer {
    // SAFETY: the caller promises that both are valid for a write.
    unsafe {
        attribute(major, 75, device)?;
        attribute(minor, 76, device)
    }
}
