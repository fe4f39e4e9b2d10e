//! Where variables, parameters and functions are.

use std::collections::{HashMap, HashSet};

use super::call::Unit;
use super::operand;
use crate::error::PtxError;
use crate::parse::{Entry, Formal, Module, Space, Var};
use crate::program::{Program, SHARED_BASE};

/// Most static shared memory: the hardware's limit for declared variables.
const MAX_SHARED: u64 = 48 * 1024;
/// Most local memory of a thread.
pub(crate) const MAX_LOCAL: u64 = 512 * 1024;
/// What dynamic shared memory's address is at least a multiple of.
const DYNAMIC_ALIGN: u64 = 16;
/// What frames are a multiple of.
const FRAME_ALIGN: u64 = 16;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    Shared(u64),
    /// In local memory: address and size. A function's start where its frame does.
    Local(u64, u64),
    Param(u64),
    /// The index of a `.global` or `.const` variable among the module's.
    Variable(u32),
    /// The index of a function among the module's.
    Function(u32),
}

type Symbols<'a> = HashMap<&'a str, Symbol>;
type Result<T> = std::result::Result<T, PtxError>;

fn too_large(name: &str, size: u64, line: u32, limit: u64) -> PtxError {
    PtxError {
        line,
        message: format!("variable `{name}` of {size} bytes exceeds the {limit} bytes that its space has"),
    }
}

/// Room that is given out from its start on.
struct Room {
    at: u64,
    limit: u64,
}

impl Room {
    fn take(&mut self, name: &str, (size, align): (u64, u32), line: u32) -> Result<u64> {
        let start = self.at.checked_next_multiple_of(u64::from(align.max(1)));
        let end = start.and_then(|start| start.checked_add(size));
        match (start, end.filter(|&end| end <= self.limit)) {
            (Some(start), Some(end)) => {
                self.at = end;
                Ok(start)
            }
            _ => Err(too_large(name, size, line, self.limit)),
        }
    }

    fn take_variable(&mut self, var: &Var) -> Result<u64> {
        self.take(&var.name, (var.size, var.align), var.line)
    }
}

/// Gives every variable, parameter and function its address: the module's, then those of each unit.
pub(super) fn variables<'a>(
    module: &'a Module,
    entry: &'a Entry,
    units: &[Unit<'a>],
    program: &mut Program,
) -> Result<(Symbols<'a>, Vec<Symbols<'a>>)> {
    let mut of_module = Symbols::new();
    let variables = (module.globals.iter()).filter(|var| matches!(var.space, Space::Global | Space::Const));
    for (i, var) in variables.enumerate() {
        of_module.insert(&var.name, Symbol::Variable(i as u32));
    }
    for (i, function) in module.functions.iter().enumerate() {
        of_module.insert(&function.name, Symbol::Function(i as u32));
    }
    let mut of_units = Vec::with_capacity(units.len());
    for unit in units {
        of_units.push(local_symbols(entry, unit)?);
    }
    program.local_bytes = units.first().map_or(0, |unit| unit.frame(&of_units[0]));
    place_shared(module, units, program, &mut of_module, &mut of_units)?;
    Ok((of_module, of_units))
}

/// A unit's parameters and local variables.
fn local_symbols<'a>(entry: &'a Entry, unit: &Unit<'a>) -> Result<Symbols<'a>> {
    let mut symbols = Symbols::new();
    let mut room = Room {
        at: 0,
        limit: MAX_LOCAL,
    };
    match unit.function {
        None => {
            for param in &entry.params {
                symbols.insert(&param.name, Symbol::Param(u64::from(param.offset)));
            }
        }
        Some((_, function)) => {
            for formal in function.params.iter().chain(&function.returns) {
                if let Formal::Memory(param) = formal {
                    let size = u64::from(param.size);
                    let at = room.take(&param.name, (size, param.align), function.line)?;
                    symbols.insert(&param.name, Symbol::Local(at, size));
                }
            }
        }
    }
    for var in unit.local {
        symbols.insert(&var.name, Symbol::Local(room.take_variable(var)?, var.size));
    }
    Ok(symbols)
}

impl Unit<'_> {
    /// Bytes of local memory that its variables take.
    pub(super) fn frame(&self, symbols: &Symbols<'_>) -> u32 {
        let ends = symbols.values().filter_map(|symbol| match symbol {
            Symbol::Local(at, size) => Some(at + size),
            _ => None,
        });
        ends.fold(0, u64::max).next_multiple_of(FRAME_ALIGN) as u32
    }
}

/// Places all shared variables that the kernel and its functions use.
fn place_shared<'a>(
    module: &'a Module,
    units: &[Unit<'a>],
    program: &mut Program,
    of_module: &mut Symbols<'a>,
    of_units: &mut [Symbols<'a>],
) -> Result<()> {
    let bodies = units.iter().flat_map(|unit| unit.body);
    let used: HashSet<&str> = bodies.flat_map(operand::names).collect();
    // A module's shared variables take room only in kernels that use them.
    let shared = (module.globals.iter()).filter(|var| var.space == Space::Shared && used.contains(var.name.as_str()));
    let (external, fixed): (Vec<&Var>, Vec<&Var>) = shared.partition(|var| var.external);
    let base = u64::from(SHARED_BASE);
    let mut room = Room {
        at: base,
        limit: base + MAX_SHARED,
    };
    for var in fixed {
        of_module.insert(&var.name, Symbol::Shared(room.take_variable(var)?));
    }
    for (unit, symbols) in units.iter().zip(&mut *of_units) {
        for var in unit.shared.iter().filter(|var| !var.external) {
            symbols.insert(&var.name, Symbol::Shared(room.take_variable(var)?));
        }
    }
    program.static_shared = (room.at - base) as u32;
    let inner = || (units.iter().flat_map(|unit| unit.shared)).filter(|var| var.external);
    let aligns = external.iter().copied().chain(inner()).map(|var| u64::from(var.align));
    let dynamic = room.at.next_multiple_of(aligns.fold(DYNAMIC_ALIGN, u64::max));
    program.dynamic_base = u32::try_from(dynamic).unwrap_or(u32::MAX);
    for var in external {
        of_module.insert(&var.name, Symbol::Shared(dynamic));
    }
    for (unit, symbols) in units.iter().zip(of_units) {
        for var in unit.shared.iter().filter(|var| var.external) {
            symbols.insert(&var.name, Symbol::Shared(dynamic));
        }
    }
    Ok(())
}
