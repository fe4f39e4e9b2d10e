//! Clusters of CTAs and their distributed shared memory (PTX ISA §9.7.13.3 `barrier.cluster`, §9.7.9.22 `mapa`, sm_90).

use crate::shared::SharedAddr;
use core::arch::asm;

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.relaxed.aligned"]
    fn arrive_relaxed_aligned();
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.aligned"]
    fn arrive_aligned();
    #[link_name = "llvm.nvvm.barrier.cluster.wait.aligned"]
    fn wait_aligned();
}

/// An address in the `.shared::cluster` window: shared memory of any CTA of the cluster.
pub type ClusterAddr = u32;

/// `%cluster_ctarank`: the CTA's rank in its cluster.
#[inline(always)]
pub fn cta_rank() -> u32 {
    let rank: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {0}, %cluster_ctarank;", out(reg32) rank, options(pure, nomem, nostack)) };
    rank
}

/// `%cluster_nctarank`: CTAs of the cluster; 1 without clusters.
#[inline(always)]
pub fn cta_count() -> u32 {
    let count: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {0}, %cluster_nctarank;", out(reg32) count, options(pure, nomem, nostack)) };
    count
}

/// `%clusterid.x`: the cluster's place in the grid.
#[inline(always)]
pub fn index_x() -> u32 {
    let index: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {0}, %clusterid.x;", out(reg32) index, options(pure, nomem, nostack)) };
    index
}

/// `%nclusterid.x`: clusters of the grid along x.
#[inline(always)]
pub fn count_x() -> u32 {
    let count: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {0}, %nclusterid.x;", out(reg32) count, options(pure, nomem, nostack)) };
    count
}

/// `barrier.cluster.arrive.relaxed.aligned`: arrives without ordering memory; enough to say that this CTA has started.
#[inline(always)]
pub fn arrive_relaxed() {
    // SAFETY: convergent; every thread of the cluster calls it, the warp together.
    unsafe { arrive_relaxed_aligned() }
}

/// `barrier.cluster.arrive.aligned`: arrives and releases what this thread wrote.
#[inline(always)]
pub fn arrive() {
    // SAFETY: convergent; every thread of the cluster calls it, the warp together.
    unsafe { arrive_aligned() }
}

/// `barrier.cluster.wait.aligned`: waits until every thread of the cluster has arrived and acquires what they released.
#[inline(always)]
pub fn wait() {
    // SAFETY: convergent; every thread of the cluster calls it after an arrival, the warp together.
    unsafe { wait_aligned() }
}

/// `mapa.shared::cluster`: where `address` of this CTA lies in the CTA of rank `rank`.
#[inline(always)]
pub fn map_shared(address: SharedAddr, rank: u32) -> ClusterAddr {
    let mapped: u32;
    // SAFETY: address arithmetic.
    unsafe {
        asm!("mapa.shared::cluster.u32 {0}, {1}, {2};", out(reg32) mapped, in(reg32) address, in(reg32) rank,
            options(pure, nomem, nostack))
    };
    mapped
}

/// `st.async.v4.f32` (PTX ISA §9.7.9.12, PTX 8.1): four values to a CTA of the cluster, where an mbarrier counts their
/// 16 bytes. Whoever has waited there for all bytes with [`mbarrier::wait_cluster`](crate::mbarrier::wait_cluster)
/// sees them; nothing else has to be ordered.
///
/// # Safety
/// `address` is 16 aligned bytes of a CTA that has started, and `barrier` an initialised mbarrier of the same CTA. That
/// CTA does not exit before the bytes are there. No other thread touches them unordered.
#[inline(always)]
pub unsafe fn store_async_v4_f32(address: ClusterAddr, values: [f32; 4], barrier: ClusterAddr) {
    // SAFETY: the caller vouches for 16 aligned bytes and an mbarrier in a CTA that is there until they have come.
    unsafe {
        asm!("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [{0}], {{{1}, {2}, {3}, {4}}}, [{5}];",
            in(reg32) address, in(reg32) values[0], in(reg32) values[1], in(reg32) values[2], in(reg32) values[3],
            in(reg32) barrier, options(nostack))
    };
}

/// `ld.shared::cluster.v4.f32` where `live`, zeros elsewhere.
///
/// # Safety
/// Where `live`, `address` is 16 aligned bytes of a CTA that has not exited, written before by a thread ordered before
/// this one.
#[inline(always)]
pub unsafe fn load_v4_f32_or_zero(address: ClusterAddr, live: bool) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    // SAFETY: the load is predicated on `live`, under which the caller vouches for 16 aligned bytes that were written
    // before.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {5}, 0; mov.f32 {0}, 0f00000000; mov.f32 {1}, 0f00000000;",
            "mov.f32 {2}, 0f00000000; mov.f32 {3}, 0f00000000; @p ld.shared::cluster.v4.f32 {{{0}, {1}, {2}, {3}}}, [{4}]; }}",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) address, in(reg32) u32::from(live),
            options(readonly, nostack))
    };
    [a, b, c, d]
}
