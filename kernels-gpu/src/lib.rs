//! The GPU kernels of hopper-proj, and what both sides must agree on.
//!
//! [`layout`] and [`instances`] are read by the host too: a tile size, a thread count or an argument's order is written
//! once, here. The kernels themselves exist on `nvptx64` only; [`instances`] lists every compiled one.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

pub mod instances;
pub mod layout;

#[cfg(target_arch = "nvptx64")]
mod floor;
#[cfg(target_arch = "nvptx64")]
mod format;
#[cfg(target_arch = "nvptx64")]
mod gate;
#[cfg(target_arch = "nvptx64")]
mod gemm;
#[cfg(target_arch = "nvptx64")]
mod gemm_plain;
#[cfg(target_arch = "nvptx64")]
mod gemm_units;
#[cfg(target_arch = "nvptx64")]
mod gemv;
#[cfg(target_arch = "nvptx64")]
mod join;
#[cfg(target_arch = "nvptx64")]
mod natural;
#[cfg(target_arch = "nvptx64")]
mod patches;
#[cfg(target_arch = "nvptx64")]
mod ring;
#[cfg(target_arch = "nvptx64")]
mod score;
#[cfg(target_arch = "nvptx64")]
mod stages;
#[cfg(target_arch = "nvptx64")]
mod tile_sum;
