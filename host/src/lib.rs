//! BF16 projections `y = x · Wᵀ` for Hopper decode, every kernel in Rust.
//!
//! Weights are row-major `[N, K]`, activations row-major `[m, K]`, the result row-major `[m, N]`, all BF16, with FP32
//! accumulation. Data flows one way: [`io`] → [`formats`] (packing) → device; x → [`plan`](mod@plan) → launch → y.
//!
//! Without the `cuda` feature the crate packs, plans and computes references; with it, it also runs, on an NVIDIA GPU
//! or on the emulated one (`Engine`).

#[cfg(feature = "cuda")]
mod device;
mod dtype;
mod error;
pub mod formats;
pub mod gate;
pub mod io;
pub mod plan;
pub mod reference;
mod shape;
pub mod suites;

pub use dtype::Dtype;
pub use error::{Error, Result};
pub use gate::{Bias, BiasOn, Gate, RouterConfig, Score};
pub use half::bf16;
pub use kernels_gpu::instances;
pub use plan::{Op, Plan, Request, plan};
pub use shape::Shape;

/// The wrapper of the driver API that the engine opens contexts and loads kernels with.
#[cfg(feature = "cuda")]
pub use cust;
#[cfg(feature = "cuda")]
pub use device::{
    Buffer, Choice as DriverChoice, Choices, DeviceInfo, Element, Engine, EngineOptions, Event, Graph, OLDEST_CUDA,
    PrepareOptions, Projection, Router, RouterOptions, RouterWeights, RowMajorCopy, Selected as DriverInUse, Slice,
    SliceMut, Stream, Tokens, Unavailable as CudaUnavailable, cust_error as device_error, raw,
};
#[cfg(feature = "cuda")]
pub use hopper_cuda_driver::emulated::{Counters, Traffic};
