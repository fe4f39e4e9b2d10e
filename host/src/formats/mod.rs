//! Formats of weights: packing, casts, slices. Pure functions on memory; nothing here opens a file.

pub mod bf16;
#[cfg(test)]
mod bytes;
pub mod cast;
#[cfg(feature = "cuda")]
pub(crate) mod device;
pub mod matrix;
pub(crate) mod room;
pub(crate) mod source;
pub mod split;
mod weights;
pub mod window12;

pub use room::{Description, Exponent};
pub use source::Loss;

use crate::{Error, Result, Shape};
use kernels_gpu::instances::Format;
use matrix::Matrix;
use room::{Packer, Room};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use weights::{Parts, Sliced as _};

/// The formats that matrices may be stored in, in place of one tensor of values.
pub(crate) static ROOMS: &[&dyn Room] = &[
    &window12::Window12,
    #[cfg(test)]
    &bytes::Bytes,
];

/// What is wrong with a matrix that a file stores in a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It breaks a rule of `window12`.
    #[error(transparent)]
    Window12(#[from] window12::Fault),
}

/// What is wrong with a file in which matrices of a format cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// It breaks a rule of `window12`.
    #[error(transparent)]
    Window12(#[from] window12::FileFault),
}

/// The format that weights are asked for in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackFormat {
    /// `window12` where it pays: see [`window12::Estimate::pays`].
    #[default]
    Auto,
    /// BF16 as it is.
    Bf16,
    /// BF16 at 12 bits per weight, every bit kept.
    Window12,
}

impl PackFormat {
    /// All of them.
    pub const ALL: [PackFormat; 3] = [PackFormat::Auto, PackFormat::Bf16, PackFormat::Window12];

    /// The name, as users spell it.
    pub const fn name(self) -> &'static str {
        match self {
            PackFormat::Auto => "auto",
            PackFormat::Bf16 => "bf16",
            PackFormat::Window12 => "window12",
        }
    }

    /// The format that matrices are packed into, if they are packed.
    pub(crate) fn packer(self) -> Option<&'static dyn Packer> {
        match self {
            PackFormat::Bf16 => None,
            PackFormat::Auto | PackFormat::Window12 => Some(&window12::Window12),
        }
    }

    /// Whether weights of this format are left as they are.
    fn takes(self, format: Format) -> bool {
        self == PackFormat::Auto || self.name() == format.name()
    }

    /// Packs values; `None` where they stay BF16.
    fn pack(self, values: &[crate::bf16], shape: Shape) -> Result<Option<Weights<'static>>> {
        let window12 = match self {
            PackFormat::Bf16 => false,
            PackFormat::Window12 => true,
            PackFormat::Auto => window12::Histogram::of(values).estimate(shape)?.pays().is_ok(),
        };
        let packed = window12.then(|| window12::pack(values, shape)).transpose()?;
        Ok(packed.map(Weights::Window12))
    }

    /// The names, as a sentence lists them.
    pub fn names() -> String {
        let [others @ .., last] = &Self::ALL;
        let others: Vec<&str> = others.iter().map(|format| format.name()).collect();
        format!("{} or {last}", others.join(", "))
    }
}

impl fmt::Display for PackFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PackFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| Error::UnknownFormat {
            given: name.to_owned(),
            allowed: Self::names(),
        })
    }
}

macro_rules! packed_formats {
    ($($(#[$doc:meta])* $format:ident: $room:ident;)*) => {
        /// A weight matrix `[N, K]` in host memory as it comes: values of some type, or packed. Most of it may be
        /// borrowed, from a mapped file for instance.
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub enum Weights<'a> {
            /// Row-major values.
            Rows(Matrix<'a>),
            $($(#[$doc])* $format($room::Packed<'a>),)*
        }

        impl<'a> Weights<'a> {
            /// Some rows and columns; `None` keeps all. Packed weights stay packed where units can be cut there;
            /// elsewhere the slice is decoded.
            pub fn slice(self, rows: Option<Range<usize>>, cols: Option<Range<usize>>) -> Result<Self> {
                match self {
                    Weights::Rows(matrix) => matrix.slice(rows, cols).map(Weights::Rows),
                    $(Weights::$format(packed) => packed.sliced(rows, cols),)*
                }
            }

            fn parts(&self) -> Parts<'_, 'a> {
                match self {
                    Weights::Rows(matrix) => Parts::Rows(matrix),
                    $(Weights::$format(packed) => Parts::Packed(packed),)*
                }
            }
        }

        $(impl<'a> From<$room::Packed<'a>> for Weights<'a> {
            fn from(packed: $room::Packed<'a>) -> Self {
                Weights::$format(packed)
            }
        })*

        /// Packed weights in device memory, by their addresses.
        #[cfg(feature = "cuda")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum DeviceWeights {
            /// BF16 values, or sums of BF16 terms.
            Bf16(bf16::OnDevice),
            $($(#[$doc])* $format($room::OnDevice),)*
        }

        #[cfg(feature = "cuda")]
        impl DeviceWeights {
            /// How kernels take them.
            pub(crate) fn operands(&self) -> &dyn device::KernelOperands {
                match self {
                    DeviceWeights::Bf16(weights) => weights,
                    $(DeviceWeights::$format(weights) => weights,)*
                }
            }
        }

        /// Microseconds that a multiprocessor of an H200 takes to permute a packed unit to K order, and to decode it
        /// first.
        pub(crate) const fn permute_unit_us(format: Format) -> f64 {
            match format {
                Format::Bf16 | Format::Bf16x2 | Format::Bf16x3 => bf16::PERMUTE_UNIT_US,
                $(Format::$format => $room::PERMUTE_UNIT_US,)*
            }
        }

        /// Stores BF16 values in a format, for the self-test of its kernels: with exceptions, where it has them.
        #[cfg(feature = "cuda")]
        pub(crate) fn store_for_self_test(
            setup: &crate::device::Setup,
            format: Format,
            values: &[crate::bf16],
            shape: Shape,
        ) -> Result<Box<dyn device::Stored>> {
            match format {
                Format::Bf16 => bf16::store(setup, &bf16::pack(values, shape)?, 1),
                Format::Bf16x2 | Format::Bf16x3 => Err(Error::Terms { given: format.terms() }),
                $(Format::$format => $room::store_for_self_test(setup, values, shape),)*
            }
        }
    };
}

// A room `x` has `Packed<'a>` with `PackedWeights` and `Sliced`, `OnDevice` with `KernelOperands`, `PERMUTE_UNIT_US`
// and `store_for_self_test`.
packed_formats! {
    /// BF16 weights at 12 bits each.
    Window12: window12;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_names() {
        for format in PackFormat::ALL {
            assert_eq!(format.name().parse::<PackFormat>().unwrap(), format);
        }
        assert_eq!(PackFormat::names(), "auto, bf16 or window12");
        let err = "int4".parse::<PackFormat>().unwrap_err().to_string();
        assert!(err.contains("int4") && err.contains(&PackFormat::names()), "{err}");
    }
}
