//! From syntax tree to compact form, once per module.
//!
//! Each family of instructions has a file with a table of the opcodes it knows. A decoding function takes the opcode's
//! qualifiers one by one; what nobody takes is unknown, and an error.

mod atomic;
mod bulk;
mod convert;
mod float;
mod flow;
mod integer;
mod lanes;
mod layout;
mod logic;
mod matrices;
mod memory;
mod mma;
mod moves;
mod operand;
mod parts;
mod predicate;
mod sync;
mod tensor;
mod wgmma;

use std::collections::HashMap;

use crate::error::PtxError;
use crate::parse::{Entry, Inst as Source, Module, Space as VarSpace, Type, Var};
use crate::program::{FULL, Lanes, Op, PredSource, Program, Relocation, SHARED_BASE, Site};
use parts::Parts;

/// Why something cannot be decoded.
type Refusal = String;
type Result<T = ()> = std::result::Result<T, Refusal>;

/// Decodes one instruction, whose opcode's first part is already known.
type Rule = fn(&mut Decoder<'_>, &mut Parts<'_>, &Source) -> Result;

/// The opcodes' first parts, by family.
const FAMILIES: &[&[(&str, Rule)]] = &[
    integer::RULES,
    logic::RULES,
    float::RULES,
    convert::RULES,
    moves::RULES,
    predicate::RULES,
    memory::RULES,
    atomic::RULES,
    bulk::RULES,
    matrices::RULES,
    sync::RULES,
    mma::RULES,
    wgmma::RULES,
];

/// Most registers of one kernel; every warp has room for all of them.
const MAX_REGISTERS: usize = 1 << 16;
/// Most static shared memory: the hardware's limit for declared variables.
const MAX_SHARED: u64 = 48 * 1024;
/// Most local memory of a thread.
const MAX_LOCAL: u64 = 512 * 1024;
/// What dynamic shared memory's address is at least a multiple of.
const DYNAMIC_ALIGN: u64 = 16;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbol {
    Shared(u64),
    Local(u64),
    Param(u64),
    /// The index of a `.global` or `.const` variable among the module's.
    Variable(u32),
}

/// Where a declared register went: its index among the predicates or among the other registers.
#[derive(Clone, Copy, Debug)]
struct Slot {
    ty: Type,
    index: u32,
}

struct Decoder<'a> {
    slots: Vec<Slot>,
    symbols: HashMap<&'a str, Symbol>,
    registers: u32,
    predicates: u32,
    constants: Vec<Lanes>,
    constant_of: HashMap<u64, u32>,
    relocations: Vec<Relocation>,
    /// Operations of the instruction being decoded.
    ops: Vec<Op>,
}

/// The guard of instructions without one: the constant false, flipped.
const ALWAYS: PredSource = PredSource { index: 0, flip: FULL };

/// Decodes a kernel.
pub(crate) fn decode(module: &Module, entry: &Entry) -> std::result::Result<Program, PtxError> {
    let refuse = |line| move |message| PtxError { line, message };
    let mut program = Program {
        name: entry.name.clone(),
        ..Program::default()
    };
    if entry.registers.len() > MAX_REGISTERS {
        let message = format!(
            "{} registers declared; this emulator allows {MAX_REGISTERS}",
            entry.registers.len()
        );
        return Err(refuse(entry.line)(message));
    }
    // Predicate 0 is the constant false.
    let (mut registers, mut predicates) = (0, 1);
    let slots = (entry.registers.iter())
        .map(|&ty| {
            let next = if ty == Type::Pred {
                &mut predicates
            } else {
                &mut registers
            };
            *next += 1;
            Slot { ty, index: *next - 1 }
        })
        .collect();
    let mut decoder = Decoder {
        slots,
        symbols: place_variables(module, entry, &mut program)?,
        registers,
        predicates,
        constants: Vec::new(),
        constant_of: HashMap::new(),
        relocations: Vec::new(),
        ops: Vec::new(),
    };
    let mut lowered = Vec::with_capacity(entry.body.len() + 1);
    for source in &entry.body {
        let guard = decoder.guard(source).map_err(refuse(source.line))?;
        let ops = decoder.instruction(source).map_err(refuse(source.line))?;
        let site = program.sites.len() as u32;
        program.sites.push(Site {
            line: source.line,
            text: source.text.clone(),
            opcode: source.opcode.join(".").into(),
            matrix_registers: Box::default(),
        });
        lowered.push(layout::Lowered { ops, guard, site });
    }
    // What runs off the end exits.
    lowered.push(layout::Lowered {
        ops: vec![Op::Exit],
        guard: ALWAYS,
        site: program.sites.len() as u32,
    });
    program.sites.push(Site {
        line: entry.body.last().map_or(entry.line, |source| source.line),
        text: "(end of the kernel)".into(),
        opcode: "exit".into(),
        matrix_registers: Box::default(),
    });
    layout::lay_out(lowered, &mut program);
    decoder.note_matrix_registers(entry, &mut program);
    program.registers = decoder.registers;
    program.predicates = decoder.predicates;
    program.constants = decoder.constants;
    program.relocations = decoder.relocations;
    Ok(program)
}

