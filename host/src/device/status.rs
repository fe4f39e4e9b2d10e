//! The driver in use, and its errors in words.

use crate::Error;
use cust::error::CudaError;
use hopper_cuda_driver::{advice, behind_unknown, emulated, ffi, meaning, selected};
use std::ffi::CStr;

pub use hopper_cuda_driver::{Choice, Selected, Unavailable};

pub(crate) type Result<T> = crate::Result<T>;

/// What `cust`, and functions that it declares, answer in place of every code that they have no name for.
const UNKNOWN: u32 = CudaError::UnknownError as u32;

/// The error of a driver call that answered `code`, unless it is success. The call was this thread's last that failed.
pub(crate) fn check(call: &'static str, code: u32) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failed(call, code)) }
}

/// The error of a failed call through `cust`, in this crate's words: on the emulated device, with the story behind it.
/// To be called on the thread of the call, before others fail on it: `cust` tells many codes as `UnknownError`, and the
/// driver's own is then the last of these that the thread was answered.
pub fn cust_error(call: &'static str, err: CudaError) -> Error {
    match err {
        // These two are `cust`'s own, and no code of the driver's.
        CudaError::InvalidMemoryAllocation | CudaError::OptixError => Error::Device {
            call,
            code: err as u32,
            name: err.to_string(),
            story: None,
        },
        _ => failed(call, err as u32),
    }
}

fn failed(call: &'static str, code: u32) -> Error {
    let code = match (code, behind_unknown()) {
        (UNKNOWN, behind) if behind != 0 => behind,
        _ => code,
    };
    let story = match selected() {
        Ok(Selected::Cuda) => advice(code).map(str::to_owned),
        _ => emulated::last_fault(),
    };
    Error::Device {
        call,
        code,
        name: words(code),
        story,
    }
}

/// What a code means, as the driver says; a driver does not know codes newer than itself.
fn words(code: u32) -> String {
    let mut text = std::ptr::null();
    // SAFETY: writes one pointer, to a constant string or null.
    let answer = unsafe { ffi::cuGetErrorString(code, &raw mut text) };
    if answer == 0 && !text.is_null() {
        // SAFETY: the driver's strings end with a zero byte and live for ever.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    } else {
        meaning(code).unwrap_or("unknown").to_owned()
    }
}
