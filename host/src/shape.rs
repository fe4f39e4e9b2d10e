//! The shape of a weight matrix.

use crate::{Error, Result};
use std::fmt;

/// A weight matrix of `n` rows (outputs) and `k` columns (inputs), both at least 1 and below 2³².
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    n: u32,
    k: u32,
}

impl Shape {
    /// Checks the bounds that the kernels' 32-bit sizes need.
    pub fn new(n: usize, k: usize) -> Result<Self> {
        let side = |v: usize| u32::try_from(v).ok().filter(|&v| v > 0);
        match (side(n), side(k)) {
            (Some(n), Some(k)) => Ok(Shape { n, k }),
            _ => Err(Error::Shape { n, k }),
        }
    }

    /// Rows of W, outputs.
    pub const fn n(self) -> usize {
        self.n as usize
    }

    /// Columns of W, inputs.
    pub const fn k(self) -> usize {
        self.k as usize
    }

    /// `rows × cols` equal values, where there is memory for so many. `what` is what an error calls them.
    pub fn filled<T: Clone>(what: &'static str, rows: usize, cols: usize, value: T) -> Result<Vec<T>> {
        let len = Self::area(what, rows, cols)?;
        let mut out = Vec::new();
        out.try_reserve_exact(len)
            .map_err(|_| Error::TooLarge { what, rows, cols })?;
        out.resize(len, value);
        Ok(out)
    }

    /// Elements of `[rows, cols]`, where that fits a `usize`.
    pub(crate) fn area(what: &'static str, rows: usize, cols: usize) -> Result<usize> {
        rows.checked_mul(cols)
            .filter(|&e| e <= isize::MAX as usize / 8)
            .ok_or(Error::TooLarge { what, rows, cols })
    }

    /// Fails unless `given` elements make `[rows, cols]`.
    pub(crate) fn check_len(what: &'static str, given: usize, rows: usize, cols: usize) -> Result<()> {
        let needed = Self::area(what, rows, cols)?;
        if given == needed {
            Ok(())
        } else {
            Err(Error::Length {
                what,
                given,
                rows,
                cols,
                needed,
            })
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.n, self.k)
    }
}
