//! A weight matrix in host memory, in whatever format it comes.

use super::cast::Cast;
#[cfg(feature = "cuda")]
use super::device::Stored;
use super::matrix::Matrix;
use super::{PackFormat, Weights};
#[cfg(feature = "cuda")]
use crate::device::Setup;
use crate::{Dtype, Result, Shape};
use half::bf16;
use kernels_gpu::instances::Format;
use std::borrow::Cow;
use std::ops::Range;

/// A matrix in a format that weights keep on their way to the device.
pub(crate) trait PackedWeights {
    /// The format.
    fn format(&self) -> Format;
    /// The shape of the matrix.
    fn shape(&self) -> Shape;
    /// The values, decoded.
    fn to_bf16(&self) -> Result<Vec<bf16>>;
    /// Uploads the matrix.
    #[cfg(feature = "cuda")]
    fn store(&self, setup: &Setup) -> Result<Box<dyn Stored>>;
}

/// A packed matrix of which a slice can be taken.
pub(crate) trait Sliced<'a> {
    /// Some rows and columns; `None` keeps all. They stay packed where units can be cut there, and are decoded
    /// elsewhere.
    fn sliced(self, rows: Option<Range<usize>>, cols: Option<Range<usize>>) -> Result<Weights<'a>>;
}

impl<'a> Weights<'a> {
    /// Row-major BF16 weights.
    pub fn bf16(values: &'a [bf16], shape: Shape) -> Result<Self> {
        Shape::check_len("the weights", values.len(), shape.n(), shape.k())?;
        Ok(Self::rows(bytemuck::cast_slice(values), Dtype::Bf16, shape))
    }

    /// Row-major weights of some type as little-endian bytes, which may start anywhere.
    pub fn bytes(bytes: &'a [u8], dtype: Dtype, shape: Shape) -> Result<Self> {
        let row_bytes = shape.k() * dtype.bytes();
        Shape::check_len("the weights, in bytes,", bytes.len(), shape.n(), row_bytes)?;
        Ok(Self::rows(bytes, dtype, shape))
    }

    fn rows(bytes: &'a [u8], dtype: Dtype, shape: Shape) -> Self {
        Weights::Rows(Matrix::of_bytes(dtype, [shape.n(), shape.k()], bytes))
    }

    /// The shape. A matrix of a file may have none that weights can have.
    pub fn shape(&self) -> Result<Shape> {
        match self.parts() {
            Parts::Rows(matrix) => matrix.shape(),
            Parts::Packed(packed) => Ok(packed.shape()),
        }
    }

    /// The format that they have on the device.
    pub fn format(&self) -> Format {
        match self.parts() {
            Parts::Rows(_) => Format::Bf16,
            Parts::Packed(packed) => packed.format(),
        }
    }

    /// The values as BF16, row-major: borrowed where they lie in memory as such, decoded where they are packed. F16 and
    /// F32 need a cast.
    pub fn to_bf16(&self, cast: Option<Cast>) -> Result<Cow<'_, [bf16]>> {
        match self.parts() {
            Parts::Rows(matrix) => matrix.to_bf16(cast),
            Parts::Packed(packed) => packed.to_bf16().map(Cow::Owned),
        }
    }

    /// The weights in a format: BF16 values, or packed. [`PackFormat::Auto`] leaves packed weights as they are, and
    /// packs others where that pays. F16 and F32 need a cast.
    pub fn into_format(self, format: PackFormat, cast: Option<Cast>) -> Result<Self> {
        let stays = match self.parts() {
            Parts::Rows(matrix) => format == PackFormat::Bf16 && matrix.dtype() == Dtype::Bf16,
            Parts::Packed(packed) => format.takes(packed.format()),
        };
        if stays {
            return Ok(self);
        }
        let (values, shape) = (self.to_bf16(cast)?, self.shape()?);
        if let Some(packed) = format.pack(&values, shape)? {
            return Ok(packed);
        }
        if let Cow::Owned(values) = values {
            return Ok(Weights::Rows(Matrix::decoded(values, shape)));
        }
        Ok(self)
    }

    /// The values of row-major BF16 weights; `None` for others.
    #[cfg(feature = "cuda")]
    pub(crate) fn bf16_rows(&self) -> Option<Cow<'_, [bf16]>> {
        match self.parts() {
            Parts::Rows(matrix) => matrix.to_bf16(None).ok(),
            Parts::Packed(_) => None,
        }
    }

    /// Packs them as kernels stream them, and uploads them. Row-major ones are BF16.
    #[cfg(feature = "cuda")]
    pub(crate) fn store(&self, setup: &Setup) -> Result<Box<dyn Stored>> {
        match self.parts() {
            Parts::Rows(matrix) => {
                let units = super::bf16::pack(&matrix.to_bf16(None)?, matrix.shape()?)?;
                super::bf16::store(setup, &units, 1)
            }
            Parts::Packed(packed) => packed.store(setup),
        }
    }
}

/// What weights are, whatever their format.
pub(super) enum Parts<'w, 'a> {
    /// Row-major values.
    Rows(&'w Matrix<'a>),
    /// A packed matrix.
    Packed(&'w dyn PackedWeights),
}

impl<'a> From<Matrix<'a>> for Weights<'a> {
    fn from(matrix: Matrix<'a>) -> Self {
        Weights::Rows(matrix)
    }
}

#[cfg(test)]
#[path = "weights_tests.rs"]
mod tests;
