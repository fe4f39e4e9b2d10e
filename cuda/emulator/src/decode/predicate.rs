//! Comparisons: `setp` and `set`.

use super::integer::{comparison, float_comparison};
use super::operand::{format_of, int_of, no_type};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{Compare, Lane2, Logic, Op, PredSource};

pub(super) const RULES: &[(&str, Rule)] = &[("setp", setp), ("set", set)];

const COMPARISONS: &[&str] = &[
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

const LOGIC: &[(&str, Logic)] = &[
    ("and", |a, b, _| a & b),
    ("or", |a, b, _| a | b),
    ("xor", |a, b, _| a ^ b),
];

/// Takes the comparison, its combination with a further predicate, and whether subnormals are flushed.
fn qualifiers<'a>(parts: &mut Parts<'a>) -> Result<(&'a str, Option<Logic>, bool)> {
    let name = parts.one_of(COMPARISONS)?;
    let logic = LOGIC.iter().find(|(name, _)| parts.flag(name)).map(|&(_, logic)| logic);
    Ok((name, logic, parts.flag("ftz")))
}

fn function(ty: Type, name: &str, flush: bool) -> Result<Lane2> {
    let found = match (int_of(ty), format_of(ty)) {
        (Some(int), _) if int.bits > 8 => comparison(int, name),
        (_, Some(format)) => float_comparison(format, name, flush),
        _ => None,
    };
    found.ok_or_else(|| format!("`.{name}` does not compare .{ty}"))
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
    let (name, logic, flush) = qualifiers(parts)?;
    let ty = parts.ty()?;
    let with = further(d, source, logic)?;
    let (yes, no) = match &source.operands[0] {
        Operand::Pair(p, q) => {
            let index = |id: Option<_>| id.map(|id| d.pred_index(id)).transpose();
            (index(*p)?, index(*q)?)
        }
        other => (Some(d.pred_target(other)?), None),
    };
    let compare = Compare {
        f: function(ty, name, flush)?,
        d: yes,
        not_d: no,
        a: d.source(&source.operands[1], ty)?,
        b: d.source(&source.operands[2], ty)?,
        with,
    };
    d.ops.push(Op::Compare(Box::new(compare)));
    Ok(())
}

fn set(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let (name, logic, flush) = qualifiers(parts)?;
    let (to, ty) = (parts.ty()?, parts.ty()?);
    let yes = match to {
        Type::U32 | Type::S32 => u64::from(u32::MAX),
        Type::F32 => u64::from(1f32.to_bits()),
        _ => return Err(no_type(to)),
    };
    let with = further(d, source, logic)?;
    let p = d.temporary_predicate();
    let compare = Compare {
        f: function(ty, name, flush)?,
        d: Some(p),
        not_d: None,
        a: d.source(&source.operands[1], ty)?,
        b: d.source(&source.operands[2], ty)?,
        with,
    };
    let target = d.target(&source.operands[0], 32)?;
    let (yes, no) = (d.constant(yes), d.constant(0));
    d.ops.push(Op::Compare(Box::new(compare)));
    d.ops
        .push(Op::Select(target, yes, no, PredSource { index: p, flip: 0 }));
    Ok(())
}
