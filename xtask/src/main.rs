//! Commands for those who work on the project: `cargo xtask <command>`.

mod build_ptx;
mod bundle;
mod cargo;
mod emulated_driver;
mod foreign;
mod line_counts;
mod lint_ptx;
mod paths;
mod peers;
mod sanitize;
mod sass;
mod split;
mod table;
mod test;
mod timeline;

use std::path::PathBuf;
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
    /// Compile the kernels to host/ptx, a file for each family
    BuildPtx {
        /// Compile and compare with the checked-in files instead of writing them
        #[arg(long)]
        check: bool,
    },
    /// Hold the checked-in PTX against the table of kernels: entries, launch bounds, barriers, local memory, calls
    LintPtx,
    /// Assemble the checked-in PTX and hold the machine code against the table: registers, spills, loads, matrix
    /// instructions
    Sass {
        /// Print how many cycles a warp takes from place to place in each entry, show what has changed, and write it to
        /// benchmarks/record/sass.csv
        #[arg(long)]
        timeline: bool,
        /// Look at one family's entries alone, with the newest assembler, and print their timelines; nothing is written
        /// or compared
        #[arg(long, value_name = "NAME", conflicts_with = "timeline")]
        family: Option<String>,
    },
    /// Run `cargo test` on the device that the driver chooses
    Test {
        /// Once on the emulator, and once on CUDA where there is a device
        #[arg(long)]
        all_devices: bool,
        /// Passed on to `cargo test`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Make a folder with all that a GPU machine without Rust needs to run the checks and the benchmarks
    Bundle {
        /// The folder; target/bundle where nothing is said
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Then run its script on the emulator
        #[arg(long)]
        dry_run: bool,
    },
    /// Build the emulated CUDA driver as libcuda.so.1 and libcuda.so, for any program that uses NVIDIA's
    EmulatedDriver {
        /// The folder; target/emulated-driver where nothing is said
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Then run programs of other people with it: a wrapper's tests, and tests that use the wrapper
        #[arg(long)]
        test: bool,
    },
    /// Run the driver's tests with threads in them under a thread sanitizer, built with it and with Rust's library from
    /// source: on Linux, with the toolchain's rust-src (or CUDA_BUILDER_RUST_SRC) and crates.io
    Sanitize,
    /// Refuse C, C++ and CUDA sources among the tracked files
    NoForeignSources,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Task::BuildPtx { check } => build_ptx::run(check),
        Task::LintPtx => lint_ptx::run(),
        Task::Sass { family: Some(name), .. } => sass::one_family(&name),
        Task::Sass { timeline, .. } => sass::run(timeline),
        Task::Test { all_devices, arguments } => test::run(all_devices, &arguments),
        Task::Bundle { out, dry_run } => bundle::run(out, dry_run),
        Task::EmulatedDriver { out, test } => emulated_driver::run(out, test),
        Task::Sanitize => sanitize::run(),
        Task::NoForeignSources => foreign::run(),
    };
    if let Err(error) = done {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
