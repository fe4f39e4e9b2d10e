//! Looking into a checkpoint.

use super::index::Checkpoint;
use super::{Meter, Progress, matrix, read};
use crate::weights::window12::{Estimate, Histogram, Part, Source};
use crate::{Dtype, Error, Result, container};
use kernels_gpu::layout::PALETTE;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A tensor of a checkpoint; a packed matrix is one, not the four that it is stored as.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspected {
    /// Its file.
    pub file: PathBuf,
    /// Its name.
    pub name: String,
    /// The type of its elements; BF16 for a packed matrix.
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
    /// It is packed.
    Packed {
        /// Its palette.
        palette: [u8; PALETTE],
        /// Its exceptions.
        exceptions: u64,
        /// Bits of all parts per weight.
        bits_per_weight: f64,
        /// Its exponents.
        histogram: Histogram,
    },
    /// It is a matrix that could be packed; if it is not BF16, after a cast.
    Matrix {
        /// What packing it would give.
        estimate: Estimate,
        /// Its exponents.
        histogram: Histogram,
    },
    /// It is nothing that could be packed.
    Other,
}

/// Looks into every tensor of a checkpoint, file by file and in the order of their data. `watch` is told how far it is.
pub fn inspect(input: &Path, watch: &mut dyn FnMut(Progress)) -> Result<Vec<Inspected>> {
    let checkpoint = Checkpoint::open(input)?;
    let mut meter = Meter::new(checkpoint.bytes()?, watch);
    let mut all = Vec::new();
    for file in &checkpoint.files {
        inspect_file(file, &mut all, &mut meter)?;
    }
    Ok(all)
}

fn inspect_file(path: &Path, all: &mut Vec<Inspected>, meter: &mut Meter<'_>) -> Result<()> {
    let map = container::map(path)?;
    let file = read(path, &map)?;
    meter.add(map.len() - file.data().len());
    let matrices: std::collections::HashMap<String, &str> =
        file.names().map(|name| (Part::Units.name(name), name)).collect();
    let parts = |name| Part::ALL.into_iter().skip(1).map(move |part: Part| part.name(name));
    let gone: HashSet<String> = file.names().flat_map(parts).collect();
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
        if let Some(&name) = matrices.get(&tensor.name) {
            let packed = file.get(name).map_err(|fault| Error::PackedTensor {
                path: path.to_owned(),
                name: name.to_owned(),
                fault: Box::new(fault),
            })?;
            inspected.name = name.to_owned();
            inspected.dtype = Dtype::Bf16.name().to_owned();
            inspected.shape = vec![packed.shape().n(), packed.shape().k()];
            inspected.bytes = packed.bytes() as u64;
            inspected.stored = Stored::Packed {
                palette: packed.palette(),
                exceptions: packed.exceptions().len() as u64,
                bits_per_weight: packed.bits_per_weight(),
                histogram: Histogram::of_packed(&packed),
            };
        } else if let Some((dtype, shape)) = matrix(tensor) {
            let histogram = Histogram::count(&Source::new(dtype, &file.data()[tensor.range.clone()]));
            inspected.stored = Stored::Matrix {
                estimate: histogram.estimate(shape)?,
                histogram,
            };
        }
        meter.add(inspected.bytes as usize);
        all.push(inspected);
    }
    Ok(())
}
