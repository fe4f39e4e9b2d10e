//! Integer arithmetic. Opcodes that exist for floats too are told apart by their type.

use super::lanes::{lanes1, lanes2, lanes3, lanes4, on_halves};
use super::operand::{int_of, low_bits, no_type};
use super::parts::Parts;
use super::{Decoder, Result, Rule, float};
use crate::num::{self, Int, bits, integer};
use crate::parse::{Inst as Source, Type};
use crate::program::{Carry, CarryKind, Lane1, Lane2, Lane3, Op};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("add", |d, p, s| sum(d, p, s, CarryKind::Add, false)),
    ("addc", |d, p, s| sum(d, p, s, CarryKind::Add, true)),
    ("sub", |d, p, s| sum(d, p, s, CarryKind::Sub, false)),
    ("subc", |d, p, s| sum(d, p, s, CarryKind::Sub, true)),
    ("mul", |d, p, s| multiply(d, p, s, false, false)),
    ("mad", |d, p, s| multiply(d, p, s, true, false)),
    ("madc", |d, p, s| multiply(d, p, s, true, true)),
    ("mul24", |d, p, s| multiply24(d, p, s, false)),
    ("mad24", |d, p, s| multiply24(d, p, s, true)),
    ("div", |d, p, s| match p.ty()? {
        ty if int_of(ty).is_none() => float::quotient(d, p, s, ty),
        ty => quotient(d, s, ty, integer::div),
    }),
    ("rem", |d, p, s| {
        let ty = p.ty()?;
        quotient(d, s, ty, integer::rem)
    }),
    ("sad", sad),
    ("abs", |d, p, s| magnitude(d, p, s, false)),
    ("neg", |d, p, s| magnitude(d, p, s, true)),
    ("min", |d, p, s| extreme(d, p, s, false)),
    ("max", |d, p, s| extreme(d, p, s, true)),
    ("popc", |d, p, s| count(d, p, s, |v, _| v.count_ones().into())),
    ("clz", |d, p, s| {
        count(d, p, s, |v, bits| u64::from(v.leading_zeros()) + u64::from(bits) - 64)
    }),
    ("brev", reverse),
    ("bfind", find),
    ("fns", find_nth),
    ("bfe", extract),
    ("bfi", insert),
    ("szext", extend),
    ("bmsk", mask),
    ("dp4a", |d, p, s| dot(d, p, s, true)),
    ("dp2a", |d, p, s| dot(d, p, s, false)),
];

impl Decoder<'_> {
    /// `d = f(a)`, all of one type.
    pub(super) fn unary(&mut self, source: &Source, ty: Type, f: Lane1) -> Result {
        let [d, a] = self.operands(source)?;
        let op = Op::Lane1(f, self.target(d, ty.bits())?, self.source(a, ty)?);
        self.ops.push(op);
        Ok(())
    }

    /// `d = f(a, b)`, all of one type.
    pub(super) fn binary(&mut self, source: &Source, ty: Type, f: Lane2) -> Result {
        let [d, a, b] = self.operands(source)?;
        let op = Op::Lane2(f, self.target(d, ty.bits())?, self.source(a, ty)?, self.source(b, ty)?);
        self.ops.push(op);
        Ok(())
    }

    /// `d = f(a, b, c)`, of the types given.
    pub(super) fn ternary(&mut self, source: &Source, d_ty: Type, [ta, tb, tc]: [Type; 3], f: Lane3) -> Result {
        let [d, a, b, c] = self.operands(source)?;
        let d = self.target(d, d_ty.bits())?;
        let op = Op::Lane3(f, d, self.source(a, ta)?, self.source(b, tb)?, self.source(c, tc)?);
        self.ops.push(op);
        Ok(())
    }
}

/// A type that integer arithmetic has: signed or unsigned, of 16, 32 or 64 bits.
fn int(ty: Type) -> Result<Int> {
    let untyped = matches!(ty, Type::B16 | Type::B32 | Type::B64);
    int_of(ty)
        .filter(|int| int.bits > 8 && !untyped)
        .ok_or_else(|| no_type(ty))
}

/// Such a type of 32 or 64 bits.
fn wide_int(ty: Type) -> Result<Int> {
    int(ty).ok().filter(|int| int.bits > 16).ok_or_else(|| no_type(ty))
}

/// Such a type with a sign.
fn signed_int(ty: Type) -> Result<Int> {
    int(ty).ok().filter(|int| int.signed).ok_or_else(|| no_type(ty))
}

/// The type of both halves of a packed integer type.
fn halves(ty: Type) -> Option<Int> {
    match ty {
        Type::U16x2 => Some(Int {
            bits: 16,
            signed: false,
        }),
        Type::S16x2 => Some(Int { bits: 16, signed: true }),
        _ => None,
    }
}

