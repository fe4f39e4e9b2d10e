//! What is allocated of the device's memory, and by whom.

use super::mapping::Mapping;
use super::pool::Pool;
use super::state::{STATE, lock};
use crate::codes::{Answer, Code};
use crate::types::CUdeviceptr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

/// Bytes that graphs have allocated and nobody has freed, and the most there have been.
pub(super) static GRAPHS_USED: AtomicU64 = AtomicU64::new(0);
pub(super) static GRAPHS_USED_HIGH: AtomicU64 = AtomicU64::new(0);

/// What has been allocated and not freed, by its first address.
pub(super) static ALLOCATIONS: LazyLock<Mutex<HashMap<u64, Allocated>>> = LazyLock::new(Mutex::default);

/// An allocation that has not been freed.
pub(super) struct Allocated {
    /// The handle of its context.
    pub(super) context: usize,
    pub(super) bytes: usize,
    pub(super) source: Source,
}

/// Where an allocation comes from.
pub(super) enum Source {
    Device,
    Pool(Arc<Pool>),
    /// The host shares it.
    Managed {
        _mapping: Mapping,
    },
    /// A node of a graph, which may allocate it again.
    Graph,
}

impl Allocated {
    /// Gives the memory back, once the allocation has been taken out of the table.
    pub(super) fn release(self, address: u64) {
        match self.source {
            // The mapping frees its memory when it is dropped.
            Source::Managed { .. } => return,
            Source::Pool(pool) => pool.freed(self.bytes),
            Source::Graph => {
                GRAPHS_USED.fetch_sub(self.bytes as u64, Ordering::Relaxed);
            }
            Source::Device => {}
        }
        // The table holds live allocations alone, so there is nothing to refuse.
        let _ = STATE.memory.free(address);
    }
}

/// Notes that a graph has allocated memory for a context.
pub(super) fn allocated_by_graph(address: u64, context: usize, bytes: usize) {
    let used = GRAPHS_USED.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
    GRAPHS_USED_HIGH.fetch_max(used, Ordering::Relaxed);
    let source = Source::Graph;
    lock(&ALLOCATIONS).insert(address, Allocated { context, bytes, source });
}

/// Every allocation, by its address, and its size.
pub(super) fn allocated() -> Vec<(u64, usize)> {
    let allocations = lock(&ALLOCATIONS);
    let mut all: Vec<_> = allocations.iter().map(|(&first, known)| (first, known.bytes)).collect();
    all.sort_unstable();
    all
}

/// Frees what belongs to a context that is being destroyed.
pub(super) fn context_gone(context: usize) {
    let freed: Vec<_> = lock(&ALLOCATIONS)
        .extract_if(|_, allocated| allocated.context == context)
        .collect();
    for (address, allocated) in freed {
        allocated.release(address);
    }
}

/// Takes an allocation out of the table: whoever frees it next is refused.
pub(super) fn take(address: CUdeviceptr) -> Answer<Allocated> {
    lock(&ALLOCATIONS).remove(&address).ok_or(Code::INVALID_VALUE)
}

/// Frees what is allocated, without waiting for anything.
pub(super) fn release(address: CUdeviceptr) -> Answer {
    take(address)?.release(address);
    Ok(())
}
