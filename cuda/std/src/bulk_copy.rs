//! Asynchronous bulk copies (PTX ISA §9.7.9.25 `cp.async.bulk`, sm_90).

use crate::shared::SharedAddr;
use core::arch::asm;

/// `cp.async.bulk` from global to this CTA's shared memory; the bytes are counted on `barrier` as they land.
///
/// # Safety
/// Addresses and `bytes` are multiples of 16; the source stays readable and the destination untouched until the
/// barrier's phase ends; the barrier expects the bytes.
#[inline(always)]
pub unsafe fn global_to_shared(to: SharedAddr, from: u64, bytes: u32, barrier: SharedAddr) {
    // SAFETY: addresses and size are multiples of 16, the barrier awaits the bytes, and until its phase ends the caller
    // keeps the source readable and the destination untouched.
    unsafe {
        asm!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}], {2}, [{3}];",
            in(reg32) to, in(reg64) from, in(reg32) bytes, in(reg32) barrier, options(nostack))
    };
}
