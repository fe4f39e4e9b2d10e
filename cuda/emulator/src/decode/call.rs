//! Functions that a kernel may call, and the calls.

use std::collections::HashMap;

use super::parts::Parts;
use super::place::Symbol;
use super::{Decoder, Result, Rule};
use crate::error::PtxError;
use crate::parse::{Entry, Formal, Function, Inst as Source, Module, Operand, Type, Var};
use crate::program::{Call, Callee, Op, Passed};

pub(super) const RULES: &[(&str, Rule)] = &[("call", call), ("ret", ret)];

/// What the device library defines: reports a failed assertion, and never returns.
const ASSERT: &str = "__assertfail";

/// A kernel or function to decode.
pub(super) struct Unit<'a> {
    pub(super) line: u32,
    pub(super) registers: &'a [Type],
    pub(super) shared: &'a [Var],
    pub(super) local: &'a [Var],
    pub(super) body: &'a [Source],
    /// A function, and its place among the module's.
    pub(super) function: Option<(u32, &'a Function)>,
}

/// The kernel, then all functions that it may come to call.
pub(super) fn units<'a>(
    module: &'a Module,
    entry: &'a Entry,
    budget: &mut usize,
) -> std::result::Result<Vec<Unit<'a>>, PtxError> {
    let mut units = vec![Unit {
        line: entry.line,
        registers: &entry.registers,
        shared: &entry.shared,
        local: &entry.local,
        body: &entry.body,
        function: None,
    }];
    if module.functions.is_empty() {
        return Ok(units);
    }
    let numbers: HashMap<&str, usize> = (module.functions.iter().enumerate())
        .map(|(i, function)| (function.name.as_str(), i))
        .collect();
    let mut seen = vec![false; module.functions.len()];
    let mut next = 0;
    while let Some(unit) = units.get(next) {
        let mut called = Vec::new();
        for source in unit.body.iter().filter(|source| source.opcode[0] == "call") {
            match source.operands.get(1) {
                Some(Operand::Symbol { name, .. }) => called.extend(numbers.get(name.as_str())),
                // Any function whose address may have been taken.
                _ => called.extend(0..seen.len()),
            }
        }
        for number in called {
            let function = &module.functions[number];
            let Some(body) = function
                .body
                .as_deref()
                .filter(|_| !std::mem::replace(&mut seen[number], true))
            else {
                continue;
            };
            *budget = budget.checked_sub(body.len() + 1).ok_or_else(|| PtxError {
                line: entry.line,
                message: "the kernels' functions have too many instructions in all".into(),
            })?;
            units.push(Unit {
                line: function.line,
                registers: &function.registers,
                shared: &function.shared,
                local: &function.local,
                body,
                function: Some((number as u32, function)),
            });
        }
        next += 1;
    }
    Ok(units)
}

fn ret(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.flag("uni");
    let [] = d.operands(source)?;
    d.ops.push(if d.in_function { Op::Return } else { Op::Exit });
    Ok(())
}

fn call(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.flag("uni");
    let [Operand::List(returns), target, Operand::List(args)] = d.operands(source)? else {
        return Err("a function and what it takes are wanted".into());
    };
    let mut formals = None;
    let target = match target {
        Operand::Symbol { name, offset: 0 } => {
            let found = (d.units[1..].iter()).position(|unit| unit.function.is_some_and(|(_, f)| f.name == *name));
            let Some(index) = found else {
                if name == ASSERT {
                    d.ops.push(Op::Trap);
                    return Ok(());
                }
                return Err(format!(
                    "`{name}` is no function defined in this module, and modules are not linked"
                ));
            };
            formals = d.units[index + 1].function.map(|(_, function)| function);
            Callee::Function(index as u32)
        }
        address => Callee::Address(d.source(address, Type::U64)?),
    };
    if let Some(function) = formals {
        let (takes, gives) = (function.params.len(), function.returns.len());
        if args.len() != takes || returns.len() != gives {
            return Err(format!("`{}` takes {takes} values and returns {gives}", function.name));
        }
    }
    let mut passed = Vec::with_capacity(args.len());
    for (i, arg) in args.iter().enumerate() {
        passed.push(match arg {
            Operand::Int(_) | Operand::F32(_) | Operand::F64(_) | Operand::Special(_) => {
                let Some(function) = formals else {
                    return Err("constants are passed to functions that are called by name".into());
                };
                let ty = match (arg, size_of(function, &function.params[i])) {
                    (Operand::F32(_) | Operand::F64(_), 4) => Type::F32,
                    (Operand::F32(_) | Operand::F64(_), 8) => Type::F64,
                    (_, 1) => Type::B8,
                    (_, 2) => Type::B16,
                    (_, 4) => Type::B32,
                    (_, 8) => Type::B64,
                    _ => return Err("a constant cannot stand for a value of this size".into()),
                };
                let reg = d.source(arg, ty)?;
                Passed::Register { reg, bytes: ty.bytes() }
            }
            _ => d.passed(arg)?,
        });
    }
    let results: Result<Vec<Passed>> = returns.iter().map(|result| d.passed(result)).collect();
    let results = results?;
    if let Some(function) = formals {
        let pairs = passed
            .iter()
            .zip(&function.params)
            .chain(results.iter().zip(&function.returns));
        for (passed, formal) in pairs {
            let bytes = size_of(function, formal);
            if !passed.fits(Passed::Memory { at: 0, bytes }) {
                return Err(format!(
                    "a value of `{}` has {bytes} bytes, one of another size is given",
                    function.name
                ));
            }
        }
    }
    d.ops.push(Op::Call(Box::new(Call {
        target,
        args: passed.into(),
        returns: results.into(),
    })));
    Ok(())
}

/// Bytes of a parameter or result.
fn size_of(function: &Function, formal: &Formal) -> u32 {
    match formal {
        Formal::Memory(param) => param.size,
        Formal::Register(id) => function.registers.get(id.0 as usize).map_or(0, |ty| ty.bytes()),
    }
}

impl Decoder<'_> {
    /// A value of a call on the caller's side.
    fn passed(&self, operand: &Operand) -> Result<Passed> {
        match operand {
            Operand::Reg(id) => {
                let (reg, bits) = self.register(*id)?;
                Ok(Passed::Register { reg, bytes: bits / 8 })
            }
            Operand::Symbol { name, offset: 0 } => match self.symbols[0].get(name.as_str()) {
                Some(&Symbol::Local(at, size)) => Ok(Passed::Memory {
                    at: at as u32,
                    bytes: size as u32,
                }),
                _ => Err(format!("`{name}` is no `.param` variable of the caller")),
            },
            Operand::Discard => Ok(Passed::Nothing),
            _ => Err("calls pass registers, constants and `.param` variables".into()),
        }
    }

    /// Where a function has its parameters or results.
    pub(super) fn formals(&self, formals: &[Formal]) -> Result<Box<[Passed]>> {
        let place = |formal: &Formal| match formal {
            Formal::Register(id) => {
                let (reg, bits) = self.register(*id)?;
                Ok(Passed::Register { reg, bytes: bits / 8 })
            }
            Formal::Memory(param) => match self.symbols[0].get(param.name.as_str()) {
                Some(&Symbol::Local(at, size)) if param.name != "_" => Ok(Passed::Memory {
                    at: at as u32,
                    bytes: size as u32,
                }),
                _ => Ok(Passed::Nothing),
            },
        };
        formals.iter().map(place).collect()
    }
}
