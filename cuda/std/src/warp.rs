//! Lanes of a warp (PTX ISA §9.7.9 shuffles, §9.7.13.2 `bar.warp.sync`, §9.7.13.9 `vote.sync`, §9.7.13.11
//! `redux.sync`, §9.7.13.14 `elect.sync`).

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
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot_sync(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.umax"]
    fn redux_sync_umax(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.elect.sync"]
    fn elect_sync(mask: u32) -> Election;
}

/// What `elect.sync` tells a lane.
#[repr(C)]
struct Election {
    leader: u32,
    is_leader: bool,
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

/// [`warp_id`] as a value that the assembler knows to be the same for all lanes, so that addresses made of it go into
/// uniform registers (which bulk copies, TMA loads and mbarriers take). The whole warp calls it.
#[inline(always)]
pub fn uniform_warp_id() -> u32 {
    warp_shuffle_idx(u32::MAX, warp_id(), 0)
}

/// `elect.sync`: whether this lane leads those of `mask`, of which one does: for one mask always the same.
///
/// What one lane is to do stands behind it, rather than behind a comparison of lanes: the assembler then knows that
/// one lane is left, and needs no loop over lanes around instructions with uniform operands.
#[inline(always)]
pub fn elect(mask: u32) -> bool {
    // SAFETY: convergent; every lane of `mask` calls it with the same mask.
    let Election { is_leader, .. } = unsafe { elect_sync(mask) };
    is_leader
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

/// `vote.sync.ballot.b32`: a bit for every lane of `mask`, set where the lane's `predicate` holds.
#[inline(always)]
pub fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    // SAFETY: convergent; every lane of `mask` calls it.
    unsafe { vote_ballot_sync(mask, predicate) }
}

/// `redux.sync.max.u32`: the largest value of the lanes of `mask`.
#[inline(always)]
pub fn warp_reduce_max(mask: u32, value: u32) -> u32 {
    // SAFETY: convergent; every lane of `mask` calls it.
    unsafe { redux_sync_umax(value, mask) }
}
