//! Packing a checkpoint.

use super::index::Checkpoint;
use super::{ConvertError, Converted, Layout, Meter, Output, Progress, Report};
use super::{convert, data_bytes, matrix, relist, renamed};
use crate::formats::cast::Cast;
use crate::formats::room::{PIECE, Packer, Packing, Sink};
use crate::formats::source::Source;
use crate::formats::{Description, Loss, PackFormat};
use crate::io::container::{self, Header, Tensor};
use crate::io::matrices::Matrices;
use crate::{Dtype, Result, Shape};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// How to pack a checkpoint.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct PackOptions<'a> {
    /// Which matrices to pack: those that it pays for, none (what is left is a cast), or all.
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
    /// It was packed, which gave this.
    Packed(Description),
    /// Packing it would not have paid, for this reason.
    Left(String),
    /// The format asked for was BF16.
    Bf16,
    /// It needs a cast that was not asked for.
    NeedsCast,
    /// Its name was not among those asked for.
    NotChosen,
    /// It belongs to a matrix that came in a format of this name.
    Stored(&'static str),
    /// It is no matrix of a type that can become BF16.
    NoMatrix,
}

/// Packs a checkpoint: see [`crate::io::convert`]. `watch` is told how far it is.
pub fn pack(
    input: &Path,
    output: &Path,
    options: &PackOptions<'_>,
    watch: &mut dyn FnMut(Progress),
) -> Result<Report<PackedTensor>> {
    if let Some(only) = options.only {
        let has_any = |file: &PathBuf| {
            let map = container::map(file)?;
            Ok(Matrices::read(file, &map)?
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
            Some((Dtype::Bf16, _)) if options.format.packer().is_none() => Plan::Copy(Outcome::Bf16),
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
    let input = Matrices::read(from, &map)?;
    if input.is_packed() {
        return Err(ConvertError::AlreadyPacked { path: from.to_owned() }.into());
    }
    let (header, data) = (input.header(), input.data());
    let packer = options.format.packer();
    let entries = input.entries();
    let parts = entries.flat_map(|entry| entry.parts().into_iter().map(move |part| (part, entry.format())));
    let stored: HashMap<String, &str> = parts.collect();
    let plan = |tensor: &Tensor| match stored.get(&tensor.name) {
        Some(format) => Plan::Copy(Outcome::Stored(format)),
        None => Plan::of(tensor, options),
    };
    let plans: Vec<Plan> = header.tensors.iter().map(plan).collect();
    check_names(from, header, &plans, packer)?;
    let mut output = Output::create(to, longest_header(header, &plans, packer).to_bytes(0).len())?;
    meter.add(map.len() - data.len());
    let mut layout = Layout::default();
    let mut tensors = Vec::new();
    let mut places: Vec<Vec<Tensor>> = vec![Vec::new(); plans.len()];
    let mut packed = Vec::new();
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
                let packing = packer.map(|packer| packer.packing(source, shape)).transpose()?;
                let outcome = decide(packing.as_deref(), options.format);
                if let (Outcome::Packed(_), Some(packing)) = (&outcome, packing) {
                    packed.push((&*tensor.name, shape));
                    let parts = packing.parts(&tensor.name).into_iter();
                    places[at].extend(parts.map(|part| layout.stored(part)));
                    write_parts(&mut output, &places[at], &*packing, meter)?;
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
    let new = with_metadata(relist(header, places), packer, &packed);
    let bytes = output.finish(&new)?;
    Ok(Converted {
        data: (data_bytes(header), data_bytes(&new)),
        file: output.file,
        tensors,
        renamed,
        bytes,
    })
}

/// Makes sure that no part of a matrix that may be packed gets the name of another tensor.
fn check_names(from: &Path, header: &Header, plans: &[Plan], packer: Option<&dyn Packer>) -> Result<()> {
    let Some(packer) = packer else { return Ok(()) };
    let names: HashSet<&str> = header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    for (tensor, plan) in header.tensors.iter().zip(plans) {
        let &Plan::Convert(_, shape) = plan else { continue };
        let mut parts = packer.longest_parts(&tensor.name, shape).into_iter();
        if let Some(part) = parts.find(|part| part.name != tensor.name && names.contains(&*part.name)) {
            return Err(ConvertError::NameTaken {
                path: from.to_owned(),
                name: tensor.name.clone(),
                taken: part.name,
            }
            .into());
        }
    }
    Ok(())
}

/// A header whose metadata tells of the packed matrices, if there are any.
fn with_metadata(mut header: Header, packer: Option<&dyn Packer>, packed: &[(&str, Shape)]) -> Header {
    if let Some(packer) = packer.filter(|_| !packed.is_empty()) {
        let added = packer.metadata(packed, header.metadata.is_none());
        let (_, pairs) = header.metadata.get_or_insert_default();
        pairs.push(added);
    }
    header
}

/// The header of an output in which everything is packed or not, whichever takes more of it, and every number is as
/// long as can be.
fn longest_header(header: &Header, plans: &[Plan], packer: Option<&dyn Packer>) -> Header {
    let far = |name: &str, dtype: &str, shape: &[usize]| Tensor {
        name: name.to_owned(),
        dtype: dtype.to_owned(),
        shape: shape.to_vec(),
        range: usize::MAX..usize::MAX,
    };
    let length = |tensors: &[Tensor]| tensors.iter().map(|tensor| tensor.to_json().len()).sum::<usize>();
    let mut packed = Vec::new();
    let tensors = header.tensors.iter().zip(plans).map(|(tensor, plan)| match plan {
        Plan::Copy(_) => vec![far(&tensor.name, &tensor.dtype, &tensor.shape)],
        &Plan::Convert(_, matrix) => {
            packed.push((&*tensor.name, matrix));
            let plain = vec![far(&tensor.name, Dtype::Bf16.name(), &tensor.shape)];
            let parts = packer.map_or(Vec::new(), |packer| packer.longest_parts(&tensor.name, matrix));
            let parts: Vec<Tensor> = parts
                .iter()
                .map(|part| far(&part.name, part.dtype, &part.shape))
                .collect();
            if length(&parts) > length(&plain) { parts } else { plain }
        }
    });
    let tensors = tensors.collect();
    with_metadata(relist(header, tensors), packer, &packed)
}

fn decide(packing: Option<&dyn Packing>, format: PackFormat) -> Outcome {
    match packing.map(|packing| (packing, packing.leave())) {
        None => Outcome::Bf16,
        Some((_, Some(reason))) if format == PackFormat::Auto => Outcome::Left(reason),
        Some((packing, _)) => Outcome::Packed(packing.describe()),
    }
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

/// The tensors of a matrix in the output.
struct Parts<'o, 'm> {
    output: &'o mut Output,
    tensors: &'o [Tensor],
    meter: &'o mut Meter<'m>,
}

impl Sink for Parts<'_, '_> {
    fn write(&mut self, part: usize, at: usize, bytes: &[u8]) -> Result<()> {
        self.output.write(&self.tensors[part], at, bytes)
    }

    fn progress(&mut self, bytes: usize) {
        self.meter.add(bytes);
    }
}

/// Writes the tensors that a matrix becomes.
fn write_parts(output: &mut Output, tensors: &[Tensor], packing: &dyn Packing, meter: &mut Meter<'_>) -> Result<()> {
    if packing.write(&mut Parts { output, tensors, meter })? {
        return Ok(());
    }
    let name = tensors.first().map_or(String::new(), |tensor| tensor.name.clone());
    Err(ConvertError::Changed { name }.into())
}
