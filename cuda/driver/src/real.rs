//! NVIDIA's driver library, found and opened at run time.

use crate::codes::Code;
use crate::types::{CUdevice, CUresult, c_int, c_uint, c_void};
use crate::unavailable::{Capability, HOPPER, Unavailable};
use libloading::Library;
use std::error::Error;
use std::ffi::CStr;
use std::ptr::NonNull;

/// The name under which NVIDIA's driver is installed.
pub(crate) const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// `CUdevice_attribute`s.
const COMPUTE_CAPABILITY_MAJOR: c_uint = 75;
const COMPUTE_CAPABILITY_MINOR: c_uint = 76;

/// Marks a library as ours. Built as a stand-alone `libcuda.so.1`, this crate is found under NVIDIA's name too.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hopper_cuda_driver_marker() {}

/// NVIDIA's library, loaded, initialised and with a device to offer.
pub(crate) struct Real {
    loaded: Library,
    devices: c_int,
}

/// Looks up a function of a library and calls it. Its code, unless it is success, is an error.
macro_rules! call {
    ($real:expr, $name:ident($($argument:expr => $type:ty),*)) => {{
        let symbol = $real.function(concat!(stringify!($name), "\0"))?;
        // SAFETY: NVIDIA's function of this name has this C signature, and pointers are to locals that outlive the
        // call.
        let code = unsafe {
            let function: unsafe extern "C" fn($($type),*) -> CUresult = std::mem::transmute(symbol.as_ptr());
            function($($argument),*)
        };
        match code {
            0 => Ok(()),
            code if code == Code::NO_DEVICE.0 => Err(Unavailable::NoDevice),
            code => Err(Unavailable::Failed { call: stringify!($name), code }),
        }
    }};
}

impl Real {
    /// Opens the library, or says why it cannot serve.
    pub(crate) fn open() -> Result<Real, Unavailable> {
        // SAFETY: NVIDIA's library may be loaded by any program; its initialisers ask nothing of the caller, nor do
        // this crate's, where the file is a copy of it.
        let loaded = unsafe { Library::new(LIBRARY) }.map_err(|error| Unavailable::of_loader(in_full(&error)))?;
        let mut real = Real { loaded, devices: 0 };
        if real.symbol(c"hopper_cuda_driver_marker").is_some() {
            return Err(Unavailable::Emulated);
        }
        let init = real.function("cuInit\0")?;
        if std::ptr::eq(init.as_ptr(), crate::symbols::device::cuInit as *const c_void) {
            return Err(Unavailable::Circular);
        }
        call!(real, cuInit(0 => c_uint))?;
        let mut devices = 0;
        call!(real, cuDeviceGetCount(&mut devices => *mut c_int))?;
        real.devices = devices;
        if devices > 0 {
            Ok(real)
        } else {
            Err(Unavailable::NoDevice)
        }
    }

    /// The library, if one of its devices is a Hopper GPU.
    pub(crate) fn with_hopper(self) -> Result<Real, Unavailable> {
        let capabilities = (0..self.devices).map(|ordinal| self.capability(ordinal));
        let capabilities = capabilities.collect::<Result<Vec<_>, _>>()?;
        if capabilities.contains(&HOPPER) {
            Ok(self)
        } else {
            Err(Unavailable::NoHopper { capabilities })
        }
    }

    fn capability(&self, ordinal: c_int) -> Result<Capability, Unavailable> {
        let mut device: CUdevice = 0;
        call!(self, cuDeviceGet(&mut device => *mut CUdevice, ordinal => c_int))?;
        let attribute = |attribute| {
            let mut value = 0;
            call!(self, cuDeviceGetAttribute(&mut value => *mut c_int, attribute => c_uint, device => CUdevice))?;
            Ok(value)
        };
        Ok((
            attribute(COMPUTE_CAPABILITY_MAJOR)?,
            attribute(COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// The address of a function, if this driver is new enough to have it.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: only the address is taken here; what it is called as is its caller's promise.
        let symbol = unsafe { self.loaded.get::<*mut c_void>(name.to_bytes_with_nul()) }.ok()?;
        NonNull::new(*symbol)
    }

    /// The address of a function that every driver has; its name ends with a zero byte.
    fn function(&self, name: &'static str) -> Result<NonNull<c_void>, Unavailable> {
        let found = CStr::from_bytes_with_nul(name.as_bytes())
            .ok()
            .and_then(|name| self.symbol(name));
        found.ok_or(Unavailable::Incomplete {
            symbol: name.trim_end_matches('\0'),
        })
    }
}

/// An error and what is behind it, which on Windows names the reason.
fn in_full(error: &dyn Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
