//! Memory of the host's that kernels reach too: page-locked and managed memory.

use super::state::STATE;
use crate::codes::{Answer, Code};
use std::ptr::NonNull;
use std::sync::Arc;

/// Blocks start at a page, as NVIDIA's do.
const PAGE: usize = 4096;

/// Pages of the host's, given back when nothing uses them any more.
struct Pages {
    start: NonNull<u64>,
    bytes: usize,
}

// SAFETY: memory, which belongs to no thread.
unsafe impl Send for Pages {}
// SAFETY: a shared reference does not reach the memory, only its address and size.
unsafe impl Sync for Pages {}

/// Memory that the host and kernels share.
pub(super) struct Mapping {
    /// Where the host has it.
    pub(super) host: NonNull<u64>,
    /// Where the device has it: the same address, wherever the system allows.
    pub(super) device: u64,
}

// SAFETY: addresses, which belong to no thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference tells two addresses, which never change.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Nobody else can have freed it: its address is in no table that the caller's frees look into.
        let _ = STATE.memory.free(self.device);
    }
}

impl Mapping {
    /// New memory, zeroed.
    pub(super) fn new(bytes: usize) -> Answer<Mapping> {
        let size = bytes.checked_next_multiple_of(PAGE).ok_or(Code::OUT_OF_MEMORY)?;
        let device = STATE
            .memory
            .reserve(size as u64, PAGE as u64)
            .ok_or(Code::OUT_OF_MEMORY)?;
        let pages = Pages::at(device as usize, size).ok_or(Code::OUT_OF_MEMORY)?;
        let host = pages.start;
        // SAFETY: the pages hold at least as many bytes and are there as long as their owner is.
        let adopted = unsafe { STATE.memory.adopt(device, host, bytes as u64, Arc::new(pages)) };
        if adopted {
            Ok(Mapping { host, device })
        } else {
            Err(Code::OUT_OF_MEMORY)
        }
    }

    /// Memory that the caller has, where it starts at a multiple of 8: words of 8 bytes are what kernels share with the
    /// host.
    ///
    /// # Safety
    ///
    /// The pages that hold these bytes must be valid for reads and writes of any thread as long as this is.
    pub(super) unsafe fn of(host: NonNull<u8>, bytes: usize) -> Option<Mapping> {
        let host = host.cast::<u64>();
        let device = STATE.memory.reserve(bytes as u64, 1).filter(|_| host.is_aligned())?;
        // SAFETY: the caller keeps the promise; the next multiple of 8 is in the same page as the last byte.
        let adopted = unsafe { STATE.memory.adopt(device, host, bytes as u64, Arc::new(())) };
        adopted.then_some(Mapping { host, device })
    }
}

#[cfg(unix)]
impl Pages {
    /// Zeroed pages, at this address if nothing is there.
    fn at(address: usize, bytes: usize) -> Option<Pages> {
        // SAFETY: asks for new pages; without `MAP_FIXED` the address is a wish, and nothing that is there is replaced.
        let start = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(address),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        start.expose_provenance();
        let start = NonNull::new(start.cast())?;
        Some(Pages { start, bytes })
    }
}

#[cfg(unix)]
impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: these pages were asked for by `at`, and nothing uses them any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(not(unix))]
impl Pages {
    /// Zeroed pages; where they are is not for the caller to choose.
    fn at(_address: usize, bytes: usize) -> Option<Pages> {
        let layout = std::alloc::Layout::from_size_align(bytes, PAGE).ok()?;
        // SAFETY: the size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        start.expose_provenance();
        let start = NonNull::new(start)?.cast();
        Some(Pages { start, bytes })
    }
}

#[cfg(not(unix))]
impl Drop for Pages {
    fn drop(&mut self) {
        if let Ok(layout) = std::alloc::Layout::from_size_align(self.bytes, PAGE) {
            // SAFETY: allocated by `at` with this layout, and nothing uses it any more.
            unsafe { std::alloc::dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}
