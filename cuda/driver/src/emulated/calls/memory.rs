//! Device memory. A pointer is good in every context; the memory goes down with the context that allocated it.

use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::context::{Context, current, ready};
use crate::emulated::device;
use crate::emulated::mapping::Mapping;
use crate::emulated::memory::{ALLOCATIONS, Allocated, Source, take};
use crate::emulated::order::{self, When};
use crate::emulated::pool::{self, Pool};
use crate::emulated::room::{self, Room};
use crate::emulated::state::{STATE, lock, put, put_if_wanted};
use crate::emulated::submit::submit;
use crate::emulated::task::Task;
use crate::types::*;
use std::sync::Arc;

/// The rows of pitched memory are apart by a multiple of this.
const PITCH: usize = 512;
/// `CU_MEM_ATTACH_GLOBAL`, `CU_MEM_ATTACH_HOST`, `CU_MEM_ATTACH_SINGLE`
const ATTACH: [c_uint; 3] = [1, 2, 4];

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
unsafe fn alloc_in(context: &Context, address: *mut CUdeviceptr, bytes: usize, source: Source) -> Answer {
    if address.is_null() || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let allocated = STATE.memory.allocate(bytes as u64).ok_or(Code::OUT_OF_MEMORY)?;
    if let Source::Pool(pool) = &source {
        pool.allocated(bytes);
    }
    let context = context.context;
    lock(&ALLOCATIONS).insert(allocated, Allocated { context, bytes, source });
    // SAFETY: the caller keeps the promise.
    unsafe { put(address, allocated) }
}

pub(crate) unsafe fn alloc(address: *mut CUdeviceptr, bytes: usize) -> Answer {
    let context = current()?;
    capture::forbid_unsafe()?;
    // SAFETY: the caller keeps the same promise.
    unsafe { alloc_in(&context, address, bytes, Source::Device) }
}

