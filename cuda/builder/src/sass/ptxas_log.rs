//! Reads what `ptxas -v` says.

use std::sync::LazyLock;

use regex::Regex;

/// What one entry uses, by ptxas's account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryUsage {
    /// The entry's symbol.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Stack of a thread, in bytes.
    pub stack_bytes: u32,
    /// Bytes that register spills store.
    pub spill_stores: u32,
    /// Bytes that register spills load.
    pub spill_loads: u32,
    /// Static shared memory, in bytes.
    pub static_shared: u32,
}

/// All that ptxas said of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PtxasLog {
    /// Each entry it compiled.
    pub entries: Vec<EntryUsage>,
    /// Its warnings, and its notices of lost performance, such as serialised `wgmma`.
    pub warnings: Vec<String>,
}

/// An expression of this file; each is a literal that the tests use.
fn expression(literal: &str) -> Regex {
    Regex::new(literal).expect("a literal of this file")
}

static ENTRY: LazyLock<Regex> = LazyLock::new(|| expression(r"Compiling entry function '([^']+)'"));
static FRAME: LazyLock<Regex> =
    LazyLock::new(|| expression(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"));
static REGISTERS: LazyLock<Regex> = LazyLock::new(|| expression(r"Used (\d+) registers"));
static SHARED: LazyLock<Regex> = LazyLock::new(|| expression(r"(\d+) bytes smem"));
static WARNING: LazyLock<Regex> = LazyLock::new(|| expression(r"(?i)\bwarning\s*:|performance loss|serializ"));

impl PtxasLog {
    /// Reads the output of `ptxas -v`. Lines of no interest are passed over.
    pub fn parse(text: &str) -> Self {
        let mut log = Self::default();
        for line in text.lines() {
            if let Some(name) = ENTRY.captures(line) {
                log.entries.push(EntryUsage {
                    name: name[1].to_owned(),
                    ..EntryUsage::default()
                });
            }
            if WARNING.is_match(line) {
                log.warnings.push(line.trim().to_owned());
            }
            let Some(entry) = log.entries.last_mut() else { continue };
            let numbers = |expression: &Regex| -> Option<Vec<u32>> {
                let found = expression.captures(line)?;
                // A number too large for the type is as much too large as the largest.
                let number = |text: &str| text.parse().unwrap_or(u32::MAX);
                Some(
                    found
                        .iter()
                        .skip(1)
                        .flatten()
                        .map(|group| number(group.as_str()))
                        .collect(),
                )
            };
            if let Some([stack, stores, loads]) = numbers(&FRAME).as_deref() {
                (entry.stack_bytes, entry.spill_stores, entry.spill_loads) = (*stack, *stores, *loads);
            }
            if let Some([registers]) = numbers(&REGISTERS).as_deref() {
                entry.registers = *registers;
            }
            if let Some([shared]) = numbers(&SHARED).as_deref() {
                entry.static_shared = *shared;
            }
        }
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions defining accumulator registers of a wgmma between start and end of the pipeline stage in the function 'two'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Function properties for one
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 62 registers, used 1 barriers
ptxas info    : Compile time = 71.350 ms
ptxas info    : Compiling entry function 'two' for 'sm_90a'
ptxas info    : Function properties for two
    64 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 64 bytes cumulative stack size, 512 bytes smem
ptxas info    : (C7513) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions defining input registers of a wgmma between start and end of the pipeline stage in the function 'two'
ptxas kernels.ptx, line 21; warning : something is off
";

    #[test]
    fn numbers_of_each_entry_are_read() {
        let log = PtxasLog::parse(LOG);
        let one = EntryUsage {
            name: "one".into(),
            registers: 62,
            ..EntryUsage::default()
        };
        let two = EntryUsage {
            name: "two".into(),
            registers: 168,
            stack_bytes: 64,
            spill_stores: 12,
            spill_loads: 16,
            static_shared: 512,
        };
        assert_eq!(log.entries, [one, two]);
    }

    #[test]
    fn warnings_and_serialisation_are_kept() {
        let log = PtxasLog::parse(LOG);
        let expected = ["(C7510)", "(C7513)", "something is off"];
        assert_eq!(log.warnings.len(), expected.len());
        for (warning, words) in log.warnings.iter().zip(expected) {
            assert!(warning.contains(words), "{warning}");
        }
    }

    #[test]
    fn other_text_has_no_entries() {
        assert_eq!(
            PtxasLog::parse("99999999999999 bytes smem\nUsed 3 registers"),
            PtxasLog::default()
        );
    }
}
