//! Times of parts of entries whose loops go round as often as the emulator counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use cuda_builder::NvvmArch;
use cuda_builder::sass::{Counts, Row, Tools, listing_with_lines};
use kernels_gpu::instances::Family;

use crate::{cargo, paths};

/// The call that has a full tile of tokens, and a chunk of K for each warp.
const TILE: &str = "tile";
/// The same with eight exceptions for each warp.
const EXCEPTIONS: &str = "exceptions";
/// Gates for one token, by the names of their calls: sigmoid, renormalised.
pub(crate) const GATES: [&str; 3] = ["gate_256_8_groups", "gate_256", "gate_1024"];

/// An entry's figures.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// What its machine code says by itself.
    pub(crate) row: Row,
    /// Cycles from `griddepcontrol.wait` to the end of a call with a full tile of tokens and one chunk of K per warp.
    pub(crate) rest: Option<u32>,
    /// The part of that behind the main loop.
    pub(crate) epilogue: Option<u32>,
    /// Cycles that eight exceptions for each warp add to that.
    pub(crate) exceptions: Option<u32>,
    /// Cycles that the last CTA of a split-K reduction takes, once it is elected, in each of [`GATES`].
    pub(crate) gates: [Option<u32>; 3],
}

/// The counts of each call, by entry and call.
#[derive(Debug)]
pub(crate) struct Calls(BTreeMap<(String, String), Counts>);

impl Calls {
    /// Runs them on the emulator.
    pub(crate) fn count() -> Result<Self> {
        // Of no package in particular: then it is built with what `cargo test` builds.
        let arguments = ["run", "--quiet", "--example", "line_counts"];
        let output = cargo::cargo()
            .args(arguments)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo")?;
        if !output.status.success() {
            bail!("`cargo {}` failed ({})", arguments.join(" "), output.status);
        }
        Self::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// Lines of entry, call, PTX line and count.
    fn parse(text: &str) -> Result<Self> {
        let mut calls: BTreeMap<_, Counts> = BTreeMap::new();
        for line in text.lines() {
            let fields: Vec<&str> = line.split(',').collect();
            let &[entry, call, at, count] = fields.as_slice() else {
                bail!("`{line}` is not an entry, a call, a line and a count");
            };
            let counts = calls.entry((entry.to_owned(), call.to_owned())).or_default();
            counts.insert(
                at.parse().with_context(|| format!("the line in `{line}`"))?,
                count.parse().with_context(|| format!("the count in `{line}`"))?,
            );
        }
        Ok(Calls(calls))
    }

    fn of(&self, entry: &str, call: &str) -> Option<&Counts> {
        self.0.get(&(entry.to_owned(), call.to_owned()))
    }

    /// The figures of a family's entries, whose rows those are.
    pub(crate) fn figures(&self, family: Family, rows: Vec<Row>, tools: &Tools, folder: &Path) -> Result<Vec<Figures>> {
        let listing = listing_with_lines(&paths::ptx(family), NvvmArch::Compute90a, tools, folder)?;
        let figures = rows.into_iter().map(|row| {
            let code = listing.entries.iter().find(|entry| entry.name == row.name);
            let behind = |call: &str| Some((code?, self.of(&row.name, call)?));
            let rest = |call: &str| behind(call).and_then(|(code, counts)| code.cycles_behind_wait(counts));
            Figures {
                rest: rest(TILE),
                epilogue: behind(TILE).and_then(|(code, counts)| code.cycles_behind_main_loop(counts)),
                exceptions: rest(EXCEPTIONS)
                    .zip(rest(TILE))
                    .map(|(with, without)| with.saturating_sub(without)),
                gates: GATES.map(|call| behind(call).and_then(|(code, counts)| code.cycles_behind_election(counts))),
                row,
            }
        });
        Ok(figures.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_entry_and_call() {
        let calls = Calls::parse("a,tile,7,3\na,tile,9,12\na,gate_256,7,1\n").unwrap();
        assert_eq!(calls.of("a", "tile"), Some(&Counts::from([(7, 3), (9, 12)])));
        assert_eq!(calls.of("a", "gate_256"), Some(&Counts::from([(7, 1)])));
        assert_eq!(calls.of("b", "tile"), None);
        for bad in ["a,tile,7", "a,tile,x,1", "a,tile,1,-1"] {
            assert!(Calls::parse(bad).is_err());
        }
    }
}
