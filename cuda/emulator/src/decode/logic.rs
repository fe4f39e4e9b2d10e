//! Logic, shifts and byte permutation, on registers and on predicates.

use super::lanes::{lanes1, lanes2, lanes3};
use super::operand::{low_bits, no_type};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::num::bits;
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{Compare, Logic, Op, PredSource};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("and", |d, p, s| logic(d, p, s, |a, b, _| a & b, |a, b| a & b)),
    ("or", |d, p, s| logic(d, p, s, |a, b, _| a | b, |a, b| a | b)),
    ("xor", |d, p, s| logic(d, p, s, |a, b, _| a ^ b, |a, b| a ^ b)),
    ("not", not),
    ("cnot", cnot),
    ("lop3", lop3),
    ("shl", |d, p, s| shift(d, p, s, true)),
    ("shr", |d, p, s| shift(d, p, s, false)),
    ("shf", funnel),
    ("prmt", permute),
];

const NEVER: PredSource = PredSource { index: 0, flip: 0 };

fn logic(
    d: &mut Decoder<'_>,
    parts: &mut Parts<'_>,
    source: &Source,
    masks: Logic,
    words: impl Fn(u64, u64) -> u64 + Send + Sync + 'static,
) -> Result {
    match parts.ty()? {
        Type::Pred => {
            let [to, a, b] = d.operands(source)?;
            let op = Op::Predicate(masks, d.pred_target(to)?, [d.pred_source(a)?, d.pred_source(b)?, NEVER]);
            d.ops.push(op);
            Ok(())
        }
        ty @ (Type::B16 | Type::B32 | Type::B64) => d.binary(source, ty, lanes2(words)),
        ty => Err(no_type(ty)),
    }
}

fn not(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    match parts.ty()? {
        Type::Pred => {
            let [to, a] = d.operands(source)?;
            let op = Op::Predicate(|a, _, _| !a, d.pred_target(to)?, [d.pred_source(a)?, NEVER, NEVER]);
            d.ops.push(op);
            Ok(())
        }
        ty @ (Type::B16 | Type::B32 | Type::B64) => d.unary(source, ty, lanes1(move |a| low_bits(!a, ty.bits()))),
        ty => Err(no_type(ty)),
    }
}

fn cnot(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    match parts.ty()? {
        ty @ (Type::B16 | Type::B32 | Type::B64) => d.unary(source, ty, lanes1(|a| u64::from(a == 0))),
        ty => Err(no_type(ty)),
    }
}

fn lop3(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let logic: Option<Logic> = match parts.any(&["and", "or"]) {
        None => None,
        Some("and") => Some(|a, b, _| a & b),
        Some(_) => Some(|a, b, _| a | b),
    };
    parts.one_of(&["b32"])?;
    let (fixed, with) = match (&source.operands[..], logic) {
        ([fixed @ .., with], Some(logic)) => (fixed, Some((logic, d.pred_source(with)?))),
        (fixed, _) => (fixed, None),
    };
    let [to, a, b, c, table] = fixed else {
        return Err("a destination, three sources, a table, and after `.and` or `.or` a predicate are wanted".into());
    };
    let table = u8::try_from(d.literal(table)?).map_err(|_| "the table must be a constant from 0 to 255")?;
    let f = lanes3(move |a, b, c| bits::lop3(a as u32, b as u32, c as u32, table).into());
    let sources = [a, b, c].map(|operand| d.source(operand, Type::B32));
    let [a, b, c] = sources;
    let Some(with) = with else {
        let op = Op::Lane3(f, d.target(to, 32)?, a?, b?, c?);
        d.ops.push(op);
        return Ok(());
    };
    let Operand::Pair(..) = to else {
        return Err("a register and a predicate are wanted: `d|p`".into());
    };
    let (to, p) = d.target_and_pred(to, 32)?;
    let result = d.temporary();
    d.ops.push(Op::Lane3(f, result, a?, b?, c?));
    d.ops.extend(to.map(|to| Op::Lane1(lanes1(|a| a), to, result)));
    // Last, since it may write the predicate that guards the instruction.
    d.ops.push(Op::Compare(Box::new(Compare {
        f: lanes2(|a, _| u64::from(a != 0)),
        d: p,
        second: None,
        second_d: None,
        a: result,
        b: result,
        with: Some(with),
    })));
    Ok(())
}

fn shift(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, left: bool) -> Result {
    let ty = parts.ty()?;
    let width = ty.bits();
    let f = match (left, ty) {
        (true, Type::B16 | Type::B32 | Type::B64) => lanes2(move |a, n| bits::shift_left(a, n as u32, width)),
        (false, Type::B16 | Type::B32 | Type::B64 | Type::U16 | Type::U32 | Type::U64) => {
            lanes2(move |a, n| bits::shift_right(a, n as u32, width))
        }
        (false, Type::S16 | Type::S32 | Type::S64) => lanes2(move |a, n| bits::shift_right_signed(a, n as u32, width)),
        _ => return Err(no_type(ty)),
    };
    let [to, a, n] = d.operands(source)?;
    let op = Op::Lane2(f, d.target(to, width)?, d.source(a, ty)?, d.source(n, Type::U32)?);
    d.ops.push(op);
    Ok(())
}

fn funnel(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let shift = match parts.one_of(&["l", "r"])? {
        "l" => bits::funnel_left,
        _ => bits::funnel_right,
    };
    let clamp = parts.one_of(&["clamp", "wrap"])? == "clamp";
    parts.one_of(&["b32"])?;
    let f = move |a: u64, b: u64, n: u64| shift(a as u32, b as u32, n as u32, clamp).into();
    d.ternary(source, Type::B32, [Type::B32, Type::B32, Type::U32], lanes3(f))
}

fn permute(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["b32"])?;
    let mode = parts.any(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]).unwrap_or("");
    if mode.is_empty() {
        let f = |a: u64, b: u64, c: u64| bits::prmt(a as u32, b as u32, c as u32).into();
        return d.ternary(source, Type::B32, [Type::B32; 3], lanes3(f));
    }
    let f = bits::permute(mode).ok_or("unknown mode")?;
    d.ternary(
        source,
        Type::B32,
        [Type::B32; 3],
        lanes3(move |a, b, c| f(a as u32, b as u32, c as u32).into()),
    )
}
