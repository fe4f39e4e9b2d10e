//! One allocation: 64-bit words that threads share, and who wrote and read them last.

use std::alloc::{Layout, alloc_zeroed};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// An allocation of device memory.
pub(crate) struct Allocation {
    /// Its address.
    pub(crate) base: u64,
    /// Its size in bytes; words reach up to 7 bytes further.
    pub(crate) size: u64,
    words: Words,
    /// A [`Writer`] for each 4 bytes; absent until a kernel writes here.
    writers: OnceLock<Option<Box<[AtomicU64]>>>,
    /// The latest launch among them, 0 before the first.
    latest: AtomicU32,
    /// For each 4 bytes the launch that read some of them last, with which of them it read in the low four flags;
    /// absent until a kernel reads here.
    readers: OnceLock<Option<Box<[AtomicU32]>>>,
}

/// The bits of a launch's number that a reader's record holds: enough to tell launches in flight apart.
const READER_LAUNCH: u32 = u32::MAX >> 4;

/// Who wrote 4 bytes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    /// The launch, 0 for the host.
    pub(crate) launch: u32,
    /// The moment in the launch, as the launch numbers them; 0 where that is not known.
    pub(crate) moment: u32,
    /// Which of the bytes it wrote: the low four flags. Who wrote the others is not known any more.
    pub(crate) bytes: u8,
}

/// Moments that a [`Writer`] can tell apart.
pub(crate) const MOMENTS: u32 = 1 << 28;
/// All bytes of 4.
const ALL: u8 = 0b1111;

impl Writer {
    fn pack(self) -> u64 {
        u64::from(self.launch) << 32 | u64::from(self.moment) << 4 | u64::from(self.bytes)
    }

    fn unpack(word: u64) -> Self {
        Writer {
            launch: (word >> 32) as u32,
            moment: word as u32 >> 4,
            bytes: word as u8 & ALL,
        }
    }
}

/// For each 4 bytes that some of the `bytes` bytes at `at` belong to: their index, and which of them these are.
fn quads(at: u64, bytes: u64) -> impl Iterator<Item = (usize, u8)> {
    let end = at + bytes;
    (at / 4..end.div_ceil(4)).map(move |quad| {
        let (first, last) = (at.max(quad * 4) - quad * 4, end.min(quad * 4 + 4) - quad * 4);
        (quad as usize, (ALL >> (4 - last)) & (ALL << first))
    })
}

/// Where an allocation's words are.
enum Words {
    Own(Box<[AtomicU64]>),
    /// Memory of the host's, and what keeps it there.
    Host {
        start: NonNull<AtomicU64>,
        len: usize,
        _owner: Owner,
    },
}

/// What keeps memory of the host's valid.
pub(crate) type Owner = Arc<dyn Send + Sync>;

// SAFETY: own words are a box of atomics. The host's are used through a pointer, and `of_host` was promised that any
// thread may use them; their owner is `Send`.
unsafe impl Send for Words {}
// SAFETY: shared access gives out atomics alone, which any number of threads may use at a time; the owner is `Sync`,
// and is only kept.
unsafe impl Sync for Words {}

impl std::ops::Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        match self {
            Words::Own(words) => words,
            // SAFETY: whoever adopted the words has promised that they are there as long as this is.
            Words::Host { start, len, .. } => unsafe { std::slice::from_raw_parts(start.as_ptr(), *len) },
        }
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Allocation({} bytes at {:#x})", self.size, self.base)
    }
}

/// A zeroed slice, or none where the host has no memory for it.
///
/// # Safety
///
/// All-zero bytes must be a valid `T`.
unsafe fn zeroed<T>(len: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(len).ok().filter(|l| l.size() > 0)?;
    // SAFETY: the layout's size is not zero.
    let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if start.is_null() {
        return None;
    }
    // SAFETY: `start` is a fresh allocation of the layout that a box of `len` elements has, and the caller vouches that
    // all-zero bytes are valid elements.
    Some(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, len)) })
}

