//! The instances over `window12` weights.

use crate::formats::bf16::BF16_PACKED_GEMM;
use crate::instances::{FALLBACK_GEMM, GEMM, Gemm, Gemv, gemv_table, packed_table};

/// Lists the GEMVs over `window12` weights to the macro `$each`, like [`for_each_gemv_bf16`](crate::formats::bf16).
macro_rules! for_each_gemv_window12 {
    ($each:ident $($with:tt)*) => {
        $each! { $($with)* "gemv_window12" Project Window12 GemvWindow12;
            4 1 3 1 1 2 8, 5 88;
            4 2 3 1 1 2 8, 5 88;
            8 2 3 1 1 2 8, 3 80;
            8 4 3 1 1 2 8, 3 80;
            8 8 2 1 1 2 8, 3 80;
            4 1 2 1 2 4 8, 4 128;
            4 2 2 1 2 4 8, 4 128;
            4 4 2 1 2 4 8, 4 128;
            4 8 2 1 2 4 8, 4 128;
            4 1 2 1 4 4 8, 3 168;
            4 2 2 1 4 4 8, 3 168;
            4 4 2 1 4 4 8, 3 168;
            4 8 2 1 4 4 8, 3 168;
            4 2 3 1 1 2 1, 5 96;
            4 2 2 1 2 4 1, 3 144;
            4 2 2 1 4 4 1, 2 232;
        }
    };
}

/// Lists the instances for many tokens over `window12` units: those over BF16 units, with stages for as much shared
/// memory.
macro_rules! for_each_window12_packed_gemm {
    ($each:ident $($with:tt)*) => {
        $each! { $($with)* "gemm_window12" Window12
            GemmWindow12 {
                8 5 1 8, 2 96;
                12 6 1 16, 1 128;
                16 6 1 8, 1 96;
            }
            GemmWindow12Many {
                4 4 1 16, 2 168;
                4 5 1 32, 1 248;
                8 7 1 16, 1 168;
                8 7 1 16 2, 1 168;
                4 5 1 32 4, 1 248;
            }
        }
    };
}

#[cfg(target_arch = "nvptx64")]
pub(crate) use {for_each_gemv_window12, for_each_window12_packed_gemm};

/// Every compiled GEMV over `window12` weights.
pub const GEMV_WINDOW12: &[Gemv] = for_each_gemv_window12!(gemv_table);

/// Every compiled matrix product over `window12` units.
pub const WINDOW12_PACKED_GEMM: &[Gemm] =
    for_each_window12_packed_gemm!(packed_table [GEMM, FALLBACK_GEMM, BF16_PACKED_GEMM]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_product_over_window12_units_has_a_twin_over_bf16() {
        let twin = |i: &Gemm| (i.warps, i.groups, i.token_blocks, i.multicast);
        // Twelve warps that share x serve BF16 weights alone: plans for 12 bits have better.
        let twins = BF16_PACKED_GEMM.iter().map(twin).filter(|&it| it != (12, 1, 16, 2));
        assert!(WINDOW12_PACKED_GEMM.iter().map(twin).eq(twins));
    }
}
