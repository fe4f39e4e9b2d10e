//! Memory pools: making them, and what can be asked and set of them.

use crate::codes::{Answer, Code};
use crate::emulated::context::ready;
use crate::emulated::device;
use crate::emulated::pool::{CURRENT, DEFAULT, PINNED, Pool, current, find, is_default};
use crate::emulated::state::{STATE, lock, pointer, put};
use crate::types::{mem_pool_attribute as attribute, *};
use std::sync::Arc;

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_WRITE: c_uint = 3;

pub(crate) unsafe fn default_of(pool: *mut CUmemoryPool, device: CUdevice) -> Answer {
    ready()?;
    device::check(device)?;
    // SAFETY: the caller promises that `pool` is valid for a write.
    unsafe { put(pool, pointer(DEFAULT.handle)) }
}

pub(crate) unsafe fn current_of(pool: *mut CUmemoryPool, device: CUdevice) -> Answer {
    let current = current()?;
    device::check(device)?;
    // SAFETY: the caller promises that `pool` is valid for a write.
    unsafe { put(pool, pointer(current.handle)) }
}

pub(crate) unsafe fn set_current(device: CUdevice, pool: CUmemoryPool) -> Answer {
    ready()?;
    device::check(device)?;
    *lock(&CURRENT) = Some(find(pool)?);
    Ok(())
}

pub(crate) unsafe fn create(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> Answer {
    ready()?;
    // SAFETY: null or valid, the caller promises.
    let properties = unsafe { properties.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    if pool.is_null() || properties.allocType != PINNED {
        return Err(Code::INVALID_VALUE);
    }
    match properties.location.r#type {
        mem_location::DEVICE => device::check(properties.location.id)?,
        mem_location::HOST | mem_location::HOST_NUMA | mem_location::HOST_NUMA_CURRENT => {
            return Err(Code::NOT_SUPPORTED);
        }
        _ => return Err(Code::INVALID_VALUE),
    }
    if properties.handleTypes != 0 {
        // Nothing here can be given to another process.
        return Err(Code::NOT_SUPPORTED);
    }
    // SAFETY: the caller promises that `pool` is valid for a write.
    unsafe { put(pool, pointer(Pool::new().handle)) }
}

/// What is allocated from it stays; it goes with the last of them.
pub(crate) unsafe fn destroy(pool: CUmemoryPool) -> Answer {
    let pool = find(pool)?;
    if is_default(pool.handle) {
        return Err(Code::INVALID_VALUE);
    }
    STATE.remove::<Pool>(pool.handle)?;
    let mut current = lock(&CURRENT);
    if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &pool)) {
        *current = None;
    }
    Ok(())
}

pub(crate) unsafe fn trim(pool: CUmemoryPool, _keep: usize) -> Answer {
    find(pool).map(|_| ())
}

pub(crate) unsafe fn get_attribute(pool: CUmemoryPool, which: c_uint, value: *mut c_void) -> Answer {
    let pool = find(pool)?;
    let numbers = lock(&pool.numbers);
    let number = match which {
        attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES..=attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let reuse = numbers.reuse[(which - attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES) as usize];
            // SAFETY: the caller promises an `int` for these.
            return unsafe { put(value.cast::<c_int>(), reuse) };
        }
        attribute::RELEASE_THRESHOLD => numbers.threshold,
        attribute::RESERVED_MEM_CURRENT | attribute::USED_MEM_CURRENT => numbers.used,
        attribute::RESERVED_MEM_HIGH | attribute::USED_MEM_HIGH => numbers.used_high,
        _ => return Err(Code::INVALID_VALUE),
    };
    // SAFETY: the caller promises a 64-bit number for these.
    unsafe { put(value.cast::<u64>(), number) }
}

pub(crate) unsafe fn set_attribute(pool: CUmemoryPool, which: c_uint, value: *mut c_void) -> Answer {
    let pool = find(pool)?;
    if value.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a 64-bit number for those that have one, the caller promises.
    let number = || unsafe { value.cast::<u64>().read_unaligned() };
    let mut numbers = lock(&pool.numbers);
    match which {
        attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES..=attribute::REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            // SAFETY: not null, so an `int` for these, the caller promises.
            let reuse = unsafe { value.cast::<c_int>().read_unaligned() };
            numbers.reuse[(which - attribute::REUSE_FOLLOW_EVENT_DEPENDENCIES) as usize] = c_int::from(reuse != 0);
        }
        attribute::RELEASE_THRESHOLD => numbers.threshold = number(),
        // A high mark can be set to zero, from where it starts again.
        attribute::RESERVED_MEM_HIGH | attribute::USED_MEM_HIGH if number() == 0 => numbers.used_high = numbers.used,
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn set_access(pool: CUmemoryPool, access: *const CUmemAccessDesc, count: usize) -> Answer {
    find(pool)?;
    if access.is_null() && count > 0 {
        return Err(Code::INVALID_VALUE);
    }
    for at in 0..count {
        // SAFETY: `at` is below `count`, the caller promises that many.
        let access = unsafe { access.add(at).read_unaligned() };
        if access.location.r#type != mem_location::DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        device::check(access.location.id)?;
        // The device's access to its own pool cannot be taken away.
        if access.flags != READ_WRITE {
            return Err(Code::INVALID_VALUE);
        }
    }
    Ok(())
}

pub(crate) unsafe fn get_access(flags: *mut c_uint, pool: CUmemoryPool, location: *mut CUmemLocation) -> Answer {
    find(pool)?;
    // SAFETY: null or valid, the caller promises.
    let location = unsafe { location.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    if location.r#type != mem_location::DEVICE {
        return Err(Code::INVALID_VALUE);
    }
    device::check(location.id)?;
    // SAFETY: the caller promises that `flags` is valid for a write.
    unsafe { put(flags, READ_WRITE) }
}
