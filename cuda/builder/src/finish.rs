//! The finishing pass: what Rust source cannot say is added to the PTX that rustc printed.

use std::collections::BTreeSet;

use ptx_emulator::parse::{self, Entry, Param, ParseError};

use crate::spec::EntrySpec;

/// Why PTX could not be finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// The PTX parser of this workspace cannot read what the compiler printed.
    #[error("cannot read line {}: {}; leave this out of the kernel", .0.line, .0.message)]
    Unreadable(#[from] ParseError),
    /// The module and the table do not hold the same entries.
    #[error("entries only in the PTX: [{}]; only in the table: [{}]; add or remove them on either side",
        only_ptx.join(", "), only_table.join(", "))]
    Entries {
        /// Compiled, but not in the table.
        only_ptx: Vec<String>,
        /// In the table, but not compiled.
        only_table: Vec<String>,
    },
    /// An entry has launch bounds already.
    #[error("entry `{entry}` has `{directive}` already; finish the compiler's own output, once")]
    Bounded {
        /// The entry.
        entry: String,
        /// What stands there.
        directive: String,
    },
    /// A parameter is no tensor map, but the table says so.
    #[error(
        "entry `{entry}` does not declare parameter {index} as `{expected}`; take a tensor map of 128 bytes by value there"
    )]
    NoTensorMap {
        /// The entry.
        entry: String,
        /// The parameter, counted from 0.
        index: usize,
        /// What should stand there.
        expected: String,
    },
}

/// The alignment that rustc can give a by-value parameter of 8-byte words; with more it copies the value to local
/// memory, or fails.
const WORD_ALIGN: u32 = 8;
/// The alignment that the hardware asks of a tensor map.
pub(crate) const TENSOR_MAP_ALIGN: u32 = 64;
/// What a tensor map takes.
pub(crate) const TENSOR_MAP_BYTES: u32 = 128;

/// Adds launch bounds to every entry and a header to the module, and aligns parameters that are tensor maps.
///
/// Raises the version to 8.1, which inline assembly may need. Every entry of `ptx` must be in `table` and the reverse.
/// `compiler` and `target` go into the header. The answer depends on nothing but the arguments.
pub fn finish(ptx: &str, table: &[EntrySpec], compiler: &str, target: &str) -> Result<String, FinishError> {
    let ptx = raised(&plain_lines(ptx));
    let entries = parse::parse(&ptx)?.entries;
    same_entries(&entries, table)?;

    let mut out = format!("// Compiled by {compiler} for {target}. Generated: do not edit.\n");
    let mut copied = 0;
    for entry in &entries {
        let source = &entry.source;
        if let Some(directive) = ptx[source.directives.clone()].lines().next() {
            return Err(FinishError::Bounded {
                entry: entry.name.clone(),
                directive: directive.to_owned(),
            });
        }
        let Some(spec) = table.iter().find(|spec| spec.name == entry.name) else {
            continue;
        };
        for index in 0..spec.tensor_maps {
            let declared = &tensor_map(entry, index, &ptx)?.source;
            out.push_str(&ptx[copied..declared.start]);
            out.push_str(&tensor_map_parameter(&spec.name, index, TENSOR_MAP_ALIGN));
            copied = declared.end;
        }
        let list_end = source.parameters.end;
        out.push_str(&ptx[copied..list_end]);
        out.push_str(&format!(
            "\n.maxntid {}, 1, 1\n.minnctapersm {}\n",
            spec.threads, spec.min_ctas
        ));
        out.push_str(ptx[list_end..source.body.start].trim());
        copied = source.body.start;
    }
    out.push_str(&ptx[copied..]);
    Ok(out)
}

/// The parameter of that index, which must be declared as rustc declares a tensor map.
fn tensor_map<'a>(entry: &'a Entry, index: usize, ptx: &str) -> Result<&'a Param, FinishError> {
    let expected = tensor_map_parameter(&entry.name, index, WORD_ALIGN);
    let declared = |param: &&Param| ptx[param.source.clone()] == expected;
    match entry.params.get(index).filter(declared) {
        Some(param) => Ok(param),
        None => Err(FinishError::NoTensorMap {
            entry: entry.name.clone(),
            index,
            expected,
        }),
    }
}

/// How a parameter that holds a tensor map is declared with that alignment: rustc names parameters after the entry, and
/// a tensor map takes 128 bytes.
pub(crate) fn tensor_map_parameter(entry: &str, index: usize, align: u32) -> String {
    format!(".param .align {align} .b8 {entry}_param_{index}[{TENSOR_MAP_BYTES}]")
}

/// The version of PTX that a module states at least. LLVM states what its own instructions take, which is less than
/// inline assembly needs (`st.async`).
const LEAST_VERSION: (u32, u32) = (8, 1);

