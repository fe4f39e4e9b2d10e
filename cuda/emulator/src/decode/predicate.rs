//! Comparisons: `setp` and `set`.

use super::integer::{comparison, float_comparison};
use super::lanes::lanes2;
use super::operand::{format_of, int_of, no_type};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::num::Format;
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{Compare, Lane2, Logic, Op, PredSource, Reg};

pub(super) const RULES: &[(&str, Rule)] = &[("setp", setp), ("set", set)];

const COMPARISONS: &[&str] = &[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

const LOGIC: &[(&str, Logic)] = &[
    ("and", |a, b, _| a & b),
    ("or", |a, b, _| a | b),
    ("xor", |a, b, _| a ^ b),
];

/// What an opcode says of its comparison.
struct Qualifiers<'a> {
    name: &'a str,
    /// How a further predicate is combined with it.
    logic: Option<Logic>,
    flush: bool,
}

fn qualifiers<'a>(parts: &mut Parts<'a>) -> Result<Qualifiers<'a>> {
    Ok(Qualifiers {
        name: parts.one_of(COMPARISONS)?,
        logic: LOGIC.iter().find(|(name, _)| parts.flag(name)).map(|&(_, logic)| logic),
        flush: parts.flag("ftz"),
    })
}

/// The format of both halves of a packed type.
fn halves(ty: Type) -> Option<Format> {
    match ty {
        Type::F16x2 => Some(Format::F16),
        Type::Bf16x2 => Some(Format::Bf16),
        _ => None,
    }
}

/// A comparison of values of a type; of packed ones, of the halves that start at bit `shift`.
fn function(ty: Type, what: &Qualifiers<'_>, shift: u32) -> Result<Lane2> {
    let float = format_of(ty).filter(|&format| format != Format::Tf32);
    if what.flush && !matches!(ty, Type::F32 | Type::F16 | Type::F16x2) {
        return Err(format!("comparing .{ty} has no `.ftz`"));
    }
    let found = match (int_of(ty), float, halves(ty)) {
        (Some(int), ..) if int.bits > 8 => comparison(ty, int, what.name),
        (_, Some(format), _) => float_comparison(format, what.name, what.flush),
        (.., Some(half)) => float_comparison(half, what.name, what.flush).map(|compare| -> Lane2 {
            Box::new(move |a, b, out| {
                let part = |values: &crate::program::Lanes| values.map(|value| value >> shift & 0xffff);
                compare(&part(a), &part(b), out);
            })
        }),
        _ => None,
    };
    found.ok_or_else(|| format!("`.{}` does not compare .{ty}", what.name))
}

fn further(d: &Decoder<'_>, source: &Source, logic: Option<Logic>) -> Result<Option<(Logic, PredSource)>> {
    let wanted = if logic.is_some() { 4 } else { 3 };
    if source.operands.len() != wanted {
        return Err(format!(
            "{wanted} operands are wanted, {} are given",
            source.operands.len()
        ));
    }
    logic
        .map(|logic| Ok((logic, d.pred_source(&source.operands[3])?)))
        .transpose()
}

fn setp(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let what = qualifiers(parts)?;
    let ty = parts.ty()?;
    let with = further(d, source, what.logic)?;
    let (yes, no) = match &source.operands[0] {
        Operand::Pair(p, q) => {
            let index = |id: Option<_>| id.map(|id| d.pred_index(id)).transpose();
            (index(*p)?, index(*q)?)
        }
        Operand::Discard => (None, None),
        other => (Some(d.pred_target(other)?), None),
    };
    let compare = compare(d, source, ty, &what, with, [yes, no])?;
    d.ops.push(Op::Compare(Box::new(compare)));
    Ok(())
}

/// The comparison of an instruction's second and third operand.
fn compare(
    d: &mut Decoder<'_>,
    source: &Source,
    ty: Type,
    what: &Qualifiers<'_>,
    with: Option<(Logic, PredSource)>,
    [first, second]: [Option<u32>; 2],
) -> Result<Compare> {
    let upper = halves(ty).map(|_| function(ty, what, 16)).transpose()?;
    Ok(Compare {
        f: function(ty, what, 0)?,
        d: first,
        second: upper,
        second_d: second,
        a: d.source(&source.operands[1], ty)?,
        b: d.source(&source.operands[2], ty)?,
        with,
    })
}

fn set(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let what = qualifiers(parts)?;
    let (to, ty) = (parts.ty()?, parts.ty()?);
    if halves(ty).is_some() {
        return set_halves(d, source, &what, to, ty);
    }
    let half = matches!(ty, Type::F16 | Type::Bf16);
    let yes = match to {
        Type::U32 | Type::S32 => u64::from(u32::MAX),
        Type::F32 => u64::from(1f32.to_bits()),
        Type::U16 | Type::S16 if half => u64::from(u16::MAX),
        Type::F16 => Format::F16.one(),
        Type::Bf16 => Format::Bf16.one(),
        _ => return Err(no_type(to)),
    };
    let with = further(d, source, what.logic)?;
    let p = d.temporary_predicate();
    let compare = compare(d, source, ty, &what, with, [Some(p), None])?;
    let target = d.target(&source.operands[0], to.bits())?;
    let (yes, no) = (d.constant(yes), d.constant(0));
    d.ops.push(Op::Compare(Box::new(compare)));
    d.ops
        .push(Op::Select(target, yes, no, PredSource { index: p, flip: 0 }));
    Ok(())
}

/// `set` on packed values: each half of the result tells of its halves.
fn set_halves(d: &mut Decoder<'_>, source: &Source, what: &Qualifiers<'_>, to: Type, ty: Type) -> Result {
    let yes = match to {
        Type::U32 | Type::S32 => u64::from(u16::MAX),
        _ if to == ty => halves(ty).map_or(0, Format::one),
        _ => return Err(no_type(to)),
    };
    let with = further(d, source, what.logic)?;
    let (p, q) = (d.temporary_predicate(), d.temporary_predicate());
    let compare = compare(d, source, ty, what, with, [Some(p), Some(q)])?;
    let target = d.target(&source.operands[0], 32)?;
    let no = d.constant(0);
    d.ops.push(Op::Compare(Box::new(compare)));
    let mut half = |yes: u64, index: u32| -> Reg {
        let (yes, part) = (d.constant(yes), d.temporary());
        d.ops.push(Op::Select(part, yes, no, PredSource { index, flip: 0 }));
        part
    };
    let (low, high) = (half(yes, p), half(yes << 16, q));
    d.ops.push(Op::Lane2(lanes2(|low, high| low | high), target, low, high));
    Ok(())
}
