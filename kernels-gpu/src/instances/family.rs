//! The families of kernels: a PTX file each.

use super::{Entry, Format, Gemv, entries};

/// Lists the families to the macro `$each`: for each its documentation, its variant of [`Family`] and its name, which
/// is that of its PTX file.
#[macro_export]
macro_rules! for_each_family {
    ($each:ident) => {
        $each! {
            /// Projections of few tokens over BF16 units.
            GemvBf16 "gemv_bf16";
            /// Projections of few tokens over `window12` units.
            GemvWindow12 "gemv_window12";
            /// Projections of many tokens over row-major BF16 weights: TMA tile loads, and the fallback with masked
            /// loads.
            GemmBf16 "gemm_bf16";
            /// Matrix products over BF16 units that plans name for 32 tokens and fewer too.
            GemmBf16Units "gemm_bf16_units";
            /// The other matrix products over BF16 units.
            GemmBf16UnitsMany "gemm_bf16_units_many";
            /// Matrix products over `window12` units that plans name for 32 tokens and fewer too.
            GemmWindow12 "gemm_window12";
            /// The other matrix products over `window12` units.
            GemmWindow12Many "gemm_window12_many";
            /// Routers of few tokens over BF16 weights.
            RouteBf16 "route_bf16";
            /// Routers of many tokens over BF16 weights: TMA tile loads, and the fallback with masked loads.
            RouteBf16Gemm "route_bf16_gemm";
            /// Routers of few tokens over weights of two BF16 terms.
            RouteBf16x2 "route_bf16x2";
            /// Routers of many tokens over weights of two BF16 terms.
            RouteBf16x2Gemm "route_bf16x2_gemm";
            /// Routers of few tokens over weights of three BF16 terms.
            RouteBf16x3 "route_bf16x3";
            /// Routers of many tokens over weights of three BF16 terms.
            RouteBf16x3Gemm "route_bf16x3_gemm";
            /// The readers that measure the memory's bandwidth.
            StreamRead "stream_read";
        }
    };
}

macro_rules! families {
    ($($(#[$doc:meta])* $family:ident $name:literal;)*) => {
        /// Kernels that a plan needs together, and that are compiled together: those of an operation, a format and a
        /// kind.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Family {
            $($(#[$doc])* $family,)*
        }

        impl Family {
            /// Every family.
            pub const ALL: [Family; [$($name),*].len()] = [$(Family::$family),*];

            /// The name: that of its PTX file.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Family::$family => $name,)*
                }
            }
        }
    };
}
for_each_family!(families);

impl Family {
    /// Its entries, in the order of their indices.
    pub fn entries(self) -> impl Iterator<Item = Entry> {
        entries().filter(move |entry| entry.family == self)
    }

    /// How many kernels for few tokens it has, which come before those for many.
    pub(super) const fn few_token_kernels(self) -> usize {
        let (mut at, mut count) = (0, 0);
        while at < Format::ALL.len() {
            count += self.rows_in(Format::ALL[at].gemvs()) + self.rows_in(Format::ALL[at].routes());
            at += 1;
        }
        count
    }

    /// The rows of a table that belong to it: all or none.
    const fn rows_in(self, table: &[Gemv]) -> usize {
        match table.first() {
            Some(row) if row.family as usize == self as usize => table.len(),
            _ => 0,
        }
    }
}
