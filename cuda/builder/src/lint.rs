//! Holds finished PTX against the table of entries.
//!
//! A GPU kernel can be wrong in ways that no compiler reports: a barrier that an optimisation copied into two branches,
//! an array that went to local memory, a helper that was not inlined. All of them show in the text.

use std::fmt;

use ptx_emulator::parse::{self, Entry, Formal, Function, Inst, Param, ParseError, Space, Var};

use crate::finish::{TENSOR_MAP_ALIGN, tensor_map_parameter};
use crate::spec::EntrySpec;

/// One fault of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The entry at fault; none where the module as a whole is.
    pub entry: Option<String>,
    /// The line of the PTX, counted from 1, where the fault is at one place.
    pub line: Option<usize>,
    /// What is wrong.
    pub fault: Fault,
}

/// What can be wrong with a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The text is no PTX, or PTX that the parser does not know.
    #[error("the PTX cannot be read: {message}")]
    Unreadable {
        /// What was found, and what was expected.
        message: String,
    },
    /// An entry is not in the table.
    #[error("it is not in the table of entries; add it there, or remove the kernel")]
    NotInTable,
    /// The table lists an entry that the module lacks.
    #[error("the table lists it, but the PTX has no such entry; rebuild the PTX, or remove it from the table")]
    NotInPtx,
    /// An entry is defined or listed more than once.
    #[error("it occurs more than once")]
    Repeated,
    /// A launch bound is missing or differs from the table.
    #[error("`{directive}` is {found}, the table says {expected}; finish the PTX from the table")]
    Bounds {
        /// `.maxntid` or `.minnctapersm`.
        directive: &'static str,
        /// What the PTX says.
        found: String,
        /// What the table says.
        expected: String,
    },
    /// A tensor map's parameter is missing, or not aligned.
    #[error("parameter {index} is not `{expected}`; finish the PTX from the table")]
    TensorMap {
        /// The parameter, counted from 0.
        index: usize,
        /// How it should be declared.
        expected: String,
    },
    /// Something that a kernel must not have.
    #[error("`{what}`: {reason}")]
    Forbidden {
        /// What was found.
        what: String,
        /// Why it must not be there.
        reason: &'static str,
    },
    /// A barrier or warp-wide instruction occurs more or less often than the table says.
    #[error(
        "`{mnemonic}` occurs {found} times, the table says {expected}; a copied barrier hangs or corrupts, a lost one races"
    )]
    Count {
        /// The beginning of the mnemonic.
        mnemonic: String,
        /// How often it occurs.
        found: u32,
        /// How often it should.
        expected: u32,
    },
    /// A barrier or warp-wide instruction that the table does not mention.
    #[error("`{mnemonic}` makes threads wait for each other, and the table does not mention it; list its count there")]
    Unlisted {
        /// The mnemonic.
        mnemonic: String,
    },
}

impl Finding {
    fn of_entry(entry: &str, line: Option<u32>, fault: Fault) -> Finding {
        Finding {
            entry: Some(entry.to_owned()),
            line: line.map(|line| line as usize),
            fault,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.entry, self.line) {
            (Some(entry), Some(line)) => write!(f, "{entry} (line {line}): {}", self.fault),
            (Some(entry), None) => write!(f, "{entry}: {}", self.fault),
            (None, Some(line)) => write!(f, "line {line}: {}", self.fault),
            (None, None) => write!(f, "{}", self.fault),
        }
    }
}

