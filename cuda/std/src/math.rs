//! Arithmetic that `core` has no word for, and the approximate functions with the accuracy that the PTX ISA states
//! (§9.7.3 floating point).

use core::arch::asm;

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
    /// `rcp.approx.f32`: 1/x within 1 ulp.
    rcp = "rcp.approx.f32";
    /// `sqrt.approx.f32`: √x within a relative 2^-23.
    sqrt = "sqrt.approx.f32";
}

/// `fma.rn.f32`: `a · b + c`, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    let d: f32;
    // SAFETY: pure arithmetic.
    unsafe {
        asm!("fma.rn.f32 {0}, {1}, {2}, {3};", out(reg32) d, in(reg32) a, in(reg32) b, in(reg32) c,
            options(pure, nomem, nostack))
    };
    d
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $instruction:literal;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(a: f32, b: f32) -> f32 {
            let c: f32;
            // SAFETY: pure arithmetic.
            unsafe {
                asm!(concat!($instruction, " {0}, {1}, {2};"), out(reg32) c, in(reg32) a, in(reg32) b,
                    options(pure, nomem, nostack))
            };
            c
        }
    )* };
}

binary! {
    /// `max.NaN.f32`: the larger; NaN where either is.
    max_or_nan = "max.NaN.f32";
    /// `min.NaN.f32`: the smaller; NaN where either is.
    min_or_nan = "min.NaN.f32";
}
