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