/// The text with its version raised to [`LEAST_VERSION`], where it states an older one.
fn raised(text: &str) -> String {
    const DIRECTIVE: &str = ".version ";
    let version = |line: &str| {
        let (major, minor) = line.strip_prefix(DIRECTIVE)?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let (major, minor) = LEAST_VERSION;
    match text
        .lines()
        .find(|line| version(line).is_some_and(|stated: (u32, u32)| stated < LEAST_VERSION))
    {
        Some(older) => text.replacen(older, &format!("{DIRECTIVE}{major}.{minor}"), 1),
        None => text.to_owned(),
    }
}

/// What LLVM prints around each piece of inline assembly: a quarter of the lines of kernels that are made of such
/// pieces.
const MARKS: [&str; 2] = ["// begin inline asm", "// end inline asm"];

/// One kind of line end, nothing invisible at line ends, no marks of inline assembly, one line end at the end.
fn plain_lines(text: &str) -> String {
    let lines = text.lines().filter(|line| !MARKS.contains(&line.trim()));
    let mut out: String = lines.flat_map(|line| [line.trim_end(), "\n"]).collect();
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn same_entries(entries: &[Entry], table: &[EntrySpec]) -> Result<(), FinishError> {
    let compiled: BTreeSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    let listed: BTreeSet<&str> = table.iter().map(|spec| spec.name.as_str()).collect();
    if compiled == listed {
        return Ok(());
    }
    let only = |a: &BTreeSet<&str>, b: &BTreeSet<&str>| a.difference(b).map(|&s| s.to_owned()).collect();
    Err(FinishError::Entries {
        only_ptx: only(&compiled, &listed),
        only_table: only(&listed, &compiled),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "//\n// Generated by LLVM\n.version 8.0\n.target sm_90a\n\n\t// .globl\tk\n.visible .entry k(\n\t.param .u64 p\n)\n{\n\t// begin inline asm\n\t// mine\n\t// end inline asm\n\tret;  \r\n}\n\n\n";

    #[test]
    fn the_version_is_raised() {
        for (stated, finished_as) in [
            ("7.8", "8.1"),
            ("8.0", "8.1"),
            ("8.1", "8.1"),
            ("8.10", "8.10"),
            ("9.0", "9.0"),
        ] {
            let ptx = PTX.replace("8.0", stated);
            let finished = finish(&ptx, &table(), "rustc 1", "sm_90").unwrap();
            let versions: Vec<&str> = finished.lines().filter(|line| line.starts_with(".version")).collect();
            assert_eq!(versions, [format!(".version {finished_as}")]);
        }
    }

    fn table() -> Vec<EntrySpec> {
        vec![EntrySpec::new("k", 256).min_ctas(2)]
    }

    #[test]
    fn bounds_and_header_are_added_and_lines_are_plain() {
        let out = finish(PTX, &table(), "rustc 1.95.0", "sm_90a").unwrap();
        assert!(out.starts_with("// Compiled by rustc 1.95.0 for sm_90a."));
        assert!(
            out.contains(")\n.maxntid 256, 1, 1\n.minnctapersm 2\n{\n\t// mine\n\tret;\n}\n"),
            "{out}"
        );
        assert!(out.ends_with("}\n") && !out.contains('\r'));
        assert_eq!(out, finish(PTX, &table(), "rustc 1.95.0", "sm_90a").unwrap());
    }

    #[test]
    fn finishing_twice_is_refused() {
        let once = finish(PTX, &table(), "rustc", "sm_90a").unwrap();
        let error = finish(&once, &table(), "rustc", "sm_90a").unwrap_err();
        assert_eq!(
            error,
            FinishError::Bounded {
                entry: "k".into(),
                directive: ".maxntid 256, 1, 1".into()
            }
        );
    }

    #[test]
    fn tensor_maps_are_aligned_and_must_be_there() {
        let ptx = PTX.replace(
            ".param .u64 p",
            ".param .align 8 .b8 k_param_0[128],\n\t.param .u64 k_param_1",
        );
        let table = |maps| [EntrySpec::new("k", 32).tensor_maps(maps)];
        let out = finish(&ptx, &table(1), "rustc", "sm_90a").unwrap();
        assert!(
            out.contains("(\n\t.param .align 64 .b8 k_param_0[128],\n\t.param .u64 k_param_1\n)\n.maxntid"),
            "{out}"
        );
        let error = finish(&ptx, &table(2), "rustc", "sm_90a").unwrap_err();
        let expected = ".param .align 8 .b8 k_param_1[128]".to_owned();
        assert_eq!(
            error,
            FinishError::NoTensorMap {
                entry: "k".into(),
                index: 1,
                expected
            }
        );
    }

    #[test]
    fn text_that_cannot_be_read_is_an_error() {
        let error = finish(&PTX.replace("ret;", "ret"), &table(), "rustc", "sm_90a").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot read line 13: expected an operand, found }"),
            "{error}"
        );
    }

    #[test]
    fn entries_and_table_must_agree_both_ways() {
        let error = finish(PTX, &[EntrySpec::new("other", 32)], "rustc", "sm_90a").unwrap_err();
        assert_eq!(
            error,
            FinishError::Entries {
                only_ptx: vec!["k".into()],
                only_table: vec!["other".into()]
            }
        );
    }
}
