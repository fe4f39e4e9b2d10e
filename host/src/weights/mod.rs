//! Packing and casting of weights: pure functions on slices.

pub mod bf16;
pub mod cast;
pub mod split;
pub mod window12;
