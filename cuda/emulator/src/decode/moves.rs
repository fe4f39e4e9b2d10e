//! Moving values, and asking about addresses.

use super::lanes::{lanes1, lanes3};
use super::operand::{low_bits, no_type};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{Op, PredSource, Space};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("mov", mov),
    ("selp", selp),
    ("slct", slct),
    ("mapa", mapa),
    ("getctarank", getctarank),
    ("isspacep", isspacep),
];

const NEVER: PredSource = PredSource { index: 0, flip: 0 };

fn mov(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let ty = parts.ty()?;
    let [to, from] = d.operands(source)?;
    match (ty, to, from) {
        (Type::Pred, ..) => {
            let op = Op::Predicate(|a, _, _| a, d.pred_target(to)?, [d.pred_source(from)?, NEVER, NEVER]);
            d.ops.push(op);
        }
        (Type::B128, to, from) => {
            let halves = |operand: &Operand, d: &mut Decoder<'_>, target: bool| match operand {
                Operand::Vector(parts) if parts.len() == 2 => {
                    let half = |part, d: &mut Decoder<'_>| {
                        if target {
                            d.optional_target(part, 64)
                        } else {
                            d.source(part, Type::B64).map(Some)
                        }
                    };
                    Ok([half(&parts[0], d)?, half(&parts[1], d)?])
                }
                whole => d.wide_register(whole).map(|halves| halves.map(Some)),
            };
            let (to, from) = (halves(to, d, true)?, halves(from, d, false)?);
            for (to, from) in to.into_iter().zip(from) {
                if let (Some(to), Some(from)) = (to, from) {
                    d.ops.push(Op::Lane1(lanes1(|a| a), to, from));
                }
            }
        }
        (_, Operand::Vector(to), from) => {
            let bits = part_bits(ty, to.len())?;
            let targets: Result<_> = to.iter().map(|part| d.optional_target(part, bits)).collect();
            let op = Op::Unpack(targets?, bits, d.source(from, ty)?);
            d.ops.push(op);
        }
        (_, to, Operand::Vector(from)) => {
            let bits = part_bits(ty, from.len())?;
            let part = unsigned(bits);
            let mut sources = Vec::with_capacity(from.len());
            for operand in from {
                sources.push(d.source(operand, part)?);
            }
            let op = Op::Pack(d.target(to, ty.bits())?, bits, sources.into());
            d.ops.push(op);
        }
        (_, to, from) => {
            let narrow = matches!(from, Operand::Special(_)) && ty.bits() < 64;
            let bits = ty.bits();
            let f = if narrow {
                lanes1(move |a| low_bits(a, bits))
            } else {
                lanes1(|a| a)
            };
            let op = Op::Lane1(f, d.target(to, bits)?, d.source(from, ty)?);
            d.ops.push(op);
        }
    }
    Ok(())
}

/// The width of a part, where a type is taken apart or put together.
fn part_bits(ty: Type, parts: usize) -> Result<u32> {
    match (ty.bits(), parts) {
        (32, 2) => Ok(16),
        (64, 2) => Ok(32),
        (64, 4) => Ok(16),
        (16, 2) => Ok(8),
        (32, 4) => Ok(8),
        (bits, _) => Err(format!("{bits} bits cannot be had from {parts} parts")),
    }
}

fn unsigned(bits: u32) -> Type {
    match bits {
        8 => Type::B8,
        16 => Type::B16,
        _ => Type::B32,
    }
}

fn selp(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let ty = parts.ty()?;
    let [to, a, b, p] = d.operands(source)?;
    let op = Op::Select(
        d.target(to, ty.bits())?,
        d.source(a, ty)?,
        d.source(b, ty)?,
        d.pred_source(p)?,
    );
    d.ops.push(op);
    Ok(())
}

fn slct(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let flush = parts.flag("ftz");
    let (ty, by) = (parts.ty()?, parts.ty()?);
    if !matches!(ty.bits(), 16 | 32 | 64) || flush && by != Type::F32 {
        return Err(no_type(ty));
    }
    let f = match by {
        Type::S32 => lanes3(|a, b, c| if (c as i32) >= 0 { a } else { b }),
        Type::F32 => lanes3(move |a, b, c| {
            let c = if flush { crate::num::Format::F32.flush(c) } else { c };
            if f32::from_bits(c as u32) >= 0.0 { a } else { b }
        }),
        _ => return Err(no_type(by)),
    };
    d.ternary(source, ty, [ty, ty, by], f)
}

fn mapa(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let generic = !parts.flag("shared::cluster");
    let ty = parts.ty()?;
    let [to, address, rank] = d.operands(source)?;
    let op = Op::MapRank {
        d: d.target(to, address_type(ty)?.bits())?,
        address: d.source(address, ty)?,
        rank: d.source(rank, Type::U32)?,
        generic,
    };
    d.ops.push(op);
    Ok(())
}

fn getctarank(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let generic = !parts.flag("shared::cluster");
    let ty = parts.ty()?;
    let [to, address] = d.operands(source)?;
    let op = Op::RankOf {
        d: d.target(to, 32)?,
        address: d.source(address, address_type(ty)?)?,
        generic,
    };
    d.ops.push(op);
    Ok(())
}

fn address_type(ty: Type) -> Result<Type> {
    match ty {
        Type::U32 | Type::U64 => Ok(ty),
        _ => Err(no_type(ty)),
    }
}

fn isspacep(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let space = match parts.one_of(&[
        "global",
        "const",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "param",
        "param::entry",
    ])? {
        "global" | "const" => Space::Global,
        "shared::cluster" => Space::Cluster,
        "local" => Space::Local,
        "param" | "param::entry" => Space::Param,
        _ => Space::Shared,
    };
    let [to, address] = d.operands(source)?;
    let op = Op::IsSpace {
        d: d.pred_target(to)?,
        address: d.source(address, Type::U64)?,
        space,
    };
    d.ops.push(op);
    Ok(())
}
