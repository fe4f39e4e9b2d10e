//! Looking into a checkpoint.

use super::index::Checkpoint;
use super::{Meter, Progress, matrix};
use crate::Result;
use crate::formats::source::Source;
use crate::formats::{Description, PackFormat};
use crate::io::checkpoint::Checkpoint as File;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// A tensor of a checkpoint; a packed matrix is one, not the four that it is stored as.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspected {
    /// Its file.
    pub file: PathBuf,
    /// Its name.
    pub name: String,
    /// The type of its elements, packed or not.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its bytes in the file.
    pub bytes: u64,
    /// What is to be said of its weights.
    pub stored: Stored,
}

/// How a tensor is stored.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Stored {
    /// It is in a format of its own.
    Packed(Description),
    /// It is a matrix that could be packed; if it is not BF16, after a cast.
    Matrix {
        /// What packing it would give.
        packed: Description,
        /// Why packing leaves it as it is unless it is made to.
        left: Option<String>,
    },
    /// It is nothing that could be packed.
    Other,
}

/// Looks into every tensor of a checkpoint, file by file and in the order of their data. `watch` is told how far it is.
pub fn inspect(input: &Path, watch: &mut dyn FnMut(Progress)) -> Result<Vec<Inspected>> {
    let checkpoint = Checkpoint::open(input)?;
    let mut meter = Meter::new(checkpoint.bytes(), watch);
    let mut all = Vec::new();
    for file in &checkpoint.files {
        inspect_file(file, &mut all, &mut meter)?;
    }
    Ok(all)
}

fn inspect_file(file: &File, all: &mut Vec<Inspected>, meter: &mut Meter<'_>) -> Result<()> {
    meter.add(file.ahead());
    let path = file.path();
    let file = file.matrices()?;
    let (mut matrices, mut gone) = (HashMap::new(), HashSet::new());
    for entry in file.entries() {
        let mut parts = entry.parts().into_iter();
        matrices.extend(parts.next().map(|first| (first, entry)));
        gone.extend(parts);
    }
    for at in file.header().data_order() {
        let tensor = &file.header().tensors[at];
        if gone.contains(&tensor.name) {
            continue;
        }
        let mut inspected = Inspected {
            file: path.to_owned(),
            name: tensor.name.clone(),
            dtype: tensor.dtype.clone(),
            shape: tensor.shape.clone(),
            bytes: tensor.range.len() as u64,
            stored: Stored::Other,
        };
        if let Some(&entry) = matrices.get(&tensor.name) {
            let form = file.form(entry)?;
            let told = form.describe();
            inspected.name = entry.name.to_owned();
            inspected.dtype = told.dtype.to_owned();
            inspected.shape = vec![form.shape().n(), form.shape().k()];
            inspected.bytes = told.bytes;
            inspected.stored = Stored::Packed(told);
        } else if let (Some((dtype, shape)), Some(packer)) = (matrix(tensor), PackFormat::default().packer()) {
            let source = Source::new(dtype, &file.data()[tensor.range.clone()]);
            let packing = packer.packing(source, shape)?;
            inspected.stored = Stored::Matrix {
                packed: packing.describe(),
                left: packing.leave(),
            };
        }
        meter.add(inspected.bytes as usize);
        all.push(inspected);
    }
    Ok(())
}
