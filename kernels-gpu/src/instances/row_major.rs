//! The matrix products over row-major weights, which are BF16 terms: no format's units.

use super::Gemm;
use super::gemm::row_table;

/// Lists the matrix products by TMA tile loads, family by family: what their names begin with, operation, terms,
/// family; then for each warps, stages, groups, token blocks, and CTAs that share x if some do; then CTAs per SM and
/// registers per thread.
///
/// The ring of a CTA takes about half an SM's shared memory, or all of it, since bytes in flight are what counts. Wide
/// row tiles read x less often, many tokens read the weights less often. x is multicast where its tile is as large as
/// the weights' or larger, to as many CTAs as it takes until L2 is not the limit. Twelve warps divide 2304 rows so that
/// clusters of eight keep 96 of 132 multiprocessors busy, where eight warps in clusters of four keep 72.
macro_rules! for_each_gemm {
    ($each:ident $($with:tt)*) => {
        $each! { $($with)*
            "gemm_bf16" Project 1 GemmBf16 {
                4 6 1 8, 2 168;
                4 4 1 16, 2 168;
                8 4 1 8, 2 96;
                8 6 1 16, 1 168;
                8 4 1 32, 1 168;
                12 5 1 16, 1 128;
                16 4 1 16, 1 96;
                8 6 1 16 2, 1 168;
                8 4 1 32 2, 1 168;
            }
            "route_bf16" Route 1 RouteBf16Gemm {
                4 6 1 8, 2 168;
                4 4 1 16, 2 168;
            }
            "route_bf16x2" Route 2 RouteBf16x2Gemm {
                4 4 1 8, 2 168;
                4 4 1 16, 1 248;
            }
            "route_bf16x3" Route 3 RouteBf16x3Gemm {
                4 3 1 8, 2 168;
                4 4 1 16, 1 248;
            }
        }
    };
}

/// Lists the fallbacks with masked loads, like [`for_each_gemm`].
macro_rules! for_each_fallback_gemm {
    ($each:ident $($with:tt)*) => {
        $each! { $($with)*
            "gemm_bf16_plain" Project 1 GemmBf16 { 4 2 1 8, 2 224; }
            "route_bf16_plain" Route 1 RouteBf16Gemm { 4 2 1 8, 2 248; }
            "route_bf16x2_plain" Route 2 RouteBf16x2Gemm { 4 2 1 8, 2 248; }
            "route_bf16x3_plain" Route 3 RouteBf16x3Gemm { 4 2 1 8, 2 248; }
        }
    };
}

#[cfg(target_arch = "nvptx64")]
pub(crate) use {for_each_fallback_gemm, for_each_gemm};

/// Every compiled matrix product by TMA tile loads.
pub const GEMM: &[Gemm] = for_each_gemm!(row_table Tma []);
/// Every compiled fallback, which loads from any address.
pub const FALLBACK_GEMM: &[Gemm] = for_each_fallback_gemm!(row_table Masked [GEMM]);
