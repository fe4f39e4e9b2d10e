//! Arithmetic that `core` has no word for, and the approximate functions with the accuracy that the PTX ISA states
//! (§9.7.3 floating point).

use core::arch::asm;

// As intrinsics, they take constants as they are, where inline assembly would want a register for each.
unsafe extern "unadjusted" {
    #[link_name = "llvm.fma.f32"]
    fn llvm_fma(a: f32, b: f32, c: f32) -> f32;
    #[link_name = "llvm.maximum.f32"]
    fn llvm_maximum(a: f32, b: f32) -> f32;
    #[link_name = "llvm.minimum.f32"]
    fn llvm_minimum(a: f32, b: f32) -> f32;
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $instruction:literal;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(x: f32) -> f32 {
            let y: f32;
            // SAFETY: pure arithmetic.
            unsafe {
                asm!(concat!($instruction, " {0}, {1};"), out(reg32) y, in(reg32) x, options(pure, nomem, nostack))
            };
            y
        }
    )* };
}

unary! {
    /// `ex2.approx.f32`: 2^x within 2 ulp.
    ex2 = "ex2.approx.f32";
    /// `lg2.approx.f32`: log₂ x within 2^-22, absolutely for x in ½…2 and relatively elsewhere.
    lg2 = "lg2.approx.f32";
    /// `rcp.approx.f32`: 1/x within 1 ulp.
    rcp = "rcp.approx.f32";
    /// `sqrt.approx.f32`: √x within a relative 2^-23.
    sqrt = "sqrt.approx.f32";
}

/// `fma.rn.f32`: `a · b + c`, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    // SAFETY: pure arithmetic.
    unsafe { llvm_fma(a, b, c) }
}

/// `max.NaN.f32`: the larger; NaN where either is.
#[inline(always)]
pub fn max_or_nan(a: f32, b: f32) -> f32 {
    // SAFETY: pure arithmetic.
    unsafe { llvm_maximum(a, b) }
}

/// `min.NaN.f32`: the smaller; NaN where either is.
#[inline(always)]
pub fn min_or_nan(a: f32, b: f32) -> f32 {
    // SAFETY: pure arithmetic.
    unsafe { llvm_minimum(a, b) }
}

/// `@p add.rn.f32`: adds `value` to `sum` where `live`. `sum` keeps its bits elsewhere.
#[inline(always)]
pub fn add_if(sum: &mut f32, value: f32, live: bool) {
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p add.rn.f32 {0}, {0}, {1}; }}",
            inout(reg32) *sum, in(reg32) value, in(reg32) u32::from(live), options(pure, nomem, nostack))
    };
}
