//! The format among the formats: what its files hold, and how matrices come into them and out of them piece by piece.

use super::stored::{METADATA_KEY, Part, Record};
use super::{Encoder, Estimate, Histogram, Packed, decode_rows};
use crate::formats::room::{Description, Exponent, Form, Index, PIECE, Packer, Packing, Room, Sink, StoredTensor};
use crate::formats::source::Source;
use crate::formats::{Fault, FileFault, PackFormat, Weights};
use crate::io::container::Tensors;
use crate::{Dtype, Result, Shape};
use kernels_gpu::formats::window12::{PALETTE, WINDOW12_UNIT_BYTES};
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, UNIT_WEIGHTS};
use std::ops::Range;

/// Units that are packed at a time.
const UNITS: usize = PIECE / UNIT_WEIGHTS;

/// Files with BF16 weights at 12 bits each.
pub(crate) struct Window12;

impl Room for Window12 {
    fn index(&self, file: &Tensors<'_>) -> Result<Option<Box<dyn Index>>, FileFault> {
        let record = Record::read(file)?;
        Ok(record.map(|record| Box::new(record) as Box<dyn Index>))
    }
}

impl Packer for Window12 {
    fn packing<'a>(&self, source: Source<'a>, shape: Shape) -> Result<Box<dyn Packing + 'a>> {
        let histogram = Histogram::count(&source);
        let estimate = histogram.estimate(shape)?;
        Ok(Box::new(Plan {
            source,
            shape,
            histogram,
            estimate,
        }))
    }

    fn part_names(&self, name: &str) -> Vec<String> {
        Part::ALL.map(|part| part.name(name)).into()
    }

    fn metadata(&self, matrices: &[(&str, Shape)], added: bool) -> (String, String) {
        let mut record = Record::new(added);
        matrices.iter().for_each(|&(name, shape)| record.insert(name, shape));
        (METADATA_KEY.to_owned(), record.to_json())
    }
}

fn parts(name: &str, shape: Shape, exceptions: usize) -> Vec<StoredTensor> {
    let part = |part: Part| {
        let (dtype, size) = part.dtype();
        let shape = part.shape(shape, exceptions);
        StoredTensor {
            name: part.name(name),
            dtype,
            bytes: shape.iter().product::<usize>() * size,
            shape,
        }
    };
    Part::ALL.map(part).into()
}

impl Index for Record {
    fn format(&self) -> &'static str {
        PackFormat::Window12.name()
    }

    fn is_packed(&self) -> bool {
        true
    }

    fn names(&self) -> Vec<&str> {
        Record::names(self).collect()
    }

    fn parts(&self, name: &str) -> Vec<String> {
        Part::ALL.map(|part| part.name(name)).into()
    }

    fn places(&self, file: &Tensors<'_>, name: &str) -> Result<(Shape, Vec<usize>), Fault> {
        let (shape, places) = Record::places(self, file, name)?;
        Ok((shape, places.into()))
    }

    fn weights<'a>(&self, file: &Tensors<'a>, name: &str) -> Result<Weights<'a>, Fault> {
        Ok(self.packed(file, name)?.into())
    }

    fn form<'a>(&self, file: &Tensors<'a>, name: &str) -> Result<Box<dyn Form + 'a>, Fault> {
        Ok(Box::new(self.packed(file, name)?))
    }

    fn strip(&self, metadata: &mut Option<(usize, Vec<(String, String)>)>) {
        Record::strip(self, metadata);
    }
}

impl Form for Packed<'_> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn bytes(&self) -> usize {
        Packed::bytes(self)
    }

    fn unit(&self) -> [usize; 2] {
        [UNIT_ROWS, UNIT_K]
    }

    fn decode(&self, row_block: usize, units: Range<usize>, rows: &mut [u16]) {
        decode_rows(self, row_block, units, rows);
    }

    fn describe(&self) -> Description {
        let exceptions = self.exceptions.len() as u64;
        describe(
            &Histogram::of_packed(self),
            self.palette,
            exceptions,
            self.bytes() as u64,
        )
    }
}

/// A matrix that was looked at.
struct Plan<'a> {
    source: Source<'a>,
    shape: Shape,
    histogram: Histogram,
    estimate: Estimate,
}

impl Packing for Plan<'_> {
    fn leave(&self) -> Option<String> {
        self.estimate.pays().err().map(|leave| leave.to_string())
    }

    fn describe(&self) -> Description {
        let (palette, exceptions) = (self.estimate.palette(), self.estimate.exceptions());
        describe(&self.histogram, palette, exceptions, self.estimate.bytes())
    }

    fn parts(&self, name: &str) -> Vec<StoredTensor> {
        parts(name, self.shape, self.estimate.exceptions() as usize)
    }

    fn write(&self, sink: &mut dyn Sink) -> Result<bool> {
        let [units_at, palette_at, starts_at, exceptions_at] = [0, 1, 2, 3];
        let encoder = Encoder::new(self.source, self.shape, self.estimate.palette());
        let mut buffer = vec![0; UNITS.min(encoder.units()) * WINDOW12_UNIT_BYTES];
        let (mut starts, mut exceptions, mut told) = (Vec::new(), 0u64, 0);
        for first in (0..encoder.units()).step_by(UNITS) {
            let last = encoder.units().min(first + UNITS);
            let units = &mut buffer[..(last - first) * WINDOW12_UNIT_BYTES];
            let encoded = encoder.encode(first, units);
            sink.write(units_at, first * WINDOW12_UNIT_BYTES, units)?;
            let bytes = bytemuck::cast_slice(&encoded.exceptions);
            sink.write(exceptions_at, exceptions as usize * 8, bytes)?;
            starts.extend(encoded.starts.iter().map(|start| exceptions + start));
            exceptions += encoded.exceptions.len() as u64;
            let done = (self.source.bytes() as u128 * last as u128 / encoder.units() as u128) as usize;
            sink.progress(done - told);
            told = done;
        }
        starts.push(exceptions);
        sink.write(palette_at, 0, &self.estimate.palette())?;
        sink.write(starts_at, 0, bytemuck::cast_slice(&starts))?;
        Ok(exceptions == self.estimate.exceptions())
    }
}

fn describe(histogram: &Histogram, palette: [u8; PALETTE], exceptions: u64, bytes: u64) -> Description {
    let weights = histogram.weights();
    let bits_per_weight = bytes as f64 * 8.0 / weights as f64;
    let share = 100.0 * exceptions as f64 / weights as f64;
    let entries: Vec<String> = palette.iter().map(|entry| format!("{entry:02x}")).collect();
    let counts = (0..=255u8).zip(histogram.counts()).filter(|&(_, &count)| count > 0);
    Description {
        format: PackFormat::Window12.name(),
        dtype: Dtype::Bf16.name(),
        bytes,
        bits_per_weight,
        summary: format!("{bits_per_weight:.3} bits per weight, {exceptions} exceptions"),
        details: format!("({share:.3} %), palette {}", entries.join(" ")),
        fields: vec![
            ("window12_bits_per_weight", bits_per_weight.into()),
            ("exceptions", exceptions.into()),
            ("weights", weights.into()),
            ("palette", palette.to_vec().into()),
        ],
        exponents: counts
            .map(|(exponent, &weights)| Exponent {
                exponent,
                weights,
                is_odd: !palette.contains(&(exponent / 2)),
            })
            .collect(),
        odd: format!("{} of {weights} weights are exceptions", histogram.exceptions(&palette)),
    }
}
