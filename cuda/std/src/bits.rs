//! Bytes and bits of registers (PTX ISA §9.7.9.1 `mov`, §9.7.9.7 `prmt`).

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

/// The value, which the compiler knows no more and takes where it stands (`mov.b32`): a loop to such a bound stays a
/// loop, and what is computed from it is computed behind it.
#[inline(always)]
pub fn opaque(value: u32) -> u32 {
    let same: u32;
    // SAFETY: arithmetic; without `pure`, it stays at its place.
    unsafe { asm!("mov.b32 {0}, {1};", out(reg32) same, in(reg32) value, options(nomem, nostack)) };
    same
}
