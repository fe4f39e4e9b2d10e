//! `cvt` and its like.

use super::lanes::{lanes1, lanes2};
use super::operand::{format_of, int_of, low_bits, no_type, window};
use super::parts::Parts;
use super::{Decoder, Result, Rule, float};
use crate::num::{self, Format};
use crate::parse::{Inst as Source, Type};
use crate::program::{Lane1, Op, Space};

pub(super) const RULES: &[(&str, Rule)] = &[("cvt", cvt), ("cvta", cvta)];

fn cvt(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    // `rni` and its like ask for an integral value, `rn` and its like for the nearest of the format.
    let integral = ["rni", "rzi", "rmi", "rpi"]
        .iter()
        .any(|name| source.opcode.iter().any(|part| part == name));
    let mode = float::mode(parts);
    let (to, from) = (parts.ty()?, parts.ty()?);
    if let Type::F16x2 | Type::Bf16x2 = to {
        return pack(d, source, to, from, mode);
    }
    let [target, a] = d.operands(source)?;
    let (reg, width) = d.wide_target(target, to.bits())?;
    let kinds = (int_of(to), format_of(to), int_of(from), format_of(from));
    let f: Lane1 = match kinds {
        (Some(to), _, Some(from), _) => {
            let saturate = mode.saturate;
            lanes1(move |a| low_bits(num::int_to_int(a, from, to, saturate), width))
        }
        (_, Some(to), Some(from), _) => lanes1(move |a| num::int_to_float(a, from, to, mode)),
        (Some(to), _, _, Some(from)) if integral => {
            lanes1(move |a| low_bits(num::float_to_int(a, from, to, mode), width))
        }
        (Some(_), ..) => return Err("an integer rounding such as `.rzi` is missing".into()),
        (_, Some(to), _, Some(from)) if to == from && (integral || mode == num::Mode::default()) => {
            if integral {
                lanes1(move |a| num::round_to_integral(a, to, mode))
            } else {
                lanes1(move |a| low_bits(a, to_bits(to)))
            }
        }
        // The conversions that projections make all the time, as code of their own.
        (_, Some(Format::Bf16), _, Some(Format::F32)) if mode == num::Mode::default() => {
            lanes1(|a| num::float_to_float(a, Format::F32, Format::Bf16, num::Mode::default()))
        }
        (_, Some(to), _, Some(from)) => lanes1(move |a| num::float_to_float(a, from, to, mode)),
        _ => return Err(format!("a conversion from .{from} to .{to} is not supported")),
    };
    let op = Op::Lane1(f, reg, d.wide_source(a, from)?);
    d.ops.push(op);
    Ok(())
}

fn to_bits(format: Format) -> u32 {
    match format {
        Format::F16 | Format::Bf16 => 16,
        Format::Tf32 | Format::F32 => 32,
        Format::F64 => 64,
    }
}

/// `cvt.rn.bf16x2.f32 d, a, b`
fn pack(d: &mut Decoder<'_>, source: &Source, to: Type, from: Type, mode: num::Mode) -> Result {
    if from != Type::F32 {
        return Err(no_type(from));
    }
    let half = if to == Type::F16x2 { Format::F16 } else { Format::Bf16 };
    let [target, a, b] = d.operands(source)?;
    let f = lanes2(move |a, b| num::pack_pair(a, b, Format::F32, half, mode).into());
    let op = Op::Lane2(f, d.target(target, 32)?, d.source(a, from)?, d.source(b, from)?);
    d.ops.push(op);
    Ok(())
}

/// Generic addresses from those of a space, and back. A variable's name may stand for its address.
fn cvta(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let back = parts.flag("to");
    let space = match parts.one_of(&[
        "global",
        "const",
        "shared",
        "shared::cta",
        "shared::cluster",
        "local",
        "param",
    ])? {
        "global" | "const" => Space::Global,
        "local" => Space::Local,
        "param" => Space::Param,
        _ => Space::Shared,
    };
    let ty = parts.ty()?;
    if ty != Type::U64 {
        return Err("addresses have 64 bits: `.u64`".into());
    }
    let start = window(space);
    let f = if back {
        lanes1(move |a| a.wrapping_sub(start))
    } else {
        lanes1(move |a| a.wrapping_add(start))
    };
    d.unary(source, ty, f)
}
