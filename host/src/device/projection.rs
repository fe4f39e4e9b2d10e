//! Weights on a device, ready to be multiplied by.

use super::Result;
use super::context::OpenDevice;
use super::raw::RowMajor;
use super::row_major::Rows;
use crate::formats::DeviceWeights;
use crate::formats::device::Stored;
use crate::instances::Format;
use crate::{Error, Shape};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// One weight matrix in device memory, made by [`Engine::prepare`](crate::Engine::prepare). It may be dropped on any
/// thread.
#[derive(Debug)]
pub struct Projection {
    memory: Memory,
    shape: Shape,
    m: RangeInclusive<usize>,
    /// Dropped last: the memory is of its context.
    device: Arc<OpenDevice>,
}

/// What is freed with the projection.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) packed: Box<dyn Stored>,
    /// The same weights once more, for the matrix products that read row-major ones.
    pub(super) rows: Option<Rows>,
}

impl Projection {
    pub(super) fn new(device: &Arc<OpenDevice>, memory: Memory, shape: Shape, m: RangeInclusive<usize>) -> Self {
        Projection {
            memory,
            shape,
            m,
            device: Arc::clone(device),
        }
    }

    /// The row-major copy of the weights, if it is kept.
    pub fn row_major(&self) -> Option<&RowMajor> {
        self.memory.rows.as_ref().map(|rows| &rows.described)
    }

    /// The weights' shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Tokens that a call may have: those that the projection was prepared for. None at all are always allowed.
    pub fn tokens(&self) -> RangeInclusive<usize> {
        self.m.clone()
    }

    /// The weights' format.
    pub fn format(&self) -> Format {
        self.weights().format()
    }

    /// Where the weights lie, for the [raw](crate::raw) layer.
    pub fn weights(&self) -> DeviceWeights {
        self.memory.packed.weights()
    }

    /// The address of the packed weights' units.
    pub fn pointer(&self) -> u64 {
        self.weights().units()
    }

    /// Bytes of the packed weights' units, padding included.
    pub fn unit_bytes(&self) -> usize {
        self.memory.packed.unit_bytes()
    }

    /// Bytes of the packed weights, padding and exceptions included; not those of a second, row-major copy.
    pub fn bytes(&self) -> usize {
        self.memory.packed.bytes()
    }

    pub(super) fn check_device(&self, device: &Arc<OpenDevice>) -> Result<()> {
        if Arc::ptr_eq(&self.device, device) {
            Ok(())
        } else {
            Err(Error::ForeignProjection)
        }
    }

    /// Fails where the kernels for so many tokens have not been loaded.
    pub(super) fn check_tokens(&self, m: usize) -> Result<()> {
        if m == 0 || self.m.contains(&m) {
            Ok(())
        } else {
            Err(Error::NotPrepared {
                m,
                prepared: self.m.clone(),
            })
        }
    }
}
