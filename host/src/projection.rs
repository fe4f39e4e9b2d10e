//! Weights on a device, ready to be multiplied by.

use crate::device::Result;
use crate::engine::Inner;
use crate::{Error, Shape};
use cust::memory::DeviceBuffer;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// One weight matrix in packed form in device memory; made by [`Engine::prepare`](crate::Engine::prepare). It may be dropped on any thread.
#[derive(Debug)]
pub struct Projection {
    engine: Arc<Inner>,
    packed: ManuallyDrop<DeviceBuffer<u16>>,
    shape: Shape,
}

impl Projection {
    pub(crate) fn new(engine: Arc<Inner>, packed: DeviceBuffer<u16>, shape: Shape) -> Self {
        Projection {
            engine,
            packed: ManuallyDrop::new(packed),
            shape,
        }
    }

    /// The weights' shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The address of the packed weights, for the [raw](crate::raw) layer.
    pub fn pointer(&self) -> u64 {
        self.packed.as_device_ptr().as_raw()
    }

    /// Bytes of the packed weights, padding included.
    pub fn bytes(&self) -> usize {
        self.packed.len() * size_of::<u16>()
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
        let Projection { engine, packed, .. } = self;
        // Freeing needs the context, which need not be current here.
        engine.with_context(|| {
            // SAFETY: dropped once, here; not used after.
            unsafe { ManuallyDrop::drop(packed) }
        });
    }
}