fn sum(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, kind: CarryKind, reads: bool) -> Result {
    let ty = parts.ty()?;
    if int_of(ty).is_none() && halves(ty).is_none() && !reads {
        return float::sum(d, parts, source, ty, kind == CarryKind::Sub);
    }
    let writes = parts.flag("cc");
    if reads || writes {
        let [to, a, b] = d.operands(source)?;
        let carry = Carry {
            kind,
            bits: wide_int(ty)?.bits,
            reads,
            writes,
            d: d.target(to, ty.bits())?,
            a: d.source(a, ty)?,
            b: d.source(b, ty)?,
            c: d.constant(0),
        };
        d.ops.push(Op::Carry(Box::new(carry)));
        return Ok(());
    }
    let combine: fn(u64, u64) -> u64 = if kind == CarryKind::Sub {
        u64::wrapping_sub
    } else {
        u64::wrapping_add
    };
    if halves(ty).is_some() {
        return d.binary(
            source,
            ty,
            lanes2(move |a, b| on_halves([a, b], |[a, b]| combine(a, b))),
        );
    }
    let int = int(ty)?;
    let f = match (parts.flag("sat"), kind) {
        (true, _) if ty != Type::S32 => return Err("`.sat` is for .s32".into()),
        (true, CarryKind::Sub) => lanes2(move |a, b| integer::saturated(int.value(a) - int.value(b)).into()),
        (true, _) => lanes2(move |a, b| integer::saturated(int.value(a) + int.value(b)).into()),
        (false, CarryKind::Sub) => lanes2(move |a, b| low_bits(a.wrapping_sub(b), int.bits)),
        (false, _) => lanes2(move |a, b| low_bits(a.wrapping_add(b), int.bits)),
    };
    d.binary(source, ty, f)
}

