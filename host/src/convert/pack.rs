//! Packing a checkpoint.

use super::index::Checkpoint;
use super::{ConvertError, Converted, Layout, Meter, Output, PIECE, Progress, Report};
use super::{convert, data_bytes, matrix, read, relist, renamed};
use crate::checkpoint::Cast;
use crate::container::{self, Header, Tensor};
use crate::weights::window12::{Encoder, Estimate, Histogram, Leave, Loss, METADATA_KEY, Part, Record, Source};
use crate::{Dtype, Result, Shape};
use kernels_gpu::layout::{UNIT_WEIGHTS, WINDOW12_UNIT_BYTES};
use rayon::prelude::*;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Units that are packed at a time.
const UNITS: usize = PIECE / UNIT_WEIGHTS;

/// Which matrices to pack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackFormat {
    /// Those that packing pays for: see [`Estimate::pays`].
    #[default]
    Auto,
    /// None: what is left is a cast.
    Bf16,
    /// All of them.
    Window12,
}

/// How to pack a checkpoint.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct PackOptions<'a> {
    /// Which matrices to pack.
    pub format: PackFormat,
    /// The names of those to touch at all; all where it is `None`.
    pub only: Option<&'a dyn Fn(&str) -> bool>,
    /// What to round F16 and F32 matrices to; they are left as they are where it is `None`.
    pub cast: Option<Cast>,
}

/// What has become of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedTensor {
    /// The input file.
    pub file: PathBuf,
    /// The tensor's name.
    pub name: String,
    /// Its element type in the input, as spelled there.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// What rounding it to BF16 has cost, where it was rounded.
    pub cast: Option<Loss>,
    /// Whether it was packed.
    pub outcome: Outcome,
}

/// Whether a tensor was packed, or why not.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It was packed.
    Packed(Estimate),
    /// Packing it would not have paid.
    Left(Leave),
    /// The format asked for was BF16.
    Bf16,
    /// It needs a cast that was not asked for.
    NeedsCast,
    /// Its name was not among those asked for.
    NotChosen,
    /// It is no matrix of a type that can become BF16.
    NoMatrix,
}

/// Packs a checkpoint: see [`crate::convert`]. `watch` is told how far it is.
pub fn pack(
    input: &Path,
    output: &Path,
    options: &PackOptions<'_>,
    watch: &mut dyn FnMut(Progress),
) -> Result<Report<PackedTensor>> {
    if let Some(only) = options.only {
        let has_any = |file: &PathBuf| {
            let map = container::map(file)?;
            Ok(read(file, &map)?
                .header()
                .tensors
                .iter()
                .any(|tensor| only(&tensor.name)))
        };
        let found: Vec<bool> = Checkpoint::open(input)?
            .files
            .iter()
            .map(has_any)
            .collect::<Result<_>>()?;
        if !found.contains(&true) {
            return Err(ConvertError::NoneChosen { path: input.to_owned() }.into());
        }
    }
    convert(input, output, watch, |from, to, meter| {
        pack_file(from, to, options, meter)
    })
}

/// What is to be done with a tensor.
enum Plan {
    Copy(Outcome),
    Convert(Dtype, Shape),
}

impl Plan {
    fn of(tensor: &Tensor, options: &PackOptions<'_>) -> Self {
        match matrix(tensor) {
            None => Plan::Copy(Outcome::NoMatrix),
            Some(_) if options.only.is_some_and(|only| !only(&tensor.name)) => Plan::Copy(Outcome::NotChosen),
            Some((Dtype::Bf16, _)) if options.format == PackFormat::Bf16 => Plan::Copy(Outcome::Bf16),
            Some((Dtype::Bf16, shape)) => Plan::Convert(Dtype::Bf16, shape),
            Some(_) if options.cast.is_none() => Plan::Copy(Outcome::NeedsCast),
            Some((dtype, shape)) => Plan::Convert(dtype, shape),
        }
    }
}

fn pack_file(
    from: &Path,
    to: &Path,
    options: &PackOptions<'_>,
    meter: &mut Meter<'_>,
) -> Result<Converted<PackedTensor>> {
    let map = container::map(from)?;
    let input = read(from, &map)?;
    if input.record().is_some() {
        return Err(ConvertError::AlreadyPacked { path: from.to_owned() }.into());
    }
    let (header, data) = (input.header(), input.data());
    let plans: Vec<Plan> = header.tensors.iter().map(|tensor| Plan::of(tensor, options)).collect();
    let packable = || {
        header
            .tensors
            .iter()
            .zip(&plans)
            .filter(|(_, plan)| matches!(plan, Plan::Convert(..)))
    };
    let names: HashSet<&str> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    for (tensor, _) in packable() {
        if let Some(taken) = Part::ALL
            .map(|part| part.name(&tensor.name))
            .into_iter()
            .find(|name| names.contains(&**name))
        {
            return Err(ConvertError::NameTaken {
                path: from.to_owned(),
                name: tensor.name.clone(),
                taken,
            }
            .into());
        }
    }
    let mut output = Output::create(to, longest_header(header, &plans).to_bytes(0).len())?;
    meter.add(map.len() - data.len());
    let mut layout = Layout::default();
    let mut tensors = Vec::new();
    let mut places: Vec<Vec<Tensor>> = vec![Vec::new(); plans.len()];
    let mut record = Record::new(header.metadata.is_none());
    for at in header.data_order() {
        let tensor = &header.tensors[at];
        let bytes = &data[tensor.range.clone()];
        let (outcome, cast) = match &plans[at] {
            Plan::Copy(outcome) => {
                let place = layout.same(tensor);
                output.copy(&place, bytes, meter)?;
                places[at].push(place);
                (outcome.clone(), None)
            }
            &Plan::Convert(dtype, shape) => {
                let source = Source::new(dtype, bytes);
                let outcome = decide(&source, shape, options.format)?;
                if let Outcome::Packed(estimate) = &outcome {
                    record.insert(&tensor.name, shape);
                    let parts = place_parts(&mut layout, &tensor.name, shape, estimate.exceptions());
                    write_parts(&mut output, &parts, source, shape, estimate, meter)?;
                    places[at].extend(parts);
                } else {
                    let place = layout.bf16(&tensor.name, shape);
                    write_bf16(&mut output, &place, source, meter)?;
                    places[at].push(place);
                }
                (outcome, (dtype != Dtype::Bf16).then(|| source.loss()))
            }
        };
        tensors.push(PackedTensor {
            file: from.to_owned(),
            name: tensor.name.clone(),
            dtype: tensor.dtype.clone(),
            shape: tensor.shape.clone(),
            cast,
            outcome,
        });
    }
    let renamed = renamed(header, &places);
    let new = with_record(relist(header, places), &record);
    let bytes = output.finish(&new)?;
    Ok(Converted {
        data: (data_bytes(header), data_bytes(&new)),
        file: output.file,
        tensors,
        renamed,
        bytes,
    })
}

