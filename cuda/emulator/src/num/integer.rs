//! Integer arithmetic that PTX has and Rust spells differently.

use super::convert::Int;

/// The double-width product of two values of a type: `mul.wide` whole, `mul.lo` and `mul.hi` its halves.
#[inline]
pub fn product(a: u64, b: u64, ty: Int) -> u128 {
    if ty.signed {
        ty.value(a).wrapping_mul(ty.value(b)) as u128
    } else {
        (ty.value(a) as u128).wrapping_mul(ty.value(b) as u128)
    }
}

/// `mul.hi`: the upper half of the product.
#[inline]
pub fn mul_hi(a: u64, b: u64, ty: Int) -> u64 {
    ty.extend((product(a, b, ty) >> ty.bits) as u64)
}

/// `div`: toward zero. A zero divisor, whose quotient PTX leaves open, gives all ones, as the hardware does.
#[inline]
pub fn div(a: u64, b: u64, ty: Int) -> u64 {
    let [a, b] = [a, b].map(|register| ty.extend(register));
    ty.extend(match (b, ty.signed) {
        (0, _) => u64::MAX,
        (_, true) => (a as i64).wrapping_div(b as i64) as u64,
        (_, false) => a / b,
    })
}

/// `rem`: of the sign of the dividend. A zero divisor gives the dividend.
#[inline]
pub fn rem(a: u64, b: u64, ty: Int) -> u64 {
    let [a, b] = [a, b].map(|register| ty.extend(register));
    match (b, ty.signed) {
        (0, _) => a,
        (_, true) => (a as i64).wrapping_rem(b as i64) as u64,
        (_, false) => a % b,
    }
}

/// `sad`: `|a - b| + c`.
#[inline]
pub fn sum_of_difference(a: u64, b: u64, c: u64, ty: Int) -> u64 {
    let difference = ty.value(a).abs_diff(ty.value(b)) as u64;
    ty.extend(c.wrapping_add(difference))
}

/// `add.sat.s32` and `sub.sat.s32`, `mad.hi.sat.s32`: an exact result, clamped.
#[inline]
pub fn saturated(value: i128) -> u32 {
    Int { bits: 32, signed: true }.clamp(value) as u32
}

/// The 48-bit product of the lower 24 bits, for `mul24` and `mad24`: `.lo` is its lower 32 bits, `.hi` those from bit
/// 16.
#[inline]
pub fn product24(a: u32, b: u32, signed: bool) -> u64 {
    let [a, b] = [a, b].map(|value| {
        if signed {
            i64::from((value << 8) as i32 >> 8)
        } else {
            i64::from(value & 0xff_ffff)
        }
    });
    (a * b) as u64
}

/// `dp4a`: `c` plus the products of the four bytes of `a` and `b`.
#[inline]
pub fn dot4(a: u32, b: u32, c: u32, signed_a: bool, signed_b: bool) -> u32 {
    let byte = |value: u32, i: u32, signed| Int { bits: 8, signed }.value(u64::from(value >> (8 * i))) as i32;
    (0..4).fold(c, |sum, i| {
        sum.wrapping_add((byte(a, i, signed_a) * byte(b, i, signed_b)) as u32)
    })
}

/// `dp2a`: `c` plus the products of the two halves of `a` and two bytes of `b`, the upper two if `high`.
#[inline]
pub fn dot2(a: u32, b: u32, c: u32, signed_a: bool, signed_b: bool, high: bool) -> u32 {
    let b = if high { b >> 16 } else { b };
    (0..2).fold(c, |sum, i| {
        let half = Int {
            bits: 16,
            signed: signed_a,
        }
        .value(u64::from(a >> (16 * i))) as i32;
        let byte = Int {
            bits: 8,
            signed: signed_b,
        }
        .value(u64::from(b >> (8 * i))) as i32;
        sum.wrapping_add((half * byte) as u32)
    })
}
