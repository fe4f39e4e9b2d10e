//! Packing a checkpoint.

use super::index::Checkpoint;
use super::{ConvertError, Converted, Layout, Meter, Output, Progress, Report};
use super::{convert, data_bytes, matrix, relist, renamed};
use crate::formats::cast::Cast;
use crate::formats::room::{PIECE, Packer, Packing, Sink};
use crate::formats::source::Source;
use crate::formats::{Description, Loss, PackFormat};
use crate::io::checkpoint::Checkpoint as File;
use crate::io::container::{Header, Tensor};
use crate::io::matrices::Matrices;
use crate::io::output::PartFile;
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
    let checkpoint = Checkpoint::open(input)?;
    if let Some(only) = options.only {
        let mut tensors = checkpoint.files.iter().flat_map(|file| &file.header().tensors);
        if !tensors.any(|tensor| only(&tensor.name)) {
            return Err(ConvertError::NoneChosen { path: input.to_owned() }.into());
        }
    }
    // What the headers tell is told before any file is made.
    for file in &checkpoint.files {
        let matrices = file.matrices()?;
        if matrices.is_packed() {
            let path = file.path().to_owned();
            return Err(ConvertError::AlreadyPacked { path }.into());
        }
        check_names(&matrices, options)?;
    }
    convert(checkpoint, output, watch, |from, to, meter| {
        pack_file(from, to, options, meter)
    })
}

/// What is to be done with a tensor, by what the header says of it.
enum Role {
    Copy(Outcome),
    Convert(Dtype, Shape),
}

impl Role {
    fn of(tensor: &Tensor, options: &PackOptions<'_>) -> Self {
        match matrix(tensor) {
            None => Role::Copy(Outcome::NoMatrix),
            Some(_) if options.only.is_some_and(|only| !only(&tensor.name)) => Role::Copy(Outcome::NotChosen),
            Some((Dtype::Bf16, _)) if options.format.packer().is_none() => Role::Copy(Outcome::Bf16),
            Some((Dtype::Bf16, shape)) => Role::Convert(Dtype::Bf16, shape),
            Some(_) if options.cast.is_none() => Role::Copy(Outcome::NeedsCast),
            Some((dtype, shape)) => Role::Convert(dtype, shape),
        }
    }
}

/// What becomes of a tensor, its values known.
enum Plan<'a> {
    Copy(Outcome),
    Bf16(Source<'a>, Shape, Outcome),
    Pack(Source<'a>, Shape, Box<dyn Packing + 'a>),
}

impl<'a> Plan<'a> {
    fn new(role: &Role, bytes: &'a [u8], options: &PackOptions<'_>) -> Result<Self> {
        let (dtype, shape) = match role {
            Role::Copy(outcome) => return Ok(Plan::Copy(outcome.clone())),
            &Role::Convert(dtype, shape) => (dtype, shape),
        };
        let source = Source::new(dtype, bytes);
        let Some(packer) = options.format.packer() else {
            return Ok(Plan::Bf16(source, shape, Outcome::Bf16));
        };
        let packing = packer.packing(source, shape)?;
        Ok(match packing.leave() {
            Some(reason) if options.format == PackFormat::Auto => Plan::Bf16(source, shape, Outcome::Left(reason)),
            _ => Plan::Pack(source, shape, packing),
        })
    }

    /// Bytes that were gone through to decide, and will be again.
    fn looked_at(&self) -> usize {
        match self {
            Plan::Copy(_) => 0,
            Plan::Bf16(source, ..) | Plan::Pack(source, ..) => source.bytes(),
        }
    }

    /// The tensors that it becomes.
    fn places(&self, tensor: &Tensor, layout: &mut Layout) -> Vec<Tensor> {
        match self {
            Plan::Copy(_) => vec![layout.same(tensor)],
            Plan::Bf16(_, shape, _) => vec![layout.bf16(&tensor.name, *shape)],
            Plan::Pack(_, _, packing) => {
                let parts = packing.parts(&tensor.name).into_iter();
                parts.map(|part| layout.stored(part)).collect()
            }
        }
    }

