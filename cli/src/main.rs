//! The command line of hopper-proj. Exit codes: 0 done, 2 usage, 1 anything else, with one `error:` line. Where a
//! signal ends it, nothing unfinished is left, and the status tells the signal.

mod args;
mod bench;
mod device;
mod error;
mod info;
mod inputs;
mod inspect;
mod interrupt;
mod output;
mod pack;
mod plot;
mod progress;
mod project;
mod record;
mod route;
mod tune;
mod verify;

use args::{Cli, Command};
use clap::Parser;
use error::{Error, Result};
use hopper_proj::io::output::abandon_unfinished;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A bug is reported in the same form as any other failure.
    std::panic::set_hook(Box::new(|info| {
        eprintln!(
            "error: internal fault: {}; please report it",
            one_line(&info.to_string())
        );
        abandon_unfinished();
        std::process::exit(1);
    }));
    let done = interrupt::install().map_err(Error::Signals).and_then(|()| run());
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) if err.is_closed_pipe() => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {}", one_line(&err.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    match Cli::parse().command {
        Command::Info(args) => info::run(&args),
        Command::Project(args) => project::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Pack(args) => pack::pack(&args),
        Command::Unpack(args) => pack::unpack(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Tune(args) => tune::run(&args),
    }
}

/// A text as one line, which does nothing to a terminal but show: names of tensors and fields of files can be anything.
fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line = String::with_capacity(words.len());
    for c in words.chars() {
        if c.is_control() {
            line.extend(c.escape_debug());
        } else {
            line.push(c);
        }
    }
    line
}
