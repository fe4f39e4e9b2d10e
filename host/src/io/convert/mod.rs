//! Whole checkpoints: packed, unpacked and looked into, tensor by tensor over mapped files.
//!
//! A checkpoint is one safetensors file, or a folder of them with an index (`model.safetensors.index.json`). What is
//! not converted is copied as it is: names, shapes, metadata and the order of everything survive, and `unpack` after
//! `pack` gives back the original. An output appears whole or not at all: it is written next to its place under another
//! name, and renamed when all of it is there, the index last. None takes the place of an input.

mod error;
mod index;
mod inspect;
mod pack;
mod unpack;

pub use error::ConvertError;
pub use inspect::{Inspected, Stored, inspect};
pub use pack::{Outcome, PackOptions, PackedTensor, pack};
pub use unpack::{UnpackedTensor, unpack};

use crate::formats::room::StoredTensor;
use crate::io::checkpoint::Checkpoint as File;
use crate::io::container::{Header, MOST_HEADER, Tensor};
use crate::io::output::{self, PartFile};
use crate::{Dtype, Result, Shape};
use index::{Checkpoint, Renamed};
use std::path::{Path, PathBuf};

/// Bytes that are copied at a time.
const COPIED: usize = 4 << 20;

/// How far a conversion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of input that are done.
    pub done: u64,
    /// All of them.
    pub total: u64,
}

/// What a conversion has done.
#[derive(Debug, Clone, PartialEq)]
pub struct Report<T> {
    /// The tensors of the input, file by file, in the order of their data.
    pub tensors: Vec<T>,
    /// Bytes of the safetensors files read.
    pub input_bytes: u64,
    /// Bytes of those written.
    pub output_bytes: u64,
}

/// Counts bytes for whoever watches.
struct Meter<'a> {
    /// Twice the bytes that are done.
    halves: u64,
    total: u64,
    watch: &'a mut dyn FnMut(Progress),
}

impl<'a> Meter<'a> {
    fn new(total: u64, watch: &'a mut dyn FnMut(Progress)) -> Self {
        Meter {
            halves: 0,
            total,
            watch,
        }
    }

    fn add(&mut self, bytes: usize) {
        self.add_one_of_two(2 * bytes);
    }

    /// Counts bytes that were gone through, and will be or have been once more.
    fn add_one_of_two(&mut self, bytes: usize) {
        self.halves += bytes as u64;
        (self.watch)(Progress {
            done: self.halves / 2,
            total: self.total,
        });
    }
}

/// The safetensors files of a checkpoint, and its index where it has one.
pub fn files(input: &Path) -> Result<Vec<PathBuf>> {
    Ok(Checkpoint::open(input)?.paths().map(Path::to_owned).collect())
}

/// What became of a file.
struct Converted<T> {
    file: PartFile,
    tensors: Vec<T>,
    /// What each tensor of the input is called in the output.
    renamed: Renamed,
    /// Bytes of tensors before and after.
    data: (u64, u64),
    bytes: u64,
}

