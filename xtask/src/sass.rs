//! `sass`: the machine code of the checked-in PTX against the kernels' table.

use anyhow::{Result, bail};
use cuda_builder::NvvmArch;
use cuda_builder::sass::{Tools, inspect};

use crate::{paths, table};

/// Prints a table for each assembler; fails if one breaks a promise.
pub(crate) fn run() -> Result<()> {
    let target = paths::root().join("target");
    let entries = table::entries();
    let mut broken = 0;
    for (at, tools) in Tools::find(&target.join("cuda-tools"))?.iter().enumerate() {
        let folder = target.join("sass").join(at.to_string());
        let report = inspect(&paths::ptx(), NvvmArch::Compute90a, &entries, tools, &folder)?;
        println!(
            "{}\n{report}\nmachine code: {}\n",
            tools.origin,
            folder.join("kernels.sass").display()
        );
        for finding in &report.findings {
            println!("{finding}");
        }
        broken += report.findings.len();
    }
    if broken > 0 {
        bail!("the machine code breaks {broken} promises of the table");
    }
    Ok(())
}
