//! PTX text into a context.

use crate::Error;
use crate::device::context::cuda_version;
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
            story,
        } => Error::Device {
            call,
            code,
            name,
            story: match code {
                UNSUPPORTED_PTX_VERSION => too_new(ptx, cuda_version().ok()),
                _ => compiler_log(ptx),
            }
            .or(story),
        },
        other => other,
    })
}

/// CUDA's code for PTX that is newer than the driver.
const UNSUPPORTED_PTX_VERSION: u32 = 222;

/// Versions of PTX, and the CUDA that brought each, as the PTX ISA lists them.
const BROUGHT_BY: &[(&str, (i32, i32))] = &[
    ("7.8", (11, 8)),
    ("8.0", (12, 0)),
    ("8.1", (12, 1)),
    ("8.2", (12, 2)),
    ("8.3", (12, 3)),
    ("8.4", (12, 4)),
    ("8.5", (12, 5)),
    ("8.6", (12, 7)),
    ("8.7", (12, 8)),
    ("8.8", (12, 9)),
    ("9.0", (13, 0)),
];

/// Why a driver finds PTX too new, and what helps; nothing where the PTX does not name its version.
fn too_new(ptx: &str, driver: Option<(i32, i32)>) -> Option<String> {
    let version = ptx.lines().find_map(|line| line.trim().strip_prefix(".version"))?;
    let version = version.split("//").next()?.trim();
    let serves = driver.map_or("an older one".to_owned(), |(major, minor)| {
        format!("CUDA {major}.{minor}")
    });
    let found = BROUGHT_BY.iter().find(|(brought, _)| *brought == version);
    Some(match found {
        Some((_, (major, minor))) => format!(
            "the PTX is of version {version}, which needs a driver for CUDA {major}.{minor}, and this driver serves \
             {serves}: install a newer driver"
        ),
        None => format!("the PTX is of version {version}, and this driver serves {serves}: install a newer driver"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_that_is_too_new_names_the_cuda_that_it_needs() {
        let story = too_new("// rustc\n.version 8.3 // by rustc\n.target sm_90a\n", Some((12, 1))).unwrap();
        assert!(
            story.contains("version 8.3, which needs a driver for CUDA 12.3, and this driver serves CUDA 12.1:"),
            "{story}"
        );
        let story = too_new(".version 99.1\n", None).unwrap();
        assert!(
            story.contains("version 99.1, and this driver serves an older one"),
            "{story}"
        );
        assert_eq!(too_new("", None), None);
    }
}
