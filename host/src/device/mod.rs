//! The device side: a context with its kernels, weights in device memory, launches and graphs.

mod context;
mod engine;
mod graph;
mod prepare;
mod profile;
mod projection;
pub mod raw;
mod router;
mod row_major;
mod status;

pub use context::{DeviceInfo, EngineOptions};
pub use engine::Engine;
pub use graph::Graph;
pub use prepare::{PrepareOptions, RowMajorCopy};
pub use projection::Projection;
pub use router::{Choices, Router, RouterOptions, RouterWeights, Tokens};
pub use status::{Choice, Selected, cust_error};

pub(crate) use status::{Result, check};

use cust::memory::{DeviceBuffer, DeviceCopy};

/// Copies values into memory of the current context; `call` says what for.
pub(crate) fn upload<T: DeviceCopy>(call: &'static str, values: &[T]) -> Result<DeviceBuffer<T>> {
    DeviceBuffer::from_slice(values).map_err(|err| cust_error(call, err))
}
