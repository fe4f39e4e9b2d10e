//! The matrices of a safetensors file that are stored in formats of their own, whatever these are.

use crate::formats::room::{Form, Index};
use crate::formats::{Fault, ROOMS, Weights};
use crate::io::FileError;
use crate::io::container::{Header, Tensors};
use crate::{Error, Result, Shape};
use std::path::Path;

/// A safetensors file, and what it says of its matrices.
pub(crate) struct Matrices<'a> {
    path: &'a Path,
    file: Tensors<'a>,
    indexes: Vec<Box<dyn Index>>,
}

/// A matrix that a file says it has.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'m> {
    pub(crate) name: &'m str,
    index: &'m dyn Index,
}

impl<'a> Matrices<'a> {
    pub(crate) fn of(path: &'a Path, file: Tensors<'a>) -> Result<Self> {
        let indexes = ROOMS.iter().filter_map(|room| room.index(&file).transpose());
        let indexes = indexes
            .collect::<Result<_, _>>()
            .map_err(|fault| FileError::PackedFile {
                path: path.to_owned(),
                fault,
            })?;
        Ok(Matrices { path, file, indexes })
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    pub(crate) fn header(&self) -> &Header {
        self.file.header()
    }

    pub(crate) fn data(&self) -> &'a [u8] {
        self.file.data()
    }

    /// Whether packing has made the file, even if it found nothing to pack.
    pub(crate) fn is_packed(&self) -> bool {
        self.indexes.iter().any(|index| index.is_packed())
    }

    /// The matrices, sorted by their names inside a format.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.indexes.iter().flat_map(|index| {
            let entry = |name| Entry { name, index: &**index };
            index.names().into_iter().map(entry)
        })
    }

    /// The shape of a matrix and the places of its tensors in the header.
    pub(crate) fn places(&self, entry: Entry<'_>) -> Result<(Shape, Vec<usize>)> {
        let found = entry.index.places(&self.file, entry.name);
        found.map_err(|fault| self.wrong(entry, fault))
    }

    /// A matrix as weights.
    pub(crate) fn weights(&self, entry: Entry<'_>) -> Result<Weights<'a>> {
        let found = entry.index.weights(&self.file, entry.name);
        found.map_err(|fault| self.wrong(entry, fault))
    }

    /// A matrix to read piece by piece.
    pub(crate) fn form(&self, entry: Entry<'_>) -> Result<Box<dyn Form + 'a>> {
        let found = entry.index.form(&self.file, entry.name);
        found.map_err(|fault| self.wrong(entry, fault))
    }

    fn wrong(&self, entry: Entry<'_>, fault: Fault) -> Error {
        FileError::PackedTensor {
            path: self.path.to_owned(),
            name: entry.name.to_owned(),
            fault: Box::new(fault),
        }
        .into()
    }

    /// Takes out of a header what packing has added to its metadata.
    pub(crate) fn strip(&self, header: &mut Header) {
        self.indexes.iter().for_each(|index| index.strip(&mut header.metadata));
    }
}

impl Entry<'_> {
    /// The name of its format.
    pub(crate) fn format(self) -> &'static str {
        self.index.format()
    }

    /// Whether packing has made it, so that unpacking gives back what was packed.
    pub(crate) fn is_packed(self) -> bool {
        self.index.is_packed()
    }

    /// The names of the matrix's tensors. The first stands where the matrix does.
    pub(crate) fn parts(self) -> Vec<String> {
        self.index.parts(self.name)
    }
}
