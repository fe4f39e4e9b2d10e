//! Floating-point arithmetic.

use super::lanes::{lanes1, lanes2, lanes3, on_halves};
use super::operand::{format_of, no_type};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::num::approx::{self, Function};
use crate::num::{self, Format, Mode, Rounding, Selection};
use crate::parse::{Inst as Source, Type};
use crate::program::{Compare, Lane1, Lane2, Lane3, Op};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("fma", |d, p, s| {
        let ty = p.ty()?;
        fused(d, p, s, ty)
    }),
    ("rcp", |d, p, s| root(d, p, s, Function::Rcp, Some(num::rcp))),
    ("sqrt", |d, p, s| root(d, p, s, Function::Sqrt, Some(num::sqrt))),
    ("rsqrt", |d, p, s| root(d, p, s, Function::Rsqrt, None)),
    ("sin", |d, p, s| root(d, p, s, Function::Sin, None)),
    ("cos", |d, p, s| root(d, p, s, Function::Cos, None)),
    ("lg2", |d, p, s| root(d, p, s, Function::Lg2, None)),
    ("ex2", |d, p, s| root(d, p, s, Function::Ex2, None)),
    ("tanh", |d, p, s| root(d, p, s, Function::Tanh, None)),
    ("copysign", copysign),
    ("testp", testp),
];

/// A floating-point type: its format, and whether two values are packed.
fn format(ty: Type) -> Result<(Format, bool)> {
    match ty {
        Type::F16x2 => Ok((Format::F16, true)),
        Type::Bf16x2 => Ok((Format::Bf16, true)),
        Type::Tf32 => Err(no_type(ty)),
        _ => format_of(ty).map(|format| (format, false)).ok_or_else(|| no_type(ty)),
    }
}

/// Whether an instruction must say how it rounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounded {
    Optionally,
    Explicitly,
}

/// Takes the qualifiers that change a result, as far as arithmetic on a type has them.
fn mode(parts: &mut Parts<'_>, ty: Type, rounded: Rounded) -> Result<Mode> {
    let rounding = parts.rounding();
    if rounding.is_none() && rounded == Rounded::Explicitly {
        return Err("a rounding such as `.rn` is missing".into());
    }
    let mut mode = Mode::rounded(rounding.unwrap_or_default());
    let directed = matches!(ty, Type::F32 | Type::F64);
    if mode.rounding == Rounding::NearestAway || mode.rounding != Rounding::Nearest && !directed {
        return Err(format!("arithmetic on .{ty} has no such rounding"));
    }
    let half = matches!(ty, Type::F16 | Type::F16x2);
    let brain = matches!(ty, Type::Bf16 | Type::Bf16x2);
    mode.flush = (ty == Type::F32 || half) && parts.flag("ftz");
    mode.saturate = (ty == Type::F32 || half) && parts.flag("sat");
    // Only `fma` has it.
    mode.relu = rounded == Rounded::Explicitly && (half || brain) && !mode.saturate && parts.flag("relu");
    Ok(mode)
}

/// Lifts a function of a format, a mode and values to lanes, the plain F32 case as code of its own.
macro_rules! lift {
    ($lanes:ident, $kind:expr, $mode:expr, |$f:ident, $m:ident, $($x:ident),+| $body:expr) => {{
        let ((format, packed), mode) = ($kind, $mode);
        if packed {
            $lanes(move |$($x),+| on_halves([$($x),+], |[$($x),+]| {
                let ($f, $m) = (format, mode);
                $body
            }))
        } else if format == Format::F32 && mode == Mode::default() {
            $lanes(move |$($x),+| {
                let ($f, $m) = (Format::F32, Mode::default());
                $body
            })
        } else {
            $lanes(move |$($x),+| {
                let ($f, $m) = (format, mode);
                $body
            })
        }
    }};
}

pub(super) fn sum(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type, minus: bool) -> Result {
    let (kind, mode) = (format(ty)?, mode(parts, ty, Rounded::Optionally)?);
    let f: Lane2 = if minus {
        lift!(lanes2, kind, mode, |f, m, a, b| num::sub(f, a, b, m))
    } else {
        lift!(lanes2, kind, mode, |f, m, a, b| num::add(f, a, b, m))
    };
    d.binary(source, ty, f)
}

pub(super) fn product(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type) -> Result {
    let (kind, mode) = (format(ty)?, mode(parts, ty, Rounded::Optionally)?);
    d.binary(source, ty, lift!(lanes2, kind, mode, |f, m, a, b| num::mul(f, a, b, m)))
}

pub(super) fn fused(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type) -> Result {
    let (kind, mode) = (format(ty)?, mode(parts, ty, Rounded::Explicitly)?);
    let f: Lane3 = lift!(lanes3, kind, mode, |f, m, a, b, c| num::fma(f, a, b, c, m));
    d.ternary(source, ty, [ty; 3], f)
}

