//! Libraries: loading and unloading them, finding what is in them.

use super::function;
use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::context::{self, Context, ready};
use crate::emulated::device;
use crate::emulated::function::unload as unload_module;
use crate::emulated::jit::{self, Refusal};
use crate::emulated::library::{Library, LibraryKernel, find, find_kernel, function_of};
use crate::emulated::module::{self, Module};
use crate::emulated::state::{STATE, lock, pointer, put, put_if_wanted};
use crate::types::*;
use std::ffi::CStr;
use std::sync::Arc;

/// `CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE`, `CU_LIBRARY_BINARY_IS_PRESERVED`
const OPTIONS: c_uint = 2;

/// Options as the caller gives them: which, their values, and how many.
type Options = (*mut c_uint, *mut *mut c_void, c_uint);

/// Loads a library.
///
/// # Safety
///
/// `library` must be null or valid for a write; of each kind of option, both arrays must be null or hold as many
/// elements as their count says, and a buffer for the JIT's words must have the size that is given for it.
unsafe fn load(
    library: *mut CUlibrary,
    text: impl FnOnce() -> Result<String, Refusal>,
    (jit_options, jit_values, jit_count): Options,
    (options, values, count): Options,
) -> Answer {
    ready()?;
    if library.is_null() || (count > 0 && (options.is_null() || values.is_null())) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises `count` options.
    if (0..count as usize).any(|at| unsafe { *options.add(at) } >= OPTIONS) {
        return Err(Code::INVALID_VALUE);
    }
    let read = || {
        let text = text()?;
        let code = module::parse(&text)?;
        let names = code.entries().map(|entry| entry.name.clone()).collect();
        let loaded = Library::new(STATE.fresh(), text, names);
        // SAFETY: the caller promises that `library` is valid for a write.
        unsafe { put(library, pointer(loaded.handle)) }?;
        STATE.insert(loaded.handle, loaded);
        Ok(())
    };
    // SAFETY: the caller keeps the same promises.
    unsafe { jit::compile(jit_count, jit_options, jit_values, read) }
}

#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn load_data(
    library: *mut CUlibrary,
    image: *const c_void,
    jit_options: *mut c_uint,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
    count: c_uint,
) -> Answer {
    // SAFETY: the caller promises an image, as for a module.
    let text = || Ok(unsafe { module::text(image) }?.to_owned());
    // SAFETY: the caller keeps the same promises.
    unsafe {
        load(
            library,
            text,
            (jit_options, jit_values, jit_count),
            (options, values, count),
        )
    }
}

#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn load_file(
    library: *mut CUlibrary,
    file: *const c_char,
    jit_options: *mut c_uint,
    jit_values: *mut *mut c_void,
    jit_count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
    count: c_uint,
) -> Answer {
    // SAFETY: the caller promises a C string.
    let image = unsafe { module::read(file) };
    // SAFETY: the image that was read ends in a zero byte.
    let text = || Ok(unsafe { module::text(image?.as_ptr().cast()) }?.to_owned());
    // SAFETY: the caller keeps the same promises.
    unsafe {
        load(
            library,
            text,
            (jit_options, jit_values, jit_count),
            (options, values, count),
        )
    }
}

pub(crate) unsafe fn unload(library: CUlibrary) -> Answer {
    let library = find(library)?;
    capture::forbid_unsafe()?;
    STATE.remove::<Library>(library.handle)?;
    let modules = std::mem::take(&mut *lock(&library.modules));
    for module in modules.into_values() {
        // A module that went down with its context is gone already.
        if let Ok(module) = STATE.find::<Module>(module) {
            if let Ok(context) = STATE.find::<Context>(module.context) {
                context.finish();
            }
            unload_module(&module)?;
        }
    }
    let own = Arc::downgrade(&library);
    STATE.remove_kind(|kernel: &LibraryKernel| kernel.owner.ptr_eq(&own));
    Ok(())
}

pub(crate) unsafe fn get_kernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) -> Answer {
    let library = find(library)?;
    // SAFETY: the caller promises a C string.
    let name = unsafe { module::named(name) }?;
    if kernel.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises that `kernel` is valid for a write.
    unsafe { put(kernel, pointer(library.kernel(name)?)) }
}

pub(crate) unsafe fn kernel_count(count: *mut c_uint, library: CUlibrary) -> Answer {
    let library = find(library)?;
    // SAFETY: the caller promises that `count` is valid for a write.
    unsafe { put(count, library.names.len() as c_uint) }
}

pub(crate) unsafe fn kernels(kernels: *mut CUkernel, count: c_uint, library: CUlibrary) -> Answer {
    let library = find(library)?;
    if kernels.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    for (at, name) in library.names.iter().take(count as usize).enumerate() {
        // SAFETY: `at` is below `count`, the caller promises room for so many.
        unsafe { put(kernels.add(at), pointer(library.kernel(name)?)) }?;
    }
    Ok(())
}

pub(crate) unsafe fn get_module(module: *mut CUmodule, library: CUlibrary) -> Answer {
    let library = find(library)?;
    let loaded = library.module(&*context::current()?)?;
    // SAFETY: the caller promises that `module` is valid for a write.
    unsafe { put(module, pointer(loaded.handle)) }
}

pub(crate) unsafe fn get_global(
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Answer {
    let library = find(library)?;
    // SAFETY: the caller promises a C string.
    let name = unsafe { module::named(name) }?;
    let (at, size) = library.module(&*context::current()?)?.variable(name)?;
    // SAFETY: the caller promises that both are null or valid for a write.
    unsafe {
        put_if_wanted(address, at);
        put_if_wanted(bytes, size as usize);
    }
    Ok(())
}

pub(crate) unsafe fn kernel_function(function: *mut CUfunction, kernel: CUkernel) -> Answer {
    find_kernel(kernel)?;
    let found = function_of(kernel.addr(), &*context::current()?)?;
    // SAFETY: the caller promises that `function` is valid for a write.
    unsafe { put(function, pointer(found.handle)) }
}

pub(crate) unsafe fn kernel_library(library: *mut CUlibrary, kernel: CUkernel) -> Answer {
    let (_, found) = find_kernel(kernel)?;
    // SAFETY: the caller promises that `library` is valid for a write.
    unsafe { put(library, pointer(found.handle)) }
}

/// The name is good as long as the library.
pub(crate) unsafe fn kernel_name(name: *mut *const c_char, kernel: CUkernel) -> Answer {
    let (kernel, _) = find_kernel(kernel)?;
    let text: &CStr = &kernel.name;
    // SAFETY: the caller promises that `name` is valid for a write.
    unsafe { put(name, text.as_ptr()) }
}

pub(crate) unsafe fn kernel_get_attribute(
    value: *mut c_int,
    which: c_uint,
    kernel: CUkernel,
    device: CUdevice,
) -> Answer {
    find_kernel(kernel)?;
    device::check(device)?;
    // SAFETY: the caller keeps the same promise.
    unsafe { function::get_attribute(value, which, kernel) }
}

/// Sets it in the current context.
pub(crate) unsafe fn kernel_set_attribute(which: c_uint, value: c_int, kernel: CUkernel, device: CUdevice) -> Answer {
    find_kernel(kernel)?;
    device::check(device)?;
    // SAFETY: the caller keeps the same promise.
    unsafe { function::set_attribute(kernel, which, value) }
}

pub(crate) unsafe fn kernel_set_cache_config(kernel: CUkernel, config: c_uint, device: CUdevice) -> Answer {
    find_kernel(kernel)?;
    device::check(device)?;
    // SAFETY: the caller keeps the same promise.
    unsafe { function::set_cache_config(kernel, config) }
}
