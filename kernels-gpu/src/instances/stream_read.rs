//! The table of the readers.

use super::{BARRIER_BYTES, Counts, Entry, Family, RING_ALIGN, WARP};

/// One compiled reader: streams bytes through shared memory and does nothing else, to measure what the memory can
/// deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRead {
    /// The entry's name in the PTX.
    pub name: &'static str,
    /// The family that it belongs to.
    pub family: Family,
    /// Its place among the entries of its family.
    pub index: usize,
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

/// Lists the readers to the macro `$each`: warps, stages, KiB per chunk; then CTAs per SM and registers per thread.
macro_rules! for_each_stream_read {
    ($each:ident) => {
        $each! {
            8 8 8, 2 40;
            8 6 16, 2 40;
        }
    };
}

/// The name of a reader.
macro_rules! stream_read_name {
    ($w:literal $s:literal $b:literal) => {
        concat!("stream_read_sm90_w", $w, "s", $s, "b", $b)
    };
}

/// The reader of a row, before its table has numbered it.
macro_rules! stream_read_row {
    ($w:literal $s:literal $b:literal, $ctas:literal $regs:literal) => {
        $crate::instances::StreamRead {
            name: $crate::instances::stream_read_name!($w $s $b),
            family: $crate::instances::Family::StreamRead,
            index: 0,
            warps: $w,
            stages: $s,
            chunk_kib: $b,
            min_ctas: $ctas,
            max_registers: $regs,
        }
    };
}

macro_rules! stream_read_table {
    ($($w:literal $s:literal $b:literal, $ctas:literal $regs:literal;)*) => {
        &StreamRead::numbered([$(stream_read_row!($w $s $b, $ctas $regs)),*])
    };
}
pub(crate) use stream_read_name;
#[cfg(target_arch = "nvptx64")]
pub(crate) use {for_each_stream_read, stream_read_row};

/// Every compiled reader.
pub const STREAM_READ: &[StreamRead] = for_each_stream_read!(stream_read_table);

impl StreamRead {
    const fn numbered<const N: usize>(mut rows: [StreamRead; N]) -> [StreamRead; N] {
        let mut at = 0;
        while at < N {
            rows[at].index = at;
            at += 1;
        }
        rows
    }

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
            family: self.family,
            index: self.index,
            threads: self.threads(),
            min_ctas: self.min_ctas,
            max_registers: self.max_registers,
            shared_bytes: self.shared_bytes(),
            cluster: 1,
            tensor_maps: 0,
            counts: Counts {
                bar_sync: 2,
                // The warp's number, and the sum over its lanes.
                shfl_sync: 1 + 5,
                // At the start, and in the loop.
                elect_sync: 2,
                ..Counts::NONE
            },
            tensor_cores: false,
        }
    }
}
