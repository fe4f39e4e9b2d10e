//! Page-locked host memory: allocated, or the caller's own and registered.

use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::context::current;
use crate::emulated::host::{BLOCKS, Block, block_at};
use crate::emulated::mapping::Mapping;
use crate::emulated::state::{lock, put};
use crate::types::*;
use std::ptr::NonNull;

/// Portable, mapped, write-combined.
const ALLOC_FLAGS: c_uint = 7;
/// Portable, mapped, I/O memory, read-only.
const REGISTER_FLAGS: c_uint = 15;
/// `CU_MEMHOSTREGISTER_IOMEMORY`
const IO_MEMORY: c_uint = 4;

pub(crate) unsafe fn alloc(host: *mut *mut c_void, bytes: usize) -> Answer {
    // SAFETY: the caller keeps the same promise.
    unsafe { alloc_with_flags(host, bytes, 0) }
}

pub(crate) unsafe fn alloc_with_flags(host: *mut *mut c_void, bytes: usize, flags: c_uint) -> Answer {
    let context = current()?;
    capture::forbid_unsafe()?;
    if host.is_null() || bytes == 0 || flags & !ALLOC_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mapping = Mapping::new(bytes)?;
    let start = mapping.host.as_ptr();
    let block = Block {
        bytes,
        flags,
        context: context.context,
        registered: false,
        mapping: Some(mapping),
    };
    lock(&BLOCKS).insert(start.addr(), block);
    // SAFETY: the caller promises that `host` is valid for a write.
    unsafe { put(host, start.cast()) }
}

/// Takes a block out of the table, if it is of the given kind.
fn take(host: *mut c_void, registered: bool) -> Option<Block> {
    let mut blocks = lock(&BLOCKS);
    let block = blocks.get(&host.addr()).filter(|block| block.registered == registered);
    block.is_some().then(|| blocks.remove(&host.addr())).flatten()
}

pub(crate) unsafe fn free(host: *mut c_void) -> Answer {
    let context = current()?;
    capture::forbid_unsafe()?;
    context.finish();
    take(host, false).map(|_| ()).ok_or(Code::INVALID_VALUE)
}

pub(crate) unsafe fn register(host: *mut c_void, bytes: usize, flags: c_uint) -> Answer {
    let context = current()?;
    capture::forbid_unsafe()?;
    let start = host.addr();
    let end = start.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
    let first = NonNull::new(host.cast::<u8>()).ok_or(Code::INVALID_VALUE)?;
    if bytes == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if flags & IO_MEMORY != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    let mut blocks = lock(&BLOCKS);
    let before = blocks.range(..end).next_back();
    if before.is_some_and(|(first, block)| first + block.bytes > start) {
        return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
    }
    host.expose_provenance();
    let block = Block {
        bytes,
        flags,
        context: context.context,
        registered: true,
        // SAFETY: the caller promises memory that is there until it is unregistered.
        mapping: unsafe { Mapping::of(first, bytes) },
    };
    blocks.insert(start, block);
    Ok(())
}

pub(crate) unsafe fn unregister(host: *mut c_void) -> Answer {
    let context = current()?;
    capture::forbid_unsafe()?;
    context.finish();
    take(host, true).map(|_| ()).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)
}

pub(crate) unsafe fn flags(flags: *mut c_uint, host: *mut c_void) -> Answer {
    current()?;
    let known = block_at(&lock(&BLOCKS), host.addr())
        .map(|(_, block)| block.flags)
        .ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the caller promises that `flags` is valid for a write.
    unsafe { put(flags, known) }
}

pub(crate) unsafe fn device_pointer(device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint) -> Answer {
    current()?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let blocks = lock(&BLOCKS);
    let (first, block) = block_at(&blocks, host.addr()).ok_or(Code::INVALID_VALUE)?;
    let mapping = block.mapping.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    // SAFETY: the caller promises that `device` is valid for a write.
    unsafe { put(device, mapping.device + (host.addr() - first) as u64) }
}
