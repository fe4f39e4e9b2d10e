//! Lanes of a warp (PTX ISA §9.7.9 shuffles, §9.7.13.2 `bar.warp.sync`).

use crate::thread::thread_idx_x;

/// Lanes of a warp.
pub const WARP_SIZE: u32 = 32;

#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_sync_bfly(mask: u32, value: u32, lane_mask: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_sync_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
}

/// The thread's lane in its warp, for a one-dimensional CTA.
#[inline(always)]
pub fn lane_id() -> u32 {
    thread_idx_x() % WARP_SIZE
}

/// The warp's index in its CTA, for a one-dimensional CTA.
#[inline(always)]
pub fn warp_id() -> u32 {
    thread_idx_x() / WARP_SIZE
}

/// `bar.warp.sync`: waits for the lanes of `mask` and orders their memory accesses among them.
#[inline(always)]
pub fn sync_warp(mask: u32) {
    // SAFETY: convergent; every lane of `mask` calls it with the same mask.
    unsafe { bar_warp_sync(mask) }
}

/// `shfl.sync.bfly.b32`: the value of the lane whose number differs by `lane_mask` (exclusive or).
#[inline(always)]
pub fn warp_shuffle_xor(mask: u32, value: u32, lane_mask: u32) -> u32 {
    // SAFETY: convergent; every lane of `mask` calls it.
    unsafe { shfl_sync_bfly(mask, value, lane_mask, 31) }
}

/// `shfl.sync.idx.b32`: the value of lane `idx`.
#[inline(always)]
pub fn warp_shuffle_idx(mask: u32, value: u32, idx: u32) -> u32 {
    // SAFETY: convergent; every lane of `mask` calls it.
    unsafe { shfl_sync_idx(mask, value, idx, 31) }
}
