//! Libraries: modules of no context, which are loaded into each context that uses one of their kernels.

use super::context::{self, Context, ready};
use super::function::{self, Function};
use super::jit;
use super::module::{self, Module, Refusal};
use super::state::{Object, STATE, lock, pointer, put, put_if_wanted};
use crate::codes::{Answer, Code};
use crate::types::*;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex, Weak};

/// `CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE`, `CU_LIBRARY_BINARY_IS_PRESERVED`
const OPTIONS: c_uint = 2;

pub(super) struct Library {
    handle: usize,
    /// Libraries are of no context.
    pub(super) context: usize,
    text: String,
    /// The names of its kernels, in the order of the text.
    names: Vec<String>,
    /// The module that it is in a context, by their handles.
    modules: Mutex<HashMap<usize, usize>>,
    /// The handles of the kernels asked for so far.
    kernels: Mutex<HashMap<String, usize>>,
}

/// A kernel of a library: of each context, another function.
pub(super) struct LibraryKernel {
    /// As its library.
    pub(super) context: usize,
    name: CString,
    owner: Weak<Library>,
}

fn find(library: CUlibrary) -> Answer<Arc<Library>> {
    ready()?;
    STATE.find(library.addr())
}

fn find_kernel(kernel: CUkernel) -> Answer<(Arc<LibraryKernel>, Arc<Library>)> {
    ready()?;
    let kernel = STATE.find::<LibraryKernel>(kernel.addr())?;
    let library = kernel.owner.upgrade().ok_or(Code::INVALID_HANDLE)?;
    Ok((kernel, library))
}

impl Library {
    /// The module that it is in a context, loaded if need be.
    fn module(&self, context: &Context) -> Answer<Arc<Module>> {
        let mut modules = lock(&self.modules);
        if let Some(&handle) = modules.get(&context.context)
            && let Ok(module) = STATE.find::<Module>(handle)
        {
            return Ok(module);
        }
        let code = module::parse(&self.text).map_err(Refusal::told)?;
        let module = Module::new(context.context, code);
        modules.insert(context.context, module.handle);
        Ok(module)
    }

    fn kernel(self: &Arc<Self>, name: &str) -> Answer<usize> {
        if !self.names.iter().any(|known| known == name) {
            return Err(Code::NOT_FOUND);
        }
        let mut kernels = lock(&self.kernels);
        if let Some(&handle) = kernels.get(name) {
            return Ok(handle);
        }
        let handle = STATE.fresh();
        let kernel = LibraryKernel {
            context: 0,
            name: CString::new(name).map_err(|_| Code::NOT_FOUND)?,
            owner: Arc::downgrade(self),
        };
        STATE.insert(handle, Arc::new(kernel));
        kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }
}

/// The function that a kernel of a library is in a context.
pub(super) fn function_of(kernel: usize, context: &Context) -> Answer<Arc<Function>> {
    let (kernel, library) = find_kernel(pointer(kernel))?;
    let name = kernel.name.to_str().map_err(|_| Code::NOT_FOUND)?;
    STATE.find(library.module(context)?.kernel(name)?)
}

/// Options as the caller gives them: which, their values, and how many.
type Options = (*mut c_uint, *mut *mut c_void, c_uint);

/// Loads a library.
///
/// # Safety
///
/// As [`load_data`].
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
        let loaded = Library {
            handle: STATE.fresh(),
            context: 0,
            text,
            names,
            modules: Mutex::default(),
            kernels: Mutex::default(),
        };
        // SAFETY: the caller promises that `library` is valid for a write.
        unsafe { put(library, pointer(loaded.handle)) }?;
        STATE.insert(loaded.handle, Arc::new(loaded));
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
    super::capture::forbid_unsafe()?;
    STATE.remove::<Library>(library.handle)?;
    let modules = std::mem::take(&mut *lock(&library.modules));
    for module in modules.into_values() {
        // A module that went down with its context is gone already.
        if let Ok(module) = STATE.find::<Module>(module) {
            if let Ok(context) = STATE.find::<Context>(module.context) {
                super::queue::finish(&context);
            }
            module.unload()?;
        }
    }
    let own = Arc::downgrade(&library);
    STATE.remove_all(|object| matches!(object, Object::LibraryKernel(kernel) if kernel.owner.ptr_eq(&own)));
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
    super::device::check(device)?;
    // SAFETY: the caller keeps the same promise.
    unsafe { function::get_attribute(value, which, kernel) }
}

/// Sets it in the current context.
pub(crate) unsafe fn kernel_set_attribute(which: c_uint, value: c_int, kernel: CUkernel, device: CUdevice) -> Answer {
    find_kernel(kernel)?;
    super::device::check(device)?;
    // SAFETY: the caller keeps the same promise.
    unsafe { function::set_attribute(kernel, which, value) }
}

pub(crate) unsafe fn kernel_set_cache_config(kernel: CUkernel, config: c_uint, device: CUdevice) -> Answer {
    find_kernel(kernel)?;
    super::device::check(device)?;
    // SAFETY: the caller keeps the same promise.
    unsafe { function::set_cache_config(kernel, config) }
}
