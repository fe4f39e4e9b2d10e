//! What NVIDIA's assembler makes of the PTX: registers, spills, shared memory, and the machine code itself.

mod control;
mod cpu_time;
mod latency;
mod listing;
mod occupancy;
mod ptxas_log;
mod report;
mod timeline;
mod tools;

pub use control::Control;
pub use latency::latencies;
pub use listing::{Listing, MachineEntry, MachineInstruction};
pub use occupancy::{Limit, Occupancy, occupancy};
pub use ptxas_log::{EntryUsage, PtxasLog};
pub use report::{Report, Row, SassFault, SassFinding, check};
pub use timeline::Timeline;
pub use tools::{NVDISASM_VARIABLE, NVDISASM_WHEEL, PTXAS_VARIABLE, PTXAS_WHEELS, Tools, Wheel};

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::builder::NvvmArch;
use crate::spec::EntrySpec;
use crate::toolchain::{describe, output_of, run};

/// Why the machine code could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SassError {
    /// A variable names a tool that is not there.
    #[error("{variable} is `{}`, which is no file; give the path of {tool}, or unset it", path.display())]
    NotThere {
        /// The variable.
        variable: &'static str,
        /// The tool it should name.
        tool: &'static str,
        /// What it names.
        path: PathBuf,
    },
    /// No tool was found, and its wheel could not be installed.
    #[error(
        "no {tool}: the variable {variable} is not set, PATH has none, and installing the wheel {wheel} failed: {reason}\n\
         Set {variable}, or put {tool} on PATH, or give Python 3 with its modules venv and pip a way to PyPI"
    )]
    NoTool {
        /// The tool.
        tool: &'static str,
        /// The variable that may name it.
        variable: &'static str,
        /// The wheel that holds it.
        wheel: String,
        /// Why it could not be installed.
        reason: String,
    },
    /// A tool could not be run, or refused the input.
    #[error(transparent)]
    Tool(#[from] crate::BuildError),
}

/// Assembles the PTX file `ptx`, disassembles the result and holds both against `table`. The machine code and its
/// listing stay in `folder` for a reader.
pub fn inspect(
    ptx: &Path,
    arch: NvvmArch,
    table: &[EntrySpec],
    tools: &Tools,
    folder: &Path,
) -> Result<Report, SassError> {
    fs::create_dir_all(folder).map_err(crate::BuildError::file("make", folder))?;
    let cubin = folder.join("kernels.cubin");
    let mut ptxas = Command::new(&tools.ptxas);
    ptxas
        .arg(format!("-arch={}", arch.target_cpu()))
        .arg("-v")
        .arg(ptx)
        .arg("-o")
        .arg(&cubin);
    let asked = describe(&ptxas);
    let before = cpu_time::of_children();
    let output = run(&mut ptxas)?;
    let assembly = cpu_time::of_children()
        .zip(before)
        .map(|(after, before)| after - before);
    // ptxas reports on either stream, by version.
    let said = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    if !output.status.success() {
        return Err(crate::BuildError::Failed {
            command: asked,
            status: output.status,
            stderr: said,
        }
        .into());
    }
    let mut nvdisasm = Command::new(&tools.nvdisasm);
    nvdisasm.args(["-c", "-hex"]).arg(&cubin);
    let text = output_of(nvdisasm)?;
    let listing = folder.join("kernels.sass");
    fs::write(&listing, &text).map_err(crate::BuildError::file("write", &listing))?;
    let report = check(table, &PtxasLog::parse(&said), &Listing::parse(&text));
    Ok(Report { assembly, ..report })
}
