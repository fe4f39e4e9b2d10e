//! The device side: a context with its kernels, weights in device memory, launches and graphs.

mod allocation;
mod buffer;
mod captures;
mod context;
mod engine;
mod graph;
mod prepare;
mod profile;
mod projection;
pub mod raw;
mod router;
mod router_state;
mod row_major;
mod setup;
mod status;
mod stream;

pub use buffer::{Buffer, Element, Slice, SliceMut};
pub use context::{DeviceInfo, EngineOptions, OLDEST_CUDA};
pub use engine::Engine;
pub use graph::Graph;
pub use prepare::{PrepareOptions, RowMajorCopy};
pub use projection::Projection;
pub use router::{Choices, Router, RouterOptions, RouterWeights, Tokens};
pub use status::{Choice, Selected, Unavailable, cust_error};
pub use stream::{Event, Stream};

pub(crate) use allocation::Allocation;
pub(crate) use setup::Setup;
pub(crate) use status::{Result, check};
