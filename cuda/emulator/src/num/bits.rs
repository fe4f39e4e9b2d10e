//! Bit manipulation: permutes, fields, shifts, logic by table.

/// A function of the two sources of a permute and its selector.
pub type Permute = fn(u32, u32, u32) -> u32;

/// `prmt` with its mode's name (`""` for the default), or `None` if there is no such mode.
pub fn permute(mode: &str) -> Option<Permute> {
    let modes: &[(&str, Permute)] = &[
        ("", prmt),
        ("f4e", |a, b, at| gather(a, b, |i| (at & 3) + i)),
        ("b4e", |a, b, at| gather(a, b, |i| (at & 3).wrapping_sub(i) & 7)),
        ("rc8", |a, b, at| gather(a, b, |_| at & 3)),
        ("ecl", |a, b, at| gather(a, b, |i| i.max(at & 3))),
        ("ecr", |a, b, at| gather(a, b, |i| i.min(at & 3))),
        ("rc16", |a, b, at| gather(a, b, |i| (at & 1) * 2 + i % 2)),
    ];
    modes
        .iter()
        .find(|(name, _)| *name == mode)
        .map(|&(_, function)| function)
}

/// The bytes of `a` (0…3) and `b` (4…7) that `index` names for each byte of the result.
#[inline]
fn gather(a: u32, b: u32, index: impl Fn(u32) -> u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |result, i| {
        result | ((both >> (8 * index(i))) as u32 & 0xff) << (8 * i)
    })
}

/// `prmt` without a mode: each nibble of the selector names a byte, its top bit asks for the byte's sign instead.
#[inline]
pub fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let both = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |result, i| {
        let nibble = selector >> (4 * i);
        let byte = (both >> (8 * (nibble & 7))) as u8;
        let byte = if nibble & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        result | u32::from(byte) << (8 * i)
    })
}

/// `lop3`: bit `4a + 2b + c` of the table, for each bit position.
#[inline]
pub fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    (0..8u32).fold(0, |result, row| {
        let pick = |source: u32, bit: u32| if row & bit != 0 { source } else { !source };
        let chosen = if table >> row & 1 != 0 { u32::MAX } else { 0 };
        result | pick(a, 4) & pick(b, 2) & pick(c, 1) & chosen
    })
}

/// `shf.l`: the upper half of `high:low` shifted left. `clamp` limits the amount to 32, else it wraps.
#[inline]
pub fn funnel_left(low: u32, high: u32, amount: u32, clamp: bool) -> u32 {
    let amount = if clamp { amount.min(32) } else { amount & 31 };
    (((u64::from(high) << 32 | u64::from(low)) << amount) >> 32) as u32
}

/// `shf.r`: the lower half of `high:low` shifted right. `clamp` limits the amount to 32, else it wraps.
#[inline]
pub fn funnel_right(low: u32, high: u32, amount: u32, clamp: bool) -> u32 {
    let amount = if clamp { amount.min(32) } else { amount & 31 };
    ((u64::from(high) << 32 | u64::from(low)) >> amount) as u32
}

/// `shl` of a type with `bits` bits (16, 32, 64): amounts beyond the width give 0.
#[inline]
pub fn shift_left(a: u64, amount: u32, bits: u32) -> u64 {
    if amount >= bits { 0 } else { low_bits(a << amount, bits) }
}

/// `shr` of an unsigned type with `bits` bits: amounts beyond the width give 0.
#[inline]
pub fn shift_right(a: u64, amount: u32, bits: u32) -> u64 {
    if amount >= bits { 0 } else { low_bits(a, bits) >> amount }
}

/// `shr` of a signed type with `bits` bits: amounts beyond the width leave the sign.
#[inline]
pub fn shift_right_signed(a: u64, amount: u32, bits: u32) -> u64 {
    low_bits((sign_extend(a, bits) >> amount.min(bits - 1)) as u64, bits)
}

#[inline]
fn low_bits(a: u64, bits: u32) -> u64 {
    a & (u64::MAX >> (64 - bits))
}

#[inline]
fn sign_extend(a: u64, bits: u32) -> i64 {
    (a << (64 - bits)) as i64 >> (64 - bits)
}

/// `bfe` of a type with `bits` bits (32, 64): `length` bits from `position` on, filled above with zeros or, if signed,
/// with the field's top bit. Of position and length the lower 8 bits count.
#[inline]
pub fn extract(a: u64, position: u32, length: u32, bits: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    if length == 0 {
        return 0;
    }
    let sign_at = (position + length - 1).min(bits - 1);
    let sign = signed && a >> sign_at & 1 != 0;
    let held = length.min(bits.saturating_sub(position));
    let field = if held == 0 { 0 } else { low_bits(a >> position, held) };
    let above = if held == 0 {
        u64::MAX
    } else {
        !(u64::MAX >> (64 - held))
    };
    if sign { low_bits(field | above, bits) } else { field }
}

/// `bfi` of a type with `bits` bits (32, 64): `into`, with `length` bits from `position` on taken from `a`. Of position
/// and length the lower 8 bits count.
#[inline]
pub fn insert(a: u64, into: u64, position: u32, length: u32, bits: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let held = length.min(bits.saturating_sub(position));
    if held == 0 {
        return into;
    }
    let mask = (u64::MAX >> (64 - held)) << position;
    into & !mask | (a << position) & mask
}

/// `bfind` of a type with `bits` bits (32, 64): where the highest bit stands that is not a copy of the sign, or with
/// `shift_amount` by how much it must be shifted to reach the top; all ones if there is none.
#[inline]
pub fn find_leading(a: u64, bits: u32, signed: bool, shift_amount: bool) -> u32 {
    let value = if signed && sign_extend(a, bits) < 0 {
        low_bits(!a, bits)
    } else {
        low_bits(a, bits)
    };
    match value.checked_ilog2() {
        None => u32::MAX,
        Some(position) if shift_amount => bits - 1 - position,
        Some(position) => position,
    }
}

/// `szext`: the lower `width` bits, extended by zeros or the sign. `clamp` limits the width to 32, else it wraps.
#[inline]
pub fn extend_from(a: u32, width: u32, clamp: bool, signed: bool) -> u32 {
    if clamp && width >= 32 {
        return a;
    }
    let width = width & 31;
    let above = u32::MAX << width;
    let sign = signed && width > 0 && a >> (width - 1) & 1 != 0;
    a & !above | if sign { above } else { 0 }
}

/// `bmsk`: `width` ones from `position` on. `clamp` limits both to 32, else they wrap.
#[inline]
pub fn mask(position: u32, width: u32, clamp: bool) -> u32 {
    let limit = |amount: u32| if clamp { amount.min(32) } else { amount & 31 };
    let ones = (1u64 << limit(width)) - 1;
    (ones << limit(position)) as u32
}

/// `fns`: the position of the `offset`-th set bit of `mask` counted from `base`, upward for positive offsets, downward
/// for negative ones; offset 0 asks whether `base` itself is set. All ones if there is none.
pub fn find_nth_set(mask: u32, base: u32, offset: i32) -> u32 {
    let is_set = |position: &u32| mask >> position & 1 != 0;
    let base = base & 31;
    let nth = offset.unsigned_abs().saturating_sub(1) as usize;
    let found = match offset {
        0 => Some(base).filter(is_set),
        1.. => (base..32).filter(is_set).nth(nth),
        _ => (0..=base).rev().filter(is_set).nth(nth),
    };
    found.unwrap_or(u32::MAX)
}
