//! What the library is told, what it keeps, and its log.

use crate::arguments::{Flag, Handle, Name, New, Out};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::env::var;
use std::ffi::{CString, c_char, c_int, c_uint};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

/// Bytes of a device's memory.
pub(crate) const MEMORY: usize = 141 << 30;

const INVALID_VALUE: u32 = 1;
const INVALID_DEVICE: u32 = 101;
const INVALID_CONTEXT: u32 = 201;
const ILLEGAL_STATE: u32 = 401;

/// The code that a call of a function answers.
pub(crate) fn code(function: &str) -> u32 {
    static CALLS: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
    let Ok(told) = var(format!("FAKE_CODE_{function}")) else {
        return 0;
    };
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let call = calls.entry(function.to_owned()).or_default();
    let codes: Vec<u32> = told.split(',').filter_map(|code| code.trim().parse().ok()).collect();
    let code = codes.get(*call).or(codes.last()).copied();
    *call += 1;
    code.unwrap_or(0)
}

/// What the driver says that it is.
pub(crate) fn version() -> c_int {
    var("FAKE_VERSION")
        .ok()
        .and_then(|told| told.parse().ok())
        .unwrap_or(12080)
}

/// The devices' compute capabilities.
pub(crate) fn devices() -> Vec<(c_int, c_int)> {
    let told = var("FAKE_DEVICES").unwrap_or_else(|_| "9.0".into());
    let capability = |word: &str| {
        let (major, minor) = word.trim().split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    told.split(',').filter_map(capability).collect()
}

fn capability(device: c_int) -> Option<(c_int, c_int)> {
    devices().get(usize::try_from(device).ok()?).copied()
}

pub(crate) unsafe fn device(device: Out<c_int>, ordinal: c_int) -> u32 {
    match capability(ordinal) {
        Some(_) => device.put(ordinal),
        None => INVALID_DEVICE,
    }
}

pub(crate) unsafe fn name(name: *mut c_char, bytes: c_int, device: c_int) -> u32 {
    let Some((major, minor)) = capability(device) else {
        return INVALID_DEVICE;
    };
    let text = format!("stand-in {device} (sm_{major}{minor})");
    let Some(room) = usize::try_from(bytes).ok().filter(|&room| room > text.len()) else {
        return INVALID_VALUE;
    };
    // SAFETY: the caller passes a buffer of so many bytes, more than the text has.
    let buffer = unsafe { std::slice::from_raw_parts_mut(name.cast::<u8>(), room) };
    buffer.fill(0);
    buffer[..text.len()].copy_from_slice(text.as_bytes());
    0
}

pub(crate) unsafe fn attribute(value: Out<c_int>, attribute: c_uint, device: c_int) -> u32 {
    let Some((major, minor)) = capability(device) else {
        return INVALID_DEVICE;
    };
    // `CUdevice_attribute`; the numbers are an H200's.
    value.put(match attribute {
        13 => 1_980_000,
        16 => 132,
        36 => 3_201_000,
        37 => 6144,
        38 => 60 << 20,
        75 => major,
        76 => minor,
        81 => 228 << 10,
        97 => 227 << 10,
        111 => 1 << 10,
        _ => 0,
    })
}

/// A text about a code, of this library alone, so that one can tell who said it.
pub(crate) fn words(kind: &str, code: c_uint) -> Name {
    static SAID: Mutex<BTreeMap<String, CString>> = Mutex::new(BTreeMap::new());
    let text = format!("stand-in {kind} of {code}");
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = said.entry(text.clone());
    // Entries are never removed, and a string stays where it is when its owner moves.
    Name(kept.or_insert_with(|| CString::new(text).unwrap_or_default()).as_ptr())
}

/// A handle that has not been before.
pub(crate) fn new_handle() -> Handle {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1001);
    Handle(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The first primary context; those of further devices follow.
const PRIMARY: usize = 0x100;

/// A device's primary context.
pub(crate) fn primary(device: c_int) -> Handle {
    Handle(PRIMARY + device as usize)
}

thread_local! {
    static CONTEXTS: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    static MODE: Cell<c_uint> = const { Cell::new(0) };
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

pub(crate) fn current() -> Handle {
    CONTEXTS.with_borrow(|contexts| contexts.last().copied().unwrap_or(Handle(0)))
}

pub(crate) unsafe fn current_device(device: Out<c_int>) -> u32 {
    match current() {
        Handle(0) => INVALID_CONTEXT,
        Handle(context) if (PRIMARY..PRIMARY + devices().len()).contains(&context) => {
            device.put((context - PRIMARY) as c_int)
        }
        Handle(_) => device.put(0),
    }
}

pub(crate) fn push(context: Handle) -> u32 {
    CONTEXTS.with_borrow_mut(|contexts| contexts.push(context));
    0
}

pub(crate) unsafe fn pop(context: Out<Handle>) -> u32 {
    match CONTEXTS.with_borrow_mut(Vec::pop) {
        Some(popped) => context.put(popped),
        None => INVALID_CONTEXT,
    }
}

pub(crate) fn set_current(context: Handle) -> u32 {
    CONTEXTS.with_borrow_mut(|contexts| {
        contexts.pop();
        if context != Handle(0) {
            contexts.push(context);
        }
    });
    0
}

/// Streams that are captured, with the numbers of their captures.
static CAPTURED: Mutex<BTreeMap<Handle, u64>> = Mutex::new(BTreeMap::new());

pub(crate) fn begin_capture(stream: Handle) -> u32 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
    if captured.contains_key(&stream) {
        return ILLEGAL_STATE;
    }
    captured.insert(stream, NEXT.fetch_add(1, Ordering::Relaxed));
    0
}

pub(crate) fn end_capture(stream: Handle, graph: New) -> u32 {
    let mut captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
    match captured.remove(&stream) {
        Some(_) => {
            graph.make();
            0
        }
        None => ILLEGAL_STATE,
    }
}

/// Whether a stream is captured, and in which capture.
pub(crate) fn capture(stream: Handle, status: Out<c_uint>, id: Out<u64>) -> u32 {
    let captured = CAPTURED.lock().unwrap_or_else(PoisonError::into_inner);
    let number = captured.get(&stream).copied();
    id.put(number.unwrap_or(0));
    status.put(number.is_some().into())
}

/// Each thread has a mode of its own, as with CUDA.
pub(crate) unsafe fn exchange_mode(mode: Flag) -> u32 {
    // SAFETY: the caller passes a mode.
    unsafe { *mode.0 = MODE.replace(*mode.0) };
    0
}

/// Adds a call to the log, if there is one.
pub(crate) fn log(function: &str, code: u32, arguments: &[(&str, String)]) {
    static LOG: LazyLock<Option<File>> = LazyLock::new(|| {
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(std::env::var_os("FAKE_LOG")?)
            .ok()
    });
    static ONE_AT_A_TIME: OnceLock<Mutex<()>> = OnceLock::new();
    let Some(mut log) = LOG.as_ref() else { return };
    let mut line = format!("{function} code={code} thread={}", THREAD.with(|thread| *thread));
    for (name, value) in arguments {
        // Writing to a string does not fail.
        let _ = write!(line, " {name}={value}");
    }
    line.push('\n');
    let lock = ONE_AT_A_TIME.get_or_init(Mutex::default);
    let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    // A test that reads the log finds out that a line is missing.
    let _ = log.write_all(line.as_bytes());
}
