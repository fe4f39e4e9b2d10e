//! Work in progress.

pub mod num;
pub mod parse;