    fn write(&self, output: &mut Output, places: &[Tensor], bytes: &[u8], meter: &mut Meter<'_>) -> Result<()> {
        let mut each = places.iter();
        match self {
            Plan::Copy(_) => each.try_for_each(|place| output.copy(place, bytes, meter)),
            Plan::Bf16(source, ..) => each.try_for_each(|place| write_bf16(output, place, *source, meter)),
            Plan::Pack(_, _, packing) => write_parts(output, places, &**packing, meter),
        }
    }

    /// What has become of the tensor, and what rounding it has cost.
    fn outcome(self) -> (Outcome, Option<Loss>) {
        let (source, outcome) = match self {
            Plan::Copy(outcome) => return (outcome, None),
            Plan::Bf16(source, _, outcome) => (source, outcome),
            Plan::Pack(source, _, packing) => (source, Outcome::Packed(packing.describe())),
        };
        (outcome, (source.dtype() != Dtype::Bf16).then(|| source.loss()))
    }
}

/// The role of each tensor of a file.
fn roles(file: &Matrices<'_>, options: &PackOptions<'_>) -> Vec<Role> {
    let entries = file.entries();
    let parts = entries.flat_map(|entry| entry.parts().into_iter().map(move |part| (part, entry.format())));
    let stored: HashMap<String, &'static str> = parts.collect();
    let role = |tensor: &Tensor| match stored.get(&tensor.name) {
        Some(format) => Role::Copy(Outcome::Stored(format)),
        None => Role::of(tensor, options),
    };
    file.header().tensors.iter().map(role).collect()
}

fn pack_file(
    from: &File,
    to: &Path,
    options: &PackOptions<'_>,
    meter: &mut Meter<'_>,
) -> Result<Converted<PackedTensor>> {
    let input = from.matrices()?;
    let (header, data) = (input.header(), input.data());
    let packer = options.format.packer();
    let roles = roles(&input, options);
    // Whatever the values are, an output that cannot be written is found out first.
    let file = PartFile::create(to)?;
    let bytes_of = |tensor: &Tensor| &data[tensor.range.clone()];
    // The header stands ahead of all data, so everything is decided before anything is written.
    let mut layout = Layout::default();
    let (mut plans, mut packed) = (Vec::new(), Vec::new());
    let mut places: Vec<Vec<Tensor>> = vec![Vec::new(); header.tensors.len()];
    for at in header.data_order() {
        let tensor = &header.tensors[at];
        let plan = Plan::new(&roles[at], bytes_of(tensor), options)?;
        places[at] = plan.places(tensor, &mut layout);
        if let Plan::Pack(_, shape, _) = plan {
            packed.push((&*tensor.name, shape));
        }
        meter.add_one_of_two(plan.looked_at());
        plans.push((at, plan));
    }
    let new = with_metadata(relist(header, places.clone()), packer, &packed);
    let mut output = Output::new(file, &new)?;
    meter.add(from.ahead());
    let mut tensors = Vec::new();
    for (at, plan) in plans {
        let tensor = &header.tensors[at];
        plan.write(&mut output, &places[at], bytes_of(tensor), meter)?;
        let (outcome, cast) = plan.outcome();
        tensors.push(PackedTensor {
            file: from.path().to_owned(),
            name: tensor.name.clone(),
            dtype: tensor.dtype.clone(),
            shape: tensor.shape.clone(),
            cast,
            outcome,
        });
    }
    let (file, bytes) = output.finish()?;
    Ok(Converted {
        data: (data_bytes(header), data_bytes(&new)),
        file,
        tensors,
        renamed: renamed(header, &places),
        bytes,
    })
}

/// Makes sure that no part of a matrix that may be packed gets the name of another tensor.
fn check_names(file: &Matrices<'_>, options: &PackOptions<'_>) -> Result<()> {
    let Some(packer) = options.format.packer() else {
        return Ok(());
    };
    let tensors = &file.header().tensors;
    let names: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    for (tensor, role) in tensors.iter().zip(roles(file, options)) {
        let Role::Convert(..) = role else { continue };
        let mut parts = packer.part_names(&tensor.name).into_iter();
        if let Some(taken) = parts.find(|part| *part != tensor.name && names.contains(&**part)) {
            return Err(ConvertError::NameTaken {
                path: file.path().to_owned(),
                name: tensor.name.clone(),
                taken,
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
        meter.add_one_of_two(piece.len() * source.dtype().bytes());
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
        self.meter.add_one_of_two(bytes);
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
