//! `cvt` and its like.

use super::lanes::{lanes1, lanes2, lanes3, on_halves};
use super::operand::{format_of, int_of, low_bits, window};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::num::{self, Format, Int, Mode, Rounding};
use crate::parse::{Inst as Source, Type};
use crate::program::{Lane1, Op, Space};

pub(super) const RULES: &[(&str, Rule)] = &[("cvt", cvt), ("cvta", cvta)];

/// The format of both values of a packed type.
fn pair_of(ty: Type) -> Option<Format> {
    Some(match ty {
        Type::F16x2 => Format::F16,
        Type::Bf16x2 => Format::Bf16,
        Type::E4m3x2 => Format::E4m3,
        Type::E5m2x2 => Format::E5m2,
        _ => return None,
    })
}

fn cvt(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    if parts.flag("pack") {
        return pack_integers(d, parts, source);
    }
    let integral = parts.integral_rounding();
    let rounding = parts.rounding();
    let mode = Mode {
        rounding: integral.or(rounding).unwrap_or_default(),
        flush: parts.flag("ftz"),
        saturate: parts.flag("sat"),
        relu: parts.flag("relu"),
        finite: parts.flag("satfinite"),
    };
    let (to, from) = (parts.ty()?, parts.ty()?);
    let refuse = |what: &str| Err(format!("a conversion from .{from} to .{to} has no {what}"));
    if integral.is_some() && rounding.is_some() {
        return refuse("two roundings");
    }
    if mode.flush && ![to, from].contains(&Type::F32) {
        return refuse("`.ftz`");
    }
    if [to, from]
        .into_iter()
        .any(|ty| matches!(ty, Type::B8 | Type::B16 | Type::B32 | Type::B64))
    {
        return Err("a conversion wants types that say what bits mean".into());
    }
    let packs = pair_of(to).is_some() || pair_of(from).is_some();
    if mode.relu && (mode.flush || mode.saturate || !matches!(mode.rounding, Rounding::Nearest | Rounding::Zero)) {
        return refuse("`.relu` beside other qualifiers than `.rn`, `.rz` and `.satfinite`");
    }
    if to == Type::Tf32 && (mode.flush || mode.saturate || matches!(mode.rounding, Rounding::Down | Rounding::Up)) {
        return refuse("`.ftz`, `.sat`, `.rm` or `.rp`");
    }
    if mode.relu && !(packs || from == Type::F32 && matches!(to, Type::F16 | Type::Bf16 | Type::Tf32)) {
        return refuse("`.relu`");
    }
    let small = matches!(to, Type::E4m3x2 | Type::E5m2x2);
    if mode.finite && !(small || to == Type::Tf32) {
        return refuse("`.satfinite`");
    }
    if packs {
        if integral.is_some() || mode.saturate || rounding.is_none() || small && !mode.finite {
            let wanted = if small { "`.rn.satfinite`" } else { "`.rn` or `.rz`" };
            return Err(format!(
                "a conversion from .{from} to .{to} takes {wanted}, and `.relu`"
            ));
        }
        return pairs(d, source, to, from, mode);
    }
    let kinds = (int_of(to), format_of(to), int_of(from), format_of(from));
    let exact = match kinds {
        (_, Some(to), _, Some(from)) => wider(to, from),
        (Some(_), _, Some(_), _) => true,
        _ => false,
    };
    match kinds {
        (Some(_), _, Some(_), _) if integral.or(rounding).is_some() => return refuse("rounding"),
        (Some(_), _, _, Some(_)) if integral.is_none() => {
            return Err("an integer rounding such as `.rzi` is missing".into());
        }
        (_, Some(a), _, Some(b)) if a == b && rounding.is_some() => return refuse("rounding but `.rni` and its like"),
        (_, Some(a), _, Some(b)) if a != b && integral.is_some() => return refuse("integer rounding"),
        (_, Some(_), Some(_), _) if integral.is_some() => return refuse("integer rounding"),
        (_, Some(_), ..) if integral.is_none() && !exact && rounding.is_none() => {
            return Err("a rounding such as `.rn` is missing".into());
        }
        _ if exact && rounding.is_some() => return refuse("rounding: nothing is lost"),
        _ if rounding == Some(Rounding::NearestAway) && to != Type::Tf32 => return refuse("`.rna`"),
        _ => {}
    }
    if to == Type::Tf32 && from != Type::F32 || from == Type::Tf32 {
        return Err(format!("a conversion from .{from} to .{to} is not supported"));
    }
    let [target, a] = d.operands(source)?;
    let (reg, width) = d.wide_target(target, to.bits())?;
    let f: Lane1 = match kinds {
        (Some(to), _, Some(from), _) => {
            let saturate = mode.saturate;
            lanes1(move |a| low_bits(num::int_to_int(a, from, to, saturate), width))
        }
        (_, Some(to), Some(from), _) => lanes1(move |a| num::int_to_float(a, from, to, mode)),
        (Some(to), _, _, Some(from)) => lanes1(move |a| low_bits(num::float_to_int(a, from, to, mode), width)),
        (_, Some(to), _, Some(_)) if integral.is_some() => lanes1(move |a| num::round_to_integral(a, to, mode)),
        (_, Some(to), _, Some(from)) if to == from && mode == Mode::default() => {
            let bits = from_bits(to);
            lanes1(move |a| low_bits(a, bits))
        }
        // The conversions that projections make all the time, as code of their own.
        (_, Some(Format::Bf16), _, Some(Format::F32)) if mode == Mode::default() => {
            lanes1(|a| num::float_to_float(a, Format::F32, Format::Bf16, Mode::default()))
        }
        (_, Some(to), _, Some(from)) => lanes1(move |a| num::float_to_float(a, from, to, mode)),
        _ => return Err(format!("a conversion from .{from} to .{to} is not supported")),
    };
    let op = Op::Lane1(f, reg, d.wide_source(a, from)?);
    d.ops.push(op);
    Ok(())
}

