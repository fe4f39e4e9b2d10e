//! Packed matrices in safetensors files: four tensors each, and a record of them in the file's metadata.

use super::{Exception, Fault, Packed};
use crate::Shape;
use crate::io::container::{Header, Tensors};
use bytemuck::AnyBitPattern;
use kernels_gpu::formats::window12::{PALETTE, WINDOW12_UNIT_BYTES};
use kernels_gpu::layout::units;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The key of the record in a file's metadata.
pub(crate) const METADATA_KEY: &str = "hopper_proj.window12";
/// The version of the format that is written, and the only one that is read.
const VERSION: u64 = 1;

/// The record of a file's packed matrices, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    version: u64,
    /// The shapes of the matrices, `[N, K]`, by name.
    tensors: BTreeMap<String, [u64; 2]>,
    /// Whether the original had no metadata at all, which is not the same as empty metadata.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    added_metadata: bool,
}

impl Record {
    pub(crate) fn new(added_metadata: bool) -> Self {
        Record {
            version: VERSION,
            tensors: BTreeMap::new(),
            added_metadata,
        }
    }

    pub(crate) fn insert(&mut self, name: &str, shape: Shape) {
        self.tensors
            .insert(name.to_owned(), [shape.n() as u64, shape.k() as u64]);
    }

    /// Takes the record out of the metadata that it was added to.
    pub(crate) fn strip(&self, metadata: &mut Option<(usize, Vec<(String, String)>)>) {
        if self.added_metadata {
            *metadata = None;
        } else if let Some((_, pairs)) = metadata {
            pairs.retain(|(key, _)| key != METADATA_KEY);
        }
    }

    /// The names of the matrices, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(crate) fn to_json(&self) -> String {
        // Numbers, strings and lists: nothing here that JSON could not hold.
        serde_json::json!(self).to_string()
    }

    /// The record of a file, if it has one. None of the matrices that it names may be there unpacked too.
    pub(crate) fn read(file: &Tensors<'_>) -> Result<Option<Self>, FileFault> {
        let record = Self::of(file.header())?;
        let twice = record
            .iter()
            .flat_map(Record::names)
            .find(|name| file.place(name).is_some());
        match twice.map(str::to_owned) {
            Some(name) => Err(FileFault::Twice { name }),
            None => Ok(record),
        }
    }

    fn of(header: &Header) -> Result<Option<Self>, FileFault> {
        #[derive(Deserialize)]
        struct Version {
            version: u64,
        }
        let Some((_, metadata)) = &header.metadata else {
            return Ok(None);
        };
        let mut records = metadata.iter().filter(|(key, _)| key == METADATA_KEY);
        let Some((_, json)) = records.next() else {
            return Ok(None);
        };
        let wrong = |err: serde_json::Error| FileFault::Record {
            reason: err.to_string(),
        };
        if records.next().is_some() {
            return Err(FileFault::Record {
                reason: "there are two of them".to_owned(),
            });
        }
        // A later version may have other fields.
        match serde_json::from_str(json).map_err(wrong)? {
            Version { version: VERSION } => serde_json::from_str(json).map(Some).map_err(wrong),
            Version { version } => Err(FileFault::Version { given: version }),
        }
    }
}

/// One of the four tensors that a packed matrix is stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Units,
    Palette,
    Starts,
    Exceptions,
}

impl Part {
    /// All of them, in the order in which they are written.
    pub(crate) const ALL: [Part; 4] = [Part::Units, Part::Palette, Part::Starts, Part::Exceptions];

    /// The name of this part of a tensor.
    pub(crate) fn name(self, tensor: &str) -> String {
        let suffix = match self {
            Part::Units => "",
            Part::Palette => ".palette",
            Part::Starts => ".starts",
            Part::Exceptions => ".exceptions",
        };
        format!("{tensor}.window12{suffix}")
    }

    /// Its element type and the bytes of an element.
    pub(crate) fn dtype(self) -> (&'static str, usize) {
        match self {
            Part::Units | Part::Palette => ("U8", 1),
            Part::Starts => ("U64", 8),
            Part::Exceptions => ("U32", 4),
        }
    }

    /// Its shape, for weights of a shape with so many exceptions.
    pub(crate) fn shape(self, shape: Shape, exceptions: usize) -> Vec<usize> {
        let (row_blocks, groups) = units(shape.n(), shape.k());
        match self {
            Part::Units => vec![row_blocks, groups, WINDOW12_UNIT_BYTES],
            Part::Palette => vec![PALETTE],
            Part::Starts => vec![row_blocks + 1],
            Part::Exceptions => vec![exceptions, 2],
        }
    }
}

