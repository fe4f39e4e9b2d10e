//! Row-major weights that own their device memory.

use super::raw::RowMajor;
use super::{Result, upload};
use crate::bf16;
use crate::formats::split::Split;
use cust::memory::DeviceBuffer;

/// Row-major weights with their description.
#[derive(Debug)]
pub(super) struct Rows {
    /// Keeps what is described.
    _memory: DeviceBuffer<u16>,
    pub(super) described: RowMajor,
}

impl Rows {
    /// Uploads row-major weights. The context to hold them is current.
    pub(super) fn new(split: &Split) -> Result<Self> {
        let rows = split.rows()?;
        let memory = upload("upload row-major weights", bytemuck::cast_slice::<bf16, u16>(&rows))?;
        let described = RowMajor::new(memory.as_device_ptr().as_raw(), split.shape(), split.terms())?;
        Ok(Rows {
            _memory: memory,
            described,
        })
    }
}
