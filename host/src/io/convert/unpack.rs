//! Unpacking a checkpoint.

use super::index::Checkpoint;
use super::{Converted, Layout, Meter, Output, Progress, Report};
use super::{convert, data_bytes, relist, renamed};
use crate::formats::room::{Form, PIECE};
use crate::io::checkpoint::Checkpoint as File;
use crate::io::container::Tensor;
use crate::io::matrices::Entry;
use crate::io::output::PartFile;
use crate::{Dtype, Result, Shape};
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

/// Unpacks a checkpoint: see [`crate::io::convert`]. `watch` is told how far it is.
pub fn unpack(input: &Path, output: &Path, watch: &mut dyn FnMut(Progress)) -> Result<Report<UnpackedTensor>> {
    convert(Checkpoint::open(input)?, output, watch, unpack_file)
}

/// What becomes of a tensor of the input.
enum Role<'m> {
    /// It is copied.
    Same,
    /// It is the first part of a packed matrix, which takes its place.
    Matrix(Entry<'m>, Shape),
    /// It is another part of one.
    Gone,
}

fn unpack_file(from: &File, to: &Path, meter: &mut Meter<'_>) -> Result<Converted<UnpackedTensor>> {
    let input = from.matrices()?;
    let (header, data) = (input.header(), input.data());
    let mut roles: Vec<Role<'_>> = header.tensors.iter().map(|_| Role::Same).collect();
    for entry in input.entries().filter(|entry| entry.is_packed()) {
        let (shape, places) = input.places(entry)?;
        let mut places = places.into_iter();
        places
            .by_ref()
            .take(1)
            .for_each(|first| roles[first] = Role::Matrix(entry, shape));
        places.for_each(|place| roles[place] = Role::Gone);
    }

    let order = header.data_order();
    let mut layout = Layout::default();
    let mut places: Vec<Vec<Tensor>> = vec![Vec::new(); roles.len()];
    for &at in &order {
        places[at].extend(match &roles[at] {
            Role::Same => Some(layout.same(&header.tensors[at])),
            Role::Matrix(entry, shape) => Some(layout.bf16(entry.name, *shape)),
            Role::Gone => None,
        });
    }
    let renamed = renamed(header, &places);
    let mut new = relist(header, places.clone());
    input.strip(&mut new);
    let mut output = Output::new(PartFile::create(to)?, &new)?;
    meter.add(from.ahead());
    let mut tensors = Vec::new();
    for at in order {
        let [place] = &*places[at] else { continue };
        match &roles[at] {
            &Role::Matrix(entry, _) => {
                let form = input.form(entry)?;
                write_rows(&mut output, place, &*form)?;
                meter.add(form.bytes());
            }
            _ => output.copy(place, &data[header.tensors[at].range.clone()], meter)?,
        }
        tensors.push(UnpackedTensor {
            file: from.path().to_owned(),
            name: place.name.clone(),
            was_packed: matches!(roles[at], Role::Matrix(..)),
        });
    }
    let (file, bytes) = output.finish()?;
    Ok(Converted {
        data: (data_bytes(header), data_bytes(&new)),
        file,
        tensors,
        renamed,
        bytes,
    })
}

/// Writes a matrix, some rows at a time, or some columns where even the rows of a unit are too much.
fn write_rows(output: &mut Output, place: &Tensor, form: &dyn Form) -> Result<()> {
    let (n, k) = (form.shape().n(), form.shape().k());
    let [unit_rows, unit_columns] = form.unit();
    let (row_blocks, groups) = (n.div_ceil(unit_rows), k.div_ceil(unit_columns));
    let blocks_at_once = (PIECE / (unit_rows * k)).max(1);
    let groups_at_once = (PIECE / (unit_rows * unit_columns)).clamp(1, groups);
    for first_block in (0..row_blocks).step_by(blocks_at_once) {
        let first_row = first_block * unit_rows;
        let rows = (blocks_at_once * unit_rows).min(n - first_row);
        for first_group in (0..groups).step_by(groups_at_once) {
            let some = first_group..groups.min(first_group + groups_at_once);
            let first_column = some.start * unit_columns;
            let width = k.min(some.end * unit_columns) - first_column;
            let mut buffer = vec![0u16; rows * width];
            buffer
                .par_chunks_mut(unit_rows * width)
                .enumerate()
                .for_each(|(block, rows)| form.decode(first_block + block, some.clone(), rows));
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
