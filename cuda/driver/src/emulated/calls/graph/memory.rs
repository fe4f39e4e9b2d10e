//! Nodes that allocate and free. A node's address is fixed when it is made; memory is there from a launch until it is
//! freed, by another node or by the caller.

use super::node::{add, get};
use crate::codes::{Answer, Code};
use crate::emulated::context::{current, ready};
use crate::emulated::device;
use crate::emulated::memory::{GRAPHS_USED, GRAPHS_USED_HIGH};
use crate::emulated::pool::PINNED;
use crate::emulated::room::{Room, check_free};
use crate::emulated::state::put;
use crate::emulated::task::Task;
use crate::types::{graph_mem_attribute as attribute, *};
use std::sync::atomic::Ordering;

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
    if parameters.poolProps.allocType != PINNED || location.r#type != mem_location::DEVICE {
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
            allocType: PINNED,
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
        attribute::USED_MEM_CURRENT | attribute::RESERVED_MEM_CURRENT => &GRAPHS_USED,
        attribute::USED_MEM_HIGH | attribute::RESERVED_MEM_HIGH => &GRAPHS_USED_HIGH,
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
    GRAPHS_USED_HIGH.store(GRAPHS_USED.load(Ordering::Relaxed), Ordering::Relaxed);
    Ok(())
}

/// What is freed goes back at once, so nothing is left to give.
pub(crate) unsafe fn trim(device: CUdevice) -> Answer {
    ready()?;
    device::check(device)
}
