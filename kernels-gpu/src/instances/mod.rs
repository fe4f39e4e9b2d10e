//! The table of every compiled kernel. The host launches from it, the build writes launch bounds from it, and the checks
//! of the finished PTX and of its machine code hold the kernels to it.

mod counts;
mod floor;
mod gate;
mod gemm;
mod gemv;
mod join;

pub use counts::Counts;
pub use floor::{FLOOR_READ, Floor, FloorArgs};
pub use gate::{BIAS_ON_LOGITS, GateArgs, MAX_EXPERTS, MAX_GROUPS, MAX_TOP_K, RENORMALIZE, SOFTMAX_OVER_TOPK, Score};
pub use gemm::{GEMM, Gemm, Loads, PLAIN_GEMM, Purpose};
pub use gemv::{Exception, Format, GEMV_BF16, GEMV_WINDOW12, Gemv, GemvArgs, STARTS_AFTER, Window12Args};
pub use join::{GemmArgs, JoinArgs, PlainGemmArgs, RouteArgs};

#[cfg(target_arch = "nvptx64")]
pub(crate) use {
    floor::for_each_floor, gemm::for_each_gemm, gemm::for_each_plain_gemm, gemv::for_each_gemv_bf16,
    gemv::for_each_gemv_window12,
};

/// Lanes of a warp.
pub const WARP: usize = 32;

/// Bytes of an mbarrier.
const BARRIER_BYTES: usize = 8;
/// Where the ring may start: a multiple of what bulk copies and 128-bit loads want.
const RING_ALIGN: usize = 128;

/// Whether two names are the same, at compile time.
#[cfg(target_arch = "nvptx64")]
pub(crate) const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// What the build and its checks need to know of an entry of the PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's name.
    pub name: &'static str,
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

/// Every compiled GEMV.
pub fn gemvs() -> impl Iterator<Item = &'static Gemv> {
    GEMV_BF16.iter().chain(GEMV_WINDOW12)
}

/// Every compiled matrix product for many tokens.
pub fn gemms() -> impl Iterator<Item = &'static Gemm> {
    GEMM.iter().chain(PLAIN_GEMM)
}

/// Every entry of the PTX.
pub fn entries() -> impl Iterator<Item = Entry> {
    let gemms = gemms().map(Gemm::entry);
    gemvs()
        .map(Gemv::entry)
        .chain(gemms)
        .chain(FLOOR_READ.iter().map(Floor::entry))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    /// The largest dynamic shared memory that a CTA may ask for on sm_90.
    const MAX_SHARED: usize = 227 * 1024;

    #[test]
    fn a_name_spells_the_parameters() {
        for i in gemvs() {
            let (w, c, s, g) = (i.warps, i.cluster, i.stages, i.groups);
            let (n, r, x) = (i.token_blocks, i.row_blocks, i.x_values);
            let format = i.format.name();
            assert_eq!(i.name, format!("gemv_{format}_sm90_w{w}c{c}s{s}g{g}n{n}r{r}x{x}"));
        }
        for i in FLOOR_READ {
            assert_eq!(
                i.name,
                format!("floor_read_sm90_w{}s{}b{}", i.warps, i.stages, i.chunk_kib)
            );
        }
    }

    #[test]
    fn every_instance_fits_an_sm() {
        for i in entries() {
            assert!(i.shared_bytes <= MAX_SHARED, "{}", i.name);
            assert!(i.min_ctas * (i.shared_bytes + 1024) <= 228 * 1024, "{}", i.name);
            assert!(i.min_ctas * i.threads * i.max_registers <= 65_536, "{}", i.name);
        }
    }

    #[test]
    fn partial_sums_fit_the_ring_they_replace() {
        for i in gemvs() {
            assert!(i.tokens() * i.partial_stride() * 4 <= i.ring_bytes(), "{}", i.name);
        }
    }

    #[test]
    fn no_cta_looks_beyond_the_starts_of_exceptions() {
        assert!(gemvs().all(|i| i.row_blocks <= STARTS_AFTER));
    }

    #[test]
    fn names_are_unique() {
        for (at, i) in entries().enumerate() {
            assert!(entries().skip(at + 1).all(|other| other.name != i.name), "{}", i.name);
        }
    }
}