pub(crate) unsafe fn alloc_pitched(
    address: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Answer {
    let context = current()?;
    capture::forbid_unsafe()?;
    if pitch.is_null() || !matches!(element, 4 | 8 | 16) {
        return Err(Code::INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(PITCH).ok_or(Code::OUT_OF_MEMORY)?;
    let bytes = row.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)?;
    // SAFETY: the caller promises that both are valid for a write.
    unsafe {
        alloc_in(&context, address, bytes, Source::Device)?;
        put(pitch, row)
    }
}

pub(crate) unsafe fn alloc_managed(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) -> Answer {
    let context = current()?;
    capture::forbid_unsafe()?;
    if address.is_null() || bytes == 0 || !ATTACH[..2].contains(&flags) {
        return Err(Code::INVALID_VALUE);
    }
    let mapping = Mapping::new(bytes)?;
    if mapping.host.addr().get() as u64 != mapping.device {
        // What both know by one address has to be at that address.
        return Err(Code::OUT_OF_MEMORY);
    }
    let device = mapping.device;
    lock(&ALLOCATIONS).insert(
        device,
        Allocated {
            context: context.context,
            bytes,
            source: Source::Managed { _mapping: mapping },
        },
    );
    // SAFETY: the caller promises that `address` is valid for a write.
    unsafe { put(address, device) }
}

/// Which stream may use managed memory is advice here, since nothing runs beside the host's call.
pub(crate) unsafe fn attach_async(stream: CUstream, address: CUdeviceptr, _bytes: usize, flags: c_uint) -> Answer {
    let target = order::here(stream)?;
    managed(address)?;
    if !ATTACH.contains(&flags) {
        return Err(Code::INVALID_VALUE);
    }
    submit(target, Task::Empty).map(|_| ())
}

/// Refuses what is no managed memory.
fn managed(address: CUdeviceptr) -> Answer {
    let (base, _) = STATE.memory.range(address).ok_or(Code::INVALID_VALUE)?;
    match lock(&ALLOCATIONS).get(&base) {
        Some(Allocated {
            source: Source::Managed { .. },
            ..
        }) => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Where managed memory is to be, and what is known of its use, changes nothing here.
pub(crate) unsafe fn advise(address: CUdeviceptr, count: usize, advice: c_uint, device: CUdevice) -> Answer {
    let host = device == -1;
    // SAFETY: asks nothing of the caller.
    unsafe { advise_at(address, count, advice, CUmemLocation::of(device, host)) }
}

pub(crate) unsafe fn advise_at(address: CUdeviceptr, count: usize, advice: c_uint, location: CUmemLocation) -> Answer {
    ready()?;
    check_managed_range(address, count)?;
    location.check()?;
    if (1..=6).contains(&advice) {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

fn check_managed_range(address: CUdeviceptr, count: usize) -> Answer {
    managed(address)?;
    let (base, size) = STATE.memory.range(address).ok_or(Code::INVALID_VALUE)?;
    if count == 0 || count as u64 > size - (address - base) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(())
}

pub(crate) unsafe fn prefetch(address: CUdeviceptr, count: usize, device: CUdevice, stream: CUstream) -> Answer {
    let location = CUmemLocation::of(device, device == -1);
    // SAFETY: asks nothing of the caller.
    unsafe { prefetch_to(address, count, location, 0, stream) }
}

pub(crate) unsafe fn prefetch_to(
    address: CUdeviceptr,
    count: usize,
    location: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Answer {
    let target = order::here(stream)?;
    check_managed_range(address, count)?;
    location.check()?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    submit(target, Task::Empty).map(|_| ())
}

impl CUmemLocation {
    /// The device, or the host.
    fn of(device: CUdevice, host: bool) -> CUmemLocation {
        CUmemLocation {
            r#type: if host { mem_location::HOST } else { mem_location::DEVICE },
            id: device,
        }
    }

    /// Refuses what is neither the device nor the host.
    pub(super) fn check(self) -> Answer {
        match self.r#type {
            mem_location::DEVICE => device::check(self.id),
            mem_location::HOST | mem_location::HOST_NUMA | mem_location::HOST_NUMA_CURRENT => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

pub(crate) unsafe fn alloc_async(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
    // SAFETY: the caller keeps the same promise.
    unsafe { alloc_from(address, bytes, pool::current()?, stream) }
}

pub(crate) unsafe fn alloc_from_pool_async(
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Answer {
    // SAFETY: the caller keeps the same promise.
    unsafe { alloc_from(address, bytes, pool::find(pool)?, stream) }
}

/// Allocates in a stream's order; in a capture, when its graph is launched.
///
/// # Safety
///
/// `address` must be null or valid for a write.
unsafe fn alloc_from(address: *mut CUdeviceptr, bytes: usize, pool: Arc<Pool>, stream: CUstream) -> Answer {
    let (context, stream) = order::here(stream)?;
    if let Some(mut recording) = capture::of(&stream)? {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let room = Room::new(bytes)?;
        let first = room.address;
        recording.add(&context, Task::Alloc(room), false)?;
        // SAFETY: the caller keeps the promise.
        return unsafe { put(address, first) };
    }
    lock(&context.work).interrupt(&stream);
    // The memory is allocated at once. Use of it before this point of the stream breaks a rule, which is not checked.
    // SAFETY: the caller keeps the promise.
    unsafe { alloc_in(&context, address, bytes, Source::Pool(pool)) }
}

pub(crate) unsafe fn free(address: CUdeviceptr) -> Answer {
    current()?;
    capture::forbid_unsafe()?;
    let owner = lock(&ALLOCATIONS)
        .get(&address)
        .map(|allocated| allocated.context)
        .ok_or(Code::INVALID_VALUE)?;
    let owner = STATE.find::<Context>(owner).map_err(|_| Code::INVALID_VALUE)?;
    owner.finish();
    let _idle = lock(&owner.work);
    take(address)?.release(address);
    Ok(())
}

pub(crate) unsafe fn free_async(address: CUdeviceptr, stream: CUstream) -> Answer {
    let (context, stream) = order::here(stream)?;
    if let Some(mut recording) = capture::of(&stream)? {
        room::check_free(address)?;
        return recording.add(&context, Task::Free(address), false);
    }
    let allocated = take(address)?;
    order::in_order(&context, &stream, Vec::new(), When::Now, move |context, stream| {
        lock(&context.work).interrupt(stream);
        allocated.release(address);
        Ok(())
    })
    .map(|_| ())
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
