//! Matrices ⇄ units and exceptions, any part of one at a time, so that a matrix need not fit in memory twice.

use super::unit::{Bits, DecodeTable, EMPTY, EncodeTable, Tile};
use super::{Exception, Packed};
use crate::formats::source::Source;
use crate::{Shape, bf16};
use kernels_gpu::formats::window12::{PALETTE, WINDOW12_UNIT_BYTES};
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, units};
use rayon::prelude::*;
use std::ops::Range;

/// Units that a thread packs at a time.
const CHUNK: usize = 64;

/// Packs the units of one matrix.
pub(crate) struct Encoder<'a> {
    source: Source<'a>,
    shape: Shape,
    table: EncodeTable,
}

/// What a run of units leaves.
#[derive(Default)]
pub(crate) struct Encoded {
    /// For each row block whose first unit is in the run, how many of `exceptions` lie before it.
    pub(crate) starts: Vec<u64>,
    /// The exceptions, in order.
    pub(crate) exceptions: Vec<Exception>,
}

impl<'a> Encoder<'a> {
    /// The source holds the weights of the shape.
    pub(crate) fn new(source: Source<'a>, shape: Shape, palette: [u8; PALETTE]) -> Self {
        Encoder {
            source,
            shape,
            table: EncodeTable::new(palette),
        }
    }

    /// How many units the matrix has.
    pub(crate) fn units(&self) -> usize {
        let (row_blocks, groups) = units(self.shape.n(), self.shape.k());
        row_blocks * groups
    }

    /// Packs as many units as `out` has room for, from `first` on.
    pub(crate) fn encode(&self, first: usize, out: &mut [u8]) -> Encoded {
        let parts: Vec<Encoded> = out
            .par_chunks_mut(CHUNK * WINDOW12_UNIT_BYTES)
            .enumerate()
            .map(|(chunk, out)| self.encode_chunk(first + chunk * CHUNK, out))
            .collect();
        let mut all = Encoded::default();
        all.exceptions
            .reserve_exact(parts.iter().map(|part| part.exceptions.len()).sum());
        for part in parts {
            let before = all.exceptions.len() as u64;
            all.starts.extend(part.starts.iter().map(|start| before + start));
            all.exceptions.extend(part.exceptions);
        }
        all
    }

    fn encode_chunk(&self, first: usize, out: &mut [u8]) -> Encoded {
        let groups = units(self.shape.n(), self.shape.k()).1;
        let mut encoded = Encoded::default();
        let mut tile = EMPTY;
        for (i, bytes) in out.as_chunks_mut().0.iter_mut().enumerate() {
            let (row_block, group) = ((first + i) / groups, (first + i) % groups);
            if group == 0 {
                encoded.starts.push(encoded.exceptions.len() as u64);
            }
            self.read(row_block, group, &mut tile);
            if let Some(missing) = self.table.encode(&tile, bytes) {
                add_exceptions(group, &tile, &missing, &mut encoded.exceptions);
            }
        }
        encoded
    }

    fn read(&self, row_block: usize, group: usize, tile: &mut Tile) {
        let live = Live::of(self.shape, row_block, group);
        if live.rows < UNIT_ROWS || live.columns < UNIT_K {
            *tile = EMPTY;
        }
        for (row, weights) in tile.iter_mut().take(live.rows).enumerate() {
            let first = (row_block * UNIT_ROWS + row) * self.shape.k() + group * UNIT_K;
            self.source.read(first, &mut weights[..live.columns]);
        }
    }
}

/// Adds the weights that the palette lacks, by column, then row.
fn add_exceptions(group: usize, tile: &Tile, missing: &Bits, exceptions: &mut Vec<Exception>) {
    let mut columns = missing.iter().fold(0, |all, row| all | row);
    while columns != 0 {
        let column = columns.trailing_zeros() as usize;
        columns &= columns - 1;
        for (row, weights) in tile.iter().enumerate() {
            if missing[row] >> column & 1 != 0 {
                let value = bf16::from_bits(weights[column]);
                exceptions.push(Exception::new(value, row as u16, (group * UNIT_K + column) as u32));
            }
        }
    }
}

/// The rows and columns of a unit that are not padding.
pub(super) struct Live {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Live {
    pub(super) fn of(shape: Shape, row_block: usize, group: usize) -> Self {
        Live {
            rows: UNIT_ROWS.min(shape.n() - row_block * UNIT_ROWS),
            columns: UNIT_K.min(shape.k() - group * UNIT_K),
        }
    }
}

/// The bytes of a unit.
pub(super) fn unit_at<'p>(packed: &'p Packed<'_>, row_block: usize, group: usize) -> &'p [u8; WINDOW12_UNIT_BYTES] {
    let groups = units(packed.shape.n(), packed.shape.k()).1;
    &packed.units.as_chunks().0[row_block * groups + group]
}

/// Restores some columns, those of `groups`, of a row block. `rows` is row-major and has just the rows and columns that
/// exist.
pub(crate) fn decode_rows(packed: &Packed<'_>, row_block: usize, groups: Range<usize>, rows: &mut [u16]) {
    let first = groups.start * UNIT_K;
    let width = packed.shape.k().min(groups.end * UNIT_K) - first;
    let table = DecodeTable::new(&packed.palette);
    let mut tile = EMPTY;
    for group in groups {
        let live = Live::of(packed.shape, row_block, group);
        table.decode(unit_at(packed, row_block, group), &mut tile);
        for (row, weights) in rows.chunks_exact_mut(width).zip(&tile) {
            row[group * UNIT_K - first..][..live.columns].copy_from_slice(&weights[..live.columns]);
        }
    }
    let exceptions = packed.exceptions_of(row_block);
    let from = exceptions.partition_point(|e| e.column() < first);
    for exception in exceptions[from..].iter().take_while(|e| e.column() < first + width) {
        rows[exception.row() * width + exception.column() - first] = exception.value().to_bits();
    }
}
