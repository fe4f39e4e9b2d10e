//! The arithmetic of PTX: pure functions on bit patterns.
//!
//! Registers travel as `u64` (or `u32` where an instruction has that width alone) with the value in the low bits;
//! what differs by type is a small argument, [`Format`] or [`Int`], that a decoder fixes once per instruction.

pub mod approx;
pub mod bits;
mod compare;
mod convert;
mod float;
mod format;
pub mod integer;
mod lanes;
mod mma;
mod product;
#[cfg(test)]
mod tests;

pub use compare::Comparison;
pub use convert::{
    Int, float_to_float, float_to_int, int_to_float, int_to_int, pack_pair, pack_saturated, round_to_integral,
};
pub use float::{Mode, Selection, abs, add, div, fma, mul, neg, rcp, select, sqrt, sub};
pub use format::{Format, Rounding};
pub use mma::{dot_bf16, mma_m16n8k16_bf16, multiply_tile_bf16, pack_sums, unpack_rows, unpack_sums};
pub use product::{Element, Product, Sum};
