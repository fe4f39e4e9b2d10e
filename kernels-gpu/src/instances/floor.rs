//! The table of the readers, and what they are given.

use super::{BARRIER_BYTES, Counts, Entry, RING_ALIGN, WARP};

/// What a `floor_read` kernel is given, as its one by-value parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloorArgs {
    /// The bytes to read, 16-byte aligned.
    pub data: u64,
    /// How many; a multiple of 16.
    pub bytes: u64,
    /// One `u32` per warp of the grid: the exclusive or of all words the warp has read.
    pub out: u64,
}

/// One compiled reader: streams bytes through shared memory and does nothing else, to measure what the memory can deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The entry's name in the PTX.
    pub name: &'static str,
    /// `w`: warps per CTA.
    pub warps: usize,
    /// `s`: stages of the CTA's ring.
    pub stages: usize,
    /// `b`: KiB per chunk.
    pub chunk_kib: usize,
    /// CTAs that must fit on an SM.
    pub min_ctas: usize,
    /// Registers per thread that the machine code may use.
    pub max_registers: usize,
}

/// Lists the readers to the macro `$each`: name, then warps, stages, KiB per chunk; then CTAs per SM and registers.
macro_rules! for_each_floor {
    ($each:ident) => {
        $each! {
            floor_read_sm90_w8s8b8: 8 8 8, 2 32;
            floor_read_sm90_w8s6b16: 8 6 16, 2 32;
        }
    };
}

#[cfg(target_arch = "nvptx64")]
pub(crate) use for_each_floor;

macro_rules! floor_table {
    ($($name:ident: $w:literal $s:literal $b:literal, $ctas:literal $regs:literal;)*) => {
        /// Every compiled reader.
        pub const FLOOR_READ: &[Floor] = &[$(Floor {
            name: stringify!($name), warps: $w, stages: $s, chunk_kib: $b, min_ctas: $ctas, max_registers: $regs,
        }),*];
    };
}
for_each_floor!(floor_table);

impl Floor {
    /// Threads per CTA.
    pub const fn threads(&self) -> usize {
        self.warps * WARP
    }

    /// Bytes of a chunk: one bulk copy.
    pub const fn chunk_bytes(&self) -> usize {
        self.chunk_kib * 1024
    }

    /// Where the ring starts in dynamic shared memory; its mbarriers lie before.
    pub const fn ring_offset(&self) -> usize {
        (self.stages * BARRIER_BYTES).next_multiple_of(RING_ALIGN)
    }

    /// Dynamic shared memory of a CTA, in bytes.
    pub const fn shared_bytes(&self) -> usize {
        self.ring_offset() + self.stages * self.chunk_bytes()
    }

    pub(super) const fn entry(&self) -> Entry {
        Entry {
            name: self.name,
            threads: self.threads(),
            min_ctas: self.min_ctas,
            max_registers: self.max_registers,
            shared_bytes: self.shared_bytes(),
            cluster: 1,
            tensor_maps: 0,
            counts: Counts {
                bar_sync: 2,
                shfl_sync: 5,
                ..Counts::NONE
            },
            tensor_cores: false,
        }
    }
}