/// Every fault of `ptx`, in the order of the text, then those of entries that the text lacks.
///
/// Text that [`ptx_emulator::parse`] cannot read has one fault: [`Fault::Unreadable`], or [`Fault::Repeated`] where two
/// entries have one name.
pub fn lint(ptx: &str, table: &[EntrySpec]) -> Vec<Finding> {
    let module = match parse::parse(ptx) {
        Ok(module) => module,
        Err(error) => return vec![unreadable(error)],
    };
    // Each entry and function with the line that it starts on.
    let mut findings: Vec<(u32, Finding)> = Vec::new();
    for entry in &module.entries {
        findings.extend(of_entry(entry, ptx, table).map(|finding| (entry.line, finding)));
    }
    for function in &module.functions {
        findings.extend(of_function(function).map(|finding| (function.line, finding)));
    }
    findings.sort_by_key(|&(line, _)| line);
    let mut findings: Vec<Finding> = findings.into_iter().map(|(_, finding)| finding).collect();

    for (at, spec) in table.iter().enumerate() {
        if table[..at].iter().any(|earlier| earlier.name == spec.name) {
            findings.push(Finding::of_entry(&spec.name, None, Fault::Repeated));
        } else if module.entries.iter().all(|entry| entry.name != spec.name) {
            findings.push(Finding::of_entry(&spec.name, None, Fault::NotInPtx));
        }
    }
    findings
}

fn unreadable(error: ParseError) -> Finding {
    let fault = match error.repeated {
        Some(_) => Fault::Repeated,
        None => Fault::Unreadable { message: error.message },
    };
    Finding {
        entry: error.repeated,
        line: Some(error.line as usize),
        fault,
    }
}

fn of_entry(entry: &Entry, ptx: &str, table: &[EntrySpec]) -> impl Iterator<Item = Finding> {
    let mut findings = Vec::new();
    let mut report = |line: Option<u32>, fault| findings.push(Finding::of_entry(&entry.name, line, fault));
    match table.iter().find(|spec| spec.name == entry.name) {
        None => report(None, Fault::NotInTable),
        Some(spec) => {
            bounds(entry, spec).for_each(|fault| report(None, fault));
            tensor_maps(entry, ptx, spec).for_each(|fault| report(None, fault));
            counts(entry, spec, &mut report);
        }
    }
    let mut words: Vec<Word> = (entry.params.iter().filter_map(Word::of_param))
        .chain(entry.local.iter().filter_map(Word::of_variable))
        .chain(entry.body.iter().map(Word::of_instruction))
        .collect();
    words.sort_by_key(|word| word.line);
    for word in words {
        if let Some(fault) = forbidden(&word.text) {
            report(Some(word.line), fault);
        }
    }
    findings.into_iter()
}

/// A function is forbidden, and so is what is forbidden in an entry.
fn of_function(function: &Function) -> impl Iterator<Item = Finding> {
    let head = Word {
        line: function.line,
        text: ".func".to_owned(),
    };
    let formals = function.params.iter().chain(&function.returns);
    let params = formals.filter_map(|formal| match formal {
        Formal::Memory(param) => Word::of_param(param),
        Formal::Register(_) => None,
    });
    let mut words: Vec<Word> = (params)
        .chain(function.local.iter().filter_map(Word::of_variable))
        .chain(function.body.iter().flatten().map(Word::of_instruction))
        .collect();
    words.sort_by_key(|word| word.line);
    words.insert(0, head);
    words.into_iter().filter_map(|word| {
        Some(Finding {
            entry: None,
            line: Some(word.line as usize),
            fault: forbidden(&word.text)?,
        })
    })
}

/// An opcode or a directive that may be forbidden.
struct Word {
    line: u32,
    text: String,
}

impl Word {
    fn of_instruction(inst: &Inst) -> Word {
        Word {
            line: inst.line,
            text: inst.mnemonic(),
        }
    }

    fn of_variable(var: &Var) -> Option<Word> {
        (var.space == Space::Local).then(|| Word {
            line: var.line,
            text: ".local".to_owned(),
        })
    }

    fn of_param(param: &Param) -> Option<Word> {
        (param.points_into == Some(Space::Local)).then(|| Word {
            line: param.line,
            text: ".local".to_owned(),
        })
    }
}

