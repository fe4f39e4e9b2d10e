//! The driver in use, and its errors in words.

use crate::Error;
use cust::error::CudaError;
use hopper_cuda_driver::{emulated, ffi};
use std::ffi::CStr;

pub use hopper_cuda_driver::{Choice, Selected};

pub(crate) type Result<T> = crate::Result<T>;

/// The error of a driver call that answered `code`, unless it is success.
pub(crate) fn check(call: &'static str, code: u32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failed(call, code)) }
}

/// The error of a failed call through `cust`, in this crate's words: on the emulated device, with the story behind it.
pub fn cust_error(call: &'static str, err: CudaError) -> Error {
    failed(call, err as u32)
}

fn failed(call: &'static str, code: u32) -> Error {
    let mut text = std::ptr::null();
    // SAFETY: writes one pointer, to a constant string or null.
    let answer = unsafe { ffi::cuGetErrorString(code, &raw mut text) };
    let name = if answer == 0 && !text.is_null() {
        // SAFETY: the driver's strings end with a zero byte and live for ever.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    } else {
        "unknown".to_owned()
    };
    Error::Device {
        call,
        code,
        name,
        story: emulated::last_fault(),
    }
}
