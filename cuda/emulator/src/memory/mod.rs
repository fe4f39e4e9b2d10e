//! A device's global memory: allocations far apart, in words that threads may share.

mod allocation;
mod history;

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
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

    /// Room for `bytes` bytes, zeroed, at a multiple of 256; none where `bytes` is zero or more than is left, on the
    /// device or on the host.
    pub fn allocate(&self, bytes: u64) -> Option<u64> {
        let mut heap = self.heap_mut();
        let base = heap.room(bytes, ALIGN)?;
        heap.fill(base, bytes, self.capacity)?;
        heap.pass(base, bytes);
        Some(base)
    }

    /// An address for `bytes` bytes, at a multiple of `align` (a power of two) and of 256, that no allocation uses or
    /// will use but by [`allocate_at`](Self::allocate_at) and [`adopt`](Self::adopt); none where `bytes` is zero or the
    /// addresses are used up.
    pub fn reserve(&self, bytes: u64, align: u64) -> Option<u64> {
        let mut heap = self.heap_mut();
        let base = heap.room(bytes, align.max(ALIGN))?;
        heap.pass(base, bytes);
        Some(base)
    }

    /// Allocates the zeroed bytes that [`reserve`](Self::reserve) gave an address for, which may be done again when
    /// they are freed; says whether there was room.
    pub fn allocate_at(&self, address: u64, bytes: u64) -> bool {
        let mut heap = self.heap_mut();
        heap.find(address).is_none() && heap.fill(address, bytes, self.capacity).is_some()
    }

    /// Makes memory of the host's a part of the device's, at an address that [`reserve`](Self::reserve) gave for as
    /// many bytes: each sees what the other writes. It takes none of the device's capacity. `owner` is kept as long as
    /// anything here may touch the memory. Says whether it could be done.
    ///
    /// # Safety
    ///
    /// From `start`, which is a multiple of 8, up to the next multiple of 8 after `bytes` bytes, memory must be valid
    /// for reads and writes of any thread until `owner` is dropped, or, where that keeps nothing valid, until the
    /// address has been freed and every launch that began before has ended.
    pub unsafe fn adopt(&self, address: u64, start: NonNull<u64>, bytes: u64, owner: Arc<dyn Send + Sync>) -> bool {
        let mut heap = self.heap_mut();
        // SAFETY: the caller keeps the promise; an atomic integer lies in memory as a plain one does.
        let allocation = unsafe { Allocation::of_host(address, start.cast::<AtomicU64>(), bytes, owner) };
        match (heap.find(address), allocation) {
            (None, Some(allocation)) => {
                heap.live.insert(address, Arc::new(allocation));
                true
            }
            _ => false,
        }
    }

    /// Ends an allocation, given the address that [`allocate`](Self::allocate) returned.
    ///
    /// # Errors
    ///
    /// Where it is not the start of a live allocation.
    pub fn free(&self, address: u64) -> Result<(), AccessError> {
        let mut heap = self.heap_mut();
        let found = heap.find(address).ok_or(AccessError::NotAllocated { address })?;
        let (base, size, own) = (found.base, found.size, found.is_own());
        if base != address {
            return Err(AccessError::NotABase { address, base });
        }
        heap.live.remove(&base);
        if own {
            heap.used -= size.next_multiple_of(ALIGN);
        }
        Ok(())
    }

    /// The base and size of the live allocation that holds an address.
    pub fn range(&self, address: u64) -> Option<(u64, u64)> {
        self.heap().find(address).map(|a| (a.base, a.size))
    }

    /// Whether an address is, was or will be one of an allocation's here: below the next that will be given out. What a
    /// host has lies elsewhere.
    pub fn knows(&self, address: u64) -> bool {
        (FIRST..self.heap().next).contains(&address)
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
    /// Where the next allocation could start.
    fn room(&self, bytes: u64, align: u64) -> Option<u64> {
        let base = self.next.checked_next_multiple_of(align)?;
        let end = base
            .checked_add(bytes)?
            .checked_next_multiple_of(ALIGN)?
            .checked_add(GAP)?;
        (bytes > 0 && end <= END).then_some(base)
    }

    /// Takes these addresses out of use for others.
    fn pass(&mut self, base: u64, bytes: u64) {
        self.next = (base + bytes).next_multiple_of(ALIGN) + GAP;
    }

    /// Allocates at an address.
    fn fill(&mut self, base: u64, bytes: u64, capacity: u64) -> Option<()> {
        let used = self.used.checked_add(bytes.checked_next_multiple_of(ALIGN)?)?;
        if used > capacity {
            return None;
        }
        self.live.insert(base, Arc::new(Allocation::new(base, bytes)?));
        self.used = used;
        Some(())
    }

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
    fn reserved_addresses_can_be_used_again() {
        let memory = Memory::new(1024);
        let a = memory.reserve(1000, 4096).unwrap();
        assert_eq!(a % 4096, 0);
        assert_eq!((memory.range(a), memory.used()), (None, 0));
        assert!(memory.allocate_at(a, 1000));
        assert!(!memory.allocate_at(a, 1000), "it is in use");
        memory.write(a, &[7]).unwrap();
        memory.free(a).unwrap();
        assert!(memory.allocate_at(a, 1000));
        let mut byte = [9];
        memory.read(a, &mut byte).unwrap();
        assert_eq!(byte, [0]);
        let b = memory.reserve(1000, 1).unwrap();
        assert!(b > a + 1000 && !memory.allocate_at(b, 1000), "there is no room");
        assert_eq!((memory.reserve(0, 1), memory.reserve(u64::MAX, 1)), (None, None));
    }

    #[test]
    fn memory_of_the_host_is_shared() {
        let memory = Memory::new(1024);
        let mut host = vec![0_u64; 1000];
        let start = NonNull::new(host.as_mut_ptr()).unwrap();
        let a = memory.reserve(7999, 8).unwrap();
        // SAFETY: the vector lives until the address has been freed, and is used through `start` alone until then.
        assert!(unsafe { memory.adopt(a, start, 7999, Arc::new(())) });
        assert_eq!(
            (memory.range(a + 7998), memory.range(a + 7999)),
            (Some((a, 7999)), None)
        );
        assert_eq!(memory.used(), 0);
        memory.write(a + 8, &[1, 2]).unwrap();
        // SAFETY: within the vector.
        assert_eq!(unsafe { start.add(1).read() }, 0x201);
        memory.free(a).unwrap();
        assert_eq!((memory.range(a), memory.used(), host[1]), (None, 0, 0x201));
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
