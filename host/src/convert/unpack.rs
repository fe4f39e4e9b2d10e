//! Unpacking a checkpoint.

use super::{Converted, Layout, Meter, Output, PIECE, Progress, Report};
use super::{convert, data_bytes, read, relist, renamed};
use crate::container::{self, Header, Tensor};
use crate::weights::window12::{METADATA_KEY, Packed, PackedTensors, decode_rows};
use crate::{Dtype, Error, Result, Shape};
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, units};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

/// What has become of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedTensor {
    /// The input file.
    pub file: PathBuf,
    /// The tensor's name.
    pub name: String,
    /// Whether it was packed.
    pub was_packed: bool,
}

/// Unpacks a checkpoint: see [`crate::convert`]. `watch` is told how far it is.
pub fn unpack(input: &Path, output: &Path, watch: &mut dyn FnMut(Progress)) -> Result<Report<UnpackedTensor>> {
    convert(input, output, watch, unpack_file)
}

/// What becomes of a tensor of the input.
enum Role {
    /// It is copied.
    Same,
    /// It is the first part of a packed matrix, which takes its place.
    Matrix(String, Shape),
    /// It is another part of one.
    Gone,
}

fn unpack_file(from: &Path, to: &Path, meter: &mut Meter<'_>) -> Result<Converted<UnpackedTensor>> {
    let map = container::map(from)?;
    let input = read(from, &map)?;
    let (header, data) = (input.header(), input.data());
    let wrong = |name: &str| {
        let (path, name) = (from.to_owned(), name.to_owned());
        |fault| Error::PackedTensor {
            path,
            name,
            fault: Box::new(fault),
        }
    };
    let mut roles: Vec<Role> = header.tensors.iter().map(|_| Role::Same).collect();
    for name in input.names() {
        let (shape, places) = input.places(name).map_err(wrong(name))?;
        let [first, rest @ ..] = places;
        roles[first] = Role::Matrix(name.to_owned(), shape);
        rest.into_iter().for_each(|place| roles[place] = Role::Gone);
    }

    let order = header.data_order();
    let mut layout = Layout::default();
    let mut places: Vec<Vec<Tensor>> = vec![Vec::new(); roles.len()];
    for &at in &order {
        places[at].extend(match &roles[at] {
            Role::Same => Some(layout.same(&header.tensors[at])),
            Role::Matrix(name, shape) => Some(layout.bf16(name, *shape)),
            Role::Gone => None,
        });
    }
    let renamed = renamed(header, &places);
    let new = without_record(relist(header, places.clone()), &input);
    let mut output = Output::create(to, new.to_bytes(0).len())?;
    meter.add(map.len() - data.len());
    let mut tensors = Vec::new();
    for at in order {
        let [place] = &*places[at] else { continue };
        match &roles[at] {
            Role::Matrix(name, _) => {
                let packed = input.get(name).map_err(wrong(name))?;
                write_rows(&mut output, place, &packed)?;
                meter.add(packed.bytes());
            }
            _ => output.copy(place, &data[header.tensors[at].range.clone()], meter)?,
        }
        tensors.push(UnpackedTensor {
            file: from.to_owned(),
            name: place.name.clone(),
            was_packed: matches!(roles[at], Role::Matrix(..)),
        });
    }
    let bytes = output.finish(&new)?;
    Ok(Converted {
        data: (data_bytes(header), data_bytes(&new)),
        file: output.file,
        tensors,
        renamed,
        bytes,
    })
}

/// A header as it was before the record was added.
fn without_record(mut header: Header, input: &PackedTensors<'_>) -> Header {
    if let Some((_, pairs)) = &mut header.metadata {
        pairs.retain(|(key, _)| key != METADATA_KEY);
    }
    if input.record().is_some_and(|record| record.added_metadata) {
        header.metadata = None;
    }
    header
}

/// Writes a matrix, some rows at a time, or some columns where even 16 rows are too much.
fn write_rows(output: &mut Output, place: &Tensor, packed: &Packed<'_>) -> Result<()> {
    let (n, k) = (packed.shape().n(), packed.shape().k());
    let (row_blocks, groups) = units(n, k);
    let blocks_at_once = (PIECE / (UNIT_ROWS * k)).max(1);
    let groups_at_once = (PIECE / (UNIT_ROWS * UNIT_K)).min(groups);
    for first_block in (0..row_blocks).step_by(blocks_at_once) {
        let first_row = first_block * UNIT_ROWS;
        let rows = (blocks_at_once * UNIT_ROWS).min(n - first_row);
        for first_group in (0..groups).step_by(groups_at_once) {
            let some = first_group..groups.min(first_group + groups_at_once);
            let first_column = some.start * UNIT_K;
            let width = k.min(some.end * UNIT_K) - first_column;
            let mut buffer = vec![0u16; rows * width];
            buffer
                .par_chunks_mut(UNIT_ROWS * width)
                .enumerate()
                .for_each(|(block, rows)| decode_rows(packed, first_block + block, some.clone(), rows));
            // Whole rows follow each other in the file too.
            let run = if width == k { rows * k } else { width };
            for (i, values) in buffer.chunks_exact(run).enumerate() {
                let at = (first_row + i) * k + first_column;
                output.write(place, at * Dtype::Bf16.bytes(), bytemuck::cast_slice(values))?;
            }
        }
    }
    Ok(())
}
