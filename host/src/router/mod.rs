//! MoE routers: hidden states in, expert ids and weights out, in one launch.

mod config;

pub use config::{Bias, BiasOn, Gate, RouterConfig};
pub use kernels_gpu::instances::Score;
