//! NVIDIA's driver library, found and opened at run time.

use crate::types::{CUresult, c_int, c_uint, c_void};
use libloading::Library;
use std::ffi::CStr;
use std::ptr::NonNull;

/// The name under which NVIDIA's driver is installed.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// Marks a library as ours. Built as a stand-alone `libcuda.so.1`, this crate is found under NVIDIA's name too.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hopper_cuda_driver_marker() {}

/// NVIDIA's library, loaded, initialised and with a device to offer.
pub(crate) struct Real(Library);

impl Real {
    /// Opens the library, or says why it cannot serve.
    pub(crate) fn open() -> Result<Real, String> {
        // SAFETY: NVIDIA's library may be loaded by any program; its initialisers ask nothing of the caller, nor do
        // this crate's, where the file is a copy of it.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|error| format!("{LIBRARY} does not load ({error})"))?;
        let real = Real(library);
        if real.symbol(c"hopper_cuda_driver_marker").is_some() {
            return Err(format!(
                "the {LIBRARY} found first is this emulated driver, not NVIDIA's"
            ));
        }
        let missing = |name| format!("{LIBRARY} has no {name}");
        let init = real.symbol(c"cuInit").ok_or_else(|| missing("cuInit"))?;
        let count = real
            .symbol(c"cuDeviceGetCount")
            .ok_or_else(|| missing("cuDeviceGetCount"))?;
        if std::ptr::eq(init.as_ptr(), crate::symbols::device::cuInit as *const c_void) {
            return Err(format!("{LIBRARY} leads back to this program's own symbols"));
        }
        // SAFETY: these are the C signatures of the two functions, and `devices` outlives the call.
        let (status, devices) = unsafe {
            let init: unsafe extern "C" fn(c_uint) -> CUresult = std::mem::transmute(init.as_ptr());
            let count: unsafe extern "C" fn(*mut c_int) -> CUresult = std::mem::transmute(count.as_ptr());
            let mut devices = 0;
            let status = match init(0) {
                0 => count(&mut devices),
                failed => failed,
            };
            (status, devices)
        };
        match (status, devices) {
            (0, 1..) => Ok(real),
            (0, _) => Err("NVIDIA's driver reports no device".into()),
            (code, _) => Err(format!("NVIDIA's driver does not start: {} ({code})", describe(code))),
        }
    }

    /// The address of a function, if this driver is new enough to have it.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: only the address is taken here; what it is called as is its caller's promise.
        let symbol = unsafe { self.0.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
        NonNull::new(*symbol)
    }
}

fn describe(code: CUresult) -> String {
    crate::codes::words(code).map_or_else(|| "unknown error".into(), |words| words.to_string_lossy().into_owned())
}
