//! What NVIDIA's assembler makes of the PTX: registers, spills, shared memory, and the machine code itself.

mod control;
mod cpu_time;
mod latency;
mod lines;
mod listing;
mod occupancy;
mod ptxas_log;
mod report;
mod rounds;
mod timeline;
mod tools;

pub use control::Control;
pub use latency::latencies;
pub use listing::{Listing, MachineEntry, MachineInstruction};
pub use occupancy::{Limit, Occupancy, occupancy};
pub use ptxas_log::{EntryUsage, PtxasLog};
pub use report::{Report, Row, SassFault, SassFinding, check};
pub use rounds::Counts;
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
    /// The code came out otherwise where instructions say their lines.
    #[error(
        "the machine code of {} is another one when its instructions say their lines; times with counted loops need a ptxas \
         whose -lineinfo leaves the code alone",
        ptx.display()
    )]
    Lines {
        /// The file.
        ptx: PathBuf,
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
    let before = cpu_time::of_children();
    let said = assemble(ptx, arch, &["-v"], tools, &cubin)?;
    let assembly = cpu_time::of_children()
        .zip(before)
        .map(|(after, before)| after - before);
    let text = disassemble(&["-c", "-hex"], tools, &cubin)?;
    let listing = folder.join(LISTING);
    fs::write(&listing, &text).map_err(crate::BuildError::file("write", &listing))?;
    let report = check(table, &PtxasLog::parse(&said), &Listing::parse(&text));
    Ok(Report { assembly, ..report })
}

/// The listing that [`inspect`] leaves in a folder.
const LISTING: &str = "kernels.sass";

/// The listing of a PTX file in which each instruction says which line of the file it comes from. [`inspect`] has been
/// called with the same folder: that the code is the same is checked.
pub fn listing_with_lines(ptx: &Path, arch: NvvmArch, tools: &Tools, folder: &Path) -> Result<Listing, SassError> {
    let text = fs::read_to_string(ptx).map_err(crate::BuildError::file("read", ptx))?;
    let marked = folder.join("kernels.lines.ptx");
    fs::write(&marked, lines::with_lines(&text)).map_err(crate::BuildError::file("write", &marked))?;
    let cubin = folder.join("kernels.lines.cubin");
    assemble(&marked, arch, &["-lineinfo"], tools, &cubin)?;
    let listing = Listing::parse(&disassemble(&["-c", "-hex", "-g"], tools, &cubin)?);
    let plain = folder.join(LISTING);
    let plain = Listing::parse(&fs::read_to_string(&plain).map_err(crate::BuildError::file("read", &plain))?);
    if listing.without_lines() != plain {
        return Err(SassError::Lines { ptx: ptx.to_owned() });
    }
    Ok(listing)
}

/// Runs the assembler; what it says.
fn assemble(ptx: &Path, arch: NvvmArch, options: &[&str], tools: &Tools, cubin: &Path) -> Result<String, SassError> {
    let mut ptxas = Command::new(&tools.ptxas);
    ptxas
        .arg(format!("-arch={}", arch.target_cpu()))
        .args(options)
        .arg(ptx)
        .arg("-o")
        .arg(cubin);
    let asked = describe(&ptxas);
    let output = run(&mut ptxas)?;
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
    Ok(said)
}

fn disassemble(options: &[&str], tools: &Tools, cubin: &Path) -> Result<String, SassError> {
    let mut nvdisasm = Command::new(&tools.nvdisasm);
    nvdisasm.args(options).arg(cubin);
    Ok(output_of(nvdisasm)?)
}
