//! PTX text into a context.

use crate::Error;
use crate::device::{Result, cust_error};
use cust::module::Module;
use hopper_cuda_driver::ffi;
use std::ffi::{CStr, CString, c_void};

/// Loads PTX text into the calling thread's current context. Where the driver refuses it, the error says why in the
/// words of the driver's compiler.
pub fn load_module(ptx: &str) -> Result<Module> {
    const CALL: &str = "load the kernels";
    // `cust` takes the text for free of zero bytes.
    if ptx.contains('\0') {
        let reason = "it holds a zero byte".to_owned();
        return Err(Error::Device {
            call: CALL,
            code: 218,
            name: "invalid PTX".to_owned(),
            story: Some(reason),
        });
    }
    Module::from_ptx(ptx, &[]).map_err(|err| match cust_error(CALL, err) {
        Error::Device {
            call,
            code,
            name,
            story: None,
        } => Error::Device {
            call,
            code,
            name,
            story: compiler_log(ptx),
        },
        other => other,
    })
}

/// What the driver's compiler has to say of PTX that it refuses.
fn compiler_log(ptx: &str) -> Option<String> {
    let ptx = CString::new(ptx).ok()?;
    let mut log = vec![0u8; 4096];
    let mut options = [
        ffi::jit_option::ERROR_LOG_BUFFER,
        ffi::jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    // A size is passed as a pointer's value.
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
    let mut module = std::ptr::null_mut();
    // SAFETY: the text ends with a zero byte; the log has the size given; options and values are as many as said.
    let code = unsafe {
        ffi::cuModuleLoadDataEx(
            &raw mut module,
            ptx.as_ptr().cast(),
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    if code == 0 {
        // SAFETY: loaded just now, used by nobody.
        unsafe { ffi::cuModuleUnload(module) };
    }
    let text = CStr::from_bytes_until_nul(&log).ok()?.to_string_lossy();
    (!text.trim().is_empty()).then(|| text.trim().to_owned())
}
