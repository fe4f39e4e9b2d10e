//! BF16 projections `y = x · Wᵀ` for Hopper decode, every kernel in Rust.
//!
//! Weights are row-major `[N, K]`, activations row-major `[m, K]`, the result row-major `[m, N]`, all BF16, with FP32
//! accumulation. Data flows one way: [`checkpoint`] → [`weights`] (packing) → device; x → [`plan`](mod@plan) → launch → y.
//!
//! Without the `cuda` feature the crate packs, plans and computes references; with it, it also runs, on an NVIDIA GPU or
//! on the emulated one (`Engine`).

pub mod checkpoint;
mod dtype;
mod error;
pub mod plan;
pub mod reference;
mod shape;
pub mod suites;
pub mod weights;

pub use dtype::Dtype;
pub use error::{Error, Result};
pub use half::bf16;
pub use plan::{Plan, Request, plan};
pub use shape::Shape;
