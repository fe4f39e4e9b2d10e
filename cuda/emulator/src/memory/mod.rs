//! A device's global memory: allocations far apart, in words that threads may share.

mod allocation;
mod history;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) use allocation::{Allocation, MOMENTS};
pub(crate) use history::Early;

use history::History;

use crate::error::AccessError;

/// Where the first allocation starts.
const FIRST: u64 = 0x2_0000_0000;
/// No allocation reaches this address; windows onto other state spaces lie above it.
pub(crate) const END: u64 = 0x7000_0000_0000;
/// What every allocation's address is a multiple of.
const ALIGN: u64 = 256;
/// Least distance between two allocations: an index that runs over by less hits nothing.
const GAP: u64 = 1 << 16;

/// A device's global memory.
///
/// It may be shared between threads: bytes are read and written atomically, a word at a time. Addresses are never used
/// twice, and gaps lie between allocations, so that stale pointers and overruns are found.
#[derive(Debug)]
pub struct Memory {
    capacity: u64,
    heap: RwLock<Heap>,
    history: Mutex<History>,
    /// Where the variables of modules are, by the module's number.
    variables: Mutex<BTreeMap<u64, Arc<[u64]>>>,
}

#[derive(Debug)]
struct Heap {
    next: u64,
    used: u64,
    live: BTreeMap<u64, Arc<Allocation>>,
}

impl Memory {
    /// A memory that can hold `capacity` bytes at once. Nothing is allocated on the host before it is used.
    pub fn new(capacity: u64) -> Self {
        let heap = Heap {
            next: FIRST,
            used: 0,
            live: BTreeMap::new(),
        };
        Memory {
            capacity,
            heap: RwLock::new(heap),
            history: Mutex::default(),
            variables: Mutex::default(),
        }
    }

    /// Room for `bytes` bytes, zeroed, at a multiple of 256; none where `bytes` is zero or more than is left, on the device
    /// or on the host.
    pub fn allocate(&self, bytes: u64) -> Option<u64> {
        let mut heap = self.heap_mut();
        let padded = bytes.checked_next_multiple_of(ALIGN)?;
        let used = heap.used.checked_add(padded)?;
        let next = heap.next.checked_add(padded)?.checked_add(GAP)?;
        if bytes == 0 || used > self.capacity || next > END {
            return None;
        }
        let base = heap.next;
        let allocation = Allocation::new(base, bytes)?;
        heap.live.insert(base, Arc::new(allocation));
        heap.used = used;
        heap.next = next;
        Some(base)
    }

    /// Ends an allocation, given the address that [`allocate`](Self::allocate) returned.
    ///
    /// # Errors
    ///
    /// Where it is not the start of a live allocation.
    pub fn free(&self, address: u64) -> Result<(), AccessError> {
        let mut heap = self.heap_mut();
        let found = heap.find(address).ok_or(AccessError::NotAllocated { address })?;
        let (base, size) = (found.base, found.size);
        if base != address {
            return Err(AccessError::NotABase { address, base });
        }
        heap.live.remove(&base);
        heap.used -= size.next_multiple_of(ALIGN);
        Ok(())
    }

    /// The base and size of the live allocation that holds an address.
    pub fn range(&self, address: u64) -> Option<(u64, u64)> {
        self.heap().find(address).map(|a| (a.base, a.size))
    }

    /// Bytes in use, counted in the 256 that allocations come in.
    pub fn used(&self) -> u64 {
        self.heap().used
    }

