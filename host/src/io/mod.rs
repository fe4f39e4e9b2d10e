//! Files: safetensors and sharded checkpoints, read, converted and written.

pub mod checkpoint;
pub(crate) mod container;
pub mod convert;
mod error;
mod kinds;
mod matrices;
pub mod output;

pub use error::FileError;
