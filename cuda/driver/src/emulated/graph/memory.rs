//! Nodes that allocate and free. A node's address is fixed when it is made; memory is there from a launch until it is freed, by another
//! node or by the caller.

use super::node::{add, get};
use super::*;
use crate::emulated::device;
use crate::emulated::memory::{self, Allocated, Source};
use crate::types::graph_mem_attribute as attribute;
use std::sync::atomic::AtomicU64;

/// Bytes that graphs have allocated and nobody has freed, and the most there have been.
static USED: AtomicU64 = AtomicU64::new(0);
static USED_HIGH: AtomicU64 = AtomicU64::new(0);

/// What a node allocates.
pub(in crate::emulated) struct Room {
    pub(in crate::emulated) address: u64,
    bytes: usize,
}

impl Room {
    /// An address for so many bytes.
    pub(in crate::emulated) fn new(bytes: usize) -> Answer<Arc<Room>> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let address = STATE.memory.reserve(bytes as u64, 1).ok_or(Code::OUT_OF_MEMORY)?;
        lock(&STATE.rooms).insert(address, bytes as u64);
        Ok(Arc::new(Room { address, bytes }))
    }

    /// Whether the memory of the last launch is still there.
    pub(super) fn is_taken(&self) -> bool {
        STATE.memory.range(self.address).is_some()
    }

    /// Allocates it for a context.
    pub(in crate::emulated) fn fill(&self, context: &Context) -> Answer {
        if !STATE.memory.allocate_at(self.address, self.bytes as u64) {
            return Err(Code::OUT_OF_MEMORY);
        }
        let used = USED.fetch_add(self.bytes as u64, Ordering::Relaxed) + self.bytes as u64;
        USED_HIGH.fetch_max(used, Ordering::Relaxed);
        lock(&STATE.allocations).insert(
            self.address,
            Allocated {
                context: context.context,
                bytes: self.bytes,
                source: Source::Graph,
            },
        );
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        lock(&STATE.rooms).remove(&self.address);
    }
}

/// Memory that a graph has allocated is freed.
pub(in crate::emulated) fn freed(bytes: usize) {
    USED.fetch_sub(bytes as u64, Ordering::Relaxed);
}

/// Whether a range lies within what a node of a graph will allocate.
pub(in crate::emulated) fn will_be(address: u64, bytes: u64) -> bool {
    let rooms = lock(&STATE.rooms);
    let before = rooms.range(..=address).next_back();
    before.is_some_and(|(&base, &size)| address - base < size && bytes <= size - (address - base))
}

/// Whether an address can be freed by a node: the start of something that is allocated, or will be by a node.
pub(in crate::emulated) fn check_free(address: CUdeviceptr) -> Answer {
    let known = lock(&STATE.rooms).contains_key(&address) || lock(&STATE.allocations).contains_key(&address);
    if known { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

pub(crate) unsafe fn add_alloc(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Answer {
    ready()?;
    // SAFETY: null or valid for reads and writes, the caller promises.
    let parameters = unsafe { parameters.as_mut() }.ok_or(Code::INVALID_VALUE)?;
    let location = parameters.poolProps.location;
    if parameters.poolProps.allocType != memory::PINNED || location.r#type != mem_location::DEVICE {
        return Err(Code::INVALID_VALUE);
    }
    device::check(location.id)?;
    let room = Room::new(parameters.bytesize)?;
    let address = room.address;
    // SAFETY: the caller keeps the same promises.
    unsafe {
        add(node, graph, dependencies, count, |_| {
            Ok((current()?, Task::Alloc(room)))
        })
    }?;
    parameters.dptr = address;
    Ok(())
}

pub(crate) unsafe fn add_free(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    address: CUdeviceptr,
) -> Answer {
    ready()?;
    check_free(address)?;
    // SAFETY: the caller keeps the same promises.
    unsafe {
        add(node, graph, dependencies, count, |_| {
            Ok((current()?, Task::Free(address)))
        })
    }
}

pub(crate) unsafe fn get_alloc(node: CUgraphNode, parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Answer {
    let room = get(node, |task| match task {
        Task::Alloc(room) => Some(room.clone()),
        _ => None,
    })?;
    let told = CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps {
            allocType: memory::PINNED,
            handleTypes: 0,
            location: CUmemLocation {
                r#type: mem_location::DEVICE,
                id: device::ORDINAL,
            },
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            reserved: [0; 56],
        },
        accessDescs: std::ptr::null(),
        accessDescCount: 0,
        bytesize: room.bytes,
        dptr: room.address,
    };
    // SAFETY: the caller promises that `parameters` is valid for a write.
    unsafe { put(parameters, told) }
}

pub(crate) unsafe fn get_free(node: CUgraphNode, address: *mut CUdeviceptr) -> Answer {
    let told = get(node, |task| match task {
        Task::Free(address) => Some(*address),
        _ => None,
    })?;
    // SAFETY: the caller promises that `address` is valid for a write.
    unsafe { put(address, told) }
}

pub(crate) unsafe fn get_attribute(device: CUdevice, which: c_uint, value: *mut c_void) -> Answer {
    ready()?;
    device::check(device)?;
    let number = match which {
        attribute::USED_MEM_CURRENT | attribute::RESERVED_MEM_CURRENT => &USED,
        attribute::USED_MEM_HIGH | attribute::RESERVED_MEM_HIGH => &USED_HIGH,
        _ => return Err(Code::INVALID_VALUE),
    };
    // SAFETY: the caller promises a 64-bit number.
    unsafe { put(value.cast::<u64>(), number.load(Ordering::Relaxed)) }
}

/// The high marks can be set to zero, from where they start again.
pub(crate) unsafe fn set_attribute(device: CUdevice, which: c_uint, value: *mut c_void) -> Answer {
    ready()?;
    device::check(device)?;
    if value.is_null() || !matches!(which, attribute::USED_MEM_HIGH | attribute::RESERVED_MEM_HIGH) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a 64-bit number, the caller promises.
    if unsafe { value.cast::<u64>().read_unaligned() } != 0 {
        return Err(Code::INVALID_VALUE);
    }
    USED_HIGH.store(USED.load(Ordering::Relaxed), Ordering::Relaxed);
    Ok(())
}

/// What is freed goes back at once, so nothing is left to give.
pub(crate) unsafe fn trim(device: CUdevice) -> Answer {
    ready()?;
    device::check(device)
}
