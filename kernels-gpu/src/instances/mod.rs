//! The table of every compiled kernel. The host launches from it, the build writes launch bounds from it, and the
//! checks of the finished PTX and of its machine code hold the kernels to it.

use gate::{ELECTION_COUNTS, GATE_COUNTS};

mod counts;
mod family;
mod gate;
mod gemm;
mod gemv;
mod op;
mod row_major;
mod stream_read;
#[cfg(test)]
mod tests;

pub use crate::args::*;
pub use crate::formats::{self, Format};
pub use counts::Counts;
pub use family::Family;
pub use gate::{GATE_TILE, MAX_EXPERTS, MAX_GROUPS, MAX_TOP_K, gate_bytes};
pub use gemm::{Gemm, Loads};
pub use gemv::Gemv;
pub use op::Op;
pub use row_major::{FALLBACK_GEMM, GEMM};
pub use stream_read::{STREAM_READ, StreamRead};

pub(crate) use gemm::{gemm_name, gemm_row, packed_row, packed_table};
pub(crate) use gemv::{gemv_name, gemv_row, gemv_table};
pub(crate) use stream_read::stream_read_name;
#[cfg(target_arch = "nvptx64")]
pub(crate) use {
    row_major::{for_each_fallback_gemm, for_each_gemm},
    stream_read::{for_each_stream_read, stream_read_row},
};

/// Lanes of a warp.
pub const WARP: usize = 32;

/// Bytes of an mbarrier.
const BARRIER_BYTES: usize = 8;
/// Where the ring may start: a multiple of what bulk copies and 128-bit loads want.
const RING_ALIGN: usize = 128;

/// What the build and its checks need to know of an entry of the PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's name.
    pub name: &'static str,
    /// The family that it belongs to.
    pub family: Family,
    /// Its place among the entries of its family.
    pub index: usize,
    /// Threads per CTA, for `.maxntid`.
    pub threads: usize,
    /// CTAs per SM, for `.minnctapersm`.
    pub min_ctas: usize,
    /// Registers per thread that the machine code may use.
    pub max_registers: usize,
    /// Dynamic shared memory, in bytes.
    pub shared_bytes: usize,
    /// CTAs per cluster.
    pub cluster: usize,
    /// Leading parameters that are tensor maps.
    pub tensor_maps: usize,
    /// How often each barrier and warp-wide instruction occurs in the PTX.
    pub counts: Counts,
    /// Whether the machine code must show tensor-core instructions fed by 128-bit shared loads in its main loop; else
    /// 128-bit shared loads alone.
    pub tensor_cores: bool,
}

/// Every compiled projection.
pub fn gemvs() -> impl Iterator<Item = &'static Gemv> {
    Format::ALL.iter().flat_map(|format| format.gemvs())
}

/// Every compiled matrix product for many tokens.
pub fn gemms() -> impl Iterator<Item = &'static Gemm> {
    GEMM.iter().chain(FALLBACK_GEMM).chain(packed_gemms())
}

/// Every compiled matrix product over packed units: what the driver's compiler makes of it is to be checked on the
/// device, since ptxas before 13.3 can miscompile `wgmma` whose first operand is in registers.
pub fn packed_gemms() -> impl Iterator<Item = &'static Gemm> {
    Format::ALL.iter().flat_map(|format| format.packed_gemms())
}

/// Every compiled router for few tokens.
pub fn routes() -> impl Iterator<Item = &'static Gemv> {
    Format::ALL.iter().flat_map(|format| format.routes())
}

/// Every entry of the PTX.
pub fn entries() -> impl Iterator<Item = Entry> {
    gemvs()
        .chain(routes())
        .map(Gemv::entry)
        .chain(gemms().map(Gemm::entry))
        .chain(STREAM_READ.iter().map(StreamRead::entry))
}
