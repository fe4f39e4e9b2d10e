//! The instances over BF16 weights, single ones and sums of two or three terms.

use crate::instances::{FALLBACK_GEMM, GEMM, Gemm, Gemv, gemv_table, packed_table};

/// Lists the GEMVs over BF16 weights to the macro `$each`, behind what `$with` says: what their names begin with,
/// operation, format and family; then for each warps, cluster, stages, groups, token blocks, row blocks, x values; then
/// CTAs per SM and registers per thread.
///
/// Rows with 8 x values follow the configurations measured for 16-row blocks, at equal CTAs and equal bytes in flight:
/// a block of `r` times as many rows takes `c` times as many CTAs along K. The others serve shapes whose x rows cannot
/// be 16-byte aligned.
macro_rules! for_each_gemv_bf16 {
    ($each:ident $($with:tt)*) => {
        $each! { $($with)* "gemv_bf16" Project Bf16 GemvBf16;
            4 1 2 1 1 2 8, 4 80;
            4 2 2 1 1 2 8, 4 80;
            8 2 3 1 1 2 8, 2 80;
            8 4 2 1 1 2 8, 3 80;
            8 8 2 1 1 2 8, 3 80;
            16 2 2 1 1 2 8, 1 80;
            4 1 2 1 2 4 8, 3 128;
            4 2 2 1 2 4 8, 3 128;
            4 4 2 1 2 4 8, 3 128;
            4 8 2 1 2 4 8, 3 128;
            4 1 2 1 4 4 8, 3 168;
            4 2 2 1 4 4 8, 3 168;
            4 4 2 1 4 4 8, 3 168;
            4 8 2 1 4 4 8, 3 168;
            4 2 2 1 1 2 1, 4 80;
            4 2 2 1 2 4 1, 3 144;
            4 2 2 1 4 4 1, 3 168;
        }
    };
}

/// Lists the routers for few tokens over BF16 weights, like the GEMVs.
///
/// All rows split K alike, so a token's logits have the same bits in each of them: for any number of tokens, and
/// however x lies. A cluster of eight CTAs per 16 experts is 128 CTAs for 256 experts, and each warp's slice of 8192
/// columns fits its ring: all weights are on their way at once. An x whose rows are not 16-byte aligned is rare with
/// routers: one instance serves it for any number of tokens.
macro_rules! for_each_route_bf16 {
    ($each:ident $($with:tt)*) => {
        $each! { $($with)* "route_bf16" Route Bf16 RouteBf16;
            8 8 2 1 1 1 8, 2 128;
            8 8 2 1 2 1 8, 2 128;
            8 8 2 1 4 1 8, 2 128;
            8 8 2 1 4 1 1, 2 128;
        }
    };
}

/// Lists the routers for few tokens over weights of two terms.
macro_rules! for_each_route_bf16x2 {
    ($each:ident $($with:tt)*) => {
        $each! { $($with)* "route_bf16x2" Route Bf16x2 RouteBf16x2;
            8 8 2 1 1 1 8, 2 128;
            8 8 2 1 2 1 8, 2 128;
            8 8 2 1 4 1 8, 2 128;
            8 8 2 1 4 1 1, 2 128;
        }
    };
}

/// Lists the routers for few tokens over weights of three terms.
macro_rules! for_each_route_bf16x3 {
    ($each:ident $($with:tt)*) => {
        $each! { $($with)* "route_bf16x3" Route Bf16x3 RouteBf16x3;
            8 8 2 1 1 1 8, 2 128;
            8 8 2 1 2 1 8, 2 128;
            8 8 2 1 4 1 8, 2 128;
            8 8 2 1 4 1 1, 2 128;
        }
    };
}

/// Lists the instances for many tokens over BF16 units, family by family: what their names begin with, format, family;
/// then for each warps, stages, groups, token blocks, and CTAs that share x if some do; then CTAs per SM and registers
/// per thread.
///
/// The first family has those that plans name for 32 tokens or fewer, so that a decoder compiles no others.
///
/// Twelve warps that share x make 11 clusters of eight where eight warps make 16, of 4096 rows at 128 tokens: those run
/// in one wave on a device of 132 multiprocessors whose GPCs hold 15 clusters of eight, and on one of 114.
macro_rules! for_each_bf16_packed_gemm {
    ($each:ident $($with:tt)*) => {
        $each! { $($with)* "gemm_bf16_units" Bf16
            GemmBf16Units {
                8 4 1 8, 2 96;
                12 5 1 16, 1 128;
                16 5 1 8, 1 96;
            }
            GemmBf16UnitsMany {
                4 4 1 16, 2 168;
                4 5 1 32, 1 248;
                8 6 1 16, 1 168;
                8 6 1 16 2, 1 168;
                4 5 1 32 4, 1 248;
                12 5 1 16 2, 1 128;
            }
        }
    };
}

#[cfg(target_arch = "nvptx64")]
pub(crate) use {
    for_each_bf16_packed_gemm, for_each_gemv_bf16, for_each_route_bf16, for_each_route_bf16x2, for_each_route_bf16x3,
};

/// Every compiled GEMV over BF16 weights.
pub const GEMV_BF16: &[Gemv] = for_each_gemv_bf16!(gemv_table);
/// Every compiled router for few tokens over BF16 weights.
pub const ROUTE_BF16: &[Gemv] = for_each_route_bf16!(gemv_table);
/// Every compiled router for few tokens over weights of two BF16 terms.
pub const ROUTE_BF16X2: &[Gemv] = for_each_route_bf16x2!(gemv_table);
/// Every compiled router for few tokens over weights of three BF16 terms.
pub const ROUTE_BF16X3: &[Gemv] = for_each_route_bf16x3!(gemv_table);

/// Every compiled matrix product over BF16 units.
pub const BF16_PACKED_GEMM: &[Gemm] = for_each_bf16_packed_gemm!(packed_table [GEMM, FALLBACK_GEMM]);
