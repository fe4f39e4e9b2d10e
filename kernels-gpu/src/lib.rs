//! The GPU kernels of hopper-proj, and what both sides must agree on.
//!
//! [`layout`], [`formats`], [`args`] and [`instances`] are read by the host too: a tile size, a thread count or a
//! parameter's order is written once, here. The kernels themselves exist on `nvptx64` only; [`instances`] lists every
//! compiled one.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

pub mod args;
pub mod formats;
pub mod instances;
pub mod layout;

#[cfg(target_arch = "nvptx64")]
mod gate;
#[cfg(target_arch = "nvptx64")]
mod gemm;
#[cfg(target_arch = "nvptx64")]
mod gemv;
#[cfg(target_arch = "nvptx64")]
mod ring;
#[cfg(target_arch = "nvptx64")]
mod split_k;
#[cfg(target_arch = "nvptx64")]
mod stream_read;
