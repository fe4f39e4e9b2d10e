//! What can be wrong with a packed matrix from elsewhere. Every rule of `docs/formats.md` has its own fault.

use super::codec::{Live, unit_at};
use super::unit::{DecodeTable, EMPTY};
use super::{Exception, Packed};
use crate::Shape;
use kernels_gpu::formats::window12::{PALETTE, WINDOW12_UNIT_BYTES, place_in_window12};
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, units};
use rayon::prelude::*;

/// A rule that a packed matrix breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is no such packed matrix.
    #[error("there is no packed tensor `{name}` in the file")]
    NotPacked {
        /// What was asked for.
        name: String,
    },
    /// The recorded shape is no shape of weights.
    #[error("its shape is recorded as {n} × {k}; each side must lie between 1 and {}", u32::MAX)]
    Shape {
        /// Rows recorded.
        n: u64,
        /// Columns recorded.
        k: u64,
    },
    /// A part is not there.
    #[error(
        "its part `{part}` is missing; a packed tensor has four parts: copy all of them, or pack the original again"
    )]
    MissingPart {
        /// The name of the part.
        part: String,
    },
    /// A part has another type.
    #[error("its part `{part}` is {given}; it must be {needed}")]
    PartType {
        /// The name of the part.
        part: String,
        /// The type found.
        given: String,
        /// The type needed.
        needed: &'static str,
    },
    /// A part has another shape.
    #[error("its part `{part}` has shape {given:?}; it must be {needed}")]
    PartShape {
        /// The name of the part.
        part: String,
        /// The shape found.
        given: Vec<usize>,
        /// The shape needed.
        needed: String,
    },
    /// The units do not cover the shape.
    #[error("it has {given} bytes of units; {shape} weights take {needed}")]
    Units {
        /// The shape.
        shape: Shape,
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: u128,
    },
    /// The palette has no zero where it must.
    #[error(
        "entry 0 of its palette is {given:#04x}; it must be 0, which the places of exceptions and the padding decode to"
    )]
    PaletteZero {
        /// The entry.
        given: u8,
    },
    /// A palette entry has the sign's bit.
    #[error("entry {entry} of its palette is {given:#04x}; an entry is seven bits of an exponent, below 0x80")]
    PaletteRange {
        /// Which entry.
        entry: usize,
        /// Its value.
        given: u8,
    },
    /// The palette does not ascend.
    #[error("entry {entry} of its palette is {given:#04x}, not above the entry before; a palette ascends strictly")]
    PaletteOrder {
        /// Which entry.
        entry: usize,
        /// Its value.
        given: u8,
    },
    /// There are not as many starts as row blocks and one.
    #[error("it has {given} starts of exceptions; {shape} weights have {needed}, one per 16 rows and one for the end")]
    Starts {
        /// The shape.
        shape: Shape,
        /// Starts given.
        given: usize,
        /// Starts needed.
        needed: usize,
    },
    /// The first row block's exceptions do not start at the first one.
    #[error("its exceptions start at {given}; they must start at 0")]
    FirstStart {
        /// The first start.
        given: u64,
    },
    /// A start lies before the one ahead of it.
    #[error("the exceptions of its row block {row_block} start at {start} and end at {end}; starts must not descend")]
    StartsOrder {
        /// Which row block.
        row_block: usize,
        /// Its start.
        start: u64,
        /// The next start.
        end: u64,
    },
    /// The last start is not the number of exceptions.
    #[error("its exceptions end at {given}, but it has {count}; the last start must be the number of exceptions")]
    LastStart {
        /// The last start.
        given: u64,
        /// Exceptions there are.
        count: usize,
    },
    /// An exception's row is not in its row block.
    #[error("exception {at} lies in row {row} of row block {row_block}, which has {rows} rows")]
    ExceptionRow {
        /// Which exception.
        at: usize,
        /// Its row in the block.
        row: usize,
        /// Its row block.
        row_block: usize,
        /// Rows of the block.
        rows: usize,
    },
    /// An exception's column is not in the matrix.
    #[error("exception {at} lies in column {column} of a matrix that has {k}")]
    ExceptionColumn {
        /// Which exception.
        at: usize,
        /// Its column.
        column: usize,
        /// Columns of the matrix.
        k: usize,
    },
    /// Exceptions of a row block are out of order, or two have one place.
    #[error("exceptions {} and {at} of row block {row_block} are out of order; in a row block they ascend strictly by column, then row", at - 1)]
    ExceptionOrder {
        /// The second of the two.
        at: usize,
        /// Their row block.
        row_block: usize,
    },
    /// The place of an exception holds a weight of its own.
    #[error(
        "the place of exception {at}, row {row} of row block {row_block}, column {column}, holds a weight too; it must hold +0"
    )]
    ExceptionPlace {
        /// Which exception.
        at: usize,
        /// Its row in the block.
        row: usize,
        /// Its row block.
        row_block: usize,
        /// Its column.
        column: usize,
    },
    /// Padding that is not zero.
    #[error("the padding of the unit at row block {row_block}, K group {group} is not zero")]
    Padding {
        /// Which row block.
        row_block: usize,
        /// Which group of 64 columns.
        group: usize,
    },
}

