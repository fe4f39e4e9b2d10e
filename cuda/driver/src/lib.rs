//! The CUDA driver API as a choice made at run time: NVIDIA's library, or an emulated driver over a PTX emulator.
//!
//! This crate defines the C symbols of the driver API (`cuInit`, `cuMemAlloc_v2`, `cuLaunchKernelEx`, …). The first
//! call of any of them decides where all calls go: to NVIDIA's `libcuda.so.1` where it loads and has a device, else to
//! the emulated driver; the variable `HOPPER_PROJ_DEVICE` (`auto`, `cuda`, `emulated`) or a call of [`select`] before
//! it says otherwise. A program linked with this crate therefore needs no driver to start, and the same host code runs
//! with a GPU and without.
//!
//! A crate that calls the driver through its C symbols alone, as `cust` does, must name this one, or it is not linked:
//!
//! ```
//! use hopper_cuda_driver as _;
//! ```

pub mod emulated;
pub mod ffi;

mod codes;
mod real;
mod report;
mod seed;
mod select;
mod symbols;
mod table;
mod types;

/// Every symbol of the driver API that this crate defines, with the function's address.
pub fn symbols() -> impl Iterator<Item = (&'static str, *const ())> {
    symbols::exports().map(|export| (export.name, export.address))
}

pub use report::{FAULTS_VARIABLE, LEAKS_VARIABLE, LOG_VARIABLE};
pub use seed::SEED_VARIABLE;
pub use select::{Choice, SelectError, Selected, VARIABLE, select, selected, serve_as_library};
