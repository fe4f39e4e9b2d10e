//! Row-major weights that own their device memory.

use super::Result;
use super::allocation::Allocation;
use super::raw::RowMajor;
use super::setup::Setup;
use crate::bf16;
use crate::formats::split::Split;

/// Row-major weights with their description.
#[derive(Debug)]
pub(super) struct Rows {
    /// Keeps what is described.
    _memory: Allocation,
    pub(super) described: RowMajor,
}

impl Rows {
    /// Uploads row-major weights.
    pub(super) fn new(setup: &Setup, split: &Split) -> Result<Self> {
        let rows = split.rows()?;
        let memory = setup.upload::<bf16>("upload row-major weights", &rows)?;
        let described = RowMajor::new(memory.address(), split.shape(), split.terms())?;
        Ok(Rows {
            _memory: memory,
            described,
        })
    }
}
