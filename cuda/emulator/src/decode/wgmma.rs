//! `wgmma`

use std::collections::HashSet;

use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::parse::{AddrBase, Address, Inst as Source, Operand, RegId, Type};
use crate::program::{Described, Left, Multiply, Op, Program, Reg, Wgmma};

pub(super) const RULES: &[(&str, Rule)] = &[("wgmma", wgmma)];

fn wgmma(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let name = parts.one_of(&["fence", "commit_group", "wait_group", "mma_async"])?;
    for part in ["sync", "aligned"] {
        parts.one_of(&[part])?;
    }
    let op = match name {
        "mma_async" => Wgmma::Multiply(Box::new(multiply(d, parts, source)?)),
        "wait_group" => {
            let [left] = d.operands(source)?;
            let left = u32::try_from(d.literal(left)?).map_err(|_| "the number of groups must not be negative")?;
            Wgmma::Wait { left }
        }
        _ => {
            let [] = d.operands(source)?;
            if name == "fence" { Wgmma::Fence } else { Wgmma::Commit }
        }
    };
    d.ops.push(Op::Wgmma(op));
    Ok(())
}

/// `wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16`
fn multiply(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result<Multiply> {
    let columns = (8..=256usize)
        .step_by(8)
        .find(|n| parts.flag(&format!("m64n{n}k16")))
        .ok_or("a shape `.m64nNk16` is wanted, N a multiple of 8 up to 256")?;
    for part in ["f32", "bf16", "bf16"] {
        parts.one_of(&[part])?;
    }
    let [to, a, b, add, scale_a, scale_b, transposed @ ..] = source.operands.as_slice() else {
        return Err("accumulators, A, B, a predicate and two signs are wanted".into());
    };
    let targets: Result<Vec<Reg>> = (d.elements(to).into_iter())
        .map(|element| d.target(element, 32))
        .collect();
    let targets = targets?;
    let wanted = columns / 2;
    if targets.len() != wanted || targets.iter().collect::<HashSet<_>>().len() != wanted {
        return Err(format!("{wanted} different accumulators are wanted"));
    }
    let transposed: Result<Vec<bool>> = transposed.iter().map(|operand| flag(d, operand)).collect();
    let mut transposed = transposed?.into_iter();
    let mut next = || {
        transposed
            .next()
            .ok_or("an operand that says how a matrix lies is missing")
    };
    let a = match a {
        Operand::Vector(elements) => {
            let regs: Result<Vec<Reg>> = elements.iter().map(|element| d.target(element, 32)).collect();
            let wrong = |_| "A takes four registers, or a descriptor";
            Left::Registers(regs?.try_into().map_err(wrong)?)
        }
        descriptor => Left::Shared(Described {
            descriptor: d.source(descriptor, Type::B64)?,
            transposed: next()?,
        }),
    };
    let b = Described {
        descriptor: d.source(b, Type::B64)?,
        transposed: next()?,
    };
    if transposed.next().is_some() {
        return Err("there are too many operands".into());
    }
    Ok(Multiply {
        d: targets.into(),
        a,
        b,
        add: d.pred_source(add)?,
        negate: [sign(d, scale_a)?, sign(d, scale_b)?],
    })
}

fn flag(d: &Decoder<'_>, operand: &Operand) -> Result<bool> {
    match d.literal(operand)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("{other} says nothing of how a matrix lies: 0 and 1 do")),
    }
}

fn sign(d: &Decoder<'_>, operand: &Operand) -> Result<bool> {
    match d.literal(operand)? {
        1 => Ok(false),
        -1 => Ok(true),
        other => Err(format!("a matrix cannot be scaled by {other}, only by 1 and -1")),
    }
}

impl Decoder<'_> {
    /// Notes which instructions name registers that matrix instructions use on their own time.
    pub(super) fn note_matrix_registers(
        &self,
        body: &[Source],
        first_site: usize,
        start: usize,
        program: &mut Program,
    ) {
        let multiplications = program.code[start..].iter().filter_map(|inst| match &inst.op {
            Op::Wgmma(Wgmma::Multiply(multiply)) => Some(multiply),
            _ => None,
        });
        let used: HashSet<Reg> = multiplications.flat_map(|multiply| multiply.registers()).collect();
        if used.is_empty() {
            return;
        }
        for inst in program.code[start..].iter_mut().filter(|inst| inst.counts) {
            // Matrix instructions among themselves have rules of their own.
            let (Some(source), false) = (
                body.get(inst.site as usize - first_site),
                matches!(inst.op, Op::Wgmma(_)),
            ) else {
                continue;
            };
            let mut named = Vec::new();
            source
                .operands
                .iter()
                .for_each(|operand| registers(operand, &mut named));
            let shared: Vec<Reg> = (named.into_iter())
                .filter_map(|id| Some(self.register(id).ok()?.0))
                .filter(|reg| used.contains(reg))
                .collect();
            inst.names_matrix_registers = !shared.is_empty();
            program.sites[inst.site as usize].matrix_registers = shared.into();
        }
    }
}

/// The registers that an operand names.
fn registers(operand: &Operand, into: &mut Vec<RegId>) {
    let base = |address: &Address| match address.base {
        AddrBase::Reg(id) => Some(id),
        AddrBase::Symbol(_) | AddrBase::Absolute => None,
    };
    match operand {
        Operand::Reg(id) | Operand::NotReg(id) => into.push(*id),
        Operand::Pair(a, b) => into.extend([a, b].into_iter().flatten()),
        Operand::Vector(elements) => elements.iter().for_each(|element| registers(element, into)),
        Operand::Address(address) => into.extend(base(address)),
        Operand::Tensor { map, coordinates } => {
            into.extend(base(map));
            coordinates.iter().for_each(|element| registers(element, into));
        }
        _ => {}
    }
}
