//! Shared memory by 32-bit address (PTX ISA §5.1.5, §9.7.8 `ld`/`st`).

use core::arch::{asm, global_asm};

// Bulk copies want 16-byte alignment and swizzled tiles 1024.
global_asm!(".extern .shared .align 1024 .b8 dyn_smem[];");

/// An address in the `.shared` window of this CTA, in bytes.
pub type SharedAddr = u32;

/// The address of the CTA's dynamic shared memory, whose size the launch gives.
#[inline(always)]
pub fn dynamic_base() -> SharedAddr {
    let address: u32;
    // SAFETY: takes the address of a variable; accesses nothing.
    unsafe { asm!("mov.u32 {0}, dyn_smem;", out(reg32) address, options(pure, nomem, nostack)) };
    address
}

/// `ld.shared.v4.b32`.
///
/// # Safety
/// `address` is a multiple of 16 and its 16 bytes were written before by this thread or by one ordered before it.
#[inline(always)]
pub unsafe fn load_v4(address: SharedAddr) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller vouches for 16 aligned bytes whose writes are ordered before the load.
    unsafe {
        asm!("ld.shared.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) address, options(readonly, nostack))
    };
    [a, b, c, d]
}

/// `st.shared.v4.b32`.
///
/// # Safety
/// `address` is a multiple of 16 inside this CTA's shared memory, and no other thread touches its 16 bytes unordered.
#[inline(always)]
pub unsafe fn store_v4(address: SharedAddr, values: [u32; 4]) {
    // SAFETY: the caller vouches for 16 aligned bytes of this CTA's shared memory, which no unordered access meets.
    unsafe {
        asm!("st.shared.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}};", in(reg32) address, in(reg32) values[0],
            in(reg32) values[1], in(reg32) values[2], in(reg32) values[3], options(nostack))
    };
}

/// Eight `ld.shared.v2.b64`, together: sixteen values that lie one after the other.
///
/// # Safety
/// `address` is a multiple of 16 and its 128 bytes were written before by this thread or by one ordered before it.
#[inline(always)]
pub unsafe fn load_16_u64(address: SharedAddr) -> [u64; 16] {
    let (a, b, c, d, e, f, g, h): (u64, u64, u64, u64, u64, u64, u64, u64);
    let (i, j, k, l, m, n, o, p): (u64, u64, u64, u64, u64, u64, u64, u64);
    // SAFETY: the caller vouches for 128 bytes, 16-byte aligned, whose writes are ordered before the loads; the last
    // load ends with them.
    unsafe {
        asm!("ld.shared.v2.b64 {{{0}, {1}}}, [{16}];", "ld.shared.v2.b64 {{{2}, {3}}}, [{16}+16];",
            "ld.shared.v2.b64 {{{4}, {5}}}, [{16}+32];", "ld.shared.v2.b64 {{{6}, {7}}}, [{16}+48];",
            "ld.shared.v2.b64 {{{8}, {9}}}, [{16}+64];", "ld.shared.v2.b64 {{{10}, {11}}}, [{16}+80];",
            "ld.shared.v2.b64 {{{12}, {13}}}, [{16}+96];", "ld.shared.v2.b64 {{{14}, {15}}}, [{16}+112];",
            out(reg64) a, out(reg64) b, out(reg64) c, out(reg64) d, out(reg64) e, out(reg64) f, out(reg64) g, out(reg64) h,
            out(reg64) i, out(reg64) j, out(reg64) k, out(reg64) l, out(reg64) m, out(reg64) n, out(reg64) o, out(reg64) p,
            in(reg32) address, options(readonly, nostack))
    };
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

/// `ld.shared.v2.b32`.
///
/// # Safety
/// `address` is a multiple of 8 and its 8 bytes were written before by this thread or by one ordered before it.
#[inline(always)]
pub unsafe fn load_v2(address: SharedAddr) -> [u32; 2] {
    let (a, b);
    // SAFETY: the caller vouches for 8 aligned bytes whose writes are ordered before the load.
    unsafe {
        asm!("ld.shared.v2.b32 {{{0}, {1}}}, [{2}];", out(reg32) a, out(reg32) b, in(reg32) address, options(readonly, nostack))
    };
    [a, b]
}

/// `ld.shared.f32`.
///
/// # Safety
/// `address` is a multiple of 4 and its 4 bytes were written before by this thread or by one ordered before it.
#[inline(always)]
pub unsafe fn load_f32(address: SharedAddr) -> f32 {
    let value: f32;
    // SAFETY: the caller vouches for 4 aligned bytes whose writes are ordered before the load.
    unsafe { asm!("ld.shared.f32 {0}, [{1}];", out(reg32) value, in(reg32) address, options(readonly, nostack)) };
    value
}

/// `st.shared.f32`.
///
/// # Safety
/// `address` is a multiple of 4 inside this CTA's shared memory, and no other thread touches it unordered.
#[inline(always)]
pub unsafe fn store_f32(address: SharedAddr, value: f32) {
    // SAFETY: the caller vouches for 4 aligned bytes of this CTA's shared memory, which no unordered access meets.
    unsafe { asm!("st.shared.f32 [{0}], {1};", in(reg32) address, in(reg32) value, options(nostack)) };
}

/// `st.shared.b64` where `live`.
///
/// # Safety
/// Where `live`, `address` is a multiple of 8 inside this CTA's shared memory, and no other thread touches it
/// unordered.
#[inline(always)]
pub unsafe fn store_u64_if(address: SharedAddr, value: u64, live: bool) {
    // SAFETY: the store is predicated on `live`, under which the caller vouches for 8 aligned bytes that no unordered
    // access meets.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p st.shared.b64 [{0}], {1}; }}",
            in(reg32) address, in(reg64) value, in(reg32) u32::from(live), options(nostack))
    };
}

macro_rules! word_accesses {
    ($($load:ident $store:ident $ty:ident $bytes:literal $suffix:literal $class:ident;)*) => { $(
        #[doc = concat!("`ld.shared.", $suffix, "`.")]
        ///
        /// # Safety
        #[doc = concat!("`address` is a multiple of ", $bytes, " and its ", $bytes, " bytes were written before by this thread")]
        /// or by one ordered before it.
        #[inline(always)]
        pub unsafe fn $load(address: SharedAddr) -> $ty {
            let value: $ty;
            // SAFETY: the caller vouches for aligned bytes, as many as the value has, whose writes are ordered before
            // the load.
            unsafe {
                asm!(concat!("ld.shared.", $suffix, " {0}, [{1}];"),
                    out($class) value, in(reg32) address, options(readonly, nostack))
            };
            value
        }

        #[doc = concat!("`st.shared.", $suffix, "`.")]
        ///
        /// # Safety
        #[doc = concat!("`address` is a multiple of ", $bytes, " inside this CTA's shared memory, and no other thread touches")]
        /// it unordered.
        #[inline(always)]
        pub unsafe fn $store(address: SharedAddr, value: $ty) {
            // SAFETY: the caller vouches for aligned bytes of this CTA's shared memory, as many as the value has, which
            // no unordered access meets.
            unsafe {
                asm!(concat!("st.shared.", $suffix, " [{0}], {1};"), in(reg32) address, in($class) value, options(nostack))
            };
        }
    )* };
}

word_accesses! {
    load_u32 store_u32 u32 4 "b32" reg32;
    load_u64 store_u64 u64 8 "b64" reg64;
}
