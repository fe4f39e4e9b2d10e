//! Packed matrices as weights, and tensor-parallel slices of them, without decoding where units can be cut.

use super::{Exception, Packed, unpack};
#[cfg(feature = "cuda")]
use crate::device::Setup;
use crate::formats::Weights;
#[cfg(feature = "cuda")]
use crate::formats::device::Stored;
use crate::formats::matrix::{Matrix, part};
use crate::formats::weights::{PackedWeights, Sliced};
use crate::{Error, Result, Shape, bf16};
use kernels_gpu::formats::window12::WINDOW12_UNIT_BYTES;
use kernels_gpu::instances::Format;
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, units};
use std::borrow::Cow;
use std::ops::Range;

impl PackedWeights for Packed<'_> {
    fn format(&self) -> Format {
        Format::Window12
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    fn to_bf16(&self) -> Result<Vec<bf16>> {
        unpack(self)
    }

    #[cfg(feature = "cuda")]
    fn store(&self, setup: &Setup) -> Result<Box<dyn Stored>> {
        super::store(setup, self)
    }
}

impl<'a> Sliced<'a> for Packed<'a> {
    fn sliced(self, rows: Option<Range<usize>>, cols: Option<Range<usize>>) -> Result<Weights<'a>> {
        if self.is_cut_by(rows.as_ref(), cols.as_ref())? {
            self.into_slice(rows, cols).map(Weights::Window12)
        } else {
            self.decode_slice(rows, cols).map(Weights::Rows)
        }
    }
}

impl<'a> Packed<'a> {
    /// Some rows and columns, as a packed matrix of their own; `None` keeps all. Rows are cut at multiples of 16 and
    /// columns at multiples of 64, or at the matrix's end. Whole rows are borrowed, not copied, but for a start per row
    /// block.
    pub fn slice(&self, rows: Option<Range<usize>>, columns: Option<Range<usize>>) -> Result<Packed<'_>> {
        self.borrowed().into_slice(rows, columns)
    }

    /// [`Packed::slice`] of a matrix that is not needed otherwise. What it borrows the slice borrows too.
    pub(crate) fn into_slice(self, rows: Option<Range<usize>>, columns: Option<Range<usize>>) -> Result<Packed<'a>> {
        let (n, k) = (self.shape.n(), self.shape.k());
        let (rows, columns) = (cut("rows", rows, n, UNIT_ROWS)?, cut("columns", columns, k, UNIT_K)?);
        let shape = Shape::new(rows.len(), columns.len())?;
        let blocks = rows.start / UNIT_ROWS..rows.end.div_ceil(UNIT_ROWS);
        if columns == (0..k) {
            return Ok(self.rows(shape, blocks));
        }
        let row_bytes = units(n, k).1 * WINDOW12_UNIT_BYTES;
        let bytes = columns.start / UNIT_K * WINDOW12_UNIT_BYTES..columns.end.div_ceil(UNIT_K) * WINDOW12_UNIT_BYTES;
        let mut units = Vec::with_capacity(blocks.len() * bytes.len());
        let mut starts = Vec::with_capacity(blocks.len() + 1);
        let mut exceptions = Vec::new();
        for block in blocks {
            units.extend_from_slice(&self.units[block * row_bytes..][bytes.clone()]);
            starts.push(exceptions.len() as u64);
            let all = self.exceptions_of(block);
            let bound = |column: usize| all.partition_point(|e| e.column() < column);
            let kept = &all[bound(columns.start)..bound(columns.end)];
            exceptions.extend(
                kept.iter()
                    .map(|e| Exception::new(e.value(), e.row() as u16, (e.column() - columns.start) as u32)),
            );
        }
        starts.push(exceptions.len() as u64);
        Ok(Packed {
            shape,
            palette: self.palette,
            units: units.into(),
            starts: starts.into(),
            exceptions: exceptions.into(),
        })
    }

    /// Whether units can be cut at the bounds of a slice, if the matrix has that slice.
    pub(crate) fn is_cut_by(&self, rows: Option<&Range<usize>>, columns: Option<&Range<usize>>) -> Result<bool> {
        let (n, k) = (self.shape.n(), self.shape.k());
        let rows = part("rows", rows.cloned(), n)?;
        let columns = part("columns", columns.cloned(), k)?;
        Ok(are_bounds(&rows, n, UNIT_ROWS) && are_bounds(&columns, k, UNIT_K))
    }

    /// The values of a slice at any bounds. Only the units that it touches are decoded.
    pub(crate) fn decode_slice(
        &self,
        rows: Option<Range<usize>>,
        columns: Option<Range<usize>>,
    ) -> Result<Matrix<'static>> {
        let (n, k) = (self.shape.n(), self.shape.k());
        let (rows, columns) = (part("rows", rows, n)?, part("columns", columns, k)?);
        let touched = self.slice(Some(around(&rows, n, UNIT_ROWS)), Some(around(&columns, k, UNIT_K)))?;
        let (row, column) = (rows.start % UNIT_ROWS, columns.start % UNIT_K);
        Matrix::decoded(unpack(&touched)?, touched.shape)
            .slice(Some(row..row + rows.len()), Some(column..column + columns.len()))
    }

    fn borrowed(&self) -> Packed<'_> {
        Packed {
            shape: self.shape,
            palette: self.palette,
            units: Cow::Borrowed(&self.units),
            starts: Cow::Borrowed(&self.starts),
            exceptions: Cow::Borrowed(&self.exceptions),
        }
    }

    fn rows(self, shape: Shape, blocks: Range<usize>) -> Self {
        let row_bytes = units(self.shape.n(), self.shape.k()).1 * WINDOW12_UNIT_BYTES;
        let starts = &self.starts[blocks.start..=blocks.end];
        let (first, last) = (self.starts[blocks.start], self.starts[blocks.end]);
        Packed {
            shape,
            palette: self.palette,
            units: kept(self.units, blocks.start * row_bytes..blocks.end * row_bytes),
            starts: starts.iter().map(|start| start - first).collect::<Vec<_>>().into(),
            exceptions: kept(self.exceptions, first as usize..last as usize),
        }
    }
}

/// A range of what may be borrowed.
fn kept<T: Clone>(all: Cow<'_, [T]>, range: Range<usize>) -> Cow<'_, [T]> {
    match all {
        Cow::Borrowed(all) => Cow::Borrowed(&all[range]),
        Cow::Owned(mut all) => {
            all.truncate(range.end);
            all.drain(..range.start);
            Cow::Owned(all)
        }
    }
}

/// The range, if it is a part of `0..len` that units can be cut to.
fn cut(what: &'static str, range: Option<Range<usize>>, len: usize, to: usize) -> Result<Range<usize>> {
    let range = part(what, range, len)?;
    if are_bounds(&range, len, to) {
        Ok(range)
    } else {
        Err(Error::SliceAlignment { what, range, to, len })
    }
}

/// Whether units of a side `to` end at both ends of a part of `0..len`.
fn are_bounds(range: &Range<usize>, len: usize, to: usize) -> bool {
    let at = |bound: usize| bound.is_multiple_of(to) || bound == len;
    at(range.start) && at(range.end)
}

/// The least part of `0..len` around another at whose ends units of a side `to` end.
fn around(range: &Range<usize>, len: usize, to: usize) -> Range<usize> {
    range.start / to * to..range.end.next_multiple_of(to).min(len)
}