impl From<Fault> for crate::Error {
    fn from(fault: Fault) -> Self {
        crate::Error::Packed(fault.into())
    }
}

impl Packed<'_> {
    pub(super) fn validate(&self) -> Result<(), Fault> {
        validate_palette(&self.palette)?;
        self.validate_units()?;
        self.validate_starts()?;
        let row_blocks = units(self.shape.n(), self.shape.k()).0;
        let first_fault = |check: &(dyn Fn(usize) -> Result<(), Fault> + Sync)| {
            (0..row_blocks)
                .into_par_iter()
                .find_map_first(|row_block| check(row_block).err())
                .map_or(Ok(()), Err)
        };
        first_fault(&|row_block| self.validate_exceptions(row_block))?;
        first_fault(&|row_block| self.validate_padding(row_block))
    }

    fn validate_units(&self) -> Result<(), Fault> {
        let (row_blocks, groups) = units(self.shape.n(), self.shape.k());
        let (given, needed) = (
            self.units.len(),
            row_blocks as u128 * groups as u128 * WINDOW12_UNIT_BYTES as u128,
        );
        if given as u128 != needed {
            return Err(Fault::Units {
                shape: self.shape,
                given,
                needed,
            });
        }
        Ok(())
    }

    fn validate_starts(&self) -> Result<(), Fault> {
        let needed = units(self.shape.n(), self.shape.k()).0 + 1;
        let given = self.starts.len();
        let (&[first, ..], &[.., last]) = (&*self.starts, &*self.starts) else {
            return Err(Fault::Starts {
                shape: self.shape,
                given,
                needed,
            });
        };
        if given != needed {
            return Err(Fault::Starts {
                shape: self.shape,
                given,
                needed,
            });
        }
        if first != 0 {
            return Err(Fault::FirstStart { given: first });
        }
        if let Some(row_block) = self.starts.array_windows().position(|[start, end]| start > end) {
            let (start, end) = (self.starts[row_block], self.starts[row_block + 1]);
            return Err(Fault::StartsOrder { row_block, start, end });
        }
        let count = self.exceptions.len();
        if last != count as u64 {
            return Err(Fault::LastStart { given: last, count });
        }
        Ok(())
    }

    /// The starts are valid.
    fn validate_exceptions(&self, row_block: usize) -> Result<(), Fault> {
        let first = self.starts[row_block] as usize;
        let rows = Live::of(self.shape, row_block, 0).rows;
        let mut before: Option<&Exception> = None;
        for (i, exception) in self.exceptions_of(row_block).iter().enumerate() {
            let (at, row, column) = (first + i, exception.row(), exception.column());
            if row >= rows {
                return Err(Fault::ExceptionRow {
                    at,
                    row,
                    row_block,
                    rows,
                });
            }
            if column >= self.shape.k() {
                return Err(Fault::ExceptionColumn {
                    at,
                    column,
                    k: self.shape.k(),
                });
            }
            if before.is_some_and(|before| (before.column(), before.row()) >= (column, row)) {
                return Err(Fault::ExceptionOrder { at, row_block });
            }
            let unit = unit_at(self, row_block, column / UNIT_K);
            let place = place_in_window12(row, column % UNIT_K);
            // A code word is little-endian, so its bit b is bit b % 8 of its byte b / 8. The index's bits share a byte.
            let code = |bit: u32| unit[place.code + bit as usize / 8] >> (bit % 8);
            if unit[place.low] != 0 || code(place.index) & 7 != 0 || code(place.sign) & 1 != 0 {
                return Err(Fault::ExceptionPlace {
                    at,
                    row,
                    row_block,
                    column,
                });
            }
            before = Some(exception);
        }
        Ok(())
    }

    fn validate_padding(&self, row_block: usize) -> Result<(), Fault> {
        let groups = units(self.shape.n(), self.shape.k()).1;
        let (table, mut tile) = (DecodeTable::new(&self.palette), EMPTY);
        // All but the last unit along K are as full as the first.
        let first = if Live::of(self.shape, row_block, 0).rows < UNIT_ROWS {
            0
        } else {
            groups - 1
        };
        for group in first..groups {
            let live = Live::of(self.shape, row_block, group);
            if live.rows == UNIT_ROWS && live.columns == UNIT_K {
                continue;
            }
            table.decode(unit_at(self, row_block, group), &mut tile);
            let (rows, padding) = tile.split_at(live.rows);
            let zero = |weights: &[u16]| weights.iter().all(|&bits| bits == 0);
            if !rows.iter().all(|row| zero(&row[live.columns..])) || !zero(padding.as_flattened()) {
                return Err(Fault::Padding { row_block, group });
            }
        }
        Ok(())
    }
}

pub(super) fn validate_palette(palette: &[u8; PALETTE]) -> Result<(), Fault> {
    if palette[0] != 0 {
        return Err(Fault::PaletteZero { given: palette[0] });
    }
    for entry in 1..PALETTE {
        let given = palette[entry];
        if given >= 0x80 {
            return Err(Fault::PaletteRange { entry, given });
        }
        if given <= palette[entry - 1] {
            return Err(Fault::PaletteOrder { entry, given });
        }
    }
    Ok(())
}
