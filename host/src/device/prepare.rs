//! Weights from host memory onto a device, once per layer.

use super::Result;
use super::engine::Engine;
use super::projection::{Memory, Projection};
use super::row_major::Rows;
use super::setup::Setup;
use crate::Error;
use crate::formats::cast::Cast;
use crate::formats::split::Split;
use crate::formats::{PackFormat, Weights, bf16};
use crate::plan::{FEW_TOKENS, Op, Workload};
use std::ops::{Range, RangeInclusive};

/// How to prepare weights.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrepareOptions {
    /// The format in device memory. `None`, the default, leaves weights as they come: row-major ones are BF16, packed
    /// ones stay packed.
    pub format: Option<PackFormat>,
    /// Tokens of a call: 1 to 32 by default. The kernels for these are loaded, and a call with others is an error.
    pub m: RangeInclusive<usize>,
    /// Whether a row-major copy is kept beside the packed weights.
    pub row_major: RowMajorCopy,
    /// What weights of another type are cast to; without it they are an error.
    pub cast: Option<Cast>,
    /// Rows of the matrix to prepare; all where it is `None`.
    pub rows: Option<Range<usize>>,
    /// Columns of the matrix to prepare; all where it is `None`.
    pub cols: Option<Range<usize>>,
}

/// Whether BF16 weights are kept row-major beside their packed form, at twice the memory. Then more than 32 tokens are
/// one matrix product wherever x lies, and one that reads weights by TMA where it can. Without the copy, and where rows
/// of x are not 16-byte aligned, more than 32 tokens walk over the packed weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RowMajorCopy {
    /// Where every call has more than 32 tokens.
    #[default]
    Auto,
    /// Always. Weights that are packed to fewer bits have no such copy: to ask for both is an error.
    Keep,
    /// Never.
    Never,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        PrepareOptions {
            format: None,
            m: 1..=FEW_TOKENS,
            row_major: RowMajorCopy::Auto,
            cast: None,
            rows: None,
            cols: None,
        }
    }
}

impl PrepareOptions {
    /// Default options for calls of so many tokens.
    pub fn tokens(m: RangeInclusive<usize>) -> Self {
        PrepareOptions {
            m,
            ..PrepareOptions::default()
        }
    }

    /// Sets [`PrepareOptions::format`].
    #[must_use]
    pub fn format(mut self, format: PackFormat) -> Self {
        self.format = Some(format);
        self
    }

    /// Sets [`PrepareOptions::row_major`].
    #[must_use]
    pub fn row_major(mut self, row_major: RowMajorCopy) -> Self {
        self.row_major = row_major;
        self
    }

    /// Sets [`PrepareOptions::cast`].
    #[must_use]
    pub fn cast(mut self, cast: Cast) -> Self {
        self.cast = Some(cast);
        self
    }

    /// Sets [`PrepareOptions::rows`].
    #[must_use]
    pub fn rows(mut self, rows: Range<usize>) -> Self {
        self.rows = Some(rows);
        self
    }

    /// Sets [`PrepareOptions::cols`].
    #[must_use]
    pub fn cols(mut self, cols: Range<usize>) -> Self {
        self.cols = Some(cols);
        self
    }
}

impl Engine {
    /// Brings weights into the order that the kernels stream, uploads them, and loads every kernel that calls of
    /// [`PrepareOptions::m`] tokens can need. Slow, once per layer: the driver compiles a family of kernels when the
    /// first layer needs it, which takes seconds unless its cache has it, and the self-tests of kernels that a driver's
    /// compiler may get wrong run here. No later call loads anything.
    ///
    /// BF16 values are borrowed where they lie in memory row by row, such as in a mapped file; a slice of columns is
    /// copied. Weights that are packed already stay so where the format allows it and units can be cut at the slice's
    /// borders.
    ///
    /// What it starts is done when it returns. It works on a stream of its own, in the thread's relaxed capture mode,
    /// so captures on this thread and on others go on undisturbed.
    ///
    /// # Errors
    ///
    /// Weights of a type that needs a cast nobody asked for, slices beyond the matrix, a range of tokens that no kernel
    /// serves, and what the driver refuses.
    pub fn prepare<'a>(&self, weights: impl Into<Weights<'a>>, options: &PrepareOptions) -> Result<Projection> {
        let device = self.open_device();
        device.check_current()?;
        if options.m.is_empty() {
            let m = options.m.clone();
            return Err(Error::EmptyTokenRange { m });
        }
        let weights = weights.into().slice(options.rows.clone(), options.cols.clone())?;
        let weights = match (options.format, &weights) {
            (Some(format), _) => weights.into_format(format, options.cast)?,
            (None, Weights::Rows(_)) => weights.into_format(PackFormat::Bf16, options.cast)?,
            (None, _) => weights,
        };
        let shape = weights.shape()?;
        let workload = |row_major| Workload {
            op: Op::Project,
            format: weights.format(),
            shape,
            row_major,
            m: options.m.clone(),
        };
        let values = weights.bf16_rows();
        let rows = match (options.row_major, &values) {
            (RowMajorCopy::Keep, None) => {
                let format = weights.format();
                return Err(Error::NoRowMajor { format });
            }
            (RowMajorCopy::Keep, values) => values.as_deref(),
            (RowMajorCopy::Auto, values) if *options.m.start() > FEW_TOKENS => values.as_deref(),
            (RowMajorCopy::Auto | RowMajorCopy::Never, _) => None,
        };
        // What no kernel serves is refused before anything is packed.
        device.kernels().prepare(&workload(rows.is_some()))?;
        let setup = Setup::new()?;
        let rows = rows.map(|values| Rows::new(&setup, &Split::of_bf16(values, shape)?));
        let memory = Memory {
            rows: rows.transpose()?,
            packed: match &values {
                Some(values) => bf16::store(&setup, &bf16::pack(values, shape)?, 1)?,
                None => weights.store(&setup)?,
            },
        };
        setup.finish()?;
        Ok(Projection::new(device, memory, shape, options.m.clone()))
    }
}
