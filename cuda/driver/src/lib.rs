//! The CUDA driver API as a choice made at run time: NVIDIA's library, or an emulated driver over a PTX emulator.
//!
//! This crate defines the C symbols of the driver API (`cuInit`, `cuMemAlloc_v2`, `cuLaunchKernelEx`, …). The first
//! call of any of them decides where all calls go: to NVIDIA's `libcuda.so.1`, or nowhere, with an error that says why.
//! The emulated driver serves a program that asks for it, ahead of the first call: by [`select`], or by the variable
//! `HOPPER_PROJ_DEVICE` (`auto`, `cuda`, `emulated`). A program linked with this crate therefore needs no driver to
//! start, the same host code runs with a GPU and without, and no program is emulated by accident.
//!
//! A crate that calls the driver through its C symbols alone, as `cust` does, must name this one, or it is not linked:
//!
//! ```
//! use hopper_cuda_driver as _;
//! ```

pub mod emulated;
pub mod ffi;

mod codes;
mod gpcs;
mod real;
mod report;
mod seed;
mod select;
mod symbols;
mod table;
mod types;
mod unavailable;

/// Every symbol of the driver API that this crate defines, with the function's address.
pub fn symbols() -> impl Iterator<Item = (&'static str, *const ())> {
    symbols::exports().map(|export| (export.name, export.address))
}

pub use codes::{behind_unknown, meaning};
pub use gpcs::GPCS_VARIABLE;
pub use report::{FAULTS_VARIABLE, LEAKS_VARIABLE, LOG_VARIABLE};
pub use seed::SEED_VARIABLE;
pub use select::{Choice, SelectError, Selected, VARIABLE, fallback, select, selected, serve_as_library};
pub use unavailable::{Capability, HOPPER, Unavailable, advice};
