//! Tensor-parallel slices of a packed matrix, without decoding it.

use super::{Exception, Packed};
use crate::{Error, Result, Shape};
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, WINDOW12_UNIT_BYTES, units};
use std::borrow::Cow;
use std::ops::Range;

impl Packed<'_> {
    /// Some rows and columns, as a packed matrix of their own; `None` keeps all. Rows are cut at multiples of 16 and columns at
    /// multiples of 64, or at the matrix's end. Whole rows are borrowed, not copied, but for a start per row block.
    pub fn slice(&self, rows: Option<Range<usize>>, columns: Option<Range<usize>>) -> Result<Packed<'_>> {
        let (n, k) = (self.shape.n(), self.shape.k());
        let (rows, columns) = (cut("rows", rows, n, UNIT_ROWS)?, cut("columns", columns, k, UNIT_K)?);
        let shape = Shape::new(rows.len(), columns.len())?;
        let blocks = rows.start / UNIT_ROWS..rows.end.div_ceil(UNIT_ROWS);
        if columns == (0..k) {
            return Ok(self.rows(shape, blocks));
        }
        let row_bytes = units(n, k).1 * WINDOW12_UNIT_BYTES;
        let bytes = columns.start / UNIT_K * WINDOW12_UNIT_BYTES..columns.end.div_ceil(UNIT_K) * WINDOW12_UNIT_BYTES;
        let mut slice = Packed {
            shape,
            palette: self.palette,
            units: Vec::with_capacity(blocks.len() * bytes.len()).into(),
            starts: Vec::with_capacity(blocks.len() + 1).into(),
            exceptions: Cow::Owned(Vec::new()),
        };
        let (units, starts, exceptions) = (slice.units.to_mut(), slice.starts.to_mut(), slice.exceptions.to_mut());
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
        Ok(slice)
    }

    fn rows(&self, shape: Shape, blocks: Range<usize>) -> Packed<'_> {
        let row_bytes = units(self.shape.n(), self.shape.k()).1 * WINDOW12_UNIT_BYTES;
        let starts = &self.starts[blocks.start..=blocks.end];
        let (first, last) = (self.starts[blocks.start], self.starts[blocks.end]);
        Packed {
            shape,
            palette: self.palette,
            units: self.units[blocks.start * row_bytes..blocks.end * row_bytes].into(),
            starts: starts.iter().map(|start| start - first).collect::<Vec<_>>().into(),
            exceptions: self.exceptions[first as usize..last as usize].into(),
        }
    }
}

/// The range, if it is a part of `0..len` that units can be cut to.
fn cut(what: &'static str, range: Option<Range<usize>>, len: usize, to: usize) -> Result<Range<usize>> {
    let Some(range) = range else { return Ok(0..len) };
    if range.start >= range.end || range.end > len {
        return Err(Error::Slice { what, range, len });
    }
    let at = |bound: usize| bound.is_multiple_of(to) || bound == len;
    if at(range.start) && at(range.end) {
        Ok(range)
    } else {
        Err(Error::SliceAlignment { what, range, to, len })
    }
}
