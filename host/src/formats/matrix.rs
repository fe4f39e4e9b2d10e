//! A row-major matrix of some type, in memory or in a mapped file, or a slice of one.

use super::cast::{self, Cast};
use crate::{Dtype, Error, Result, Shape};
use half::{bf16, f16};
use std::borrow::Cow;
use std::ops::Range;

/// A row-major matrix, or a slice of one. A slice copies nothing until its values are asked for.
#[derive(Debug, Clone)]
pub struct Matrix<'a> {
    dtype: Dtype,
    /// Columns of the whole matrix: the distance of its rows.
    cols: usize,
    row_range: Range<usize>,
    col_range: Range<usize>,
    data: Data<'a>,
}

/// The elements of the whole matrix.
#[derive(Debug, Clone)]
enum Data<'a> {
    /// Little-endian, at any address.
    Bytes(&'a [u8]),
    /// Decoded from another format.
    Bf16(Vec<bf16>),
}

impl<'a> Matrix<'a> {
    /// The bytes are as many as the sides and the type want.
    pub(crate) fn of_bytes(dtype: Dtype, [rows, cols]: [usize; 2], bytes: &'a [u8]) -> Self {
        Self::whole(dtype, [rows, cols], Data::Bytes(bytes))
    }

    /// The values are as many as the shape wants.
    pub(crate) fn decoded(values: Vec<bf16>, shape: Shape) -> Self {
        Self::whole(Dtype::Bf16, [shape.n(), shape.k()], Data::Bf16(values))
    }

    fn whole(dtype: Dtype, [rows, cols]: [usize; 2], data: Data<'a>) -> Self {
        Matrix {
            dtype,
            cols,
            row_range: 0..rows,
            col_range: 0..cols,
            data,
        }
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Rows of the slice.
    pub fn rows(&self) -> usize {
        self.row_range.len()
    }

    /// Columns of the slice.
    pub fn cols(&self) -> usize {
        self.col_range.len()
    }

    /// The shape, as that of weights.
    pub fn shape(&self) -> Result<Shape> {
        Shape::new(self.rows(), self.cols())
    }

    /// The rows and columns of a slice; `None` keeps all. Indices count from the start of this matrix or slice.
    pub fn slice(mut self, rows: Option<Range<usize>>, cols: Option<Range<usize>>) -> Result<Self> {
        let (row, col) = (self.row_range.start, self.col_range.start);
        let rows = part("rows", rows, self.rows())?;
        let cols = part("columns", cols, self.cols())?;
        self.row_range = row + rows.start..row + rows.end;
        self.col_range = col + cols.start..col + cols.end;
        Ok(self)
    }

    /// The values as BF16, row-major. Borrowed where they lie there as such, in whole rows and aligned; other types
    /// need a cast.
    pub fn to_bf16(&self, cast: Option<Cast>) -> Result<Cow<'_, [bf16]>> {
        match (self.dtype, cast) {
            (Dtype::Bf16, _) => Ok(self.values::<bf16>()),
            (Dtype::F16, Some(Cast::Bf16)) => Ok(Cow::Owned(cast::f16_to_bf16(&self.values::<f16>()))),
            (Dtype::F32, Some(Cast::Bf16)) => Ok(Cow::Owned(cast::f32_to_bf16(&self.values::<f32>()))),
            (Dtype::F32, None) => Err(Error::Fp32Weights),
            (given, None) => Err(Error::NeedsCast { given }),
        }
    }

    /// The values of an F32 matrix, row-major, as [`Matrix::to_bf16`] gives those of a BF16 one; `None` for another
    /// type.
    pub fn to_f32(&self) -> Option<Cow<'_, [f32]>> {
        (self.dtype == Dtype::F32).then(|| self.values::<f32>())
    }

    fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Bytes(bytes) => bytes,
            Data::Bf16(values) => bytemuck::cast_slice(values),
        }
    }

    /// The slice's elements. Files are little-endian, as every target of CUDA is.
    fn values<T: bytemuck::Pod>(&self) -> Cow<'_, [T]> {
        let (size, data) = (size_of::<T>(), self.bytes());
        let row = |r: usize| {
            let start = r * self.cols;
            (start + self.col_range.start) * size..(start + self.col_range.end) * size
        };
        if self.col_range == (0..self.cols) {
            let whole = &data[self.row_range.start * self.cols * size..self.row_range.end * self.cols * size];
            if let Ok(values) = bytemuck::try_cast_slice(whole) {
                return Cow::Borrowed(values);
            }
        }
        let mut values = vec![T::zeroed(); self.rows() * self.cols()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        for (out, r) in bytes
            .chunks_exact_mut((self.cols() * size).max(1))
            .zip(self.row_range.clone())
        {
            out.copy_from_slice(&data[row(r)]);
        }
        Cow::Owned(values)
    }
}

/// The range, which must be a non-empty part of `0..len`; all of it where there is none.
pub(super) fn part(what: &'static str, range: Option<Range<usize>>, len: usize) -> Result<Range<usize>> {
    let Some(range) = range else { return Ok(0..len) };
    if range.start < range.end && range.end <= len {
        Ok(range)
    } else {
        Err(Error::Slice { what, range, len })
    }
}
