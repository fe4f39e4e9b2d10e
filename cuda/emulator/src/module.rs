//! A PTX module, parsed and decoded once.

use crate::error::PtxError;
use crate::parse;

/// A PTX module, ready to launch its kernels.
#[derive(Debug)]
pub struct Module {
    entries: Vec<EntryInfo>,
    globals: Vec<GlobalInfo>,
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
        let ast = parse::parse(ptx)?;
        let entries = ast.entries.iter().map(EntryInfo::of).collect();
        let globals = (ast.globals.iter())
            .filter(|var| matches!(var.space, parse::Space::Global | parse::Space::Const))
            .map(|var| GlobalInfo {
                name: var.name.clone(),
                size: var.size,
            })
            .collect();
        Ok(Module { entries, globals })
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
}

impl EntryInfo {
    fn of(entry: &parse::Entry) -> EntryInfo {
        let params: Vec<ParamInfo> = (entry.params.iter())
            .map(|p| ParamInfo {
                offset: p.offset,
                size: p.size,
                align: p.align,
            })
            .collect();
        let static_shared = (entry.shared.iter()).fold(0u64, |at, var| {
            at.next_multiple_of(u64::from(var.align.max(1))) + var.size
        });
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
            min_ctas: entry.min_ctas,
            required_cluster: entry.required_cluster,
            static_shared: u32::try_from(static_shared).unwrap_or(u32::MAX),
            registers: bound.clamp(16, 255).min(entry.max_registers.unwrap_or(255)),
        }
    }
}
