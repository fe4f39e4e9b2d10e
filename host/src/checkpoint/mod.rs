//! Safetensors files: matrices in, results out.
//!
//! A file is mapped, not read: only the pages of the slice in use are touched. Whatever a file holds, the answer is a value
//! or an error.

mod output;
mod vector;

pub use output::{Routed, write_bf16, write_routed};
pub use vector::Vector;

use crate::container::{self, Header, Tensor};
use crate::weights::cast;
use crate::weights::window12::PackedTensors;
use crate::{Dtype, Error, Result, Shape};
use half::{bf16, f16};
use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The type to which weights may be cast, on explicit request only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cast {
    /// To BF16, rounding to nearest even.
    Bf16,
}

/// An open safetensors file.
pub struct Checkpoint {
    path: PathBuf,
    map: memmap2::Mmap,
    header: Header,
    /// Where in the file the data starts.
    data: usize,
}

impl Checkpoint {
    /// Maps a file and checks its header against its length.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let map = container::map(&path)?;
        let (header, data) = Header::read(&map).map_err(|reason| Error::Format {
            path: path.clone(),
            reason,
        })?;
        let data = map.len() - data.len();
        Ok(Checkpoint {
            path,
            map,
            header,
            data,
        })
    }

    /// The file's path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The packed matrices of the file.
    pub fn packed(&self) -> Result<PackedTensors<'_>> {
        PackedTensors::read(&self.map).map_err(|fault| Error::PackedFile {
            path: self.path.clone(),
            fault,
        })
    }

    /// The names of the two-dimensional tensors, sorted.
    pub fn matrix_names(&self) -> Vec<String> {
        self.names(2)
    }

    /// The names of the tensors of so many dimensions, sorted.
    fn names(&self, dimensions: usize) -> Vec<String> {
        let tensors = self.header.tensors.iter();
        let mut names: Vec<String> = tensors
            .filter(|tensor| tensor.shape.len() == dimensions)
            .map(|tensor| tensor.name.clone())
            .collect();
        names.sort();
        names
    }

    /// The tensor of that name; without a name, the only one of so many dimensions, which the error calls `kind`.
    fn find(&self, name: Option<&str>, dimensions: usize, kind: &'static str) -> Result<&Tensor> {
        let missing = |problem| Error::NoTensor {
            path: self.path.clone(),
            problem,
            dimensions,
            candidates: self.names(dimensions),
        };
        let name = match name {
            Some(name) => name.to_owned(),
            None => {
                let mut names = self.names(dimensions);
                match names.len() {
                    1 => names.remove(0),
                    0 => return Err(missing(format!("the file has no {kind} to take"))),
                    _ => {
                        let problem =
                            format!("the file has several tensors that may be the {kind}: name one as FILE:TENSOR");
                        return Err(missing(problem));
                    }
                }
            }
        };
        let mut tensors = self.header.tensors.iter();
        tensors
            .find(|tensor| tensor.name == name)
            .ok_or_else(|| missing(format!("there is no tensor `{name}`")))
    }

    /// A tensor's bytes, where they are as many as its shape and element size want.
    fn bytes(&self, tensor: &Tensor, size: usize) -> Result<&[u8]> {
        let Tensor { name, shape, range, .. } = tensor;
        let len = shape.iter().try_fold(size, |len, &side| len.checked_mul(side));
        self.map
            .get(self.data..)
            .and_then(|data| data.get(range.clone()))
            .filter(|data| Some(data.len()) == len)
            .ok_or_else(|| Error::Format {
                path: self.path.clone(),
                reason: format!("tensor `{name}` of shape {shape:?} has bytes {range:?} of the data"),
            })
    }

    /// The matrix of that name; without a name, the only two-dimensional tensor of the file.
    pub fn matrix(&self, name: Option<&str>) -> Result<Matrix<'_>> {
        let tensor = self.find(name, 2, "matrix")?;
        let (path, name) = (self.path.clone(), tensor.name.clone());
        let &[rows, cols] = tensor.shape.as_slice() else {
            let shape = tensor.shape.clone();
            return Err(Error::NotMatrix { path, name, shape });
        };
        let given = tensor.dtype.clone();
        let Some(dtype) = Dtype::named(&given) else {
            return Err(Error::UnknownDtype { path, name, given });
        };
        let data = self.bytes(tensor, dtype.bytes())?;
        Ok(Matrix {
            name,
            dtype,
            cols,
            row_range: 0..rows,
            col_range: 0..cols,
            data,
        })
    }
}

/// A matrix of a file, or a slice of one.
#[derive(Debug, Clone)]
pub struct Matrix<'a> {
    name: String,
    dtype: Dtype,
    /// Columns of the whole matrix: the distance of its rows.
    cols: usize,
    row_range: Range<usize>,
    col_range: Range<usize>,
    data: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// The tensor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The element type in the file.
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
        self.row_range = narrow("rows", &self.row_range, rows)?;
        self.col_range = narrow("columns", &self.col_range, cols)?;
        Ok(self)
    }

    /// The values as BF16, row-major. Borrowed from the file where they lie there as such, in whole rows and aligned; other types
    /// need a cast.
    pub fn to_bf16(&self, cast: Option<Cast>) -> Result<Cow<'a, [bf16]>> {
        match (self.dtype, cast) {
            (Dtype::Bf16, _) => Ok(self.values::<bf16>()),
            (Dtype::F16, Some(Cast::Bf16)) => Ok(Cow::Owned(cast::f16_to_bf16(&self.values::<f16>()))),
            (Dtype::F32, Some(Cast::Bf16)) => Ok(Cow::Owned(cast::f32_to_bf16(&self.values::<f32>()))),
            (given, None) => Err(self.uncast(given)),
        }
    }

    /// The values of an F32 matrix, row-major, as [`Matrix::to_bf16`] gives those of a BF16 one; `None` for another type.
    pub fn to_f32(&self) -> Option<Cow<'a, [f32]>> {
        (self.dtype == Dtype::F32).then(|| self.values::<f32>())
    }

    fn uncast(&self, given: Dtype) -> Error {
        match given {
            Dtype::F32 => Error::Fp32Weights,
            given => Error::NeedsCast { given },
        }
    }

    /// The slice's elements. Files are little-endian, as every target of CUDA is.
    fn values<T: bytemuck::Pod>(&self) -> Cow<'a, [T]> {
        let size = size_of::<T>();
        let row = |r: usize| {
            let start = r * self.cols;
            (start + self.col_range.start) * size..(start + self.col_range.end) * size
        };
        if self.col_range == (0..self.cols) {
            let whole = &self.data[self.row_range.start * self.cols * size..self.row_range.end * self.cols * size];
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
            out.copy_from_slice(&self.data[row(r)]);
        }
        Cow::Owned(values)
    }
}

/// `wanted`, counted from the start of `have`, must be a non-empty part of it.
fn narrow(what: &'static str, have: &Range<usize>, wanted: Option<Range<usize>>) -> Result<Range<usize>> {
    let Some(range) = wanted else { return Ok(have.clone()) };
    if range.start < range.end && range.end <= have.len() {
        Ok(have.start + range.start..have.start + range.end)
    } else {
        Err(Error::Slice {
            what,
            range,
            len: have.len(),
        })
    }
}

#[cfg(test)]
mod tests;
