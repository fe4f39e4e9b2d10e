//! Programmatic dependent launch (PTX ISA §9.7.13.13 `griddepcontrol`, sm_90).

use core::arch::asm;

/// `griddepcontrol.launch_dependents`: once every CTA has said so, the next kernel of the stream may start.
#[inline(always)]
pub fn launch_dependents() {
    // SAFETY: has no effect on this kernel's memory.
    unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack)) };
}

/// `griddepcontrol.wait`: waits until the kernels before this one on the stream have ended and their writes are
/// visible.
///
/// Comes before the first access to anything that such a kernel reads or writes, and before any exit.
#[inline(always)]
pub fn wait() {
    // SAFETY: only waits.
    unsafe { asm!("griddepcontrol.wait;", options(nostack)) };
}
