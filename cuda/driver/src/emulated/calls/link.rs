//! The linker. It takes one PTX text, and completing it gives that text back.

use crate::codes::{Answer, Code};
use crate::emulated::context::current;
use crate::emulated::jit::{self, Refusal};
use crate::emulated::module;
use crate::emulated::state::{Kind, STATE, lock, pointer, put, put_if_wanted};
use crate::types::*;
use std::sync::{Arc, Mutex, OnceLock};

/// `CU_JIT_INPUT_PTX`
const PTX: c_uint = 1;
/// `CUjitInputType` has this many kinds.
const KINDS: c_uint = 6;

pub(super) struct Link {
    handle: usize,
    /// The handle of its context.
    pub(super) context: usize,
    /// The text that was added, with a zero byte at its end.
    text: Mutex<Option<Vec<u8>>>,
    /// The same, once completed: the caller is given a pointer to it.
    image: OnceLock<Vec<u8>>,
}

impl Kind for Link {
    const WORDS: &'static str = "linker";
    fn context(&self) -> usize {
        self.context
    }
}

fn find(state: CUlinkState) -> Answer<Arc<Link>> {
    current()?;
    STATE.find(state.addr())
}

pub(crate) unsafe fn create(
    count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
    state: *mut CUlinkState,
) -> Answer {
    let context = current()?;
    if state.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises `count` options and values.
    unsafe { jit::compile(count, options, values, || Ok(())) }?;
    let link = Arc::new(Link {
        handle: STATE.fresh(),
        context: context.context,
        text: Mutex::default(),
        image: OnceLock::new(),
    });
    STATE.insert(link.handle, link.clone());
    // SAFETY: the caller promises that `state` is valid for a write.
    unsafe { put(state, pointer(link.handle)) }
}

impl Link {
    /// Adds a text, the one that it can have.
    fn add(&self, kind: c_uint, text: Vec<u8>) -> Result<(), Refusal> {
        let refuse = |code, words: &str| {
            let words = words.to_owned();
            Err(Refusal { code, words })
        };
        if kind >= KINDS {
            return refuse(Code::INVALID_VALUE, "no such kind of input");
        }
        if kind != PTX {
            return refuse(Code::NOT_SUPPORTED, "the emulated driver links PTX alone");
        }
        let mut known = lock(&self.text);
        if self.image.get().is_some() || known.is_some() {
            return refuse(Code::NOT_SUPPORTED, "the emulated driver links one text alone");
        }
        // SAFETY: the text ends in a zero byte.
        module::parse(unsafe { module::text(text.as_ptr().cast()) }?)?;
        *known = Some(text);
        Ok(())
    }
}

#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn add_data(
    state: CUlinkState,
    kind: c_uint,
    data: *mut c_void,
    size: usize,
    _name: *const c_char,
    count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
) -> Answer {
    let link = find(state)?;
    if data.is_null() || size == 0 || isize::try_from(size).is_err() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises `size` bytes.
    let mut text = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec();
    text.push(0);
    // SAFETY: the caller promises `count` options and values.
    unsafe { jit::compile(count, options, values, || link.add(kind, text)) }
}

pub(crate) unsafe fn add_file(
    state: CUlinkState,
    kind: c_uint,
    path: *const c_char,
    count: c_uint,
    options: *mut c_uint,
    values: *mut *mut c_void,
) -> Answer {
    let link = find(state)?;
    // SAFETY: the caller promises a C string.
    let text = unsafe { module::read(path) }?;
    // SAFETY: the caller promises `count` options and values.
    unsafe { jit::compile(count, options, values, || link.add(kind, text)) }
}

/// The image is good until the linker is destroyed.
pub(crate) unsafe fn complete(state: CUlinkState, image: *mut *mut c_void, size: *mut usize) -> Answer {
    let link = find(state)?;
    if image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if let Some(text) = lock(&link.text).take() {
        // Set here alone, and the text is there once.
        let _ = link.image.set(text);
    }
    let text = link.image.get().ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the caller promises that both are null or valid for a write.
    unsafe {
        put_if_wanted(size, text.len());
        put(image, text.as_ptr().cast_mut().cast())
    }
}

pub(crate) unsafe fn destroy(state: CUlinkState) -> Answer {
    let link = find(state)?;
    STATE.remove::<Link>(link.handle).map(|_| ())
}