/// A header with the record, if it records anything.
fn with_record(mut header: Header, record: &Record) -> Header {
    if !record.is_empty() {
        let (_, pairs) = header.metadata.get_or_insert_default();
        pairs.push((METADATA_KEY.to_owned(), record.to_json()));
    }
    header
}

/// The header of an output in which everything is packed and every number is as long as can be.
fn longest_header(header: &Header, plans: &[Plan]) -> Header {
    let mut record = Record::new(header.metadata.is_none());
    let far = usize::MAX..usize::MAX;
    let tensors = header.tensors.iter().zip(plans).map(|(tensor, plan)| match plan {
        Plan::Copy(_) => vec![Tensor {
            range: far.clone(),
            ..tensor.clone()
        }],
        &Plan::Convert(_, shape) => {
            record.insert(&tensor.name, shape);
            let part = |part: Part| Tensor {
                name: part.name(&tensor.name),
                dtype: part.dtype().0.to_owned(),
                shape: part.shape(shape, usize::MAX),
                range: far.clone(),
            };
            Part::ALL.map(part).to_vec()
        }
    });
    let tensors = tensors.collect();
    with_record(relist(header, tensors), &record)
}

fn decide(source: &Source<'_>, shape: Shape, format: PackFormat) -> Result<Outcome> {
    if format == PackFormat::Bf16 {
        return Ok(Outcome::Bf16);
    }
    let estimate = Histogram::count(source).estimate(shape)?;
    Ok(match estimate.pays() {
        Err(leave) if format == PackFormat::Auto => Outcome::Left(leave),
        _ => Outcome::Packed(estimate),
    })
}

/// Writes a matrix as BF16.
fn write_bf16(output: &mut Output, place: &Tensor, source: Source<'_>, meter: &mut Meter<'_>) -> Result<()> {
    /// Values that a thread rounds at a time.
    const CHUNK: usize = 1 << 16;
    let values = source.len();
    let mut buffer = vec![0u16; PIECE.min(values)];
    for first in (0..values).step_by(PIECE) {
        let piece = &mut buffer[..PIECE.min(values - first)];
        let chunks = piece.par_chunks_mut(CHUNK).enumerate();
        chunks.for_each(|(chunk, values)| source.read(first + chunk * CHUNK, values));
        output.write(place, first * Dtype::Bf16.bytes(), bytemuck::cast_slice(piece))?;
        meter.add(piece.len() * source.dtype().bytes());
    }
    Ok(())
}

fn place_parts(layout: &mut Layout, name: &str, shape: Shape, exceptions: u64) -> [Tensor; 4] {
    Part::ALL.map(|part| {
        let (dtype, size) = part.dtype();
        let dimensions = part.shape(shape, exceptions as usize);
        let bytes = dimensions.iter().product::<usize>() * size;
        layout.place(part.name(name), dtype, dimensions, bytes)
    })
}

/// Writes the four parts of a matrix.
fn write_parts(
    output: &mut Output,
    [units_at, palette_at, starts_at, exceptions_at]: &[Tensor; 4],
    source: Source<'_>,
    shape: Shape,
    estimate: &Estimate,
    meter: &mut Meter<'_>,
) -> Result<()> {
    let encoder = Encoder::new(source, shape, estimate.palette());
    let mut buffer = vec![0; UNITS.min(encoder.units()) * WINDOW12_UNIT_BYTES];
    let (mut starts, mut exceptions, mut metered) = (Vec::new(), 0u64, 0);
    for first in (0..encoder.units()).step_by(UNITS) {
        let last = encoder.units().min(first + UNITS);
        let units = &mut buffer[..(last - first) * WINDOW12_UNIT_BYTES];
        let encoded = encoder.encode(first, units);
        output.write(units_at, first * WINDOW12_UNIT_BYTES, units)?;
        output.write(
            exceptions_at,
            exceptions as usize * 8,
            bytemuck::cast_slice(&encoded.exceptions),
        )?;
        starts.extend(encoded.starts.iter().map(|start| exceptions + start));
        exceptions += encoded.exceptions.len() as u64;
        let done = (source.bytes() as u128 * last as u128 / encoder.units() as u128) as usize;
        meter.add(done - metered);
        metered = done;
    }
    if exceptions != estimate.exceptions() {
        let name = units_at.name.clone();
        return Err(ConvertError::Changed { name }.into());
    }
    starts.push(exceptions);
    output.write(palette_at, 0, &estimate.palette())?;
    output.write(starts_at, 0, bytemuck::cast_slice(&starts))?;
    Ok(())
}
