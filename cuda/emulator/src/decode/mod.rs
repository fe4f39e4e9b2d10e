//! From syntax tree to compact form, once per module.
//!
//! Each family of instructions has a file with a table of the opcodes it knows. A decoding function takes the opcode's
//! qualifiers one by one; what nobody takes is unknown, and an error.

mod atomic;
mod bulk;
mod call;
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
mod place;
mod predicate;
mod slots;
mod sync;
mod tensor;
mod wgmma;

use std::collections::HashMap;

use crate::error::PtxError;
use crate::parse::{Entry, Inst as Source, Module, Type};
use crate::program::{FULL, Function, Lanes, Op, PredSource, Program, Relocation, Site};
use call::Unit;
use parts::Parts;
use place::Symbol;

pub(crate) use place::MAX_LOCAL;

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
    call::RULES,
    wgmma::RULES,
];

const VIDEO: &[&str] = &[
    "vadd",
    "vsub",
    "vabsdiff",
    "vmin",
    "vmax",
    "vshl",
    "vshr",
    "vmad",
    "vset",
    "vadd2",
    "vsub2",
    "vavrg2",
    "vabsdiff2",
    "vmin2",
    "vmax2",
    "vset2",
    "vadd4",
    "vsub4",
    "vavrg4",
    "vabsdiff4",
    "vmin4",
    "vmax4",
    "vset4",
];

/// Instructions that are known and left out, and why.
const ABSENT: &[(&[&str], &str)] = &[
    (&["tex", "tld4", "txq", "istypep"], "textures are not supported"),
    (&["suld", "sust", "sured", "suq"], "surfaces are not supported"),
    (
        &["wmma"],
        "`wmma` leaves the layout of its fragments open and is not supported; `mma.sync` is",
    ),
    (&["multimem"], "memory of several devices is not supported"),
    (
        &["alloca", "stacksave", "stackrestore"],
        "`.local` variables are the only local memory",
    ),
    (VIDEO, "video instructions are not supported"),
    (&["tcgen05"], "Hopper has no such instruction"),
];

/// Most registers of one kernel and its functions; a warp may need room for all of them, and those of 128 bits take
/// two.
const MAX_REGISTERS: usize = 1 << 17;

/// Where a declared register went: its index among the predicates or among the other registers.
#[derive(Clone, Copy, Debug)]
struct Slot {
    ty: Type,
    index: u32,
}

struct Decoder<'a> {
    slots: Vec<Slot>,
    /// What the names of the kernel or function that is decoded stand for, then those of the module.
    symbols: [HashMap<&'a str, Symbol>; 2],
    /// Whether a function is decoded, whose local memory starts where its caller's ends.
    in_function: bool,
    units: &'a [Unit<'a>],
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

/// Decodes a kernel and the functions that it may call. `budget` is how many instructions of functions the module's
/// kernels may still have decoded.
pub(crate) fn decode(module: &Module, entry: &Entry, budget: &mut usize) -> std::result::Result<Program, PtxError> {
    let mut program = Program {
        name: entry.name.clone(),
        ..Program::default()
    };
    let units = call::units(module, entry, budget)?;
    let registers: usize = units.iter().map(|unit| 2 * unit.registers.len()).sum();
    if registers > MAX_REGISTERS {
        let message = format!(
            "{} registers declared; this emulator allows {}",
            registers / 2,
            MAX_REGISTERS / 2
        );
        return Err(PtxError {
            line: entry.line,
            message,
        });
    }
    let (of_module, of_units) = place::variables(module, entry, &units, &mut program)?;
    let mut decoder = Decoder {
        slots: Vec::new(),
        symbols: [HashMap::new(), of_module],
        in_function: false,
        units: &units,
        registers: 0,
        // Predicate 0 is the constant false.
        predicates: 1,
        constants: Vec::new(),
        constant_of: HashMap::new(),
        relocations: Vec::new(),
        ops: Vec::new(),
    };
    for (unit, symbols) in units.iter().zip(of_units) {
        decoder.symbols[0] = symbols;
        decoder.unit(unit, &mut program)?;
    }
    program.registers = decoder.registers;
    program.predicates = decoder.predicates;
    program.constants = decoder.constants;
    program.relocations = decoder.relocations;
    Ok(program)
}

impl<'a> Decoder<'a> {
    /// Decodes a kernel or function.
    fn unit(&mut self, unit: &Unit<'a>, program: &mut Program) -> std::result::Result<(), PtxError> {
        let refuse = |line| move |message| PtxError { line, message };
        let (first_register, first_predicate) = (self.registers, self.predicates);
        self.in_function = unit.function.is_some();
        self.slots = (unit.registers.iter())
            .map(|&ty| {
                let next = if ty == Type::Pred {
                    &mut self.predicates
                } else {
                    &mut self.registers
                };
                let index = *next;
                // 128 bits are two registers side by side.
                *next += if ty == Type::B128 { 2 } else { 1 };
                Slot { ty, index }
            })
            .collect();
        let declared = first_register..self.registers;
        let start = program.code.len();
        let first_site = program.sites.len();
        let mut lowered = Vec::with_capacity(unit.body.len() + 1);
        for source in unit.body {
            let guard = self.guard(source).map_err(refuse(source.line))?;
            let ops = self.instruction(source).map_err(refuse(source.line))?;
            let site = program.sites.len() as u32;
            program.sites.push(Site {
                line: source.line,
                text: source.text.clone(),
                opcode: source.opcode.join(".").into(),
                matrix_registers: Box::default(),
            });
            lowered.push(layout::Lowered { ops, guard, site });
        }
        // What runs off the end leaves.
        let (op, text, opcode) = match unit.function {
            None => (Op::Exit, "(end of the kernel)", "exit"),
            Some(_) => (Op::Return, "(end of the function)", "ret"),
        };
        lowered.push(layout::Lowered {
            ops: vec![op],
            guard: ALWAYS,
            site: program.sites.len() as u32,
        });
        program.sites.push(Site {
            line: unit.body.last().map_or(unit.line, |source| source.line),
            text: text.into(),
            opcode: opcode.into(),
            matrix_registers: Box::default(),
        });
        layout::lay_out(lowered, program);
        self.note_matrix_registers(unit.body, first_site, start, program);
        let mut formals = [Box::default(), Box::default()];
        if let Some((_, function)) = unit.function {
            let passed = |formals| self.formals(formals).map_err(refuse(function.line));
            formals = [passed(&function.params)?, passed(&function.returns)?];
        }
        let scope = slots::Scope {
            code: start,
            sites: first_site,
            declared,
            end: self.registers,
            in_function: self.in_function,
        };
        self.registers = slots::share(&scope, program, &mut formals);
        if let Some((number, function)) = unit.function {
            let [params, returns] = formals;
            program.functions.push(Function {
                name: function.name.as_str().into(),
                number,
                start: start as u32,
                params,
                returns,
                registers: first_register..self.registers,
                predicates: first_predicate..self.predicates,
                frame: unit.frame(&self.symbols[0]),
            });
        }
        Ok(())
    }
}

impl Decoder<'_> {
    /// The operations of one instruction.
    fn instruction(&mut self, source: &Source) -> Result<Vec<Op>> {
        let mut parts = Parts::new(source);
        let name = parts.name();
        let rule = (FAMILIES.iter().flat_map(|family| family.iter()))
            .find(|(known, _)| *known == name)
            .map(|(_, rule)| rule)
            .ok_or_else(|| match ABSENT.iter().find(|(names, _)| names.contains(&name)) {
                Some((_, why)) => format!("{why}: `{}`", source.text),
                None => format!("unknown instruction `{}`", source.text),
            })?;
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
