//! Commands for those who work on the project: `cargo xtask <command>`.

mod build_ptx;
mod lint_ptx;
mod paths;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Commands for those who work on hopper-proj")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Compile the kernels to host/ptx/kernels.ptx
    BuildPtx {
        /// Compile and compare with the checked-in file instead of writing it
        #[arg(long)]
        check: bool,
    },
    /// Hold the checked-in PTX against the table of kernels: entries, launch bounds, barriers, local memory, calls
    LintPtx,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::BuildPtx { check } => build_ptx::run(check),
        Task::LintPtx => lint_ptx::run(),
    };
    if let Err(error) = done {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