fn bounds(entry: &Entry, spec: &EntrySpec) -> impl Iterator<Item = Fault> {
    let threads = |[x, y, z]: [u32; 3]| format!("{x}, {y}, {z}");
    let held = [
        (
            ".maxntid",
            entry.max_threads.map(threads),
            threads([spec.threads, 1, 1]),
        ),
        (
            ".minnctapersm",
            entry.min_ctas.map(|ctas| ctas.to_string()),
            spec.min_ctas.to_string(),
        ),
    ];
    held.into_iter().filter_map(|(directive, found, expected)| {
        (found.as_ref() != Some(&expected)).then(|| Fault::Bounds {
            directive,
            found: found.unwrap_or_else(|| "missing".into()),
            expected,
        })
    })
}

fn tensor_maps(entry: &Entry, ptx: &str, spec: &EntrySpec) -> impl Iterator<Item = Fault> {
    (0..spec.tensor_maps).filter_map(|index| {
        let expected = tensor_map_parameter(&spec.name, index, TENSOR_MAP_ALIGN);
        let declared = entry.params.get(index).map(|param| &ptx[param.source.clone()]);
        (declared != Some(&*expected)).then_some(Fault::TensorMap { index, expected })
    })
}

const LOCAL: &str = "local memory is slow memory in disguise; an array that no loop unrolled away is the usual cause";
const CALL: &str = "a call that was not inlined keeps its arguments in memory; mark the function #[inline(always)]";

/// What must stand nowhere, as a directive or as a part of a mnemonic, and why.
const FORBIDDEN: &[(&str, &str)] = &[("local", LOCAL), ("func", CALL), ("call", CALL)];

fn forbidden(word: &str) -> Option<Fault> {
    let (_, reason) = FORBIDDEN
        .iter()
        .find(|(what, _)| word.split('.').any(|piece| piece == *what))?;
    Some(Fault::Forbidden {
        what: word.to_owned(),
        reason,
    })
}

/// Counts what the table lists, and finds what waits for other threads without being listed.
fn counts(entry: &Entry, spec: &EntrySpec, report: &mut impl FnMut(Option<u32>, Fault)) {
    let listed: Vec<String> = spec.counts.iter().map(|(prefix, _)| one_spelling(prefix)).collect();
    let mut found = vec![0u32; listed.len()];
    for inst in &entry.body {
        let mnemonic = inst.mnemonic();
        let spelled = one_spelling(&mnemonic);
        let matching = listed.iter().enumerate().filter(|(_, prefix)| begins(&spelled, prefix));
        // The longest one counts, so that a table may list both a family and one of its members.
        match matching.max_by_key(|(_, prefix)| prefix.len()) {
            Some((at, _)) => found[at] += 1,
            None if waits_for_others(&spelled) => report(Some(inst.line), Fault::Unlisted { mnemonic }),
            None => {}
        }
    }
    for ((mnemonic, expected), found) in spec.counts.iter().zip(found) {
        if found != *expected {
            let fault = Fault::Count {
                mnemonic: mnemonic.clone(),
                found,
                expected: *expected,
            };
            report(None, fault);
        }
    }
}

/// The older of two spellings: `bar.sync` for `bar.cta.sync`, `barrier.cta.sync.aligned` and `barrier.sync.aligned`.
fn one_spelling(mnemonic: &str) -> String {
    let mut parts: Vec<&str> = mnemonic.split('.').collect();
    if matches!(parts[0], "bar" | "barrier") && parts.get(1) == Some(&"cta") {
        parts.remove(1);
    }
    if parts[0] == "barrier" && parts.get(1) != Some(&"cluster") && parts.contains(&"aligned") {
        parts[0] = "bar";
        parts.retain(|part| *part != "aligned");
    }
    parts.join(".")
}

/// Whether `mnemonic` is `prefix` or continues it after a dot.
fn begins(mnemonic: &str, prefix: &str) -> bool {
    mnemonic
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Barriers, and whatever a warp must execute together.
fn waits_for_others(mnemonic: &str) -> bool {
    mnemonic.split('.').enumerate().any(|(at, part)| match part {
        "bar" | "barrier" => at == 0,
        "sync" | "aligned" => true,
        _ => false,
    })
}

#[cfg(test)]
#[path = "lint_tests.rs"]
mod tests;
