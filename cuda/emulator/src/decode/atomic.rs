//! Atomics and reductions.

use super::lanes::on_halves;
use super::memory::{hints, order, space, without_policy};
use super::operand::{format_of, int_of, low_bits, no_type};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::num::{self, Format, Mode, Selection};
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{Atomic, Combine, Op, Order, Space};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("atom", |d, p, s| atomic(d, p, s, true)),
    ("red", |d, p, s| atomic(d, p, s, false)),
];

const NAMES: &[&str] = &["and", "or", "xor", "exch", "cas", "add", "inc", "dec", "min", "max"];

fn atomic(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, returns: bool) -> Result {
    let order = order(
        parts,
        Order {
            strong: true,
            ..Order::default()
        },
    );
    let constant = parts.left_with("const");
    let space = space(parts);
    let policy = hints(parts);
    let count = match parts.any(&["v2", "v4", "v8"]) {
        Some("v2") => 2,
        Some("v4") => 4,
        Some(_) => 8,
        None => 1,
    };
    let name = parts.one_of(NAMES)?;
    let noftz = parts.flag("noftz");
    let ty = parts.ty()?;
    let half = matches!(ty, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2);
    if half != noftz {
        let does = if half { "wants" } else { "has no" };
        return Err(format!("an atomic on .{ty} {does} `.noftz`"));
    }
    let fits = match (count, ty) {
        (1, Type::B16) => name == "cas",
        (1, Type::B128) => return pair(d, source, (name, returns), (space, order), policy),
        (1, _) => ty.bits() >= 32 && !half || half && name == "add",
        (2 | 4, Type::F32) => name == "add",
        (2 | 4, Type::F16x2 | Type::Bf16x2) | (_, Type::F16 | Type::Bf16) => matches!(name, "add" | "min" | "max"),
        _ => false,
    };
    if !fits || !returns && matches!(name, "exch" | "cas") {
        let many = if count > 1 { format!(".v{count}") } else { String::new() };
        return Err(format!("there is no `.{name}` on {many}.{ty}"));
    }
    let combines = |flush| combine(name, ty, flush).ok_or_else(|| no_type(ty));
    if constant
        || matches!(space, Space::Param | Space::Local)
        || count > 1 && !matches!(space, Space::Global | Space::Generic)
    {
        return Err("atomics are for global and shared memory, vectors for global memory".into());
    }
    let mut operands = without_policy(d, source, policy)?.iter();
    let mut next = || operands.next().ok_or("an operand is missing");
    let target = if returns { Some(next()?) } else { None };
    let address = next()?;
    let b = next()?;
    let c = if name == "cas" { Some(next()?) } else { None };
    if operands.next().is_some() {
        return Err("an operand too many".into());
    }
    let targets = target.map_or(vec![&Operand::Discard; count], |operand| d.elements(operand));
    let b = d.elements(b);
    if targets.len() != count || b.len() != count {
        return Err(format!("{count} elements are wanted"));
    }
    let mut elements = Vec::with_capacity(count);
    for (target, b) in targets.into_iter().zip(b) {
        let target = d.optional_target(target, ty.bits())?;
        let b = d.source(b, ty)?;
        let c = c.map_or(Ok(b), |c| d.source(c, ty))?;
        elements.push((target, b, c));
    }
    let atomic = Atomic {
        address: d.address(address, space)?,
        bytes: ty.bytes(),
        elements: elements.into(),
        in_global: combines(true)?,
        in_shared: combines(false)?,
        pair: None,
        order,
    };
    d.ops.push(Op::Atomic(Box::new(atomic)));
    Ok(())
}

/// `exch` and `cas` of 128 bits.
fn pair(
    d: &mut Decoder<'_>,
    source: &Source,
    (name, returns): (&str, bool),
    (space, order): (Space, Order),
    policy: bool,
) -> Result {
    let compares = match (name, returns) {
        ("exch", true) => false,
        ("cas", true) => true,
        _ => return Err(format!("there is no `.{name}` on .b128")),
    };
    if matches!(space, Space::Param | Space::Local) {
        return Err("atomics are for global and shared memory".into());
    }
    let [target, address, b, rest @ ..] = without_policy(d, source, policy)? else {
        return Err("an operand is missing".into());
    };
    let c = match (rest, compares) {
        ([c], true) => c,
        ([], false) => b,
        _ => return Err("the number of operands is wrong".into()),
    };
    let (target, b, c) = (d.wide_register(target)?, d.wide_register(b)?, d.wide_register(c)?);
    let atomic = Atomic {
        address: d.address(address, space)?,
        bytes: 8,
        elements: (0..2).map(|i| (Some(target[i]), b[i], c[i])).collect(),
        in_global: Box::new(|old, _, _| old),
        in_shared: Box::new(|old, _, _| old),
        pair: Some(compares),
        order,
    };
    d.ops.push(Op::Atomic(Box::new(atomic)));
    Ok(())
}

/// What an operation makes of the old value and its operands. `flush`: sums of F32 lose their subnormals.
pub(super) fn combine(name: &str, ty: Type, flush: bool) -> Option<Combine> {
    let bits = ty.bits();
    if let Some(int) = int_of(ty) {
        let untyped = matches!(ty, Type::B16 | Type::B32 | Type::B64);
        let pick = move |a: u64, b: u64, largest: bool| {
            let (x, y) = (int.extend(a), int.extend(b));
            let less = if int.signed { (x as i64) < y as i64 } else { x < y };
            low_bits(if less == largest { y } else { x }, bits)
        };
        return Some(match name {
            "and" if untyped => Box::new(|a, b, _| a & b),
            "or" if untyped => Box::new(|a, b, _| a | b),
            "xor" if untyped => Box::new(|a, b, _| a ^ b),
            "exch" if untyped => Box::new(|_, b, _| b),
            "cas" if untyped => Box::new(|a, b, c| if a == b { c } else { a }),
            "add" if !untyped => Box::new(move |a, b, _| low_bits(a.wrapping_add(b), bits)),
            "min" if !untyped => Box::new(move |a, b, _| pick(a, b, false)),
            "max" if !untyped => Box::new(move |a, b, _| pick(a, b, true)),
            "inc" if ty == Type::U32 => Box::new(|a, b, _| if a >= b { 0 } else { a + 1 }),
            "dec" if ty == Type::U32 => Box::new(|a, b, _| if a == 0 || a > b { b } else { a - 1 }),
            _ => return None,
        });
    }
    let (format, packed) = match ty {
        Type::F16x2 => (Format::F16, true),
        Type::Bf16x2 => (Format::Bf16, true),
        _ => (format_of(ty)?, false),
    };
    let selection = |largest| Selection {
        largest,
        ..Selection::default()
    };
    let f: Box<dyn Fn(u64, u64) -> u64 + Send + Sync> = match name {
        "add" => {
            let mode = Mode {
                flush: flush && format == Format::F32,
                ..Mode::default()
            };
            Box::new(move |a, b| num::add(format, a, b, mode))
        }
        "min" if !matches!(format, Format::F32 | Format::F64) => {
            Box::new(move |a, b| num::select(format, a, b, selection(false)))
        }
        "max" if !matches!(format, Format::F32 | Format::F64) => {
            Box::new(move |a, b| num::select(format, a, b, selection(true)))
        }
        _ => return None,
    };
    Some(if packed {
        Box::new(move |a, b, _| on_halves([a, b], |[a, b]| f(a, b)))
    } else {
        Box::new(move |a, b, _| f(a, b))
    })
}