pub(super) fn quotient(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type) -> Result {
    let approximate = if ty == Type::F32 {
        parts.any(&["approx", "full"])
    } else {
        None
    };
    let f = match ty {
        Type::F32 if approximate == Some("approx") => {
            let flush = parts.flag("ftz");
            lanes2(move |a, b| approx::div_approx(a, b, flush))
        }
        Type::F32 | Type::F64 => {
            // `.full` is approximate too, but for divisors of every size: correctly rounded here.
            let mode = match approximate {
                Some(_) => Mode {
                    flush: parts.flag("ftz"),
                    ..Mode::default()
                },
                None => mode(parts, ty, Rounded::Explicitly)?,
            };
            if mode.saturate {
                return Err("a division has no `.sat`".into());
            }
            lift!(lanes2, format(ty)?, mode, |f, m, a, b| num::div(f, a, b, m))
        }
        _ => return Err(no_type(ty)),
    };
    d.binary(source, ty, f)
}

/// `abs` and `neg`.
pub(super) fn sign(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type, negate: bool) -> Result {
    let kind = format(ty)?;
    let mode = Mode {
        flush: matches!(ty, Type::F32 | Type::F16 | Type::F16x2) && parts.flag("ftz"),
        ..Mode::default()
    };
    let f: Lane1 = if negate {
        lift!(lanes1, kind, mode, |f, m, a| num::neg(f, a, m.flush))
    } else {
        lift!(lanes1, kind, mode, |f, m, a| num::abs(f, a, m.flush))
    };
    d.unary(source, ty, f)
}

pub(super) fn extreme(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type, largest: bool) -> Result {
    let (format, packed) = format(ty)?;
    let narrow = ty != Type::F64;
    let xorsign_abs = narrow && parts.flag("xorsign");
    if xorsign_abs {
        parts.one_of(&["abs"])?;
    }
    let selection = Selection {
        largest,
        nan: narrow && parts.flag("NaN"),
        xorsign_abs,
        flush: narrow && format != Format::Bf16 && parts.flag("ftz"),
    };
    let pick = move |a, b| num::select(format, a, b, selection);
    let f = if packed {
        lanes2(move |a, b| on_halves([a, b], |[a, b]| pick(a, b)))
    } else {
        lanes2(pick)
    };
    d.binary(source, ty, f)
}

/// Functions of one argument, approximate or, where they exist so, correctly rounded.
fn root(
    d: &mut Decoder<'_>,
    parts: &mut Parts<'_>,
    source: &Source,
    function: Function,
    exact: Option<fn(Format, u64, Mode) -> u64>,
) -> Result {
    let approximate = parts.flag("approx");
    let ty = parts.ty()?;
    let (format, packed) = format(ty)?;
    if !approximate {
        let exact = exact.filter(|_| matches!(ty, Type::F32 | Type::F64));
        let exact = exact.ok_or_else(|| format!("`.approx` is missing, or .{ty} is not supported here"))?;
        let mode = mode(parts, ty, Rounded::Explicitly)?;
        if mode.saturate {
            return Err("`.sat` is not supported here".into());
        }
        return d.unary(source, ty, lanes1(move |a| exact(format, a, mode)));
    }
    let known = match function {
        Function::Ex2 | Function::Tanh => ty != Type::F64,
        Function::Rcp | Function::Rsqrt => matches!(ty, Type::F32 | Type::F64),
        Function::Sqrt | Function::Sin | Function::Cos | Function::Lg2 => ty == Type::F32,
    };
    if !known {
        return Err(no_type(ty));
    }
    let flush = match (function, format) {
        (Function::Tanh, _) | (_, Format::F16) => false,
        (Function::Ex2, Format::Bf16) | (Function::Rcp, Format::F64) => {
            parts.one_of(&["ftz"])?;
            true
        }
        _ => parts.flag("ftz"),
    };
    let f = match format {
        // In double precision and flushed, only the upper half of the result.
        Format::F64 if flush => lanes1(move |a| approx::approximate_upper(function, a)),
        _ if packed => lanes1(move |a| on_halves([a], |[a]| approx::approximate(function, format, a, flush))),
        _ => lanes1(move |a| approx::approximate(function, format, a, flush)),
    };
    d.unary(source, ty, f)
}

fn copysign(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let ty = parts.ty()?;
    let sign = match ty {
        Type::F32 | Type::F64 => format(ty)?.0.sign_bit(),
        _ => return Err(no_type(ty)),
    };
    d.binary(source, ty, lanes2(move |a, b| a & sign | b & !sign))
}

fn testp(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let ty = parts.ty()?;
    let format = match ty {
        Type::F32 | Type::F64 => format(ty)?.0,
        _ => return Err(no_type(ty)),
    };
    let magnitude = format.sign_bit() - 1;
    let infinity = format.infinity();
    let least_normal = 1u64 << format.fraction_bits();
    let test: fn(u64, u64, u64) -> bool =
        match parts.one_of(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"])? {
            "finite" => |a, infinity, _| a < infinity,
            "infinite" => |a, infinity, _| a == infinity,
            "number" => |a, infinity, _| a <= infinity,
            "notanumber" => |a, infinity, _| a > infinity,
            "normal" => |a, infinity, least| a < infinity && a >= least,
            _ => |a, _, least| a < least && a != 0,
        };
    let [to, a] = d.operands(source)?;
    let a = d.source(a, ty)?;
    let compare = Compare {
        f: lanes2(move |a, _| u64::from(test(a & magnitude, infinity, least_normal))),
        d: Some(d.pred_target(to)?),
        second: None,
        second_d: None,
        a,
        b: a,
        with: None,
    };
    d.ops.push(Op::Compare(Box::new(compare)));
    Ok(())
}
