//! What a router does with logits: the configuration of its gate, checked once.

mod config;
mod error;

pub use config::{Bias, BiasOn, Gate, RouterConfig};
pub use error::ConfigError;
pub use kernels_gpu::instances::Score;