impl Allocation {
    pub(crate) fn new(base: u64, size: u64) -> Option<Self> {
        let len = usize::try_from(size.div_ceil(8)).ok()?;
        Some(Allocation {
            base,
            size,
            // SAFETY: all-zero bytes are an `AtomicU64` of value 0.
            words: Words::Own(unsafe { zeroed(len) }?),
            writers: OnceLock::new(),
            latest: AtomicU32::new(0),
            readers: OnceLock::new(),
        })
    }

    /// Memory of the host's as an allocation.
    ///
    /// # Safety
    ///
    /// `start` is a multiple of 8. From there, up to the next multiple of 8 after `size` bytes, memory must be valid
    /// for reads and writes of any thread as long as this allocation, or a snapshot that holds it, is there.
    pub(crate) unsafe fn of_host(base: u64, start: NonNull<AtomicU64>, size: u64, owner: Owner) -> Option<Self> {
        let len = usize::try_from(size.div_ceil(8)).ok()?;
        Some(Allocation {
            base,
            size,
            words: Words::Host {
                start,
                len,
                _owner: owner,
            },
            writers: OnceLock::new(),
            latest: AtomicU32::new(0),
            readers: OnceLock::new(),
        })
    }

    /// Whether its bytes are the device's own.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.words, Words::Own(_))
    }

    /// The bytes `at..at + 8`, of which those past the last word read as zero; `at` must be a multiple of 8.
    #[inline]
    pub(crate) fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[(at / 8) as usize]
    }

    /// Up to 8 bytes at `at`, which must not cross a multiple of 8, in the low bits.
    #[inline]
    pub(crate) fn load(&self, at: u64, bytes: u32) -> u64 {
        let word = self.word(at).load(Relaxed) >> (8 * (at % 8));
        word & mask(bytes)
    }

    /// Stores the low `bytes` bytes of `value` at `at`, which must not cross a multiple of 8.
    #[inline]
    pub(crate) fn store(&self, at: u64, bytes: u32, value: u64) {
        if bytes == 8 {
            self.word(at).store(value, Relaxed);
        } else {
            self.update(at, bytes, |_| value);
        }
    }

    /// Replaces up to 8 bytes by a function of them, atomically; returns what they were.
    #[inline]
    pub(crate) fn update(&self, at: u64, bytes: u32, f: impl Fn(u64) -> u64) -> u64 {
        let (shift, mask) = (8 * (at % 8), mask(bytes));
        let word = self.word(at);
        let mut old = word.load(Relaxed);
        loop {
            let part = (old >> shift) & mask;
            let new = (old & !(mask << shift)) | ((f(part) & mask) << shift);
            match word.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => return part,
                Err(now) => old = now,
            }
        }
    }

    /// Replaces 16 bytes at a multiple of 16 by a function of them; returns what they were. Atomic among its like.
    pub(crate) fn update_pair(&self, at: u64, f: impl Fn([u64; 2]) -> [u64; 2]) -> [u64; 2] {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let words = [self.word(at), self.word(at + 8)];
        let old = words.map(|word| word.load(Relaxed));
        for (word, new) in words.into_iter().zip(f(old)) {
            word.store(new, Relaxed);
        }
        old
    }

    /// Reads bytes that lie inside the allocation.
    pub(crate) fn read(&self, mut at: u64, mut out: &mut [u8]) {
        while !out.is_empty() {
            let first = (at % 8) as usize;
            let n = (8 - first).min(out.len());
            let word = self.word(at).load(Relaxed).to_le_bytes();
            let (now, rest) = out.split_at_mut(n);
            now.copy_from_slice(&word[first..first + n]);
            out = rest;
            at += n as u64;
        }
    }

    /// Writes bytes that lie inside the allocation, on behalf of a launch (0: the host) at some moment.
    pub(crate) fn write(&self, at: u64, bytes: &[u8], launch: u32, moment: u32) {
        self.note_writer(at, bytes.len() as u64, launch, moment);
        let (mut at, mut bytes) = (at, bytes);
        while !bytes.is_empty() {
            let n = ((8 - at % 8) as usize).min(bytes.len());
            let (now, rest) = bytes.split_at(n);
            let mut word = [0; 8];
            word[..n].copy_from_slice(now);
            self.store(at, n as u32, u64::from_le_bytes(word));
            bytes = rest;
            at += n as u64;
        }
    }

    /// Records who wrote the bytes last; the host's writes are recorded only over those of launches.
    #[inline]
    pub(crate) fn note_writer(&self, at: u64, bytes: u64, launch: u32, moment: u32) {
        let shadow = if launch == 0 {
            self.writers.get()
        } else {
            // SAFETY: all-zero bytes are an atomic writer's record that names no launch.
            Some(self.writers.get_or_init(|| unsafe { zeroed(self.words.len() * 2) }))
        };
        let Some(Some(shadow)) = shadow else { return };
        if self.latest.load(Relaxed) < launch {
            self.latest.fetch_max(launch, Relaxed);
        }
        for (quad, bytes) in quads(at, bytes) {
            let now = Writer { launch, moment, bytes }.pack();
            let before = shadow[quad].load(Relaxed);
            // What one moment writes piece by piece adds up.
            let same = before >> 4 == now >> 4;
            shadow[quad].store(if same { before | now } else { now }, Relaxed);
        }
    }

    /// Records who read the bytes last.
    #[inline]
    pub(crate) fn note_reader(&self, at: u64, bytes: u64, launch: u32) {
        // SAFETY: all-zero bytes are an `AtomicU32` of value 0, which names no bytes.
        let shadow = self.readers.get_or_init(|| unsafe { zeroed(self.words.len() * 2) });
        let Some(shadow) = shadow else { return };
        for (quad, bytes) in quads(at, bytes) {
            let now = launch << 4 | u32::from(bytes);
            let before = shadow[quad].load(Relaxed);
            let next = if before >> 4 == now >> 4 { before | now } else { now };
            if next != before {
                shadow[quad].store(next, Relaxed);
            }
        }
    }

    /// Which of these launches has read some of the bytes; of 4 bytes only the last reader is known.
    pub(crate) fn reader_among(&self, at: u64, bytes: u64, launches: &[u32]) -> Option<u32> {
        let shadow = self.readers.get().and_then(Option::as_deref)?;
        quads(at, bytes).find_map(|(quad, wanted)| {
            let reader = shadow[quad].load(Relaxed);
            let read = reader as u8 & wanted != 0;
            let is_it = |&&launch: &&u32| launch & READER_LAUNCH == reader >> 4;
            launches.iter().find(is_it).copied().filter(|_| read)
        })
    }

    /// Whether no launch from this one on has written to it.
    #[inline]
    pub(crate) fn untouched_since(&self, launch: u32) -> bool {
        self.latest.load(Relaxed) < launch
    }

    /// Who wrote the bytes last, for each 4 bytes, with which of the bytes asked for are that one's; nothing where no
    /// kernel ever wrote to the allocation.
    #[inline]
    pub(crate) fn writers(&self, at: u64, bytes: u64) -> impl Iterator<Item = Writer> + '_ {
        let shadow = self.writers.get().and_then(Option::as_deref);
        shadow.into_iter().flat_map(move |shadow| {
            quads(at, bytes).map(|(quad, wanted)| {
                let writer = Writer::unpack(shadow[quad].load(Relaxed));
                Writer {
                    bytes: writer.bytes & wanted,
                    ..writer
                }
            })
        })
    }
}

/// The low `bytes` bytes, of at most 8.
#[inline]
fn mask(bytes: u32) -> u64 {
    u64::MAX >> (64 - 8 * bytes)
}
