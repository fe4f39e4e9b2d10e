//! What a kernel may say: one thin function per PTX instruction, split by family.
//!
//! Paths and signatures follow the `cuda_std` crate of rust-cuda where the function exists there; the rest is what
//! Hopper adds. Everything targets `nvptx64-nvidia-cuda` with rustc's own LLVM back end; on another target this crate
//! is empty, so a workspace that holds it still builds on the host.
//!
//! Two rules decide how an instruction is written:
//!
//! * Barriers and warp-wide matrix instructions go through LLVM's intrinsics, which are *convergent*: the compiler may
//!   not copy them into the arms of a branch. Inline assembly has no such mark, so only instructions that one lane may
//!   execute alone are written with `asm!`. `wgmma` and `ldmatrix` have no intrinsic that takes what they are given
//!   here; they are the exceptions, and say what their callers must keep to.
//! * Addresses in shared memory are 32-bit values of the `.shared` window ([`shared::SharedAddr`]), as the bulk-copy
//!   and barrier instructions want them.
#![no_std]
#![cfg(target_arch = "nvptx64")]
#![feature(abi_unadjusted, asm_experimental_arch, link_llvm_intrinsics, stdarch_nvptx)]
#![allow(internal_features)]

pub mod atomic;
pub mod bits;
pub mod bulk_copy;
pub mod cluster;
pub mod convert;
pub mod global;
pub mod math;
pub mod matrix;
pub mod mbarrier;
pub mod mma;
pub mod pdl;
pub mod shared;
pub mod tensor_map;
pub mod thread;
pub mod warp;
pub mod wgmma;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `trap` ends the kernel with an error that the host sees; nothing runs after it.
    unsafe { core::arch::nvptx::trap() }
}
