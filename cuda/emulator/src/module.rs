//! A PTX module, parsed and decoded once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::decode;
use crate::error::PtxError;
use crate::memory::Memory;
use crate::parse::{self, Space, Var};
use crate::program::{FUNCTION_STRIDE, FUNCTION_WINDOW, Program};

/// Most instructions of functions, counted for each kernel that may call them.
const MAX_FUNCTIONS: usize = 16 << 20;

/// A PTX module, ready to launch its kernels.
#[derive(Debug)]
pub struct Module {
    /// Unique in the process: names the module's variables to memories.
    number: u64,
    entries: Vec<EntryInfo>,
    programs: Vec<Program>,
    globals: Vec<GlobalInfo>,
    /// First bytes of each global.
    initial: Vec<Vec<u8>>,
    /// Addresses among them: in which global, at which byte, of what, and bytes to add.
    pointers: Vec<(usize, u64, Target, i64)>,
}

/// What an address in an initial value means.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// A global, by its number.
    Variable(usize),
    /// An address known from the start.
    Address(u64),
}

/// What a launch needs to know of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryInfo {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<ParamInfo>,
    /// Bytes of its parameter buffer.
    pub param_bytes: u32,
    /// Most threads per CTA along each axis, from `.maxntid` or `.reqntid`.
    pub max_threads: Option<[u32; 3]>,
    /// Exact threads per CTA, from `.reqntid`.
    pub required_threads: Option<[u32; 3]>,
    /// Fewest CTAs that an SM must be able to hold, from `.minnctapersm`.
    pub min_ctas: Option<u32>,
    /// The cluster that it must be launched with, from `.reqnctapercluster`.
    pub required_cluster: Option<[u32; 3]>,
    /// Bytes of static shared memory.
    pub static_shared: u32,
    /// An estimate of the 32-bit registers a thread takes: what `.maxnreg` and the launch bounds leave at most.
    pub registers: u32,
}

/// Where a parameter lies in the parameter buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Where it starts.
    pub offset: u32,
    /// Bytes it takes.
    pub size: u32,
    /// Its alignment.
    pub align: u32,
}

/// A variable of the module in `.global` or `.const` memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalInfo {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
}