/// Gives every variable and parameter its address.
fn place_variables<'a>(
    module: &'a Module,
    entry: &'a Entry,
    program: &mut Program,
) -> std::result::Result<HashMap<&'a str, Symbol>, PtxError> {
    let mut symbols = HashMap::new();
    let too_large = |var: &Var, limit: u64| PtxError {
        line: var.line,
        message: format!(
            "variable `{}` of {} bytes exceeds the {limit} bytes that its space has",
            var.name, var.size
        ),
    };
    let variables = (module.globals.iter()).filter(|var| matches!(var.space, VarSpace::Global | VarSpace::Const));
    for (i, var) in variables.enumerate() {
        symbols.insert(var.name.as_str(), Symbol::Variable(i as u32));
    }
    let used: std::collections::HashSet<&str> = entry.body.iter().flat_map(operand::names).collect();
    let shared = |var: &&Var| var.space == VarSpace::Shared;
    // A module's shared variables take room only in kernels that use them.
    let of_module = module
        .globals
        .iter()
        .filter(shared)
        .filter(|var| used.contains(var.name.as_str()));
    let all_shared: Vec<&Var> = of_module.chain(&entry.shared).collect();
    let place = |at: &mut u64, var: &Var, limit: u64| {
        let start = at
            .checked_next_multiple_of(u64::from(var.align.max(1)))
            .filter(|&s| s <= limit);
        let end = start.and_then(|s| s.checked_add(var.size)).filter(|&e| e <= limit);
        match (start, end) {
            (Some(start), Some(end)) => {
                *at = end;
                Ok(start)
            }
            _ => Err(too_large(var, limit)),
        }
    };
    let base = u64::from(SHARED_BASE);
    let mut at = base;
    for var in all_shared.iter().filter(|var| !var.external) {
        symbols.insert(&var.name, Symbol::Shared(place(&mut at, var, base + MAX_SHARED)?));
    }
    program.static_shared = (at - base) as u32;
    let external = || all_shared.iter().filter(|var| var.external);
    let align = external().map(|var| u64::from(var.align)).fold(DYNAMIC_ALIGN, u64::max);
    let dynamic = at.next_multiple_of(align);
    program.dynamic_base = u32::try_from(dynamic).unwrap_or(u32::MAX);
    for var in external() {
        symbols.insert(&var.name, Symbol::Shared(dynamic));
    }
    let mut at = 0;
    for var in &entry.local {
        symbols.insert(&var.name, Symbol::Local(place(&mut at, var, MAX_LOCAL)?));
    }
    program.local_bytes = at.next_multiple_of(16) as u32;
    for param in &entry.params {
        symbols.insert(&param.name, Symbol::Param(u64::from(param.offset)));
    }
    Ok(symbols)
}

impl Decoder<'_> {
    /// The operations of one instruction.
    fn instruction(&mut self, source: &Source) -> Result<Vec<Op>> {
        let mut parts = Parts::new(source);
        let name = parts.name();
        let rule = (FAMILIES.iter().flat_map(|family| family.iter()))
            .find(|(known, _)| *known == name)
            .map(|(_, rule)| rule)
            .ok_or_else(|| format!("unknown instruction `{}`", source.text))?;
        rule(self, &mut parts, source).map_err(|why| format!("{why}, in `{}`", source.text))?;
        parts
            .end()
            .map_err(|part| format!("unknown instruction `{}`: `.{part}` is not supported here", source.text))?;
        Ok(std::mem::take(&mut self.ops))
    }

    fn guard(&self, source: &Source) -> Result<PredSource> {
        match source.guard {
            None => Ok(ALWAYS),
            Some((id, negated)) => {
                let index = self.pred_index(id)?;
                Ok(PredSource {
                    index,
                    flip: if negated { FULL } else { 0 },
                })
            }
        }
    }
}
