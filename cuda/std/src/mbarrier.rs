//! Barriers in shared memory that count arrivals and transferred bytes (PTX ISA §9.7.13.15 `mbarrier`, sm_90).

use crate::cluster::ClusterAddr;
use crate::shared::SharedAddr;
use core::arch::asm;

/// `mbarrier.init`: the barrier's phase ends after `arrivals` arrivals and all expected bytes.
///
/// # Safety
/// `barrier` is 8 aligned bytes of this CTA's shared memory that nobody uses yet.
#[inline(always)]
pub unsafe fn init(barrier: SharedAddr, arrivals: u32) {
    // SAFETY: the barrier's 8 aligned bytes lie in this CTA's shared memory and nobody uses them yet, so `init` makes
    // them an mbarrier object.
    unsafe {
        asm!("mbarrier.init.shared::cta.b64 [{0}], {1};", in(reg32) barrier, in(reg32) arrivals, options(nostack))
    };
}

/// Makes initialised barriers visible to the cluster and to the asynchronous proxy: `fence.mbarrier_init` and
/// `fence.proxy.async` (PTX ISA §9.7.13.4).
#[inline(always)]
pub fn fence_init() {
    // SAFETY: fences only order accesses.
    unsafe {
        asm!("fence.mbarrier_init.release.cluster;", options(nostack));
        asm!("fence.proxy.async.shared::cta;", options(nostack));
    }
}

/// `mbarrier.arrive.expect_tx`: arrives once and makes the phase wait for `bytes` more.
///
/// # Safety
/// `barrier` was initialised, and this ordered before the call.
#[inline(always)]
pub unsafe fn arrive_expect_tx(barrier: SharedAddr, bytes: u32) {
    // SAFETY: the bytes hold an initialised mbarrier object, which `arrive.expect_tx` needs; an arrival and expected
    // bytes change nothing else.
    unsafe {
        asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{0}], {1};", in(reg32) barrier, in(reg32) bytes,
            options(nostack))
    };
}

/// `mbarrier.arrive`: arrives once, releasing what this thread has read and written.
///
/// # Safety
/// `barrier` was initialised, and this ordered before the call.
#[inline(always)]
pub unsafe fn arrive(barrier: SharedAddr) {
    // SAFETY: the bytes hold an initialised mbarrier object, which `arrive` needs; an arrival changes nothing else.
    unsafe { asm!("mbarrier.arrive.shared::cta.b64 _, [{0}];", in(reg32) barrier, options(nostack)) };
}

/// `mbarrier.arrive` at a barrier of any CTA of the cluster, with the scope of this thread's CTA: for whoever waits
/// there to start a bulk copy or TMA load over what this thread has read.
///
/// The scope of the cluster would cost a GPU-wide fence here and an invalidation of L1 at the wait. The memory model
/// (PTX ISA §8) gives an arrival of the smaller scope no meaning for other CTAs. It suffices all the same, as CUTLASS's
/// pipelines show: when a thread arrives, its loads have brought their operands into registers, and the `wgmma`s that
/// it has waited for have read theirs; and a copy that is issued after the arrival was seen reaches shared memory later
/// still. What threads have *written* is not ordered by it.
///
/// # Safety
/// `barrier` was initialised, and this ordered before the call. Its CTA has started, and the call is ordered before
/// that CTA's exit. Whoever waits for it writes what this thread has read by asynchronous copies alone.
#[inline(always)]
pub unsafe fn arrive_in_cluster(barrier: ClusterAddr) {
    // SAFETY: the barrier is initialised in a CTA that is there until the arrival has reached it, so the remote arrival
    // meets an mbarrier object.
    unsafe { asm!("mbarrier.arrive.shared::cluster.b64 _, [{0}];", in(reg32) barrier, options(nostack)) };
}

/// `mbarrier.try_wait.parity` until the phase of this parity has ended; what arrived with it, copies and this CTA's
/// threads, is visible after. Of other CTAs' threads, see [`arrive_in_cluster`].
///
/// # Safety
/// `barrier` was initialised, and this ordered before the call.
#[inline(always)]
pub unsafe fn wait_parity(barrier: SharedAddr, parity: u32) {
    loop {
        let done: u32;
        // SAFETY: the bytes hold an initialised mbarrier object, which `try_wait` needs; it reads only the phase.
        unsafe {
            asm!("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p; }}",
                out(reg32) done, in(reg32) barrier, in(reg32) parity, options(nostack))
        };
        if done != 0 {
            return;
        }
    }
}

/// As [`wait_parity`], with the scope of the cluster: for what other CTAs have stored asynchronously.
///
/// # Safety
/// `barrier` was initialised, and this ordered before the call.
#[inline(always)]
pub unsafe fn wait_cluster(barrier: SharedAddr, parity: u32) {
    loop {
        let done: u32;
        // SAFETY: the bytes hold an initialised mbarrier object, which `try_wait` needs; it reads only the phase.
        unsafe {
            asm!("{{ .reg .pred p;",
                "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p; }}",
                out(reg32) done, in(reg32) barrier, in(reg32) parity, options(nostack))
        };
        if done != 0 {
            return;
        }
    }
}
