//! Executes PTX on the CPU and refuses what the hardware leaves undefined.
//!
//! A [`Module`] is PTX text, parsed and decoded once. [`Memory`] is a device's global memory. [`launch`] runs one of
//! the module's kernels on it, warp by warp, and answers with what it counted or with the first [`Fault`] it met.
//!
//! What is executed, what is refused, and how scheduling works:
#![doc = include_str!("../README.md")]

mod counters;
mod decode;
mod error;
mod launch;
mod limits;
mod machine;
mod memory;
mod module;
mod program;

pub mod num;
pub mod parse;
pub mod tensor_map;

pub use counters::{Counters, Traffic};
pub use error::{AccessError, BadLaunch, Error, Fault, FaultKind, PtxError};
pub use launch::{Launch, LaunchId, Options, Outcome, launch};
pub use limits::Limits;
pub use memory::Memory;
pub use module::{EntryInfo, GlobalInfo, Module, ParamInfo};
pub use tensor_map::TensorMap;
