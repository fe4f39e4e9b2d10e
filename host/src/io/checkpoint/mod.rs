//! Safetensors files: matrices in, results out.
//!
//! A file is mapped, not read: only the pages of the slice in use are touched. Whatever a file holds, the answer is a
//! value or an error.

mod output;
mod vector;

pub use output::{Routed, write_bf16, write_routed};
pub use vector::Vector;

pub use crate::formats::cast::Cast;
pub use crate::formats::matrix::Matrix;

use crate::formats::Weights;
use crate::io::FileError;
use crate::io::container::{self, Header, Tensor, Tensors};
use crate::io::matrices::{Entry, Matrices};
use crate::{Dtype, Error, Result};
use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

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
        let (header, data) = Header::read(&map).map_err(|reason| FileError::Format {
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

    /// Bytes of the file.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Bytes ahead of the data.
    pub(crate) fn ahead(&self) -> usize {
        self.data
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// The file with what it says of its matrices.
    pub(crate) fn matrices(&self) -> Result<Matrices<'_>> {
        let data = self.map.get(self.data..).unwrap_or_default();
        Matrices::of(&self.path, Tensors::new(Cow::Borrowed(&self.header), data))
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
        let names = self.names(dimensions);
        let name = match name {
            Some(name) => name,
            None => self.only(&names, dimensions, kind)?,
        };
        self.tensor(name)
            .ok_or_else(|| self.missing(no_tensor(name), dimensions, &names))
    }

    fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.header.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// The name that is taken where none is given.
    fn only<'n>(&self, names: &'n [String], dimensions: usize, kind: &'static str) -> Result<&'n str> {
        let problem = match names {
            [name] => return Ok(name),
            [] => format!("the file has no {kind} to take"),
            _ => format!("the file has several tensors that may be the {kind}: name one as FILE:TENSOR"),
        };
        Err(self.missing(problem, dimensions, names))
    }

    fn missing(&self, problem: String, dimensions: usize, candidates: &[String]) -> Error {
        FileError::NoTensor {
            path: self.path.clone(),
            problem,
            dimensions,
            candidates: candidates.to_vec(),
        }
        .into()
    }

    /// A tensor's bytes, where they are as many as its shape and element size want.
    fn bytes(&self, tensor: &Tensor, size: usize) -> Result<&[u8], FileError> {
        let Tensor { name, shape, range, .. } = tensor;
        let len = shape.iter().try_fold(size, |len, &side| len.checked_mul(side));
        self.map
            .get(self.data..)
            .and_then(|data| data.get(range.clone()))
            .filter(|data| Some(data.len()) == len)
            .ok_or_else(|| FileError::Format {
                path: self.path.clone(),
                reason: format!("tensor `{name}` of shape {shape:?} has bytes {range:?} of the data"),
            })
    }

    /// The matrix of that name; without a name, the only two-dimensional tensor of the file.
    pub fn matrix(&self, name: Option<&str>) -> Result<Matrix<'_>> {
        self.matrix_of(self.find(name, 2, "matrix")?)
    }

    fn matrix_of(&self, tensor: &Tensor) -> Result<Matrix<'_>> {
        let (path, name) = (self.path.clone(), tensor.name.clone());
        let &[rows, cols] = tensor.shape.as_slice() else {
            let shape = tensor.shape.clone();
            return Err(FileError::NotMatrix { path, name, shape }.into());
        };
        let given = tensor.dtype.clone();
        let Some(dtype) = Dtype::named(&given) else {
            return Err(FileError::UnknownDtype { path, name, given }.into());
        };
        let data = self.bytes(tensor, dtype.bytes())?;
        Ok(Matrix::of_bytes(dtype, [rows, cols], data))
    }

    /// The weights of that name, packed or not; without a name, the only ones of the file.
    pub fn weights(&self, name: Option<&str>) -> Result<Weights<'_>> {
        let file = self.matrices()?;
        let parts: HashSet<String> = file.entries().flat_map(Entry::parts).collect();
        let mut names = self.names(2);
        names.retain(|name| !parts.contains(name));
        names.extend(file.entries().map(|entry| entry.name.to_owned()));
        names.sort();
        let name = match name {
            Some(name) => name,
            None => self.only(&names, 2, "matrix")?,
        };
        if let Some(entry) = file.entries().find(|entry| entry.name == name) {
            return file.weights(entry);
        }
        let missing = || self.missing(no_tensor(name), 2, &names);
        let tensor = self.tensor(name).ok_or_else(missing)?;
        self.matrix_of(tensor).map(Weights::from)
    }
}

fn no_tensor(name: &str) -> String {
    format!("there is no tensor `{name}`")
}

#[cfg(test)]
mod tests;
