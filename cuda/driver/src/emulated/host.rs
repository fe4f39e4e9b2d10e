//! Page-locked host memory, which kernels reach at the address that `cuMemHostGetDevicePointer` gives.

use super::mapping::Mapping;
use super::state::lock;
use crate::types::*;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Blocks by their first address.
pub(super) static BLOCKS: Mutex<BTreeMap<usize, Block>> = Mutex::new(BTreeMap::new());

pub(super) struct Block {
    pub(super) bytes: usize,
    pub(super) flags: c_uint,
    /// The handle of the context in which it was made.
    pub(super) context: usize,
    /// Whether the caller registered it, rather than have it allocated.
    pub(super) registered: bool,
    /// How kernels reach it; none where they cannot.
    pub(super) mapping: Option<Mapping>,
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
pub(super) fn block_at(blocks: &BTreeMap<usize, Block>, address: usize) -> Option<(usize, &Block)> {
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
