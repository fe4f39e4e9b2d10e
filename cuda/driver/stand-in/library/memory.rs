//! Memory: the host's, under the device's name.

use crate::arguments::{Address, Out};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
/// What CUDA promises of addresses.
const ALIGNMENT: usize = 256;

static ALLOCATED: Mutex<BTreeMap<u64, Layout>> = Mutex::new(BTreeMap::new());

pub(crate) unsafe fn allocate(address: Out<Address>, bytes: usize) -> u32 {
    if bytes == 0 {
        return INVALID_VALUE;
    }
    let Ok(layout) = Layout::from_size_align(bytes, ALIGNMENT) else {
        return OUT_OF_MEMORY;
    };
    // SAFETY: the layout has a size.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return OUT_OF_MEMORY;
    }
    let start = memory.expose_provenance() as u64;
    let mut allocated = ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner);
    allocated.insert(start, layout);
    address.put(Address(start))
}

pub(crate) unsafe fn free(address: Address) -> u32 {
    let mut allocated = ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner);
    match allocated.remove(&address.0) {
        Some(layout) => {
            // SAFETY: allocated above with this layout, and forgotten just now.
            unsafe { dealloc(pointer(address), layout) };
            0
        }
        None if address.0 == 0 => 0,
        None => INVALID_VALUE,
    }
}

fn pointer(address: Address) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}

/// Whether so many bytes from the address on are allocated.
fn holds(address: Address, bytes: usize) -> bool {
    let allocated = ALLOCATED.lock().unwrap_or_else(PoisonError::into_inner);
    let last = allocated.range(..=address.0).next_back();
    last.is_some_and(|(&start, layout)| {
        let end = (address.0 - start).checked_add(bytes as u64);
        end.is_some_and(|end| end <= layout.size() as u64)
    })
}

/// Copies; `device` are those of the two addresses that must be the device's.
pub(crate) unsafe fn copy(to: Address, from: Address, bytes: usize, device: &[Address]) -> u32 {
    if !device.iter().all(|&address| holds(address, bytes)) {
        return INVALID_VALUE;
    }
    // SAFETY: device memory is allocated, and the host's is the caller's promise.
    unsafe { std::ptr::copy(pointer(from), pointer(to), bytes) };
    0
}

pub(crate) unsafe fn fill<T: Copy>(to: Address, value: T, count: usize) -> u32 {
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| holds(to, bytes));
    if !fits || !to.0.is_multiple_of(size_of::<T>() as u64) {
        return INVALID_VALUE;
    }
    // SAFETY: so many values are allocated there, aligned.
    unsafe { std::slice::from_raw_parts_mut(pointer(to).cast::<T>(), count) }.fill(value);
    0
}