    /// Bytes that can be in use at once.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Copies device bytes to the host.
    ///
    /// # Errors
    ///
    /// Where the range does not lie in one live allocation.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), AccessError> {
        if out.is_empty() {
            return Ok(());
        }
        let (allocation, at) = self.locate(address, out.len() as u64)?;
        allocation.read(at, out);
        Ok(())
    }

    /// Copies host bytes to the device.
    ///
    /// # Errors
    ///
    /// Where the range does not lie in one live allocation.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), AccessError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (allocation, at) = self.locate(address, bytes.len() as u64)?;
        allocation.write(at, bytes, 0, 0);
        Ok(())
    }

    /// Writes `count` copies of a pattern.
    ///
    /// # Errors
    ///
    /// Where the range does not lie in one live allocation.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), AccessError> {
        if pattern.is_empty() || count == 0 {
            return Ok(());
        }
        let bytes = (pattern.len() as u64).saturating_mul(count);
        let (allocation, at) = self.locate(address, bytes)?;
        let per_block = (CHUNK / pattern.len()).clamp(1, usize::MAX);
        let block = pattern.repeat(per_block.min(usize::try_from(count).unwrap_or(per_block)));
        let mut done = 0;
        while done < bytes {
            let n = (bytes - done).min(block.len() as u64);
            allocation.write(at + done, &block[..n as usize], 0, 0);
            done += n;
        }
        Ok(())
    }

    /// Copies bytes from one place on the device to another; the two may overlap.
    ///
    /// # Errors
    ///
    /// Where either range does not lie in one live allocation.
    pub fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), AccessError> {
        if bytes == 0 {
            return Ok(());
        }
        let (source, source_at) = self.locate(from, bytes)?;
        let (target, target_at) = self.locate(to, bytes)?;
        let mut buffer = vec![0; CHUNK.min(usize::try_from(bytes).unwrap_or(CHUNK))];
        let mut done = 0;
        while done < bytes {
            let n = (bytes - done).min(CHUNK as u64);
            // Chunks go in the order in which none is overwritten before it is read.
            let at = if to > from { bytes - done - n } else { done };
            source.read(source_at + at, &mut buffer[..n as usize]);
            target.write(target_at + at, &buffer[..n as usize], 0, 0);
            done += n;
        }
        Ok(())
    }

    /// Every live allocation, by address.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Allocation>> {
        self.heap().live.values().cloned().collect()
    }

    /// Numbers a launch that may overlap another one, and says which launches may be unfinished while it runs.
    pub(crate) fn begin_launch(&self, overlaps: Option<u32>) -> (u32, Early) {
        lock(&self.history).begin(overlaps)
    }

    /// Records a launch that has ended: whether any CTA waited for the launch before it, and before letting dependents
    /// start.
    pub(crate) fn end_launch(&self, id: u32, early: Early, waited: bool, waited_first: bool) {
        lock(&self.history).end(id, early, waited, waited_first);
    }

    /// The addresses of a module's variables, made by `create` at first use; none where it fails.
    pub(crate) fn variables(&self, module: u64, create: impl FnOnce() -> Option<Vec<u64>>) -> Option<Arc<[u64]>> {
        let mut variables = lock(&self.variables);
        if let Some(known) = variables.get(&module) {
            return Some(Arc::clone(known));
        }
        let made: Arc<[u64]> = create()?.into();
        variables.insert(module, Arc::clone(&made));
        Some(made)
    }

    /// Frees a module's variables.
    pub(crate) fn drop_variables(&self, module: u64) {
        let dropped = lock(&self.variables).remove(&module);
        for &address in dropped.iter().flat_map(|addresses| addresses.iter()) {
            // An address that the host has freed itself is gone already, which is what is wanted.
            let _ = self.free(address);
        }
    }

    fn locate(&self, address: u64, bytes: u64) -> Result<(Arc<Allocation>, u64), AccessError> {
        let heap = self.heap();
        let found = heap.find(address).ok_or(AccessError::NotAllocated { address })?;
        let at = address - found.base;
        if bytes > found.size - at {
            return Err(AccessError::OutOfBounds {
                address,
                bytes,
                base: found.base,
                size: found.size,
            });
        }
        Ok((Arc::clone(found), at))
    }

    // A panic while the lock is held leaves the heap whole, so poisoning says nothing.
    fn heap(&self) -> RwLockReadGuard<'_, Heap> {
        self.heap.read().unwrap_or_else(|e| e.into_inner())
    }

    fn heap_mut(&self) -> RwLockWriteGuard<'_, Heap> {
        self.heap.write().unwrap_or_else(|e| e.into_inner())
    }
}

/// A panic while one of these locks is held leaves what it guards whole, so poisoning says nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Bytes that copies and fills move at a time.
const CHUNK: usize = 1 << 16;

impl Heap {
    fn find(&self, address: u64) -> Option<&Arc<Allocation>> {
        let (_, found) = self.live.range(..=address).next_back()?;
        (address - found.base < found.size).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let memory = Memory::new(1 << 20);
        let a = memory.allocate(1000).unwrap();
        assert_eq!(a % 256, 0);
        assert_eq!(memory.range(a + 999), Some((a, 1000)));
        assert_eq!(memory.range(a + 1000), None);
        let bytes: Vec<u8> = (0..123).collect();
        memory.write(a + 5, &bytes).unwrap();
        let mut back = [0; 125];
        memory.read(a + 4, &mut back).unwrap();
        assert_eq!(back[0], 0);
        assert_eq!(&back[1..124], &bytes[..]);
        assert_eq!(back[124], 0);
    }

    #[test]
    fn overlapping_copies_move_whole() {
        let memory = Memory::new(1 << 20);
        let a = memory.allocate(200_000).unwrap();
        let bytes: Vec<u8> = (0..180_000u32).map(|i| (i * 7 / 3) as u8).collect();
        for (from, to) in [(0, 17), (17, 0)] {
            memory.write(a + from, &bytes).unwrap();
            memory.copy(a + to, a + from, bytes.len() as u64).unwrap();
            let mut back = vec![0; bytes.len()];
            memory.read(a + to, &mut back).unwrap();
            assert!(back == bytes, "from {from} to {to}");
        }
    }

    #[test]
    fn fills_repeat_their_pattern() {
        let memory = Memory::new(1 << 20);
        let a = memory.allocate(300_000).unwrap();
        memory.fill(a + 3, &[1, 2, 3], 90_000).unwrap();
        let mut back = vec![9; 270_001];
        memory.read(a + 3, &mut back).unwrap();
        assert!(back[..270_000].chunks(3).all(|c| c == [1, 2, 3]));
        assert_eq!(back[270_000], 0);
    }

    #[test]
    fn limits_hold() {
        let memory = Memory::new(1024);
        assert_eq!(memory.allocate(0), None);
        assert_eq!(memory.allocate(1025), None);
        assert_eq!(memory.allocate(u64::MAX), None);
        let a = memory.allocate(1000).unwrap();
        assert_eq!(memory.used(), 1024);
        assert_eq!(memory.allocate(1), None);
        assert!(matches!(
            memory.write(a + 990, &[0; 11]),
            Err(AccessError::OutOfBounds { size: 1000, .. })
        ));
        assert!(matches!(memory.free(a + 1), Err(AccessError::NotABase { .. })));
        memory.free(a).unwrap();
        assert!(matches!(memory.free(a), Err(AccessError::NotAllocated { .. })));
        assert_ne!(memory.allocate(1000), Some(a));
    }
}
