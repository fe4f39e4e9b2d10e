//! `lint-ptx`: the checked-in PTX against the kernels' table.

use anyhow::{Result, bail};
use cuda_builder::lint::lint;

use crate::{paths, table};

/// Prints every finding; fails if there is one.
pub(crate) fn run() -> Result<()> {
    let table = table::entries();
    let path = paths::ptx();
    let findings = lint(&paths::read(&path)?, &table);
    if findings.is_empty() {
        println!("{}: {} entries in order", path.display(), table.len());
        return Ok(());
    }
    for finding in &findings {
        println!("{finding}");
    }
    bail!("{} findings in {}", findings.len(), path.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checked-in PTX with the first `from` replaced, which must be there.
    fn findings_after(from: &str, to: &str) -> Vec<String> {
        let ptx = paths::read(&paths::ptx()).unwrap();
        assert!(ptx.contains(from), "{from:?}");
        let findings = lint(&ptx.replacen(from, to, 1), &table::entries());
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_checked_in_ptx_is_in_order() {
        assert_eq!(findings_after("\n", "\n"), [""; 0]);
    }

    #[test]
    fn each_trap_in_the_checked_in_ptx_is_found() {
        let traps = [
            ("\n.maxntid ", "\n// .maxntid ", "`.maxntid` is missing"),
            ("\n.minnctapersm ", "\n// .minnctapersm ", "`.minnctapersm` is missing"),
            ("bar.sync ", "bar.sync 0;\n\tbar.sync ", "`bar.sync` occurs"),
            (
                "barrier.cluster.arrive",
                "// barrier.cluster.arrive",
                "`barrier.cluster.arrive` occurs",
            ),
            (
                "barrier.cluster.wait",
                "// barrier.cluster.wait",
                "`barrier.cluster.wait` occurs",
            ),
            ("mma.sync", "// mma.sync", "`mma.sync` occurs"),
            ("\tret;", "\tst.local.b32 [%rd1], 0;\n\tret;", "local memory"),
        ];
        for (from, to, words) in traps {
            let findings = findings_after(from, to);
            assert!(
                findings.len() == 1 && findings[0].contains(words),
                "{from:?}: {findings:?}"
            );
        }
    }
}
