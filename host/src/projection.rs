//! Weights on a device, ready to be multiplied by.

use crate::device::{Result, cust_error};
use crate::engine::Inner;
use crate::instances::{Format, STARTS_AFTER};
use crate::raw::{RowMajor, Weights};
use crate::router::Rows;
use crate::weights::split::Split;
use crate::weights::window12::Packed;
use crate::{Error, Shape};
use cust::memory::{DeviceBuffer, DeviceCopy};
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// One weight matrix in packed form in device memory; made by [`Engine::prepare`](crate::Engine::prepare) and its kin. It may be dropped on
/// any thread.
#[derive(Debug)]
pub struct Projection {
    engine: Arc<Inner>,
    stored: ManuallyDrop<Stored>,
    shape: Shape,
}

/// The weights, by their format.
#[derive(Debug)]
enum Stored {
    Bf16 {
        units: DeviceBuffer<u16>,
        /// The same weights once more, for the kernels for many tokens.
        rows: Option<Rows>,
    },
    Window12 {
        units: DeviceBuffer<u8>,
        starts: DeviceBuffer<u64>,
        exceptions: DeviceBuffer<u64>,
        palette: [u32; 2],
    },
}

fn upload<T: DeviceCopy>(values: &[T]) -> Result<DeviceBuffer<T>> {
    DeviceBuffer::from_slice(values).map_err(|err| cust_error("upload packed weights", err))
}

impl Projection {
    /// Uploads BF16 units, and the same weights row-major where they are given. The engine's context is current.
    pub(crate) fn bf16(engine: &Arc<Inner>, packed: &[u16], rows: Option<&Split>, shape: Shape) -> Result<Self> {
        let stored = Stored::Bf16 {
            units: upload(packed)?,
            rows: rows.map(Rows::new).transpose()?,
        };
        Ok(Self::new(engine, stored, shape))
    }

    /// The weights for matrix products, if they were kept.
    pub fn row_major(&self) -> Option<&RowMajor> {
        match &*self.stored {
            Stored::Bf16 { rows, .. } => rows.as_ref().map(|rows| &rows.described),
            Stored::Window12 { .. } => None,
        }
    }

    /// Uploads a packed matrix. The engine's context is current.
    pub(crate) fn window12(engine: &Arc<Inner>, packed: &Packed<'_>) -> Result<Self> {
        let exceptions: Vec<u64> = packed.exceptions().iter().map(|exception| exception.word()).collect();
        let end = exceptions.len() as u64;
        let starts: Vec<u64> = (packed.starts().iter().copied())
            .chain([end; STARTS_AFTER - 1])
            .collect();
        let stored = Stored::Window12 {
            units: upload(packed.units())?,
            starts: upload(&starts)?,
            exceptions: upload(&exceptions)?,
            palette: packed.palette_words(),
        };
        Ok(Self::new(engine, stored, packed.shape()))
    }

    fn new(engine: &Arc<Inner>, stored: Stored, shape: Shape) -> Self {
        Projection {
            engine: Arc::clone(engine),
            stored: ManuallyDrop::new(stored),
            shape,
        }
    }

    /// The weights' shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The weights' format.
    pub fn format(&self) -> Format {
        self.weights().format()
    }

    /// Where the weights lie, for the [raw](crate::raw) layer.
    pub fn weights(&self) -> Weights {
        match &*self.stored {
            Stored::Bf16 { units, .. } => Weights::Bf16 {
                units: units.as_device_ptr().as_raw(),
            },
            Stored::Window12 {
                units,
                starts,
                exceptions,
                palette,
            } => Weights::Window12 {
                units: units.as_device_ptr().as_raw(),
                starts: starts.as_device_ptr().as_raw(),
                exceptions: exceptions.as_device_ptr().as_raw(),
                palette: *palette,
            },
        }
    }

    /// The address of the packed weights' units.
    pub fn pointer(&self) -> u64 {
        self.weights().units()
    }

    /// Bytes of the packed weights' units, padding included.
    pub fn unit_bytes(&self) -> usize {
        match &*self.stored {
            Stored::Bf16 { units, .. } => units.len() * size_of::<u16>(),
            Stored::Window12 { units, .. } => units.len(),
        }
    }

    /// Bytes of the packed weights, padding and exceptions included; not those of a second, row-major copy.
    pub fn bytes(&self) -> usize {
        let apart = match &*self.stored {
            Stored::Bf16 { .. } => 0,
            Stored::Window12 { starts, exceptions, .. } => (starts.len() + exceptions.len()) * size_of::<u64>(),
        };
        self.unit_bytes() + apart
    }

    pub(crate) fn check_engine(&self, engine: &Arc<Inner>) -> Result<()> {
        if Arc::ptr_eq(&self.engine, engine) {
            Ok(())
        } else {
            Err(Error::ForeignProjection)
        }
    }
}

impl Drop for Projection {
    fn drop(&mut self) {
        let Projection { engine, stored, .. } = self;
        // Freeing needs the context, which need not be current here.
        engine.with_context(|| {
            // SAFETY: dropped once, here; not used after.
            unsafe { ManuallyDrop::drop(stored) }
        });
    }
}