impl Module {
    /// Reads and decodes PTX text.
    ///
    /// # Errors
    ///
    /// The first thing in it that is not PTX, or that this emulator does not know, with its line.
    pub fn parse(ptx: &str) -> Result<Module, PtxError> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let ast = parse::parse(ptx)?;
        // What kernels share is decoded for each of them.
        let mut budget = MAX_FUNCTIONS;
        let programs = ast
            .entries
            .iter()
            .map(|entry| decode::decode(&ast, entry, &mut budget))
            .collect::<Result<Vec<_>, _>>()?;
        let entries = (ast.entries.iter().zip(&programs))
            .map(|(entry, program)| EntryInfo::of(entry, program))
            .collect();
        let functions: HashMap<&str, u32> = (ast.functions.iter().zip(0..))
            .map(|(function, number)| (function.name.as_str(), number))
            .collect();
        let variables: Vec<Var> = (ast.globals.into_iter())
            .filter(|var| matches!(var.space, Space::Global | Space::Const))
            .collect();
        let numbers: HashMap<&str, usize> = (variables.iter().enumerate())
            .map(|(number, var)| (var.name.as_str(), number))
            .collect();
        let mut pointers = Vec::new();
        for (variable, var) in variables.iter().enumerate() {
            for pointer in &var.pointers {
                let name = pointer.name.as_str();
                let target = match (numbers.get(name), functions.get(name)) {
                    (Some(&number), _) => Target::Variable(number),
                    (None, Some(&number)) => Target::Address(FUNCTION_WINDOW + u64::from(number) * FUNCTION_STRIDE),
                    (None, None) => {
                        return Err(PtxError {
                            line: pointer.line,
                            message: format!("`{name}` is no variable in global or constant memory, and no function"),
                        });
                    }
                };
                pointers.push((variable, pointer.at, target, pointer.offset));
            }
        }
        let (mut globals, mut initial) = (Vec::new(), Vec::new());
        for var in variables {
            if var.external || var.size == 0 {
                let message = format!("variable `{}` is external: modules are not linked", var.name);
                return Err(PtxError {
                    line: var.line,
                    message,
                });
            }
            globals.push(GlobalInfo {
                name: var.name,
                size: var.size,
            });
            initial.push(var.init);
        }
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        Ok(Module {
            number,
            entries,
            programs,
            globals,
            initial,
            pointers,
        })
    }

    /// Its kernels, in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = &EntryInfo> {
        self.entries.iter()
    }

    /// The kernel of that name.
    pub fn entry(&self, name: &str) -> Option<&EntryInfo> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Its variables in `.global` and `.const` memory.
    pub fn globals(&self) -> impl Iterator<Item = &GlobalInfo> {
        self.globals.iter()
    }

    /// The address and size of one of its variables in a memory, where it is placed at its first use; none where there
    /// is no such variable, or no room for the module's.
    pub fn global_address(&self, memory: &Memory, name: &str) -> Option<(u64, u64)> {
        let index = self.globals.iter().position(|global| global.name == name)?;
        let addresses = self.place(memory)?;
        Some((addresses[index], self.globals[index].size))
    }

    /// Frees the module's variables in a memory; a later launch gets fresh ones.
    pub fn unload(&self, memory: &Memory) {
        memory.drop_variables(self.number);
    }

    /// Where the module's variables are in a memory.
    pub(crate) fn place(&self, memory: &Memory) -> Option<Arc<[u64]>> {
        memory.variables(self.number, || {
            let mut addresses = Vec::with_capacity(self.globals.len());
            for (global, initial) in self.globals.iter().zip(&self.initial) {
                let address = memory.allocate(global.size);
                let placed = address.filter(|&address| memory.write(address, initial).is_ok());
                let Some(address) = placed else {
                    // Memory has no room: what was placed is given back.
                    addresses.into_iter().for_each(|address| drop(memory.free(address)));
                    return None;
                };
                addresses.push(address);
            }
            for &(variable, at, target, offset) in &self.pointers {
                let address = match target {
                    Target::Variable(number) => addresses[number],
                    Target::Address(address) => address,
                };
                let value = address.wrapping_add_signed(offset);
                // It lies inside the global, whose initial bytes it is among.
                memory.write(addresses[variable] + at, &value.to_le_bytes()).ok()?;
            }
            Some(addresses)
        })
    }

    /// Bytes of all its variables.
    pub(crate) fn variable_bytes(&self) -> u64 {
        self.globals.iter().map(|global| global.size).sum()
    }

    /// A kernel with its code.
    pub(crate) fn kernel(&self, name: &str) -> Option<(&EntryInfo, &Program)> {
        let index = self.entries.iter().position(|entry| entry.name == name)?;
        Some((&self.entries[index], &self.programs[index]))
    }
}

impl EntryInfo {
    fn of(entry: &parse::Entry, program: &Program) -> EntryInfo {
        let of_param = |p: &parse::Param| ParamInfo {
            offset: p.offset,
            size: p.size,
            align: p.align,
        };
        let params: Vec<ParamInfo> = entry.params.iter().map(of_param).collect();
        let threads: u32 = (entry.required_threads.or(entry.max_threads))
            .map_or(1024, |t| t.iter().copied().fold(1, u32::saturating_mul));
        let ctas = entry.min_ctas.unwrap_or(1).max(1);
        // An SM has 65536 registers, handed out in eights; a thread can have 255.
        let bound = 65536 / threads.saturating_mul(ctas).max(1) / 8 * 8;
        EntryInfo {
            name: entry.name.clone(),
            param_bytes: params.last().map_or(0, |p| p.offset + p.size),
            params,
            max_threads: entry.required_threads.or(entry.max_threads),
            required_threads: entry.required_threads,
            min_ctas: entry.min_ctas,
            required_cluster: entry.required_cluster,
            static_shared: program.static_shared,
            registers: bound.clamp(16, 255).min(entry.max_registers.unwrap_or(255)),
        }
    }
}
