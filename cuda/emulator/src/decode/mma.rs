//! `mma.sync`

use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::num::{Element, Format, Int, Product, Sum};
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{Mma, Op, Reg};

pub(super) const RULES: &[(&str, Rule)] = &[("mma", mma)];

const fn integer(bits: u32, signed: bool) -> Element {
    Element::Integer(Int { bits, signed })
}

/// Rows and columns of A.
type Shape = (usize, usize);

/// The types of A and B, and the shapes that each has.
const ELEMENTS: &[(&str, Element, &[Shape])] = &[
    ("f16", Element::Float(Format::F16), &[(16, 8), (16, 16)]),
    ("bf16", Element::Float(Format::Bf16), &[(16, 8), (16, 16)]),
    ("tf32", Element::Float(Format::Tf32), &[(16, 4), (16, 8)]),
    ("e4m3", Element::Float(Format::E4m3), &[(16, 16), (16, 32)]),
    ("e5m2", Element::Float(Format::E5m2), &[(16, 16), (16, 32)]),
    (
        "f64",
        Element::Float(Format::F64),
        &[(8, 4), (16, 4), (16, 8), (16, 16)],
    ),
    ("s8", integer(8, true), &[(8, 16), (16, 16), (16, 32)]),
    ("u8", integer(8, false), &[(8, 16), (16, 16), (16, 32)]),
    ("s4", integer(4, true), &[(8, 32), (16, 32), (16, 64)]),
    ("u4", integer(4, false), &[(8, 32), (16, 32), (16, 64)]),
];

/// What A and B can be besides their own type: types of one family mix.
fn mix(a: Element, b: Element) -> bool {
    match (a, b) {
        (Element::Integer(a), Element::Integer(b)) => a.bits == b.bits,
        (Element::Float(Format::E4m3 | Format::E5m2), Element::Float(Format::E4m3 | Format::E5m2)) => true,
        _ => a == b,
    }
}

/// `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32` and its like: the types are those of D, A, B and C.
fn mma(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    for part in ["sync", "aligned", "row", "col"] {
        parts.one_of(&[part])?;
    }
    let saturate = parts.flag("satfinite");
    const SUMS: &[&str] = &["f16", "f32", "f64", "s32"];
    let names: Vec<&str> = ELEMENTS.iter().map(|(name, ..)| *name).collect();
    let d_name = parts.one_of(SUMS)?;
    let mut element = || -> Result<_> {
        let name = parts.one_of(&names)?;
        let known = ELEMENTS.iter().find(|(known, ..)| *known == name);
        known.ok_or_else(|| format!("`.{name}` is no type of matrices"))
    };
    let (&(a_name, a, shapes), &(b_name, b, _)) = (element()?, element()?);
    let c_name = parts.one_of(SUMS)?;
    let shape_name = |&(rows, depth): &Shape| format!("m{rows}n8k{depth}");
    let shape = shapes.iter().find(|shape| parts.flag(&shape_name(shape)));
    let &(rows, depth) = shape.ok_or_else(|| {
        let known: Vec<String> = shapes.iter().map(shape_name).collect();
        format!("of .{a_name}, the shapes .{} are supported", known.join(", ."))
    })?;
    let sum = match (a, d_name) {
        (Element::Integer(_), "s32") => Some(Sum::S32 { saturate }),
        (Element::Float(Format::F64), "f64") => Some(Sum::F64),
        (Element::Float(Format::F16 | Format::E4m3 | Format::E5m2), "f16") => Some(Sum::F16),
        (Element::Float(format), "f32") if format != Format::F64 => Some(Sum::F32),
        _ => None,
    };
    let Some(sum) = sum.filter(|_| c_name == d_name && mix(a, b)) else {
        return Err(format!(
            "there is no product of .{a_name} and .{b_name} with .{c_name} added to a .{d_name}"
        ));
    };
    if saturate && !matches!(sum, Sum::S32 { .. }) {
        return Err("`.satfinite` is for integers".into());
    }
    let product = Product { rows, depth, a, b, sum };
    let [to, from_a, from_b, from_c] = d.operands(source)?;
    let ty = if sum == Sum::F64 { Type::B64 } else { Type::B32 };
    let counts = product.registers();
    let d_regs: Result<Vec<Reg>> = (d.elements(to).into_iter())
        .map(|element| d.target(element, ty.bits()))
        .collect();
    let mut regs = |operand: &Operand| -> Result<Vec<Reg>> {
        (d.elements(operand).into_iter())
            .map(|element| d.source(element, ty))
            .collect()
    };
    let [d_regs, a_regs, b_regs, c_regs] = [d_regs?, regs(from_a)?, regs(from_b)?, regs(from_c)?];
    let given = [a_regs.len(), b_regs.len(), c_regs.len()];
    if given != counts || d_regs.len() != counts[2] {
        let [a, b, c] = counts;
        return Err(format!("fragments of {c}, {a}, {b} and {c} registers are wanted"));
    }
    let bf16 = Element::Float(Format::Bf16);
    let fixed = || -> Option<Mma> {
        Some(Mma::Bf16 {
            d: d_regs[..].try_into().ok()?,
            a: a_regs[..].try_into().ok()?,
            b: b_regs[..].try_into().ok()?,
            c: c_regs[..].try_into().ok()?,
        })
    };
    let op = fixed()
        .filter(|_| a == bf16 && depth == 16)
        .unwrap_or_else(|| Mma::Any {
            product,
            d: d_regs.clone().into(),
            a: a_regs.clone().into(),
            b: b_regs.clone().into(),
            c: c_regs.clone().into(),
        });
    d.ops.push(Op::Mma(Box::new(op)));
    Ok(())
}
