//! Floating-point arithmetic.

use super::lanes::{lanes1, lanes2, lanes3, on_halves};
use super::operand::{format_of, no_type};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::num::approx::{self, Function};
use crate::num::{self, Format, Mode, Selection};
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

/// Takes the qualifiers that change a result.
pub(super) fn mode(parts: &mut Parts<'_>) -> Mode {
    Mode {
        rounding: parts.rounding().unwrap_or_default(),
        flush: parts.flag("ftz"),
        saturate: parts.flag("sat"),
        relu: parts.flag("relu"),
        finite: parts.flag("satfinite"),
    }
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
    let (kind, mode) = (format(ty)?, mode(parts));
    let f: Lane2 = if minus {
        lift!(lanes2, kind, mode, |f, m, a, b| num::sub(f, a, b, m))
    } else {
        lift!(lanes2, kind, mode, |f, m, a, b| num::add(f, a, b, m))
    };
    d.binary(source, ty, f)
}

pub(super) fn product(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type) -> Result {
    let (kind, mode) = (format(ty)?, mode(parts));
    d.binary(source, ty, lift!(lanes2, kind, mode, |f, m, a, b| num::mul(f, a, b, m)))
}

pub(super) fn fused(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type) -> Result {
    let (kind, mode) = (format(ty)?, mode(parts));
    let f: Lane3 = lift!(lanes3, kind, mode, |f, m, a, b, c| num::fma(f, a, b, c, m));
    d.ternary(source, ty, [ty; 3], f)
}

pub(super) fn quotient(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type) -> Result {
    let approximate = parts.flag("approx");
    // Approximate too, but for divisors of every size: correctly rounded here.
    parts.flag("full");
    let mode = mode(parts);
    let f = match ty {
        Type::F32 if approximate => lanes2(move |a, b| approx::div_approx(a, b, mode.flush)),
        Type::F32 | Type::F64 => lift!(lanes2, format(ty)?, mode, |f, m, a, b| num::div(f, a, b, m)),
        _ => return Err(no_type(ty)),
    };
    d.binary(source, ty, f)
}

/// `abs` and `neg`.
pub(super) fn sign(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, ty: Type, negate: bool) -> Result {
    let kind = format(ty)?;
    let mode = Mode {
        flush: parts.flag("ftz"),
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
    let selection = Selection {
        largest,
        nan: parts.flag("NaN"),
        xorsign_abs: parts.flag("xorsign") && parts.flag("abs"),
        flush: parts.flag("ftz"),
    };
    let pick = move |a, b| num::select(format, a, b, selection);
    if source.operands.len() == 4 && ty == Type::F32 {
        return d.ternary(source, ty, [ty; 3], lanes3(move |a, b, c| pick(pick(a, b), c)));
    }
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
    let mode = mode(parts);
    let flush = mode.flush;
    let f = match (approximate, exact, format) {
        (true, _, Format::F64) => lanes1(move |a| approx::approximate_upper(function, a, flush)),
        (true, _, _) if packed => {
            lanes1(move |a| on_halves([a], |[a]| approx::approximate(function, format, a, flush)))
        }
        (true, _, _) => lanes1(move |a| approx::approximate(function, format, a, flush)),
        (false, Some(exact), Format::F32 | Format::F64) => lanes1(move |a| exact(format, a, mode)),
        _ => return Err("`.approx` is missing".into()),
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
        not_d: None,
        a,
        b: a,
        with: None,
    };
    d.ops.push(Op::Compare(Box::new(compare)));
    Ok(())
}
