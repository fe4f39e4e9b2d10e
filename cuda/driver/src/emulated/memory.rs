//! Device memory. A pointer is good in every context; the memory goes down with the context that allocated it.

use super::capture;
use super::context::{Context, current};
use super::state::{STATE, lock, put, put_if_wanted};
use super::stream::{self, Stream};
use crate::codes::{Answer, Code};
use crate::types::*;

pub(crate) unsafe fn info(free: *mut usize, total: *mut usize) -> Answer {
    current()?;
    let (used, capacity) = (STATE.memory.used(), STATE.memory.capacity());
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    // SAFETY: the caller promises that both are valid for a write.
    unsafe {
        put(free, size(capacity.saturating_sub(used)))?;
        put(total, size(capacity))
    }
}

/// Allocates for a context.
///
/// # Safety
///
/// `address` must be null or valid for a write.
unsafe fn alloc_in(context: &Context, address: *mut CUdeviceptr, bytes: usize) -> Answer {
    if address.is_null() || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let allocated = STATE.memory.allocate(bytes as u64).ok_or(Code::OUT_OF_MEMORY)?;
    lock(&STATE.allocations).insert(allocated, context.context);
    // SAFETY: the caller keeps the promise.
    unsafe { put(address, allocated) }
}

/// Frees, once the work of the context that the memory belongs to has ended.
fn free_anywhere(address: CUdeviceptr) -> Answer {
    let owner = lock(&STATE.allocations)
        .get(&address)
        .copied()
        .ok_or(Code::INVALID_VALUE)?;
    let owner = STATE.find::<Context>(owner).map_err(|_| Code::INVALID_VALUE)?;
    let _idle = lock(&owner.work);
    lock(&STATE.allocations).remove(&address).ok_or(Code::INVALID_VALUE)?;
    STATE.memory.free(address).map_err(|_| Code::INVALID_VALUE)
}

pub(crate) unsafe fn alloc(address: *mut CUdeviceptr, bytes: usize) -> Answer {
    let context = current()?;
    capture::forbid_unsafe()?;
    // SAFETY: the caller keeps the same promise.
    unsafe { alloc_in(&context, address, bytes) }
}

/// Graphs that allocate are not emulated.
fn refuse_in_capture(stream: &Stream) -> Answer {
    match capture::of(stream)? {
        Some(recording) => Err(recording.refuse(Code::NOT_SUPPORTED)),
        None => Ok(()),
    }
}

pub(crate) unsafe fn alloc_async(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
    let (context, stream) = stream::here(stream)?;
    refuse_in_capture(&stream)?;
    lock(&context.work).interrupt(&stream);
    // SAFETY: the caller keeps the same promise.
    unsafe { alloc_in(&context, address, bytes) }
}

pub(crate) unsafe fn free(address: CUdeviceptr) -> Answer {
    current()?;
    capture::forbid_unsafe()?;
    free_anywhere(address)
}

pub(crate) unsafe fn free_async(address: CUdeviceptr, stream: CUstream) -> Answer {
    let (context, stream) = stream::here(stream)?;
    refuse_in_capture(&stream)?;
    lock(&context.work).interrupt(&stream);
    free_anywhere(address)
}

pub(crate) unsafe fn address_range(base: *mut CUdeviceptr, size: *mut usize, address: CUdeviceptr) -> Answer {
    current()?;
    let (first, bytes) = STATE.memory.range(address).ok_or(Code::NOT_FOUND)?;
    // SAFETY: the caller promises that both are null or valid for a write.
    unsafe {
        put_if_wanted(base, first);
        put_if_wanted(size, bytes as usize);
    }
    Ok(())
}
