//! BF16 projections `y = x · Wᵀ` for Hopper decode, every kernel in Rust.
//!
//! Weights are row-major `[N, K]`, activations row-major `[m, K]`, the result row-major `[m, N]`, all BF16, with FP32
//! accumulation. Data flows one way: [`checkpoint`] → [`weights`] (packing) → device; x → [`plan`](mod@plan) → launch → y.
//!
//! Without the `cuda` feature the crate packs, plans and computes references; with it, it also runs, on an NVIDIA GPU or
//! on the emulated one (`Engine`).

pub mod checkpoint;
mod container;
pub mod convert;
#[cfg(feature = "cuda")]
mod device;
mod dtype;
#[cfg(feature = "cuda")]
mod engine;
mod error;
#[cfg(feature = "cuda")]
mod graph;
#[cfg(feature = "cuda")]
mod measuring;
pub mod output;
pub mod plan;
#[cfg(feature = "cuda")]
mod projection;
#[cfg(feature = "cuda")]
pub mod raw;
pub mod reference;
pub mod router;
mod shape;
pub mod suites;

pub mod weights;

pub use dtype::Dtype;
pub use error::{Error, Result};
pub use half::bf16;
pub use kernels_gpu::instances;
pub use plan::{Op, Plan, Request, plan};
pub use shape::Shape;

/// The wrapper of the driver API that this crate's streams and buffers are of.
#[cfg(feature = "cuda")]
pub use cust;
#[cfg(feature = "cuda")]
pub use device::{Choice as DriverChoice, Selected as DriverInUse, cust_error as device_error};
#[cfg(feature = "cuda")]
pub use engine::{DeviceInfo, Engine, EngineOptions};
#[cfg(feature = "cuda")]
pub use graph::Graph;
#[cfg(feature = "cuda")]
pub use hopper_cuda_driver::emulated::{Counters, Traffic};
#[cfg(feature = "cuda")]
pub use projection::Projection;
