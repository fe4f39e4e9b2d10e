//! MoE routers: hidden states in, expert ids and weights out, in one launch.

mod config;
#[cfg(feature = "cuda")]
mod device;

pub use config::{Bias, BiasOn, Gate, RouterConfig};
#[cfg(feature = "cuda")]
pub(crate) use device::Rows;
#[cfg(feature = "cuda")]
pub use device::{Choices, Router, RouterOptions, RouterWeights, Tokens};
pub use kernels_gpu::instances::Score;
