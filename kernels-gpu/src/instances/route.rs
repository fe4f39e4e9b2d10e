//! The table of the routers for few tokens: GEMVs that end in a gate.

use super::gemv::{Ending, Format, Gemv, gemv_rows};

/// Lists the routers over BF16 weights to the macro `$each`, like the GEMVs.
///
/// All rows split K alike, so a token's logits have the same bits in each of them: for any number of tokens, and however x lies.
/// A cluster of eight CTAs per 16 experts is 128 CTAs for 256 experts, and each warp's slice of 8192 columns fits its ring:
/// all weights are on their way at once. An x whose rows are not 16-byte aligned is rare with routers: one instance serves it for any
/// number of tokens.
macro_rules! for_each_route_bf16 {
    ($each:ident) => {
        $each! {
            route_bf16_sm90_w8c8s2g1n1r1x8: 8 8 2 1 1 1 8, 2 128;
            route_bf16_sm90_w8c8s2g1n2r1x8: 8 8 2 1 2 1 8, 2 128;
            route_bf16_sm90_w8c8s2g1n4r1x8: 8 8 2 1 4 1 8, 2 128;
            route_bf16_sm90_w8c8s2g1n4r1x1: 8 8 2 1 4 1 1, 2 128;
        }
    };
}

/// Lists the routers over weights of two terms, like [`for_each_route_bf16`].
macro_rules! for_each_route_bf16x2 {
    ($each:ident) => {
        $each! {
            route_bf16x2_sm90_w8c8s2g1n1r1x8: 8 8 2 1 1 1 8, 2 128;
            route_bf16x2_sm90_w8c8s2g1n2r1x8: 8 8 2 1 2 1 8, 2 128;
            route_bf16x2_sm90_w8c8s2g1n4r1x8: 8 8 2 1 4 1 8, 2 128;
            route_bf16x2_sm90_w8c8s2g1n4r1x1: 8 8 2 1 4 1 1, 2 128;
        }
    };
}

/// Lists the routers over weights of three terms, like [`for_each_route_bf16`].
macro_rules! for_each_route_bf16x3 {
    ($each:ident) => {
        $each! {
            route_bf16x3_sm90_w8c8s2g1n1r1x8: 8 8 2 1 1 1 8, 2 128;
            route_bf16x3_sm90_w8c8s2g1n2r1x8: 8 8 2 1 2 1 8, 2 128;
            route_bf16x3_sm90_w8c8s2g1n4r1x8: 8 8 2 1 4 1 8, 2 128;
            route_bf16x3_sm90_w8c8s2g1n4r1x1: 8 8 2 1 4 1 1, 2 128;
        }
    };
}

#[cfg(target_arch = "nvptx64")]
pub(crate) use {for_each_route_bf16, for_each_route_bf16x2, for_each_route_bf16x3};

macro_rules! bf16_rows {
    ($($rows:tt)*) => {
        /// Every compiled router for few tokens over BF16 weights.
        pub const ROUTE_BF16: &[Gemv] = gemv_rows!(Route Bf16; $($rows)*);
    };
}
for_each_route_bf16!(bf16_rows);
macro_rules! bf16x2_rows {
    ($($rows:tt)*) => {
        /// Every compiled router for few tokens over weights of two BF16 terms.
        pub const ROUTE_BF16X2: &[Gemv] = gemv_rows!(Route Bf16x2; $($rows)*);
    };
}
for_each_route_bf16x2!(bf16x2_rows);
macro_rules! bf16x3_rows {
    ($($rows:tt)*) => {
        /// Every compiled router for few tokens over weights of three BF16 terms.
        pub const ROUTE_BF16X3: &[Gemv] = gemv_rows!(Route Bf16x3; $($rows)*);
    };
}
for_each_route_bf16x3!(bf16x3_rows);

impl Gemv {
    /// Counters of a router that finishes `m` tokens.
    pub const fn counters(&self, m: usize) -> usize {
        m.div_ceil(self.tokens()) * self.cluster
    }
}
