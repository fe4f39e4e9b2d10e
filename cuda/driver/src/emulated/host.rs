//! Page-locked host memory: ordinary host memory here, out of kernels' reach.

use super::capture;
use super::context::current;
use super::state::{lock, put};
use crate::codes::{Answer, Code};
use crate::types::*;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Blocks start at a page, as NVIDIA's do.
const ALIGN: usize = 4096;
/// Portable, mapped, write-combined.
const ALLOC_FLAGS: c_uint = 7;
/// Portable, mapped, I/O memory, read-only.
const REGISTER_FLAGS: c_uint = 15;

/// Blocks by their first address.
static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());

struct Block {
    bytes: usize,
    flags: c_uint,
    /// How it was allocated; none for memory that the caller registered.
    layout: Option<Layout>,
}

pub(crate) unsafe fn alloc(host: *mut *mut c_void, bytes: usize) -> Answer {
    // SAFETY: the caller keeps the same promise.
    unsafe { alloc_with_flags(host, bytes, 0) }
}

pub(crate) unsafe fn alloc_with_flags(host: *mut *mut c_void, bytes: usize, flags: c_uint) -> Answer {
    current()?;
    capture::forbid_unsafe()?;
    if host.is_null() || bytes == 0 || flags & !ALLOC_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let layout = Layout::from_size_align(bytes, ALIGN).map_err(|_| Code::OUT_OF_MEMORY)?;
    // SAFETY: the layout's size is not zero.
    let block = unsafe { std::alloc::alloc_zeroed(layout) };
    if block.is_null() {
        return Err(Code::OUT_OF_MEMORY);
    }
    lock(&BLOCKS).insert(
        block.expose_provenance(),
        Block {
            bytes,
            flags,
            layout: Some(layout),
        },
    );
    // SAFETY: the caller promises that `host` is valid for a write.
    unsafe { put(host, block.cast()) }
}

pub(crate) unsafe fn free(host: *mut c_void) -> Answer {
    current()?;
    capture::forbid_unsafe()?;
    let mut blocks = lock(&BLOCKS);
    let layout = blocks
        .get(&host.addr())
        .and_then(|block| block.layout)
        .ok_or(Code::INVALID_VALUE)?;
    blocks.remove(&host.addr());
    // SAFETY: the table had this block, so it was allocated here with this layout and not freed since.
    unsafe { std::alloc::dealloc(std::ptr::with_exposed_provenance_mut(host.addr()), layout) };
    Ok(())
}

pub(crate) unsafe fn register(host: *mut c_void, bytes: usize, flags: c_uint) -> Answer {
    current()?;
    capture::forbid_unsafe()?;
    let start = host.addr();
    let end = start.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
    if host.is_null() || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut blocks = lock(&BLOCKS);
    let before = blocks.range(..end).next_back();
    if before.is_some_and(|(first, block)| first + block.bytes > start) {
        return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
    }
    blocks.insert(
        start,
        Block {
            bytes,
            flags,
            layout: None,
        },
    );
    Ok(())
}

pub(crate) unsafe fn unregister(host: *mut c_void) -> Answer {
    current()?;
    capture::forbid_unsafe()?;
    let mut blocks = lock(&BLOCKS);
    match blocks.get(&host.addr()) {
        Some(Block { layout: None, .. }) => {
            blocks.remove(&host.addr());
            Ok(())
        }
        _ => Err(Code::HOST_MEMORY_NOT_REGISTERED),
    }
}

pub(crate) unsafe fn flags(flags: *mut c_uint, host: *mut c_void) -> Answer {
    current()?;
    let known = lock(&BLOCKS)
        .get(&host.addr())
        .map(|block| block.flags)
        .ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the caller promises that `flags` is valid for a write.
    unsafe { put(flags, known) }
}
