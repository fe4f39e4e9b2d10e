//! Bytes and bits of registers (PTX ISA §9.7.9.7 `prmt`).

use core::arch::asm;

/// `prmt.b32`: four bytes chosen from the eight of `a` (0..3) and `b` (4..7), one nibble of `selector` each.
#[inline(always)]
pub fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let chosen: u32;
    // SAFETY: pure arithmetic.
    unsafe {
        asm!("prmt.b32 {0}, {1}, {2}, {3};",
            out(reg32) chosen, in(reg32) a, in(reg32) b, in(reg32) selector, options(pure, nomem, nostack))
    };
    chosen
}
