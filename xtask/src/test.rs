//! `test`: the test suite on whichever devices there are.

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};

use crate::paths;

/// The variable by which the driver is chosen.
const DEVICE_VARIABLE: &str = "HOPPER_PROJ_DEVICE";

/// Runs `cargo test`, with `arguments` passed on: once where the driver chooses for itself, or once for each driver.
pub(crate) fn run(all_devices: bool, arguments: &[String]) -> Result<()> {
    if !all_devices {
        return test("auto", arguments);
    }
    test("emulated", arguments)?;
    match cuda_is_missing()? {
        None => {
            test("cuda", arguments)?;
            println!("tested on: emulated, cuda");
        }
        Some(reason) => println!("tested on: emulated; skipped: cuda, because {reason}"),
    }
    Ok(())
}

fn test(device: &str, arguments: &[String]) -> Result<()> {
    println!("cargo test with {DEVICE_VARIABLE}={device}");
    let status = cargo(device)
        .arg("test")
        .args(arguments)
        .status()
        .context("cannot run cargo")?;
    passed(status, device)
}

fn passed(status: ExitStatus, device: &str) -> Result<()> {
    if !status.success() {
        bail!("the tests failed with {DEVICE_VARIABLE}={device} ({status})");
    }
    Ok(())
}

/// Why there is no CUDA device, in the command line's own words; none if there is one.
fn cuda_is_missing() -> Result<Option<String>> {
    let build = cargo("auto")
        .args(["build", "--quiet", "--package", "hopper-proj-cli"])
        .status();
    if !build.context("cannot run cargo")?.success() {
        bail!("the command line, which looks for a CUDA device, cannot be built");
    }
    let mut info = cargo("cuda");
    info.args(["run", "--quiet", "--package", "hopper-proj-cli", "--", "info"]);
    let output = info.output().context("cannot run cargo")?;
    if output.status.success() {
        return Ok(None);
    }
    Ok(Some(reason(&String::from_utf8_lossy(&output.stderr))))
}

/// The command line's one `error:` line.
fn reason(stderr: &str) -> String {
    let line = stderr.lines().find_map(|line| line.strip_prefix("error:"));
    line.unwrap_or("`hopper-proj info` failed without a word")
        .trim()
        .to_owned()
}

fn cargo(device: &str) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo.current_dir(paths::root()).env(DEVICE_VARIABLE, device);
    // Cargo has set it for this command. A cargo that finds it set takes it for a change, and builds everything once
    // more.
    cargo.env_remove("CUDA_LIBRARY_PATH");
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_error_line() {
        assert_eq!(reason("warning: x\nerror: no CUDA driver\n"), "no CUDA driver");
        assert!(reason("").contains("without a word"));
    }
}