fn multiply(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, add: bool, reads: bool) -> Result {
    let ty = parts.ty()?;
    if int_of(ty).is_none() && !reads {
        return if add {
            float::fused(d, parts, source, ty)
        } else {
            float::product(d, parts, source, ty)
        };
    }
    let int = int(ty)?;
    let half = parts.one_of(&["lo", "hi", "wide"])?;
    let writes = parts.flag("cc");
    if reads || writes {
        let kind = match half {
            "lo" => CarryKind::MadLow,
            "hi" => CarryKind::MadHigh { signed: int.signed },
            _ => return Err("`.wide` has no carry".into()),
        };
        let [to, a, b, c] = d.operands(source)?;
        let carry = Carry {
            kind,
            bits: wide_int(ty)?.bits,
            reads,
            writes,
            d: d.target(to, ty.bits())?,
            a: d.source(a, ty)?,
            b: d.source(b, ty)?,
            c: d.source(c, ty)?,
        };
        d.ops.push(Op::Carry(Box::new(carry)));
        return Ok(());
    }
    let saturate = parts.flag("sat");
    if saturate && !(add && half == "hi" && ty == Type::S32) {
        return Err("`.sat` is for `mad.hi.s32`".into());
    }
    let wide = match (half, ty) {
        ("wide", Type::U16) => Type::U32,
        ("wide", Type::S16) => Type::S32,
        ("wide", Type::U32) => Type::U64,
        ("wide", Type::S32) => Type::S64,
        ("wide", _) => return Err(no_type(ty)),
        _ => ty,
    };
    let to = wide.bits();
    let half = half_of(half);
    let product = move |a: u64, b: u64| match half {
        Half::Low => low_bits(a.wrapping_mul(b), to),
        Half::High => low_bits(integer::mul_hi(a, b, int), to),
        Half::Both => low_bits(int.extend(a).wrapping_mul(int.extend(b)), to),
    };
    match (add, half) {
        (false, Half::Low) => d.binary(source, ty, lanes2(move |a, b| low_bits(a.wrapping_mul(b), to))),
        (false, Half::High) => d.binary(source, ty, lanes2(move |a, b| low_bits(integer::mul_hi(a, b, int), to))),
        (false, Half::Both) => {
            let [target, a, b] = d.operands(source)?;
            let f = lanes2(move |a, b| low_bits(int.extend(a).wrapping_mul(int.extend(b)), to));
            let op = Op::Lane2(f, d.target(target, to)?, d.source(a, ty)?, d.source(b, ty)?);
            d.ops.push(op);
            Ok(())
        }
        (true, _) if saturate => {
            let f =
                move |a, b, c| integer::saturated((integer::mul_hi(a, b, int) as i64 as i128) + int.value(c)).into();
            d.ternary(source, wide, [ty, ty, wide], lanes3(f))
        }
        (true, _) => d.ternary(
            source,
            wide,
            [ty, ty, wide],
            lanes3(move |a, b, c| low_bits(product(a, b).wrapping_add(c), to)),
        ),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Low,
    High,
    Both,
}

fn half_of(name: &str) -> Half {
    match name {
        "lo" => Half::Low,
        "hi" => Half::High,
        _ => Half::Both,
    }
}

fn multiply24(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, add: bool) -> Result {
    let ty = parts.ty()?;
    let signed = match ty {
        Type::U32 => false,
        Type::S32 => true,
        _ => return Err(no_type(ty)),
    };
    let shift = if parts.one_of(&["lo", "hi"])? == "hi" { 16 } else { 0 };
    let saturate = add && shift == 16 && signed && parts.flag("sat");
    let product = move |a: u64, b: u64| (integer::product24(a as u32, b as u32, signed) as i64) >> shift;
    if !add {
        return d.binary(source, ty, lanes2(move |a, b| product(a, b) as u32 as u64));
    }
    let f = move |a: u64, b: u64, c: u64| {
        if saturate {
            integer::saturated(i128::from(product(a, b) as i32) + i128::from(c as i32)).into()
        } else {
            u64::from((product(a, b) as u32).wrapping_add(c as u32))
        }
    };
    d.ternary(source, ty, [ty; 3], lanes3(f))
}

fn quotient(d: &mut Decoder<'_>, source: &Source, ty: Type, f: fn(u64, u64, Int) -> u64) -> Result {
    let int = int(ty)?;
    d.binary(source, ty, lanes2(move |a, b| low_bits(f(a, b, int), int.bits)))
}

fn sad(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let ty = parts.ty()?;
    let int = int(ty)?;
    let f = move |a, b, c| low_bits(integer::sum_of_difference(a, b, c, int), int.bits);
    d.ternary(source, ty, [ty; 3], lanes3(f))
}

/// `abs` and `neg`.
fn magnitude(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, negate: bool) -> Result {
    let ty = parts.ty()?;
    if int_of(ty).is_none() {
        return float::sign(d, parts, source, ty, negate);
    }
    let int = signed_int(ty)?;
    let f = move |a: u64| {
        let value = int.extend(a) as i64;
        low_bits(
            if negate || value < 0 {
                value.wrapping_neg() as u64
            } else {
                a
            },
            int.bits,
        )
    };
    d.unary(source, ty, lanes1(f))
}

fn extreme(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, largest: bool) -> Result {
    let ty = parts.ty()?;
    let (int, packed) = match (int_of(ty), halves(ty)) {
        (_, Some(half)) => (half, true),
        (Some(_), _) => (int(ty)?, false),
        _ => return float::extreme(d, parts, source, ty, largest),
    };
    let relu = matches!(ty, Type::S32 | Type::S16x2) && parts.flag("relu");
    let pick = move |a: u64, b: u64| {
        let (x, y) = (int.extend(a), int.extend(b));
        let less = if int.signed { (x as i64) < y as i64 } else { x < y };
        let chosen = if less == largest { y } else { x };
        low_bits(if relu && (chosen as i64) < 0 { 0 } else { chosen }, int.bits)
    };
    if packed {
        return d.binary(source, ty, lanes2(move |a, b| on_halves([a, b], |[a, b]| pick(a, b))));
    }
    d.binary(source, ty, lanes2(pick))
}

/// `popc` and `clz`, whose result has 32 bits whatever the source has.
fn count(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, f: fn(u64, u32) -> u64) -> Result {
    let ty = parts.ty()?;
    if !matches!(ty, Type::B32 | Type::B64) {
        return Err(no_type(ty));
    }
    let [to, a] = d.operands(source)?;
    let bits = ty.bits();
    let op = Op::Lane1(lanes1(move |a| f(a, bits)), d.target(to, 32)?, d.source(a, ty)?);
    d.ops.push(op);
    Ok(())
}

fn reverse(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let ty = parts.ty()?;
    let shift = match ty {
        Type::B32 | Type::B64 => 64 - ty.bits(),
        _ => return Err(no_type(ty)),
    };
    d.unary(source, ty, lanes1(move |a| a.reverse_bits() >> shift))
}

fn find(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let shift_amount = parts.flag("shiftamt");
    let ty = parts.ty()?;
    let int = wide_int(ty)?;
    let [to, a] = d.operands(source)?;
    let f = lanes1(move |a| bits::find_leading(a, int.bits, int.signed, shift_amount).into());
    let op = Op::Lane1(f, d.target(to, 32)?, d.source(a, ty)?);
    d.ops.push(op);
    Ok(())
}

fn find_nth(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["b32"])?;
    let f = |mask: u64, base: u64, offset: u64| bits::find_nth_set(mask as u32, base as u32, offset as i32).into();
    d.ternary(source, Type::B32, [Type::B32, Type::B32, Type::S32], lanes3(f))
}

