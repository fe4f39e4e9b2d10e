//! `lint-ptx`: the checked-in PTX against the kernels' table.

use anyhow::{Result, bail};
use cuda_builder::lint::lint;
use kernels_gpu::instances::Family;

use crate::{paths, table};

/// Prints every finding; fails if there is one.
pub(crate) fn run() -> Result<()> {
    let mut found = 0;
    for family in Family::ALL {
        let path = paths::ptx(family);
        let table = table::entries_of(family);
        let findings = lint(&paths::read(&path)?, &table);
        if findings.is_empty() {
            println!("{}: {} entries in order", path.display(), table.len());
        }
        for finding in &findings {
            println!("{}: {finding}", paths::ptx_name(family));
        }
        found += findings.len();
    }
    if found > 0 {
        bail!("{found} findings in {}", paths::ptx_folder().display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A family's checked-in PTX with the first `from` replaced, which must be there.
    fn findings_after(family: Family, from: &str, to: &str) -> Vec<String> {
        let ptx = paths::read(&paths::ptx(family)).unwrap();
        assert!(ptx.contains(from), "{from:?}");
        let findings = lint(&ptx.replacen(from, to, 1), &table::entries_of(family));
        findings.iter().map(ToString::to_string).collect()
    }

    /// The first instruction that begins so in the PTX that traps are planted in, with its semicolon.
    fn first_statement(beginning: &str) -> String {
        let ptx = paths::read(&paths::ptx(Family::RouteBf16)).unwrap();
        let (_, from_there) = ptx.split_once(beginning).unwrap();
        let (rest, _) = from_there.split_once(';').unwrap();
        format!("{beginning}{rest};")
    }

    #[test]
    fn the_checked_in_ptx_is_in_order() {
        for family in Family::ALL {
            assert_eq!(findings_after(family, "\n", "\n"), [""; 0], "{}", family.name());
        }
    }

    #[test]
    fn each_trap_in_the_checked_in_ptx_is_found() {
        // It stands on more lines than one, so that a comment to the line's end would leave half of it.
        let product = first_statement("mma.sync");
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
            (&product, ";", "`mma.sync` occurs"),
            ("\tret;", "\tst.local.b32 [%rd1], 0;\n\tret;", "local memory"),
        ];
        for (from, to, words) in traps {
            let findings = findings_after(Family::RouteBf16, from, to);
            assert!(
                findings.len() == 1 && findings[0].contains(words),
                "{from:?}: {findings:?}"
            );
        }
    }
}
