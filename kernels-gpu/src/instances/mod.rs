//! The table of every compiled kernel. The host launches from it, the build writes launch bounds from it, and the checks
//! of the finished PTX and of its machine code hold the kernels to it.

use gate::{ELECTION_COUNTS, GATE_COUNTS};

mod counts;
mod floor;
mod gate;
mod gemm;
mod gemv;
mod join;
mod route;

pub use counts::Counts;
pub use floor::{FLOOR_READ, Floor, FloorArgs};
pub use gate::{
    BIAS_ON_LOGITS, GATE_TILE, GateArgs, MAX_EXPERTS, MAX_GROUPS, MAX_TOP_K, RENORMALIZE, SOFTMAX_OVER_TOPK, Score,
    gate_bytes,
};
pub use gemm::{BF16_UNIT_GEMM, GEMM, Gemm, Loads, PLAIN_GEMM, Purpose, WINDOW12_GEMM};
pub use gemv::{Ending, Exception, Format, GEMV_BF16, GEMV_WINDOW12, Gemv, GemvArgs, STARTS_AFTER, Window12Args};
pub use join::{GemmArgs, JoinArgs, PlainGemmArgs, RouteArgs, UnitGemmArgs};
pub use route::{ROUTE_BF16, ROUTE_BF16X2, ROUTE_BF16X3};

#[cfg(target_arch = "nvptx64")]
pub(crate) use {
    floor::for_each_floor,
    gemm::{for_each_bf16_unit_gemm, for_each_gemm, for_each_plain_gemm, for_each_window12_gemm},
    gemv::{for_each_gemv_bf16, for_each_gemv_window12},
    route::{for_each_route_bf16, for_each_route_bf16x2, for_each_route_bf16x3},
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

/// Every compiled projection.
pub fn gemvs() -> impl Iterator<Item = &'static Gemv> {
    GEMV_BF16.iter().chain(GEMV_WINDOW12)
}

/// Every compiled matrix product for many tokens.
pub fn gemms() -> impl Iterator<Item = &'static Gemm> {
    GEMM.iter().chain(PLAIN_GEMM).chain(unit_gemms())
}

/// Every compiled matrix product over packed units: what the driver's compiler makes of it is to be checked on the device, since ptxas
/// before 13.3 can miscompile `wgmma` whose first operand is in registers.
pub fn unit_gemms() -> impl Iterator<Item = &'static Gemm> {
    BF16_UNIT_GEMM.iter().chain(WINDOW12_GEMM)
}

/// Every compiled router for few tokens.
pub fn routes() -> impl Iterator<Item = &'static Gemv> {
    ROUTE_BF16.iter().chain(ROUTE_BF16X2).chain(ROUTE_BF16X3)
}