fn extract(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let ty = parts.ty()?;
    let int = wide_int(ty)?;
    let f = move |a, at: u64, len: u64| bits::extract(a, at as u32, len as u32, int.bits, int.signed);
    d.ternary(source, ty, [ty, Type::U32, Type::U32], lanes3(f))
}

fn insert(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let ty = parts.ty()?;
    let width = match ty {
        Type::B32 | Type::B64 => ty.bits(),
        _ => return Err(no_type(ty)),
    };
    let [to, a, b, at, len] = d.operands(source)?;
    let f = lanes4(move |a, b, at, len| low_bits(bits::insert(a, b, at as u32, len as u32, width), width));
    let sources = [
        d.source(a, ty)?,
        d.source(b, ty)?,
        d.source(at, Type::U32)?,
        d.source(len, Type::U32)?,
    ];
    let op = Op::Lane4(f, d.target(to, width)?, sources);
    d.ops.push(op);
    Ok(())
}

fn extend(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let clamp = parts.one_of(&["clamp", "wrap"])? == "clamp";
    let ty = parts.ty()?;
    let signed = wide_int(ty)?.signed;
    if ty.bits() != 32 {
        return Err(no_type(ty));
    }
    let f = lanes2(move |a: u64, width: u64| bits::extend_from(a as u32, width as u32, clamp, signed).into());
    let [to, a, width] = d.operands(source)?;
    let op = Op::Lane2(f, d.target(to, 32)?, d.source(a, ty)?, d.source(width, Type::U32)?);
    d.ops.push(op);
    Ok(())
}

fn mask(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let clamp = parts.one_of(&["clamp", "wrap"])? == "clamp";
    parts.one_of(&["b32"])?;
    d.binary(
        source,
        Type::B32,
        lanes2(move |at, width| bits::mask(at as u32, width as u32, clamp).into()),
    )
}

fn dot(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, four: bool) -> Result {
    let high = !four && parts.one_of(&["lo", "hi"])? == "hi";
    let (a, b) = (parts.ty()?, parts.ty()?);
    let signed = |ty: Type| match ty {
        Type::U32 => Ok(false),
        Type::S32 => Ok(true),
        _ => Err(no_type(ty)),
    };
    let (sa, sb) = (signed(a)?, signed(b)?);
    let f = move |a: u64, b: u64, c: u64| {
        let (a, b, c) = (a as u32, b as u32, c as u32);
        u64::from(if four {
            integer::dot4(a, b, c, sa, sb)
        } else {
            integer::dot2(a, b, c, sa, sb, high)
        })
    };
    d.ternary(source, Type::B32, [a, b, Type::B32], lanes3(f))
}

/// What comparing two integers of a type says, as 0 or 1.
pub(super) fn comparison(ty: Type, int: Int, name: &str) -> Option<Lane2> {
    let known = match (name, ty) {
        ("eq" | "ne", _) => true,
        (_, Type::B16 | Type::B32 | Type::B64) => false,
        ("lo" | "ls" | "hi" | "hs", _) => !int.signed,
        _ => true,
    };
    if !known {
        return None;
    }
    macro_rules! compare {
        ($op:tt) => {
            if int.signed {
                lanes2(move |a, b| u64::from((int.extend(a) as i64) $op (int.extend(b) as i64)))
            } else {
                lanes2(move |a, b| u64::from(int.extend(a) $op int.extend(b)))
            }
        };
    }
    Some(match name {
        "eq" => compare!(==),
        "ne" => compare!(!=),
        "lt" | "lo" => compare!(<),
        "le" | "ls" => compare!(<=),
        "gt" | "hi" => compare!(>),
        "ge" | "hs" => compare!(>=),
        _ => return None,
    })
}

/// A floating-point comparison, as 0 or 1.
pub(super) fn float_comparison(format: num::Format, name: &str, flush: bool) -> Option<Lane2> {
    // The names of unsigned integers' comparisons mean nothing here.
    let comparison = num::Comparison::from_name(name).filter(|_| !matches!(name, "lo" | "ls" | "hi" | "hs"))?;
    // Magnitudes of one format stand in the order of their patterns.
    let (sign, infinity) = (format.sign_bit(), format.infinity() as i64);
    let number = move |a: u64| {
        let a = if flush { format.flush(a) } else { a };
        let magnitude = (a & (sign - 1)) as i64;
        (magnitude <= infinity).then_some(if a & sign == 0 { magnitude } else { -magnitude })
    };
    Some(lanes2(move |a, b| {
        let order = number(a).zip(number(b)).map(|(a, b)| a.cmp(&b));
        u64::from(comparison.holds(order))
    }))
}
