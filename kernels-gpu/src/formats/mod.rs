//! The formats of weights, a room each: what a unit holds and where, how it becomes tensor-core fragments, what it
//! leaves out, what its kernels are given, and what the tables and checks must know of it.
//!
//! A new format is a room here with its instances, a line in the list below, and its families among
//! [`Family`](crate::instances::Family). The kernels take it as a parameter.

use crate::instances::{Counts, Gemm, Gemv, WARP};

pub mod bf16;
pub mod window12;

#[cfg(target_arch = "nvptx64")]
pub(crate) mod fragments;

/// What the tables and the checks must know of a format.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The name.
    pub name: &'static str,
    /// Terms that add up to a weight; a unit holds one after the other.
    pub terms: usize,
    /// Bytes of a unit.
    pub unit_bytes: usize,
    /// What the format adds to the PTX of a kernel for few tokens that has so many token blocks.
    pub few_token_counts: fn(usize) -> Counts,
    /// What it adds to the PTX of a kernel for many tokens that reads packed units.
    pub packed_counts: Counts,
    /// The machine code that makes fragments of a unit, for few tokens; it must hide behind the stream of the weights.
    pub few_token_decoding: Decoding,
    /// The machine code that makes fragments of a unit permuted to K order, for many tokens; it must hide behind the
    /// products.
    pub packed_decoding: Decoding,
}

/// The machine code that makes fragments of units in a main loop.
#[derive(Clone, Copy, Debug)]
pub struct Decoding {
    /// Instructions that there must be for a unit, by mnemonic.
    pub at_least: &'static [(&'static str, usize)],
    /// Integer instructions that there may be: for each unit, and beside. `None` where nothing is decoded.
    pub integers: Option<(usize, usize)>,
}

macro_rules! formats {
    ($($(#[$doc:meta])* $format:ident: $facts:expr, $gemvs:expr, $routes:expr, $packed:expr;)*) => {
        /// How weights are stored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Format {
            $($(#[$doc])* $format,)*
        }

        impl Format {
            /// Every format.
            pub const ALL: &[Format] = &[$(Format::$format),*];

            /// What the tables and the checks must know of it.
            pub const fn facts(self) -> Facts {
                match self {
                    $(Format::$format => $facts,)*
                }
            }

            /// Every compiled projection for few tokens over weights of this format.
            pub const fn gemvs(self) -> &'static [Gemv] {
                match self {
                    $(Format::$format => $gemvs,)*
                }
            }

            /// Every compiled router for few tokens over weights of this format.
            pub const fn routes(self) -> &'static [Gemv] {
                match self {
                    $(Format::$format => $routes,)*
                }
            }

            /// Every compiled matrix product over packed units of this format.
            pub const fn packed_gemms(self) -> &'static [Gemm] {
                match self {
                    $(Format::$format => $packed,)*
                }
            }
        }
    };
}

// The room's facts; then the tables of projections and routers for few tokens, and of matrix products over packed
// units.
formats! {
    /// BF16 as it is.
    Bf16: bf16::facts("bf16", 1), bf16::GEMV_BF16, bf16::ROUTE_BF16, bf16::BF16_PACKED_GEMM;
    /// FP32 as a sum of two BF16 terms, in rows that a power of two scales.
    Bf16x2: bf16::facts("bf16x2", 2), &[], bf16::ROUTE_BF16X2, &[];
    /// FP32 as a sum of three BF16 terms: all 24 bits.
    Bf16x3: bf16::facts("bf16x3", 3), &[], bf16::ROUTE_BF16X3, &[];
    /// 12 bits per weight, lossless with the exceptions apart.
    Window12: window12::FACTS, window12::GEMV_WINDOW12, &[], window12::WINDOW12_PACKED_GEMM;
}

impl Format {
    /// Bytes of a unit.
    pub const fn unit_bytes(self) -> usize {
        self.facts().unit_bytes
    }

    /// Terms that add up to a weight; a unit holds one after the other.
    pub const fn terms(self) -> usize {
        self.facts().terms
    }

    /// The format's name.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// 128-bit loads of a lane per unit.
    pub const fn wide_loads(self) -> usize {
        self.unit_bytes() / (WARP * 16)
    }
}
