//! Conversions (PTX ISA §9.7.8 `cvt`).

use core::arch::asm;

/// `cvt.rn.bf16.f32`: rounds to the nearest BF16, ties to even, and returns its bits.
#[inline(always)]
pub fn f32_to_bf16(value: f32) -> u16 {
    let bits: u16;
    // SAFETY: pure arithmetic.
    unsafe { asm!("cvt.rn.bf16.f32 {0}, {1};", out(reg16) bits, in(reg32) value, options(pure, nomem, nostack)) };
    bits
}
