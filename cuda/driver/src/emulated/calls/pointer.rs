//! What an address is: whose, of what kind, and where its allocation lies.

use crate::codes::{Answer, Code};
use crate::emulated::context::current_even_if_faulted;
use crate::emulated::device;
use crate::emulated::host;
use crate::emulated::memory::{ALLOCATIONS, Allocated, Source};
use crate::emulated::state::{STATE, lock, pointer, put};
use crate::types::{pointer_attribute as attribute, *};

/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE`
const READ_WRITE: c_uint = 3;

/// What is known of an address.
struct Place {
    context: usize,
    /// One of the [`memory_type`] numbers.
    kind: c_uint,
    host: Option<usize>,
    device: Option<u64>,
    /// Where the device has the block, or the host where the device does not reach it, and its size.
    start: u64,
    bytes: usize,
    managed: bool,
    pool: usize,
}

/// Looks an address up.
fn find(address: CUdeviceptr) -> Answer<Place> {
    if let Some(block) = host::known(address as usize) {
        // One block may have two addresses, and the caller may have given either.
        let at = match (address as usize).checked_sub(block.host) {
            Some(at) if at < block.bytes => at,
            _ => block.device.map_or(0, |device| (address - device) as usize),
        };
        return Ok(Place {
            context: block.context,
            kind: memory_type::HOST,
            host: Some(block.host + at),
            device: block.device.map(|device| device + at as u64),
            start: block.device.unwrap_or(block.host as u64),
            bytes: block.bytes,
            managed: false,
            pool: 0,
        });
    }
    let (start, bytes) = STATE.memory.range(address).ok_or(Code::INVALID_VALUE)?;
    let allocations = lock(&ALLOCATIONS);
    let allocated = allocations.get(&start);
    // A variable of a module is in no table; it is of the context that asks, as far as can be known.
    let context = match allocated {
        Some(Allocated { context, .. }) => *context,
        None => current_even_if_faulted()?.context,
    };
    let source = allocated.map(|allocated| &allocated.source);
    let managed = matches!(source, Some(Source::Managed { .. }));
    Ok(Place {
        context,
        kind: memory_type::DEVICE,
        host: managed.then_some(address as usize),
        device: Some(address),
        start,
        bytes: bytes as usize,
        managed,
        pool: match source {
            Some(Source::Pool(pool)) => pool.handle,
            _ => 0,
        },
    })
}

/// Writes what an attribute says of a place.
///
/// # Safety
///
/// `data` must be null or valid for a write of what the attribute is.
unsafe fn tell(place: &Place, which: c_uint, data: *mut c_void) -> Answer {
    let flag = |flag: bool| c_uint::from(flag);
    // SAFETY: the caller keeps the promise; the types are those of the attributes.
    unsafe {
        match which {
            attribute::CONTEXT => put(data.cast(), pointer(place.context)),
            attribute::MEMORY_TYPE => put(data.cast(), place.kind),
            attribute::DEVICE_POINTER => put(data.cast(), place.device.ok_or(Code::INVALID_VALUE)?),
            attribute::HOST_POINTER => put(data.cast(), place.host.ok_or(Code::INVALID_VALUE)? as u64),
            attribute::SYNC_MEMOPS => put(data.cast(), flag(false)),
            attribute::BUFFER_ID => put(data.cast(), place.start),
            attribute::IS_MANAGED => put(data.cast(), flag(place.managed)),
            attribute::DEVICE_ORDINAL => put(data.cast(), device::ORDINAL),
            attribute::IS_LEGACY_CUDA_IPC_CAPABLE => put(data.cast(), flag(false)),
            attribute::RANGE_START_ADDR => put(data.cast(), place.start),
            attribute::RANGE_SIZE => put(data.cast(), place.bytes),
            attribute::MAPPED => put(data.cast(), flag(place.device.is_some())),
            attribute::ALLOWED_HANDLE_TYPES => put(data.cast(), 0_u64),
            attribute::IS_GPU_DIRECT_RDMA_CAPABLE => put(data.cast(), flag(false)),
            attribute::ACCESS_FLAGS => put(data.cast(), READ_WRITE),
            attribute::MEMPOOL_HANDLE => put(data.cast(), pointer(place.pool)),
            attribute::MAPPING_SIZE => put(data.cast(), place.bytes),
            attribute::MAPPING_BASE_ADDR => put(data.cast(), place.start),
            attribute::MEMORY_BLOCK_ID => put(data.cast(), place.start),
            attribute::IS_HW_DECOMPRESS_CAPABLE => put(data.cast(), flag(false)),
            attribute::P2P_TOKENS => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

pub(crate) unsafe fn get_attribute(data: *mut c_void, which: c_uint, address: CUdeviceptr) -> Answer {
    crate::emulated::context::current()?;
    let place = find(address)?;
    // SAFETY: the caller keeps the same promise.
    unsafe { tell(&place, which, data) }
}

/// Of an address that is none of the driver's, tells zeros.
pub(crate) unsafe fn get_attributes(
    count: c_uint,
    attributes: *mut c_uint,
    data: *mut *mut c_void,
    address: CUdeviceptr,
) -> Answer {
    crate::emulated::context::current()?;
    if count == 0 || attributes.is_null() || data.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let nowhere = Place {
        context: 0,
        kind: 0,
        host: Some(address as usize),
        device: Some(0),
        start: 0,
        bytes: 0,
        managed: false,
        pool: 0,
    };
    let place = find(address).unwrap_or(nowhere);
    for at in 0..count as usize {
        // SAFETY: `at` is below `count`, and both arrays have that many elements, the caller promises.
        let (which, to) = unsafe { (*attributes.add(at), *data.add(at)) };
        // SAFETY: the caller promises room for each.
        unsafe { tell(&place, which, to) }?;
    }
    Ok(())
}

/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` is the one that can be set, and all memory operations are synchronous anyway.
pub(crate) unsafe fn set_attribute(value: *const c_void, which: c_uint, address: CUdeviceptr) -> Answer {
    crate::emulated::context::current()?;
    find(address)?;
    if value.is_null() || which != attribute::SYNC_MEMOPS {
        return Err(Code::INVALID_VALUE);
    }
    Ok(())
}
