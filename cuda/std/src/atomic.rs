//! Global memory that CTAs share while they run: atomics, and accesses past the L1 cache (PTX ISA §9.7.13.5 `atom`,
//! §9.7.13.6 `red`, §9.7.9.8 `ld` and §9.7.9.11 `st` with `.relaxed`).

use core::arch::asm;

/// `atom.acq_rel.gpu.global.add.u32`: adds and returns the value before.
///
/// It releases what this thread wrote or saw written, and acquires what the other additions released.
///
/// # Safety
/// `address` is a multiple of 4 and its 4 bytes are writable.
#[inline(always)]
pub unsafe fn add_acq_rel_u32(address: u64, value: u32) -> u32 {
    let before: u32;
    // SAFETY: `atom` wants 4 aligned, writable bytes, which the caller vouches for; an atomic races with no other
    // atomic.
    unsafe {
        asm!("atom.acq_rel.gpu.global.add.u32 {0}, [{1}], {2};",
            out(reg32) before, in(reg64) address, in(reg32) value, options(nostack))
    };
    before
}

/// `ld.relaxed.gpu.global.f32`: what is in the L2 cache, which every CTA sees alike.
///
/// # Safety
/// `address` is a multiple of 4 and its 4 bytes are readable.
#[inline(always)]
pub unsafe fn load_relaxed_f32(address: u64) -> f32 {
    let value: f32;
    // SAFETY: a relaxed load wants 4 aligned, readable bytes, which the caller vouches for; being strong, it races with
    // no store of its kind.
    unsafe { asm!("ld.relaxed.gpu.global.f32 {0}, [{1}];", out(reg32) value, in(reg64) address, options(nostack)) };
    value
}

/// `ld.relaxed.gpu.global.v4.f32`.
///
/// # Safety
/// `address` is a multiple of 16 and its 16 bytes are readable.
#[inline(always)]
pub unsafe fn load_relaxed_v4_f32(address: u64) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    // SAFETY: the vector load wants 16 aligned, readable bytes, which the caller vouches for; each of its four elements
    // is relaxed by itself.
    unsafe {
        asm!("ld.relaxed.gpu.global.v4.f32 {{{0}, {1}, {2}, {3}}}, [{4}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) address, options(nostack))
    };
    [a, b, c, d]
}

/// `red.relaxed.gpu.global.add.f32` where `live`.
///
/// # Safety
/// Where `live`, `address` is a multiple of 4 and its 4 bytes are writable.
#[inline(always)]
pub unsafe fn add_relaxed_f32_if(address: u64, value: f32, live: bool) {
    // SAFETY: `red` is predicated on `live`, under which the caller vouches for 4 aligned, writable bytes.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p red.relaxed.gpu.global.add.f32 [{0}], {1}; }}",
            in(reg64) address, in(reg32) value, in(reg32) u32::from(live), options(nostack))
    };
}

/// `st.relaxed.gpu.global.b32`.
///
/// # Safety
/// `address` is a multiple of 4 and its 4 bytes are writable.
#[inline(always)]
pub unsafe fn store_relaxed_u32(address: u64, value: u32) {
    // SAFETY: a relaxed store wants 4 aligned, writable bytes, which the caller vouches for; being strong, it races
    // with no load of its kind.
    unsafe { asm!("st.relaxed.gpu.global.b32 [{0}], {1};", in(reg64) address, in(reg32) value, options(nostack)) };
}

/// `st.relaxed.gpu.global.b32` where `live`.
///
/// # Safety
/// Where `live`, `address` is a multiple of 4 and its 4 bytes are writable.
#[inline(always)]
pub unsafe fn store_relaxed_u32_if(address: u64, value: u32, live: bool) {
    // SAFETY: the store is predicated on `live`, under which the caller vouches for 4 aligned, writable bytes.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p st.relaxed.gpu.global.b32 [{0}], {1}; }}",
            in(reg64) address, in(reg32) value, in(reg32) u32::from(live), options(nostack))
    };
}
