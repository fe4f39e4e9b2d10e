//! Modules: PTX text, handed to the emulator.

use super::capture;
use super::context::current;
use super::function::Function;
use super::queue;
use super::state::{Object, STATE, lock, pointer, put, put_if_wanted};
use crate::codes::{Answer, Code};
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

/// Why an image was refused: the code, and the words for the JIT's error log.
struct Refusal {
    code: Code,
    words: String,
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
unsafe fn text<'a>(image: *const c_void) -> Result<&'a str, Refusal> {
    if image.is_null() {
        return Err(Code::INVALID_VALUE.into());
    }
    // SAFETY: not null, so an image, the caller promises.
    if BINARIES.iter().any(|start| unsafe { starts_with(image.cast(), start) }) {
        return Err(Refusal {
            code: Code::NO_BINARY_FOR_GPU,
            words: "the image is a binary; the emulated driver takes PTX text".into(),
        });
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
    let code = ptx_emulator::Module::parse(ptx?).map_err(|error| Refusal {
        code: Code::INVALID_PTX,
        words: error.to_string(),
    })?;
    let handle = STATE.fresh();
    // SAFETY: the caller keeps the promise.
    unsafe { put(module, pointer(handle)) }?;
    let functions = Mutex::default();
    STATE.insert(
        handle,
        Arc::new(Module {
            handle,
            context: context.context,
            code,
            functions,
        }),
    );
    Ok(())
}

pub(crate) unsafe fn load_file(module: *mut CUmodule, file: *const c_char) -> Answer {
    current()?;
    if file.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a C string, the caller promises.
    let file = unsafe { CStr::from_ptr(file) }
        .to_str()
        .map_err(|_| Code::FILE_NOT_FOUND)?;
    let mut image = std::fs::read(file).map_err(|_| Code::FILE_NOT_FOUND)?;
    image.push(0);
    // SAFETY: the image ends in a zero byte; the caller promises that `module` is valid for a write.
    unsafe { load_data(module, image.as_ptr().cast()) }
}

pub(crate) unsafe fn load_data(module: *mut CUmodule, image: *const c_void) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { load(module, text(image)) }.map_err(|refusal| refusal.code)
}

pub(crate) unsafe fn load_fat_binary(module: *mut CUmodule, image: *const c_void) -> Answer {
    current()?;
    if module.is_null() || image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    Err(Code::NO_BINARY_FOR_GPU)
}

/// A buffer of the caller's for the JIT's words.
struct Log {
    buffer: *mut c_char,
    /// Where the caller put the buffer's size and expects the number of bytes written.
    size: *mut *mut c_void,
}

impl Log {
    /// Finds the options of a log; none where the caller gave no buffer or no size.
    ///
    /// # Safety
    ///
    /// `options` and `values` must hold `count` options and their values, and a buffer's size must be its size.
    unsafe fn find(
        count: usize,
        options: *const c_uint,
        values: *mut *mut c_void,
        [buffer, size]: [c_uint; 2],
    ) -> Option<Log> {
        let (mut found_buffer, mut found_size) = (std::ptr::null_mut(), None);
        for at in 0..count {
            // SAFETY: `at` is below `count`, and both arrays have that many elements, the caller promises.
            let (option, value) = unsafe { (*options.add(at), values.add(at)) };
            if option == buffer {
                // SAFETY: the value is an element of the caller's array.
                found_buffer = unsafe { *value };
            } else if option == size {
                found_size = Some(value);
            }
        }
        let log = Log {
            buffer: found_buffer.cast(),
            size: found_size?,
        };
        (!log.buffer.is_null()).then_some(log)
    }

    /// Writes words, cut to what the buffer holds, and how many bytes they take.
    ///
    /// # Safety
    ///
    /// The log must have been found by [`Log::find`] for arrays that are still there.
    unsafe fn write(&self, words: &str) {
        // SAFETY: the size is an element of the caller's array, and the buffer has that many bytes, the caller promises.
        unsafe {
            // The API passes this size as the low 32 bits of a pointer.
            let room = (*self.size).addr() as u32 as usize;
            let shown = words.len().min(room.saturating_sub(1));
            if room > 0 {
                std::ptr::copy_nonoverlapping(words.as_ptr().cast(), self.buffer, shown);
                self.buffer.add(shown).write(0);
            }
            *self.size = pointer(shown);
        }
    }
}

pub(crate) unsafe fn load_data_ex(
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
) -> Answer {
    if count > 0 && (options.is_null() || values.is_null()) {
        return Err(Code::INVALID_VALUE);
    }
    let [info, error] = [
        [jit_option::INFO_LOG_BUFFER, jit_option::INFO_LOG_BUFFER_SIZE_BYTES],
        [jit_option::ERROR_LOG_BUFFER, jit_option::ERROR_LOG_BUFFER_SIZE_BYTES],
    ]
    // SAFETY: the caller promises `count` options and values, and buffers as large as their sizes say.
    .map(|wanted| unsafe { Log::find(count as usize, options, values, wanted) });
    // SAFETY: the caller keeps the same promises.
    let loaded = unsafe { load(module, text(image)) };
    let words = loaded.as_ref().err().map_or("", |refusal| refusal.words.as_str());
    // SAFETY: the logs were found in the caller's arrays just now.
    unsafe {
        if let Some(log) = info {
            log.write("");
        }
        if let Some(log) = error {
            log.write(words);
        }
    }
    loaded.map_err(|refusal| refusal.code)
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
    STATE.remove::<Module>(module.handle)?;
    STATE.remove_all(|object| matches!(object, Object::Function(function) if function.module.handle == module.handle));
    Ok(())
}

/// A name that a caller gives.
///
/// # Safety
///
/// `name` must be null or a C string.
unsafe fn named<'a>(name: *const c_char) -> Answer<&'a str> {
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
    let info = module.code.entry(name).ok_or(Code::NOT_FOUND)?.clone();
    if function.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut functions = lock(&module.functions);
    let handle = *functions.entry(name.to_owned()).or_insert_with(|| {
        let handle = STATE.fresh();
        STATE.insert(handle, Arc::new(Function::new(handle, module.clone(), info)));
        handle
    });
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
    if !module.code.globals().any(|global| global.name == name) {
        return Err(Code::NOT_FOUND);
    }
    let (at, size) = module
        .code
        .global_address(&STATE.memory, name)
        .ok_or(Code::OUT_OF_MEMORY)?;
    // SAFETY: the caller promises that both are null or valid for a write.
    unsafe {
        put_if_wanted(address, at);
        put_if_wanted(bytes, size as usize);
    }
    Ok(())
}