/// Whether a format holds every value of another one, so that nothing is rounded.
fn wider(to: Format, from: Format) -> bool {
    match (to, from) {
        _ if to == from => true,
        (Format::F64, _) => true,
        (Format::F32, Format::F16 | Format::Bf16) => true,
        _ => false,
    }
}

fn from_bits(format: Format) -> u32 {
    match format {
        Format::E4m3 | Format::E5m2 => 8,
        Format::F16 | Format::Bf16 => 16,
        Format::Tf32 | Format::F32 => 32,
        Format::F64 => 64,
    }
}

/// Conversions to and from packed values: `cvt.rn.bf16x2.f32 d, a, b` and its like.
fn pairs(d: &mut Decoder<'_>, source: &Source, to: Type, from: Type, mode: Mode) -> Result {
    let unknown = || format!("a conversion from .{from} to .{to} is not supported");
    let format = pair_of(to).ok_or_else(unknown)?;
    let half = matches!(to, Type::F16x2 | Type::Bf16x2);
    let nearest = mode.rounding == Rounding::Nearest;
    if !(nearest || half && from == Type::F32 && mode.rounding == Rounding::Zero) {
        return Err("this conversion has no such rounding".into());
    }
    match from {
        Type::F32 if !mode.flush => {
            let shift = to.bits() / 2;
            let [target, a, b] = d.operands(source)?;
            let f = lanes2(move |a, b| {
                let part = |value| num::float_to_float(value, Format::F32, format, mode);
                part(a) << shift | part(b)
            });
            let op = Op::Lane2(f, d.target(target, to.bits())?, d.source(a, from)?, d.source(b, from)?);
            d.ops.push(op);
        }
        Type::F16x2 if !half => {
            let [target, a] = d.operands(source)?;
            let f = lanes1(move |a| {
                let part = |value| num::float_to_float(value & 0xffff, Format::F16, format, mode);
                part(a >> 16) << 8 | part(a)
            });
            let op = Op::Lane1(f, d.target(target, 16)?, d.source(a, from)?);
            d.ops.push(op);
        }
        Type::E4m3x2 | Type::E5m2x2 if to == Type::F16x2 => {
            let small = pair_of(from).ok_or_else(unknown)?;
            let [target, a] = d.operands(source)?;
            let f = lanes1(move |a| {
                let spread = (a & 0xff00) << 8 | a & 0xff;
                on_halves([spread], |[a]| num::float_to_float(a, small, Format::F16, mode))
            });
            let op = Op::Lane1(f, d.target(target, 32)?, d.source(a, from)?);
            d.ops.push(op);
        }
        _ => return Err(unknown()),
    }
    Ok(())
}

/// `cvt.pack.sat`: two integers clamped and packed, in front of a third where they leave room.
fn pack_integers(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["sat"])?;
    let name = parts.one_of(&["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])?;
    let (sign, bits) = name.split_at(1);
    let to = Int {
        bits: bits.parse().map_err(|_| "the type is missing")?,
        signed: sign == "s",
    };
    parts.one_of(&["s32"])?;
    let from = Int { bits: 32, signed: true };
    let f = lanes3(move |a, b, c| num::pack_saturated(a, b, c, from, to).into());
    if to.bits == 16 {
        let [target, a, b] = d.operands(source)?;
        let (target, a, b) = (d.target(target, 32)?, d.source(a, Type::S32)?, d.source(b, Type::S32)?);
        let zero = d.constant(0);
        d.ops.push(Op::Lane3(f, target, a, b, zero));
        return Ok(());
    }
    parts.one_of(&["b32"])?;
    d.ternary(source, Type::B32, [Type::S32, Type::S32, Type::B32], f)
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
        "param::entry",
    ])? {
        "global" | "const" => Space::Global,
        "local" => Space::Local,
        "param" | "param::entry" => Space::Param,
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
