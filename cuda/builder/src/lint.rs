//! Holds finished PTX against the table of entries.
//!
//! A GPU kernel can be wrong in ways that no compiler reports: a barrier that an optimisation copied into two branches, an
//! array that went to local memory, a helper that was not inlined. All of them show in the text.

use std::fmt;
use std::ops::Range;

use crate::finish::TENSOR_MAP_ALIGN;
use crate::ptx_text::{self, Entry, Instruction};
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
pub fn lint(ptx: &str, table: &[EntrySpec]) -> Vec<Finding> {
    let code = ptx_text::without_comments(ptx);
    let entries = ptx_text::entries(&code);
    let mut findings = Vec::new();

    let mut outside = 0;
    for (at, entry) in entries.iter().enumerate() {
        forbidden(&code, outside..entry.directives.start, None, &mut findings);
        outside = entry.body.end;
        let mut report = |fault| {
            findings.push(Finding {
                entry: Some(entry.name.clone()),
                line: None,
                fault,
            })
        };
        if entries[..at].iter().any(|earlier| earlier.name == entry.name) {
            report(Fault::Repeated);
        }
        match table.iter().find(|spec| spec.name == entry.name) {
            None => report(Fault::NotInTable),
            Some(spec) => {
                bounds(&code[entry.directives.clone()], spec)
                    .into_iter()
                    .chain(tensor_maps(&code[entry.parameters.clone()], spec))
                    .for_each(&mut report);
                counts(&code, entry, spec, &mut findings);
            }
        }
        forbidden(&code, entry.body.clone(), Some(&entry.name), &mut findings);
    }
    forbidden(&code, outside..code.len(), None, &mut findings);

    for (at, spec) in table.iter().enumerate() {
        let mut report = |fault| {
            findings.push(Finding {
                entry: Some(spec.name.clone()),
                line: None,
                fault,
            })
        };
        if table[..at].iter().any(|earlier| earlier.name == spec.name) {
            report(Fault::Repeated);
        } else if entries.iter().all(|entry| entry.name != spec.name) {
            report(Fault::NotInPtx);
        }
    }
    findings
}

fn bounds(directives: &str, spec: &EntrySpec) -> Vec<Fault> {
    let wanted = [
        (".maxntid", format!("{}, 1, 1", spec.threads)),
        (".minnctapersm", spec.min_ctas.to_string()),
    ];
    let mut faults = Vec::new();
    for (directive, expected) in wanted {
        let found = directive_value(directives, directive);
        if found.as_deref() != Some(&expected) {
            faults.push(Fault::Bounds {
                directive,
                found: found.unwrap_or_else(|| "missing".into()),
                expected,
            });
        }
    }
    faults
}

fn tensor_maps(parameters: &str, spec: &EntrySpec) -> impl Iterator<Item = Fault> {
    (0..spec.tensor_maps).filter_map(move |index| {
        let expected = ptx_text::tensor_map_parameter(&spec.name, index, TENSOR_MAP_ALIGN);
        (!parameters.contains(&expected)).then_some(Fault::TensorMap { index, expected })
    })
}

/// `.maxntid 256, 1, 1` → `256, 1, 1`, however it is spaced.
fn directive_value(directives: &str, name: &str) -> Option<String> {
    let value = directives
        .split('.')
        .find_map(|directive| directive.strip_prefix(&name[1..]))?;
    let numbers: Vec<&str> = value
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|n| !n.is_empty())
        .collect();
    Some(numbers.join(", "))
}

const LOCAL: &str = "local memory is slow memory in disguise; an array that no loop unrolled away is the usual cause";
const CALL: &str = "a call that was not inlined keeps its arguments in memory; mark the function #[inline(always)]";

/// What must stand nowhere, as a directive or as a part of a mnemonic, and why.
const FORBIDDEN: &[(&str, &str)] = &[("local", LOCAL), ("func", CALL), ("call", CALL)];

fn forbidden(code: &str, part: Range<usize>, entry: Option<&str>, findings: &mut Vec<Finding>) {
    let directives = ptx_text::directives(code, part.clone());
    let mut words: Vec<Instruction<'_>> = ptx_text::instructions(code, part).chain(directives).collect();
    words.sort_by_key(|word| word.offset);
    for Instruction { offset, mnemonic } in words {
        if let Some((_, reason)) = FORBIDDEN
            .iter()
            .find(|(what, _)| mnemonic.split('.').any(|piece| piece == *what))
        {
            findings.push(Finding {
                entry: entry.map(str::to_owned),
                line: Some(ptx_text::line_of(code, offset)),
                fault: Fault::Forbidden {
                    what: mnemonic.to_owned(),
                    reason,
                },
            });
        }
    }
}

/// Counts what the table lists, and finds what waits for other threads without being listed.
fn counts(code: &str, entry: &Entry, spec: &EntrySpec, findings: &mut Vec<Finding>) {
    let listed: Vec<String> = spec.counts.iter().map(|(prefix, _)| one_spelling(prefix)).collect();
    let mut found = vec![0u32; listed.len()];
    for Instruction { offset, mnemonic } in ptx_text::instructions(code, entry.body.clone()) {
        let spelled = one_spelling(mnemonic);
        let matching = listed.iter().enumerate().filter(|(_, prefix)| begins(&spelled, prefix));
        // The longest one counts, so that a table may list both a family and one of its members.
        match matching.max_by_key(|(_, prefix)| prefix.len()) {
            Some((at, _)) => found[at] += 1,
            None if waits_for_others(&spelled) => findings.push(Finding {
                entry: Some(entry.name.clone()),
                line: Some(ptx_text::line_of(code, offset)),
                fault: Fault::Unlisted {
                    mnemonic: mnemonic.to_owned(),
                },
            }),
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
            findings.push(Finding {
                entry: Some(entry.name.clone()),
                line: None,
                fault,
            });
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
