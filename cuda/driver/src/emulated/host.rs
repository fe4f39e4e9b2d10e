//! Page-locked host memory, which kernels reach at the address that `cuMemHostGetDevicePointer` gives.

use super::capture;
use super::context::current;
use super::mapping::Mapping;
use super::state::{lock, put};
use crate::codes::{Answer, Code};
use crate::types::*;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;

/// Portable, mapped, write-combined.
const ALLOC_FLAGS: c_uint = 7;
/// Portable, mapped, I/O memory, read-only.
const REGISTER_FLAGS: c_uint = 15;
/// `CU_MEMHOSTREGISTER_IOMEMORY`
const IO_MEMORY: c_uint = 4;

/// Blocks by their first address.
static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());

struct Block {
    bytes: usize,
    flags: c_uint,
    /// The handle of the context in which it was made.
    context: usize,
    /// Whether the caller registered it, rather than have it allocated.
    registered: bool,
    /// How kernels reach it; none where they cannot.
    mapping: Option<Mapping>,
}

/// What is known of page-locked memory.
pub(super) struct Known {
    pub(super) context: usize,
    /// The block's first address on the host.
    pub(super) host: usize,
    /// The same on the device.
    pub(super) device: Option<u64>,
    pub(super) bytes: usize,
}

/// The block that holds an address, by its first one.
fn block_at(blocks: &BTreeMap<usize, Block>, address: usize) -> Option<(usize, &Block)> {
    let (&first, block) = blocks.range(..=address).next_back()?;
    (address - first < block.bytes).then_some((first, block))
}

/// Whether an address lies in memory that the driver has allocated or the caller registered.
pub(super) fn is_page_locked(host: *const u8) -> bool {
    block_at(&lock(&BLOCKS), host.addr()).is_some()
}

/// What is known of the block that holds an address, the host's or the device's.
pub(super) fn known(address: usize) -> Option<Known> {
    let blocks = lock(&BLOCKS);
    let on_device = || {
        blocks.iter().find(|(_, block)| {
            let first = block.mapping.as_ref().map(|mapping| mapping.device as usize);
            first.is_some_and(|first| (first..first + block.bytes).contains(&address))
        })
    };
    let (host, block) = block_at(&blocks, address).or_else(|| on_device().map(|(&first, block)| (first, block)))?;
    Some(Known {
        context: block.context,
        host,
        device: block.mapping.as_ref().map(|mapping| mapping.device),
        bytes: block.bytes,
    })
}

/// Every block that the driver has allocated, by its address, and its size.
pub(super) fn allocated() -> Vec<(usize, usize)> {
    let blocks = lock(&BLOCKS);
    let own = blocks.iter().filter(|(_, block)| !block.registered);
    own.map(|(&first, block)| (first, block.bytes)).collect()
}

/// Gives back what belongs to a context that is being destroyed.
pub(super) fn context_gone(context: usize) {
    lock(&BLOCKS).retain(|_, block| block.context != context);
}

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
    super::queue::finish(&context);
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
    super::queue::finish(&context);
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
