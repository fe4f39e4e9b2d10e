//! A kernel in compact form: what the decoder makes and the machine runs.
//!
//! Operands are indices into a warp's register file or into the kernel's constants, operations are function pointers
//! over 32 lanes or small enumerations. No text is looked at while a kernel runs, except to report a fault.

use std::fmt;
use std::ops::Range;

mod matrix;
mod op;
mod registers;

pub(crate) use matrix::*;
pub(crate) use op::*;

/// Lanes of a warp.
pub(crate) const WARP: usize = 32;
/// A register's value in every lane. Narrower registers are kept zero-extended.
pub(crate) type Lanes = [u64; WARP];
/// One bit per lane.
pub(crate) type Mask = u32;
/// Every lane.
pub(crate) const FULL: Mask = u32::MAX;

/// A kernel, decoded.
#[derive(Default)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// The instructions, in an order in which every loop is contiguous and stands before what follows it.
    pub(crate) code: Vec<Inst>,
    /// What faults and counters say of instructions; [`Inst::site`] indexes it.
    pub(crate) sites: Vec<Site>,
    /// Registers of a warp.
    pub(crate) registers: u32,
    /// Predicates of a warp. The first one is the constant false.
    pub(crate) predicates: u32,
    /// Constants, each the same in all lanes; [`CONSTANT`] plus an index here names one as a register.
    pub(crate) constants: Vec<Lanes>,
    /// Constants that hold a global variable's address.
    pub(crate) relocations: Vec<Relocation>,
    /// Bytes of static shared memory, which starts at [`SHARED_BASE`].
    pub(crate) static_shared: u32,
    /// Where dynamic shared memory starts, as an address in the shared window.
    pub(crate) dynamic_base: u32,
    /// Bytes of local memory per thread, without what functions take.
    pub(crate) local_bytes: u32,
    /// The functions that it may call.
    pub(crate) functions: Vec<Function>,
    /// The basic block of each instruction.
    pub(crate) block_of: Vec<u32>,
    /// For each block, its interval in the post-dominator tree: a block lies in the interval of every block that all
    /// paths from it must pass. Empty where unknown.
    pub(crate) post: Vec<(u32, u32)>,
}

/// A function of a kernel.
pub(crate) struct Function {
    pub(crate) name: Box<str>,
    /// Its place among the module's, which its address tells.
    pub(crate) number: u32,
    /// Its first instruction.
    pub(crate) start: u32,
    /// Its registers and predicates among the warp's.
    pub(crate) registers: Range<u32>,
    pub(crate) predicates: Range<u32>,
    /// Bytes of local memory that a call takes.
    pub(crate) frame: u32,
    /// Where its parameters and results are.
    pub(crate) params: Box<[Passed]>,
    pub(crate) returns: Box<[Passed]>,
}

/// A constant to patch once a module's variables have addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// The index of the constant.
    pub(crate) constant: u32,
    /// The index of the variable among the module's.
    pub(crate) variable: u32,
    /// Bytes to add.
    pub(crate) offset: i64,
}

/// Added to a constant's index, it names the constant where a register is wanted.
pub(crate) const CONSTANT: Reg = 1 << 31;

/// Where an instruction comes from.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) line: u32,
    pub(crate) text: Box<str>,
    pub(crate) opcode: Box<str>,
    /// The registers named here that matrix instructions use on their own time.
    pub(crate) matrix_registers: Box<[Reg]>,
}

/// The first address of a CTA's own shared memory in the shared window. Zero is left out, so that null pointers are
/// found.
pub(crate) const SHARED_BASE: u32 = 1024;
/// Distance between the shared memories of a cluster's CTAs in the window of `.shared::cluster`: rank r's starts at
/// `(r + 1)` times this; below it lies the executing CTA's own.
pub(crate) const CLUSTER_STRIDE: u32 = 1 << 24;
/// Generic addresses of the shared window.
pub(crate) const SHARED_WINDOW: u64 = 0x7f00_0000_0000;
/// Generic addresses of the local window.
pub(crate) const LOCAL_WINDOW: u64 = 0x7e00_0000_0000;
/// Generic addresses of the parameter window.
pub(crate) const PARAM_WINDOW: u64 = 0x7d00_0000_0000;
/// What function addresses start from; each takes [`FUNCTION_STRIDE`] bytes.
pub(crate) const FUNCTION_WINDOW: u64 = 0x7c00_0000_0000;
pub(crate) const FUNCTION_STRIDE: u64 = 16;
/// Size of each of these windows.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({}, {} instructions)", self.name, self.code.len())
    }
}

impl Program {
    /// Whether every path from `inner` to the kernel's end passes the block of `outer`.
    pub(crate) fn post_dominates(&self, outer: u32, inner: u32) -> bool {
        let block = |pc: u32| self.block_of[pc as usize];
        let (outer, inner) = (block(outer), block(inner));
        match (self.post.get(outer as usize), self.post.get(inner as usize)) {
            (Some(&(first, end)), Some(&(at, _))) => (first..end).contains(&at),
            _ => outer == inner,
        }
    }
}