/// What is wrong with a file of packed matrices as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// It is no safetensors file.
    #[error("not a readable safetensors file: {reason}")]
    Container {
        /// Why.
        reason: String,
    },
    /// The record in its metadata is wrong.
    #[error("its metadata `{METADATA_KEY}` is wrong: {reason}")]
    Record {
        /// Why.
        reason: String,
    },
    /// The record is of another version.
    #[error(
        "its metadata `{METADATA_KEY}` has version {given}; this build reads version {VERSION}: use the program that wrote it, or a newer build"
    )]
    Version {
        /// The version found.
        given: u64,
    },
    /// A matrix is there twice, packed and not.
    #[error("it holds tensor `{name}` both packed and unpacked: remove one of the two")]
    Twice {
        /// Its name.
        name: String,
    },
}

/// The packed matrices of a safetensors file, over the file's bytes, which may hold anything.
#[derive(Debug, Clone)]
pub struct PackedTensors<'a> {
    file: Tensors<'a>,
    record: Option<Record>,
}

impl<'a> PackedTensors<'a> {
    /// Reads the header and the record. A file that has no record has no packed matrices.
    pub fn read(file: &'a [u8]) -> Result<Self, FileFault> {
        let file = Tensors::read(file).map_err(|reason| FileFault::Container { reason })?;
        let record = Record::read(&file)?;
        Ok(PackedTensors { file, record })
    }

    /// The names of the packed matrices, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.record.iter().flat_map(Record::names)
    }

    /// The packed matrix of that name, checked through and through.
    pub fn get(&self, name: &str) -> Result<Packed<'a>, Fault> {
        match &self.record {
            Some(record) => record.packed(&self.file, name),
            None => Err(Fault::NotPacked { name: name.to_owned() }),
        }
    }
}

impl Record {
    /// A matrix of the file, checked through and through.
    pub(crate) fn packed<'a>(&self, file: &Tensors<'a>, name: &str) -> Result<Packed<'a>, Fault> {
        let (shape, places) = self.places(file, name)?;
        let [units, palette, starts, exceptions] = places.map(|place| file.bytes(place));
        let mut entries = [0; PALETTE];
        entries.copy_from_slice(palette);
        Packed::new(shape, entries, units, values(starts), values::<Exception>(exceptions))
    }

    /// The shape of a packed matrix, and where its parts are in the header, which are of the type and the shape that
    /// they must have.
    pub(crate) fn places(&self, file: &Tensors<'_>, name: &str) -> Result<(Shape, [usize; 4]), Fault> {
        let recorded = self.tensors.get(name);
        let &[n, k] = recorded.ok_or_else(|| Fault::NotPacked { name: name.to_owned() })?;
        let shape = match (usize::try_from(n), usize::try_from(k)) {
            (Ok(n), Ok(k)) => Shape::new(n, k).ok(),
            _ => None,
        };
        let shape = shape.ok_or(Fault::Shape { n, k })?;
        let mut places = [0; 4];
        for (place, part) in places.iter_mut().zip(Part::ALL) {
            *place = part.place(file, name, shape)?;
        }
        Ok((shape, places))
    }
}

impl Part {
    fn place(self, file: &Tensors<'_>, matrix: &str, shape: Shape) -> Result<usize, Fault> {
        let name = self.name(matrix);
        let Some(place) = file.place(&name) else {
            return Err(Fault::MissingPart { part: name });
        };
        let tensor = &file.header().tensors[place];
        let (dtype, _) = self.dtype();
        if tensor.dtype != dtype {
            return Err(Fault::PartType {
                part: name,
                given: tensor.dtype.clone(),
                needed: dtype,
            });
        }
        // The one part whose length the shape does not tell.
        let exceptions = match (self, tensor.shape.first()) {
            (Part::Exceptions, Some(&exceptions)) => exceptions,
            _ => 0,
        };
        let needed = self.shape(shape, exceptions);
        if tensor.shape != needed {
            return Err(Fault::PartShape {
                part: name,
                given: tensor.shape.clone(),
                needed: match self {
                    Part::Exceptions => "[count, 2]".to_owned(),
                    _ => format!("{needed:?}"),
                },
            });
        }
        Ok(place)
    }
}

/// Values as they lie in a file, copied only where they are not aligned. Files are little-endian, as every target of
/// CUDA is.
fn values<T: AnyBitPattern>(bytes: &[u8]) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(bytes) {
        Ok(values) => Cow::Borrowed(values),
        Err(_) => bytes
            .chunks_exact(size_of::<T>())
            .map(bytemuck::pod_read_unaligned)
            .collect::<Vec<_>>()
            .into(),
    }
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
