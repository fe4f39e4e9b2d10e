//! `window12`: BF16 weights at 12 bits each, every bit of them kept. `docs/formats.md` specifies the format.
//!
//! A weight keeps its low byte; its high byte becomes a sign and an index into a *palette* of eight values of the upper
//! seven exponent bits, of which the first is always 0. Weights that the palette lacks are *exceptions*: they are
//! stored apart, whole, and their places hold +0. So every one of the 65,536 bit patterns comes back as it was.

mod codec;
#[cfg(feature = "cuda")]
mod device;
mod fault;
mod histogram;
mod room;
mod slice;
mod stored;
mod unit;

#[cfg(feature = "cuda")]
pub use device::OnDevice;
pub use fault::Fault;
pub use histogram::{Estimate, Histogram, Leave, MOST_BITS, WEIGHTS_PER_EXCEPTION};
pub use stored::{FileFault, PackedTensors};

#[cfg(feature = "cuda")]
pub(crate) use device::{store, store_for_self_test};
pub(crate) use room::Window12;

use crate::formats::source::Source;
use crate::{Result, Shape, bf16};
use codec::{Encoder, decode_rows};
use kernels_gpu::formats::window12::{PALETTE, WINDOW12_UNIT_BYTES};
use kernels_gpu::layout::units;
use rayon::prelude::*;
use std::borrow::Cow;

/// Microseconds that a multiprocessor of an H200 takes to decode a unit and to permute it to K order: the instructions
/// of the machine code, counted, not timed.
pub(crate) const PERMUTE_UNIT_US: f64 = 0.03;

/// A weight that the palette lacks: eight bytes, as kernels and files have them, at any address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Exception([u8; 8]);

impl Exception {
    /// A weight, its row in its block of 16, and its column.
    pub const fn new(value: bf16, row: u16, column: u32) -> Self {
        let word = value.to_bits() as u64 | (row as u64) << 16 | (column as u64) << 32;
        Exception(word.to_le_bytes())
    }

    /// The weight.
    pub const fn value(self) -> bf16 {
        bf16::from_bits(self.word() as u16)
    }

    /// Its row in its block of 16.
    pub const fn row(self) -> usize {
        (self.word() >> 16) as u16 as usize
    }

    /// Its column.
    pub const fn column(self) -> usize {
        (self.word() >> 32) as usize
    }

    /// All of it, as kernels read it: the value below, the row above it, the column on top.
    pub const fn word(self) -> u64 {
        u64::from_le_bytes(self.0)
    }
}

/// A packed matrix, valid in all its parts; they may be borrowed, from a mapped file for instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed<'a> {
    shape: Shape,
    palette: [u8; PALETTE],
    units: Cow<'a, [u8]>,
    starts: Cow<'a, [u64]>,
    exceptions: Cow<'a, [Exception]>,
}

impl<'a> Packed<'a> {
    /// Makes a packed matrix of parts from anywhere, all of which are checked: no later use of it can fail or read what
    /// is not there.
    pub fn new(
        shape: Shape,
        palette: [u8; PALETTE],
        units: impl Into<Cow<'a, [u8]>>,
        starts: impl Into<Cow<'a, [u64]>>,
        exceptions: impl Into<Cow<'a, [Exception]>>,
    ) -> Result<Self, Fault> {
        let packed = Packed {
            shape,
            palette,
            units: units.into(),
            starts: starts.into(),
            exceptions: exceptions.into(),
        };
        packed.validate()?;
        Ok(packed)
    }

    /// The shape of the matrix.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The values of the high byte, without the sign, that the indices stand for: ascending, the first one 0.
    pub fn palette(&self) -> [u8; PALETTE] {
        self.palette
    }

    /// The palette as kernels take it: entry i in byte i.
    pub fn palette_words(&self) -> [u32; 2] {
        let [a, b, c, d, e, f, g, h] = self.palette;
        [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
    }

    /// The units, 1,536 bytes each, row block by row block and along K inside one.
    pub fn units(&self) -> &[u8] {
        &self.units
    }

    /// Where the exceptions of each row block start, and one number more: where the last ones end.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// The exceptions, by row block, in it by column, and in that by row.
    pub fn exceptions(&self) -> &[Exception] {
        &self.exceptions
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> usize {
        PALETTE + self.units.len() + size_of_val(&*self.starts) + size_of_val(&*self.exceptions)
    }

    /// Bits of all parts per weight.
    pub fn bits_per_weight(&self) -> f64 {
        self.bytes() as f64 * 8.0 / (self.shape.n() as f64 * self.shape.k() as f64)
    }

    /// The same matrix, borrowing nothing.
    pub fn into_owned(self) -> Packed<'static> {
        Packed {
            shape: self.shape,
            palette: self.palette,
            units: self.units.into_owned().into(),
            starts: self.starts.into_owned().into(),
            exceptions: self.exceptions.into_owned().into(),
        }
    }

    /// The exceptions of a row block. The block exists and the starts are valid.
    fn exceptions_of(&self, row_block: usize) -> &[Exception] {
        let (from, to) = (self.starts[row_block] as usize, self.starts[row_block + 1] as usize);
        &self.exceptions[from..to]
    }
}

/// Bytes of the packed form of a matrix with so many exceptions.
pub(crate) fn packed_bytes(shape: Shape, exceptions: u64) -> Result<u64> {
    let (row_blocks, groups) = units(shape.n(), shape.k());
    Shape::area("the packed weights", row_blocks * groups, WINDOW12_UNIT_BYTES)
        .map(|units| (units + PALETTE) as u64 + 8 * (row_blocks as u64 + 1) + 8 * exceptions)
}

/// Packs row-major `[N, K]` weights, whatever it takes: see [`Histogram::estimate`] for what it will.
pub fn pack(weights: &[bf16], shape: Shape) -> Result<Packed<'static>> {
    Shape::check_len("the weights", weights.len(), shape.n(), shape.k())?;
    pack_with(weights, shape, Histogram::of(weights).palette())
}

/// Packs row-major `[N, K]` weights with a palette of the caller's choice.
pub fn pack_with(weights: &[bf16], shape: Shape, palette: [u8; PALETTE]) -> Result<Packed<'static>> {
    Shape::check_len("the weights", weights.len(), shape.n(), shape.k())?;
    fault::validate_palette(&palette)?;
    packed_bytes(shape, 0)?;
    let encoder = Encoder::new(Source::bf16(weights), shape, palette);
    let mut units = Shape::filled("the packed weights", encoder.units(), WINDOW12_UNIT_BYTES, 0)?;
    let mut encoded = encoder.encode(0, &mut units);
    encoded.starts.push(encoded.exceptions.len() as u64);
    Ok(Packed {
        shape,
        palette,
        units: units.into(),
        starts: encoded.starts.into(),
        exceptions: encoded.exceptions.into(),
    })
}

/// Restores the row-major `[N, K]` weights, bit for bit.
pub fn unpack(packed: &Packed<'_>) -> Result<Vec<bf16>> {
    let (n, k) = (packed.shape.n(), packed.shape.k());
    let groups = units(n, k).1;
    let mut weights = Shape::filled("the weights", n, k, bf16::ZERO)?;
    let rows: &mut [u16] = bytemuck::cast_slice_mut(&mut weights);
    rows.par_chunks_mut(kernels_gpu::layout::UNIT_ROWS * k)
        .enumerate()
        .for_each(|(row_block, rows)| decode_rows(packed, row_block, 0..groups, rows));
    Ok(weights)
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod tests;
