//! Global memory (PTX ISA §9.7.8 `ld`/`st`): loads that a predicate may switch off, so that edges read nothing.

use core::arch::asm;

/// `ld.global.v4.b32` where `live`, zeros elsewhere.
///
/// # Safety
/// Where `live`, `address` is a multiple of 16 and its 16 bytes are readable.
#[inline(always)]
pub unsafe fn load_v4_or_zero(address: u64, live: bool) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the load is predicated on `live`, under which the caller vouches for 16 aligned, readable bytes.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {5}, 0; mov.b32 {0}, 0; mov.b32 {1}, 0; mov.b32 {2}, 0; mov.b32 {3}, 0;",
            "@p ld.global.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}]; }}",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) address, in(reg32) u32::from(live),
            options(readonly, nostack))
    };
    [a, b, c, d]
}

/// `ld.global.u16` where `live`, zero elsewhere.
///
/// # Safety
/// Where `live`, `address` is a multiple of 2 and its 2 bytes are readable.
#[inline(always)]
pub unsafe fn load_u16_or_zero(address: u64, live: bool) -> u32 {
    let value: u32;
    // SAFETY: the load is predicated on `live`, under which the caller vouches for 2 aligned, readable bytes.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; mov.b32 {0}, 0; @p ld.global.u16 {0}, [{1}]; }}",
            out(reg32) value, in(reg64) address, in(reg32) u32::from(live), options(readonly, nostack))
    };
    value
}

/// `prefetch.global.L2` (PTX ISA §9.7.9.15): brings the sector at `address` into the L2 cache, if the hardware likes.
#[inline(always)]
pub fn prefetch_l2(address: u64) {
    // SAFETY: a hint, which reads nothing that anybody sees.
    unsafe { asm!("prefetch.global.L2 [{0}];", in(reg64) address, options(nostack)) };
}

/// `ld.global.b64`.
///
/// # Safety
/// `address` is a multiple of 8 and its 8 bytes are readable.
#[inline(always)]
pub unsafe fn load_u64(address: u64) -> u64 {
    let value: u64;
    // SAFETY: the caller vouches for 8 aligned, readable bytes.
    unsafe { asm!("ld.global.b64 {0}, [{1}];", out(reg64) value, in(reg64) address, options(readonly, nostack)) };
    value
}

/// `ld.global.b64` where `live`, zero elsewhere.
///
/// # Safety
/// Where `live`, `address` is a multiple of 8 and its 8 bytes are readable.
#[inline(always)]
pub unsafe fn load_u64_or_zero(address: u64, live: bool) -> u64 {
    let value: u64;
    // SAFETY: the load is predicated on `live`, under which the caller vouches for 8 aligned, readable bytes.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; mov.b64 {0}, 0; @p ld.global.b64 {0}, [{1}]; }}",
            out(reg64) value, in(reg64) address, in(reg32) u32::from(live), options(readonly, nostack))
    };
    value
}

/// `ld.global.f32`.
///
/// # Safety
/// `address` is a multiple of 4 and its 4 bytes are readable.
#[inline(always)]
pub unsafe fn load_f32(address: u64) -> f32 {
    let value: f32;
    // SAFETY: the caller vouches for 4 aligned, readable bytes.
    unsafe { asm!("ld.global.f32 {0}, [{1}];", out(reg32) value, in(reg64) address, options(readonly, nostack)) };
    value
}

/// `ld.global.u8`.
///
/// # Safety
/// The byte at `address` is readable.
#[inline(always)]
pub unsafe fn load_u8(address: u64) -> u32 {
    let value: u32;
    // SAFETY: the caller vouches for one readable byte; a byte has no alignment.
    unsafe { asm!("ld.global.u8 {0}, [{1}];", out(reg32) value, in(reg64) address, options(readonly, nostack)) };
    value
}

/// `st.global.b16`.
///
/// # Safety
/// `address` is a multiple of 2 and its 2 bytes are writable by this thread alone.
#[inline(always)]
pub unsafe fn store_u16(address: u64, value: u16) {
    // SAFETY: the caller vouches for 2 aligned bytes that this thread alone writes.
    unsafe { asm!("st.global.b16 [{0}], {1};", in(reg64) address, in(reg16) value, options(nostack)) };
}

/// `st.global.b16` where `live`.
///
/// # Safety
/// Where `live`, `address` is a multiple of 2 and its 2 bytes are writable by this thread alone.
#[inline(always)]
pub unsafe fn store_u16_if(address: u64, value: u16, live: bool) {
    // SAFETY: the store is predicated on `live`, under which the caller vouches for 2 aligned bytes that this thread
    // alone writes.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p st.global.b16 [{0}], {1}; }}",
            in(reg64) address, in(reg16) value, in(reg32) u32::from(live), options(nostack))
    };
}

/// `st.global.b32` where `live`.
///
/// # Safety
/// Where `live`, `address` is a multiple of 4 and its 4 bytes are writable by this thread alone.
#[inline(always)]
pub unsafe fn store_u32_if(address: u64, value: u32, live: bool) {
    // SAFETY: the store is predicated on `live`, under which the caller vouches for 4 aligned bytes that this thread
    // alone writes.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p st.global.b32 [{0}], {1}; }}",
            in(reg64) address, in(reg32) value, in(reg32) u32::from(live), options(nostack))
    };
}

/// `st.global.b32`.
///
/// # Safety
/// `address` is a multiple of 4 and its 4 bytes are writable by this thread alone.
#[inline(always)]
pub unsafe fn store_u32(address: u64, value: u32) {
    // SAFETY: the caller vouches for 4 aligned bytes that this thread alone writes.
    unsafe { asm!("st.global.b32 [{0}], {1};", in(reg64) address, in(reg32) value, options(nostack)) };
}

/// `st.global.v2.b32`.
///
/// # Safety
/// `address` is a multiple of 8 and its 8 bytes are writable by this thread alone.
#[inline(always)]
pub unsafe fn store_v2(address: u64, values: [u32; 2]) {
    // SAFETY: the caller vouches for 8 aligned bytes that this thread alone writes.
    unsafe {
        asm!("st.global.v2.b32 [{0}], {{{1}, {2}}};", in(reg64) address, in(reg32) values[0], in(reg32) values[1],
            options(nostack))
    };
}

/// `st.global.v4.b32`.
///
/// # Safety
/// `address` is a multiple of 16 and its 16 bytes are writable by this thread alone.
#[inline(always)]
pub unsafe fn store_v4(address: u64, values: [u32; 4]) {
    // SAFETY: the caller vouches for 16 aligned bytes that this thread alone writes.
    unsafe {
        asm!("st.global.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}};", in(reg64) address, in(reg32) values[0],
            in(reg32) values[1], in(reg32) values[2], in(reg32) values[3], options(nostack))
    };
}
