//! Memory pools: what stream-ordered allocations are counted in. Memory that is freed goes back to the device at once,
//! so a pool reserves what is in use and no more.

use super::context::ready;
use super::state::{Kind, Owner, STATE, lock};
use crate::codes::{Answer, Code};
use crate::types::*;
use std::sync::{Arc, LazyLock, Mutex};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`
pub(super) const PINNED: c_uint = 1;

pub(super) struct Pool {
    pub(super) handle: usize,
    /// Pools are of the device, not of a context.
    pub(super) context: usize,
    pub(super) numbers: Mutex<Numbers>,
}

pub(super) struct Numbers {
    /// Whether memory may be reused: after events, opportunistically, with dependencies of the driver's own.
    pub(super) reuse: [c_int; 3],
    pub(super) threshold: u64,
    pub(super) used: u64,
    pub(super) used_high: u64,
}

impl Kind for Pool {
    const WORDS: &'static str = "memory pool";
    const WRONG: Code = Code::INVALID_VALUE;
    fn context(&self) -> usize {
        self.context
    }
    fn owner(&self) -> Owner {
        if is_default(self.handle) {
            Owner::Driver
        } else {
            Owner::Caller
        }
    }
}

impl Pool {
    pub(super) fn new() -> Arc<Pool> {
        let pool = Arc::new(Pool {
            handle: STATE.fresh(),
            context: 0,
            numbers: Mutex::new(Numbers {
                reuse: [1; 3],
                threshold: 0,
                used: 0,
                used_high: 0,
            }),
        });
        STATE.insert(pool.handle, pool.clone());
        pool
    }

    pub(super) fn allocated(&self, bytes: usize) {
        let mut numbers = lock(&self.numbers);
        numbers.used += bytes as u64;
        numbers.used_high = numbers.used_high.max(numbers.used);
    }

    pub(super) fn freed(&self, bytes: usize) {
        lock(&self.numbers).used -= bytes as u64;
    }
}

/// The pool that the device has from the start, and the one that `cuMemAllocAsync` takes from now.
pub(super) static DEFAULT: LazyLock<Arc<Pool>> = LazyLock::new(Pool::new);
pub(super) static CURRENT: Mutex<Option<Arc<Pool>>> = Mutex::new(None);

/// The pool that `cuMemAllocAsync` takes from.
pub(super) fn current() -> Answer<Arc<Pool>> {
    ready()?;
    Ok(lock(&CURRENT).clone().unwrap_or_else(|| DEFAULT.clone()))
}

/// Whether a handle is that of the pool that the device has from the start.
pub(super) fn is_default(handle: usize) -> bool {
    DEFAULT.handle == handle
}

pub(super) fn find(pool: CUmemoryPool) -> Answer<Arc<Pool>> {
    ready()?;
    // The default pool can be found once there is one.
    LazyLock::force(&DEFAULT);
    STATE.find(pool.addr())
}
