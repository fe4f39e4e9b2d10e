//! Modules: loading and unloading them, finding what is in them.

use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::context::{current, ready};
use crate::emulated::function;
use crate::emulated::jit::{self, Refusal};
use crate::emulated::module::{Module, named, parse, read, text};
use crate::emulated::state::{STATE, pointer, put, put_if_wanted};
use crate::types::*;
use std::sync::Arc;

/// Loads PTX text into the current context.
///
/// # Safety
///
/// `module` must be null or valid for a write.
unsafe fn load(module: *mut CUmodule, ptx: Result<&str, Refusal>) -> Result<(), Refusal> {
    let context = current()?;
    capture::forbid_unsafe()?;
    if module.is_null() {
        return Err(Code::INVALID_VALUE.into());
    }
    let loaded = Module::new(context.context, parse(ptx?)?);
    // SAFETY: the caller keeps the promise.
    unsafe { put(module, pointer(loaded.handle)) }?;
    Ok(())
}

pub(crate) unsafe fn load_file(module: *mut CUmodule, file: *const c_char) -> Answer {
    current()?;
    // SAFETY: the caller promises a C string.
    let image = unsafe { read(file) }?;
    // SAFETY: the image ends in a zero byte; the caller promises that `module` is valid for a write.
    unsafe { load_data(module, image.as_ptr().cast()) }
}

pub(crate) unsafe fn load_data(module: *mut CUmodule, image: *const c_void) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { load(module, text(image)) }.map_err(Refusal::told)
}

pub(crate) unsafe fn load_fat_binary(module: *mut CUmodule, image: *const c_void) -> Answer {
    current()?;
    if module.is_null() || image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    Err(Refusal::binary().told())
}

pub(crate) unsafe fn load_data_ex(
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { jit::compile(count, options, values, || load(module, text(image))) }
}

/// A module of the current context.
fn find(module: CUmodule) -> Answer<Arc<Module>> {
    let context = current()?;
    let module = STATE.find::<Module>(module.addr())?;
    if module.context == context.context {
        Ok(module)
    } else {
        Err(Code::INVALID_HANDLE)
    }
}

pub(crate) unsafe fn unload(module: CUmodule) -> Answer {
    let module = find(module)?;
    capture::forbid_unsafe()?;
    current()?.finish();
    function::unload(&module)
}

pub(crate) unsafe fn get_function(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> Answer {
    let module = find(module)?;
    // SAFETY: the caller promises a C string.
    let name = unsafe { named(name) }?;
    if function.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let handle = function::of_module(&module, name)?;
    // SAFETY: the caller promises that `function` is valid for a write.
    unsafe { put(function, pointer(handle)) }
}

pub(crate) unsafe fn get_global(
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> Answer {
    let module = find(module)?;
    // SAFETY: the caller promises a C string.
    let name = unsafe { named(name) }?;
    let (at, size) = module.variable(name)?;
    // SAFETY: the caller promises that both are null or valid for a write.
    unsafe {
        put_if_wanted(address, at);
        put_if_wanted(bytes, size as usize);
    }
    Ok(())
}

pub(crate) unsafe fn function_count(count: *mut c_uint, module: CUmodule) -> Answer {
    let module = find(module)?;
    // SAFETY: the caller promises that `count` is valid for a write.
    unsafe { put(count, module.code.entries().count() as c_uint) }
}

pub(crate) unsafe fn functions(functions: *mut CUfunction, count: c_uint, module: CUmodule) -> Answer {
    let module = find(module)?;
    if functions.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    for (at, entry) in module.code.entries().take(count as usize).enumerate() {
        let handle = function::of_module(&module, &entry.name)?;
        // SAFETY: `at` is below `count`, the caller promises room for so many.
        unsafe { put(functions.add(at), pointer(handle)) }?;
    }
    Ok(())
}

/// `CU_MODULE_EAGER_LOADING`: a module is all there once it is loaded.
pub(crate) unsafe fn loading_mode(mode: *mut c_uint) -> Answer {
    ready()?;
    // SAFETY: the caller promises that `mode` is valid for a write.
    unsafe { put(mode, 1) }
}