/// Converts every file of a checkpoint, and its index.
fn convert<T>(
    checkpoint: Checkpoint,
    to: &Path,
    watch: &mut dyn FnMut(Progress),
    mut one: impl FnMut(&File, &Path, &mut Meter<'_>) -> Result<Converted<T>>,
) -> Result<Report<T>> {
    let mut report = Report {
        tensors: Vec::new(),
        input_bytes: checkpoint.bytes(),
        output_bytes: 0,
    };
    let mut meter = Meter::new(report.input_bytes, watch);
    let mut files = Vec::new();
    let folder = checkpoint.output_folder(to)?;
    let mut index = checkpoint.index;
    for file in &checkpoint.files {
        let place = match &folder {
            Some(folder) => Checkpoint::counterpart(folder.path(), file.path()),
            None => to.to_owned(),
        };
        let converted = one(file, &place, &mut meter)?;
        report.tensors.extend(converted.tensors);
        report.output_bytes += converted.bytes;
        if let Some(index) = &mut index {
            index.follow(file.path(), &converted.renamed, converted.data)?;
        }
        files.push(converted.file);
    }
    if let (Some(index), Some(folder)) = (index, &folder) {
        files.push(index.write(folder.path())?);
    }
    output::commit(files, folder)?;
    Ok(report)
}

/// A matrix of a type that can become BF16, of a shape that kernels can take.
fn matrix(tensor: &Tensor) -> Option<(Dtype, Shape)> {
    let dtype = [Dtype::Bf16, Dtype::F16, Dtype::F32]
        .into_iter()
        .find(|dtype| dtype.name() == tensor.dtype)?;
    match *tensor.shape {
        [n, k] => Shape::new(n, k).ok().map(|shape| (dtype, shape)),
        _ => None,
    }
}

/// Gives tensors their places in a file's data, one after the other.
#[derive(Default)]
struct Layout {
    /// Where the next one starts.
    next: usize,
}

impl Layout {
    fn place(&mut self, name: String, dtype: &str, shape: Vec<usize>, bytes: usize) -> Tensor {
        let start = self.next;
        self.next += bytes;
        Tensor {
            name,
            dtype: dtype.to_owned(),
            shape,
            range: start..self.next,
        }
    }

    /// A place for a tensor as it is.
    fn same(&mut self, tensor: &Tensor) -> Tensor {
        self.place(
            tensor.name.clone(),
            &tensor.dtype,
            tensor.shape.clone(),
            tensor.range.len(),
        )
    }

    fn stored(&mut self, tensor: StoredTensor) -> Tensor {
        self.place(tensor.name, tensor.dtype, tensor.shape, tensor.bytes)
    }

    fn bf16(&mut self, name: &str, shape: Shape) -> Tensor {
        let (n, k) = (shape.n(), shape.k());
        self.place(
            name.to_owned(),
            Dtype::Bf16.name(),
            vec![n, k],
            n * k * Dtype::Bf16.bytes(),
        )
    }
}

/// A file that is being written.
struct Output {
    file: PartFile,
    /// Where the data starts.
    data: u64,
    /// Where it ends.
    bytes: u64,
}

impl Output {
    /// Writes the header, if readers will open it.
    fn new(mut file: PartFile, header: &Header) -> Result<Self> {
        let ahead = header.to_bytes();
        let length = Header::length(&ahead);
        if length > MOST_HEADER {
            let path = file.target().to_owned();
            return Err(ConvertError::HeaderTooLong { path, length }.into());
        }
        file.write(0, &ahead)?;
        let data = ahead.len() as u64;
        let bytes = data + data_bytes(header);
        Ok(Output { file, data, bytes })
    }

    /// Writes bytes of a tensor, from its byte `at` on.
    fn write(&mut self, tensor: &Tensor, at: usize, bytes: &[u8]) -> Result<()> {
        Ok(self.file.write(self.data + (tensor.range.start + at) as u64, bytes)?)
    }

    /// Writes all of a tensor's bytes.
    fn copy(&mut self, tensor: &Tensor, bytes: &[u8], meter: &mut Meter<'_>) -> Result<()> {
        bytes.chunks(COPIED).enumerate().try_for_each(|(i, piece)| {
            self.write(tensor, i * COPIED, piece)?;
            meter.add(piece.len());
            Ok(())
        })
    }

    /// Ends writing and gives the file and its bytes.
    fn finish(mut self) -> Result<(PartFile, u64)> {
        self.file.finish(self.bytes)?;
        Ok((self.file, self.bytes))
    }
}

/// Bytes of all tensors.
fn data_bytes(header: &Header) -> u64 {
    header.tensors.iter().map(|tensor| tensor.range.len() as u64).sum()
}

/// A header with other tensors, each in the place of the one that it comes from.
fn relist(header: &Header, tensors: Vec<Vec<Tensor>>) -> Header {
    let metadata = header.metadata.as_ref().map(|(ahead, pairs)| {
        let ahead = tensors[..*ahead].iter().map(Vec::len).sum();
        (ahead, pairs.clone())
    });
    Header {
        metadata,
        tensors: tensors.into_iter().flatten().collect(),
    }
}

/// What each tensor of a header is called in the output.
fn renamed(header: &Header, tensors: &[Vec<Tensor>]) -> Renamed {
    let names = |tensors: &Vec<Tensor>| tensors.iter().map(|tensor| tensor.name.clone()).collect();
    header
        .tensors
        .iter()
        .zip(tensors)
        .map(|(old, new)| (old.name.clone(), names(new)))
        .collect()
}

#[cfg(test)]
mod index_tests;
#[cfg(test)]
mod tests;
