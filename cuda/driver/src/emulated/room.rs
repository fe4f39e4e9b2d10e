//! Memory that nodes of graphs allocate. Its address is fixed when the node is made.

use super::context::Context;
use super::memory::{self, ALLOCATIONS};
use super::state::{STATE, lock};
use crate::codes::{Answer, Code};
use crate::types::CUdeviceptr;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What nodes of graphs may allocate, by its first address: its size.
static ROOMS: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// What a node allocates.
pub(super) struct Room {
    pub(super) address: u64,
    pub(super) bytes: usize,
}

impl Room {
    /// An address for so many bytes.
    pub(super) fn new(bytes: usize) -> Answer<Arc<Room>> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let address = STATE.memory.reserve(bytes as u64, 1).ok_or(Code::OUT_OF_MEMORY)?;
        lock(&ROOMS).insert(address, bytes as u64);
        Ok(Arc::new(Room { address, bytes }))
    }

    /// Whether the memory of the last launch is still there.
    pub(super) fn is_taken(&self) -> bool {
        STATE.memory.range(self.address).is_some()
    }

    /// Allocates it for a context.
    pub(super) fn fill(&self, context: &Context) -> Answer {
        if !STATE.memory.allocate_at(self.address, self.bytes as u64) {
            return Err(Code::OUT_OF_MEMORY);
        }
        memory::allocated_by_graph(self.address, context.context, self.bytes);
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        lock(&ROOMS).remove(&self.address);
    }
}

/// Whether a range lies within what a node of a graph will allocate.
pub(super) fn will_be(address: u64, bytes: u64) -> bool {
    let rooms = lock(&ROOMS);
    let before = rooms.range(..=address).next_back();
    before.is_some_and(|(&base, &size)| address - base < size && bytes <= size - (address - base))
}

/// Whether an address can be freed by a node: the start of something that is allocated, or will be by a node.
pub(super) fn check_free(address: CUdeviceptr) -> Answer {
    let known = lock(&ROOMS).contains_key(&address) || lock(&ALLOCATIONS).contains_key(&address);
    if known { Ok(()) } else { Err(Code::INVALID_VALUE) }
}