/// Every entry of the PTX.
pub fn entries() -> impl Iterator<Item = Entry> {
    gemvs()
        .chain(routes())
        .map(Gemv::entry)
        .chain(gemms().map(Gemm::entry))
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
        for i in gemvs().chain(routes()) {
            let (w, c, s, g) = (i.warps, i.cluster, i.stages, i.groups);
            let (n, r, x) = (i.token_blocks, i.row_blocks, i.x_values);
            let (ending, format) = (i.ending.name(), i.format.name());
            assert_eq!(i.name, format!("{ending}_{format}_sm90_w{w}c{c}s{s}g{g}n{n}r{r}x{x}"));
        }
        for i in FLOOR_READ {
            assert_eq!(
                i.name,
                format!("floor_read_sm90_w{}s{}b{}", i.warps, i.stages, i.chunk_kib)
            );
        }
    }

    #[test]
    fn a_product_spells_its_parameters() {
        for i in gemms() {
            let (w, s, g, n) = (i.warps, i.stages, i.groups, i.token_blocks);
            let format = ["bf16", "bf16x2", "bf16x3"][i.terms - 1];
            let (format, loads) = match i.loads {
                Loads::Tensor => (format, ""),
                Loads::Plain => (format, "_plain"),
                Loads::Units(Format::Window12) => ("window12", ""),
                Loads::Units(_) => (format, "_units"),
            };
            let purpose = i.purpose.name();
            let sharing = match i.sharing {
                1 => std::string::String::new(),
                h => format!("h{h}"),
            };
            assert_eq!(
                i.name,
                format!("{purpose}_{format}{loads}_sm90_w{w}s{s}g{g}n{n}{sharing}")
            );
        }
    }

    #[test]
    fn boxes_and_barriers_of_a_product_fit() {
        for i in gemms() {
            assert!(
                i.x_box().iter().chain(&i.weight_box()).all(|&side| side <= 256),
                "{}",
                i.name
            );
            assert!(2 * i.stages * BARRIER_BYTES <= i.tile_offset(), "{}", i.name);
            assert_eq!(
                i.stage_bytes() % if i.loads.has_map_of_x() { 1024 } else { 16 },
                0,
                "{}",
                i.name
            );
        }
    }

    #[test]
    fn parts_of_x_keep_the_pattern_of_the_swizzle() {
        for i in gemms() {
            assert!([1, 2, 4, 8].contains(&i.sharing), "{}", i.name);
            // The pattern repeats after eight rows.
            assert!(i.token_blocks.is_multiple_of(i.sharing), "{}", i.name);
            assert!(i.sharing == 1 || i.loads.has_map_of_x(), "{}", i.name);
        }
    }

    #[test]
    fn every_cta_of_a_cluster_has_a_place_of_its_own() {
        for i in gemms() {
            for cluster in [1, 2, 4, 8] {
                let (members, parts) = (i.sharing as u32, i.parts(cluster) as u32);
                for rank in 0..parts * members {
                    let (member, part) = i.place(rank);
                    assert!(member < members && part < parts, "{}", i.name);
                    assert_eq!(i.rank(member, part), rank, "{}", i.name);
                }
            }
            for n in [1, i.rows(), i.rows() + 1, 3 * i.rows()] {
                let tiles = i.row_tiles(n);
                assert!(tiles.is_multiple_of(i.sharing), "{}", i.name);
                assert!(
                    (n.div_ceil(i.rows())..n.div_ceil(i.rows()) + i.sharing).contains(&tiles),
                    "{}",
                    i.name
                );
            }
        }
    }

    #[test]
    fn each_product_over_window12_units_has_a_twin_over_bf16() {
        let twin = |i: &Gemm| (i.warps, i.groups, i.token_blocks, i.sharing);
        assert!(WINDOW12_GEMM.iter().map(twin).eq(BF16_UNIT_GEMM.iter().map(twin)));
    }

    #[test]
    fn sums_and_gate_of_a_product_fit_the_tiles_they_replace() {
        for i in gemms() {
            let room = i.shared_bytes() - i.tile_offset();
            assert!(
                i.partial_bytes() <= room && gate_bytes(MAX_EXPERTS) <= room,
                "{}",
                i.name
            );
        }
    }

    #[test]
    fn every_instance_fits_an_sm() {
        for i in entries() {
            assert!(i.shared_bytes <= MAX_SHARED, "{}", i.name);
            assert!(i.min_ctas * (i.shared_bytes + 1024) <= 228 * 1024, "{}", i.name);
            // An SM is four partitions, each with a quarter of the registers and of the warps.
            let threads = (i.min_ctas * i.threads).next_multiple_of(4 * WARP);
            assert!(threads * i.max_registers <= 65_536, "{}", i.name);
        }
    }

    #[test]
    fn partial_sums_fit_the_ring_they_replace() {
        for i in gemvs().chain(routes()) {
            assert!(i.tokens() * i.partial_stride() * 4 <= i.ring_bytes(), "{}", i.name);
        }
    }

    #[test]
    fn a_gate_fits_the_rings_it_replaces() {
        for i in routes() {
            let room = i.warps * i.ring_bytes();
            assert!(gate_bytes(MAX_EXPERTS) <= room, "{}", i.name);
            // Every token of a CTA's share has a warp of its own, for routers of an ordinary size.
            assert!(i.share_tokens() * gate_bytes(GATE_TILE) <= room, "{}", i.name);
        }
    }

    #[test]
    fn routers_of_a_format_split_k_alike() {
        for i in routes() {
            let first = &i.format.routes()[0];
            let split = |i: &Gemv| (i.warps, i.cluster, i.groups);
            assert_eq!(split(i), split(first), "{}", i.name);
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
