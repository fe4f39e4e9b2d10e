//! `ldmatrix` and `stmatrix`

use super::memory::space;
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{Matrices, Op, Space};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("ldmatrix", |d, p, s| matrices(d, p, s, false)),
    ("stmatrix", |d, p, s| matrices(d, p, s, true)),
];

fn matrices(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, store: bool) -> Result {
    for part in ["sync", "aligned", "m8n8"] {
        parts.one_of(&[part])?;
    }
    let count = match parts.one_of(&["x1", "x2", "x4"])? {
        "x1" => 1,
        "x2" => 2,
        _ => 4,
    };
    let transposed = parts.flag("trans");
    let space = space(parts);
    if !matches!(space, Space::Generic | Space::Shared) {
        return Err("matrices lie in the CTA's own shared memory".into());
    }
    parts.one_of(&["b16"])?;
    let [first, second] = d.operands(source)?;
    let (fragment, address) = if store { (second, first) } else { (first, second) };
    let elements = match fragment {
        Operand::Vector(elements) if elements.len() == count => elements,
        _ => return Err(format!("a vector of {count} registers is wanted")),
    };
    let mut regs = Vec::with_capacity(count);
    for element in elements {
        regs.push(if store {
            d.source(element, Type::B32)?
        } else {
            d.target(element, 32)?
        });
    }
    let matrices = Matrices {
        address: d.address(address, space)?,
        transposed,
        store,
        regs: regs.into(),
    };
    d.ops.push(Op::Matrices(Box::new(matrices)));
    Ok(())
}
