//! Modules: PTX text, handed to the emulator.

use super::capture;
use super::context::{current, ready};
use super::function::Function;
use super::jit;
use super::queue;
use super::state::{Object, STATE, lock, pointer, put, put_if_wanted};
use crate::codes::{Answer, Code};
use crate::report;
use crate::types::*;
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::{Arc, Mutex};

pub(super) struct Module {
    pub(super) handle: usize,
    /// The handle of its context.
    pub(super) context: usize,
    pub(super) code: ptx_emulator::Module,
    /// Handles of the kernels asked for so far: a kernel has one, however often it is asked for.
    functions: Mutex<HashMap<String, usize>>,
}

impl Drop for Module {
    fn drop(&mut self) {
        self.code.unload(&STATE.memory);
    }
}

/// How the images that are not PTX begin: an ELF binary, a fat binary, a fat binary's wrapper.
const BINARIES: [[u8; 4]; 3] = [
    *b"\x7fELF",
    0xBA55_ED50_u32.to_le_bytes(),
    0x4662_43B1_u32.to_le_bytes(),
];

/// Why an image was refused: the code, and the words for the JIT's error log, if there is more to say than the code does.
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) words: String,
}

impl Refusal {
    /// The code, once the words are told to those who ask for them.
    pub(super) fn told(self) -> Code {
        if !self.words.is_empty() {
            report::refused(self.code, &self.words);
        }
        self.code
    }

    fn binary() -> Self {
        Refusal {
            code: Code::NO_BINARY_FOR_GPU,
            words: "the image is a binary; the emulated driver takes PTX text".into(),
        }
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Refusal {
            code,
            words: String::new(),
        }
    }
}

/// Whether an image begins with these bytes, none of which is zero.
///
/// # Safety
///
/// `image` must be valid for reads up to and including its first zero byte, or for as many bytes as `start` has.
unsafe fn starts_with(image: *const u8, start: &[u8]) -> bool {
    // SAFETY: the comparison stops at the first difference, and a zero byte is one.
    start
        .iter()
        .enumerate()
        .all(|(at, &byte)| unsafe { *image.add(at) } == byte)
}

/// The PTX text of an image.
///
/// # Safety
///
/// `image` must be null, a binary image or PTX text that ends in a zero byte.
pub(super) unsafe fn text<'a>(image: *const c_void) -> Result<&'a str, Refusal> {
    if image.is_null() {
        return Err(Code::INVALID_VALUE.into());
    }
    // SAFETY: not null, so an image, the caller promises.
    if BINARIES.iter().any(|start| unsafe { starts_with(image.cast(), start) }) {
        return Err(Refusal::binary());
    }
    // SAFETY: no binary, so text that ends in a zero byte, the caller promises.
    let text = unsafe { CStr::from_ptr(image.cast()) };
    text.to_str().map_err(|error| Refusal {
        code: Code::INVALID_PTX,
        words: format!("the PTX is not UTF-8: {error}"),
    })
}

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

/// Reads PTX text.
pub(super) fn parse(ptx: &str) -> Result<ptx_emulator::Module, Refusal> {
    ptx_emulator::Module::parse(ptx).map_err(|error| Refusal {
        code: Code::INVALID_PTX,
        words: error.to_string(),
    })
}

impl Module {
    /// A module of a context, known by its handle.
    pub(super) fn new(context: usize, code: ptx_emulator::Module) -> Arc<Module> {
        let module = Arc::new(Module {
            handle: STATE.fresh(),
            context,
            code,
            functions: Mutex::default(),
        });
        STATE.insert(module.handle, module.clone());
        module
    }

    /// The handle of one of its kernels.
    pub(super) fn kernel(self: &Arc<Self>, name: &str) -> Answer<usize> {
        let info = self.code.entry(name).ok_or(Code::NOT_FOUND)?.clone();
        let mut functions = lock(&self.functions);
        let handle = *functions.entry(name.to_owned()).or_insert_with(|| {
            let handle = STATE.fresh();
            STATE.insert(handle, Arc::new(Function::new(handle, self.clone(), info)));
            handle
        });
        Ok(handle)
    }

    /// Where one of its variables is, and its size.
    pub(super) fn variable(&self, name: &str) -> Answer<(u64, u64)> {
        if !self.code.globals().any(|global| global.name == name) {
            return Err(Code::NOT_FOUND);
        }
        self.code.global_address(&STATE.memory, name).ok_or(Code::OUT_OF_MEMORY)
    }

    /// Takes it out of use, with its kernels.
    pub(super) fn unload(&self) -> Answer {
        STATE.remove::<Module>(self.handle)?;
        STATE
            .remove_all(|object| matches!(object, Object::Function(function) if function.module.handle == self.handle));
        Ok(())
    }
}

/// The bytes of a file, and a zero byte.
///
/// # Safety
///
/// `file` must be null or a C string.
pub(super) unsafe fn read(file: *const c_char) -> Answer<Vec<u8>> {
    if file.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a C string, the caller promises.
    let file = unsafe { CStr::from_ptr(file) }
        .to_str()
        .map_err(|_| Code::FILE_NOT_FOUND)?;
    let mut image = std::fs::read(file).map_err(|_| Code::FILE_NOT_FOUND)?;
    image.push(0);
    Ok(image)
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
    queue::finish(&*current()?);
    module.unload()
}

/// A name that a caller gives.
///
/// # Safety
///
/// `name` must be null or a C string.
pub(super) unsafe fn named<'a>(name: *const c_char) -> Answer<&'a str> {
    if name.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a C string, the caller promises.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Code::NOT_FOUND)
}

pub(crate) unsafe fn get_function(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> Answer {
    let module = find(module)?;
    // SAFETY: the caller promises a C string.
    let name = unsafe { named(name) }?;
    if function.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let handle = module.kernel(name)?;
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
        let handle = module.kernel(&entry.name)?;
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
