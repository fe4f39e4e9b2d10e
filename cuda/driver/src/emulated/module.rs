//! Modules as objects: PTX text, handed to the emulator.

use super::jit::Refusal;
use super::state::{Kind, STATE};
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
    pub(super) functions: Mutex<HashMap<String, usize>>,
}

impl Kind for Module {
    const WORDS: &'static str = "module";
    fn context(&self) -> usize {
        self.context
    }
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

    /// Where one of its variables is, and its size.
    pub(super) fn variable(&self, name: &str) -> Answer<(u64, u64)> {
        if !self.code.globals().any(|global| global.name == name) {
            return Err(Code::NOT_FOUND);
        }
        self.code.global_address(&STATE.memory, name).ok_or(Code::OUT_OF_MEMORY)
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
