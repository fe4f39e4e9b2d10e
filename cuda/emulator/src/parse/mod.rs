//! PTX text in, syntax tree out.
//!
//! The tree serves programs that read PTX without running it, too: it has the lines of all instructions and
//! declarations, and says where a kernel's parameter list, performance directives and body stand in the text.
//!
//! ```
//! let text = ".version 8.0 .target sm_90a .visible .entry k(.param .u64 p) .maxntid 64 { bar.sync 0; ret; }";
//! let module = ptx_emulator::parse::parse(text)?;
//! let kernel = &module.entries[0];
//! assert_eq!(kernel.body[0].mnemonic(), "bar.sync");
//! assert_eq!(kernel.max_threads, Some([64, 1, 1]));
//! assert_eq!(&text[kernel.source.parameters.clone()], "(.param .u64 p)");
//! assert_eq!(&text[kernel.source.directives.clone()], ".maxntid 64");
//! # Ok::<(), ptx_emulator::parse::ParseError>(())
//! ```
//!
//! Whatever the text, the answer is a [`Module`] or a [`ParseError`]: nothing unknown is skipped, nothing panics, and
//! what is allocated is bounded by the text's length and by the limits of this file.

mod ast;
mod cursor;
mod debug;
mod entry;
mod function;
mod lexer;
mod module;
mod operand;
mod scope;
#[cfg(test)]
mod tests;
mod variable;

pub use ast::{
    AddrBase, Address, Entry, EntrySource, Formal, Function, Inst, Module, Operand, Param, Pointer, RegId, Space,
    Special, Type, Var,
};

/// Longest text in bytes; real modules have a few million.
const MAX_TEXT: usize = 64 << 20;

/// Why a PTX text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: u32,
    /// What was found, and what was expected or is allowed.
    pub message: String,
    /// The kernel's name, where all that is wrong is that the module has two kernels of that name.
    pub repeated: Option<String>,
}

/// Reads a PTX module.
///
/// # Errors
///
/// The first thing in the text that is not PTX, or that this emulator does not support, with its line.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    if text.len() > MAX_TEXT {
        let message = format!(
            "the text has {} bytes, more than the {MAX_TEXT} that a module may have",
            text.len()
        );
        return cursor::fail(1, message);
    }
    module::module(text)
}

/// What one module may still declare, so that short texts cannot ask for much memory.
struct Budget {
    registers: Allowance,
    instructions: Allowance,
    targets: Allowance,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            registers: Allowance {
                what: "registers",
                limit: 4 << 20,
                left: 4 << 20,
            },
            instructions: Allowance {
                what: "instructions",
                limit: 4 << 20,
                left: 4 << 20,
            },
            targets: Allowance {
                what: "labels in lists of indirect branches",
                limit: 1 << 20,
                left: 1 << 20,
            },
        }
    }
}

struct Allowance {
    what: &'static str,
    limit: usize,
    left: usize,
}

impl Allowance {
    fn take(&mut self, count: usize, line: u32) -> Result<(), ParseError> {
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => cursor::fail(line, format!("the module has more than {} {}", self.limit, self.what)),
        }
    }
}
