//! `sanitize`: the driver's tests with threads in them, under a thread sanitizer.

use std::process::{Command, Output};

use anyhow::{Context, Result, bail};

use crate::cargo::cargo;
use crate::paths;

/// The package of these tests, and its program with a race in it.
const PACKAGE: &str = "hopper-cuda-sanitized";
/// How often that program is run before it counts as one whose race is not found: a sanitizer may miss a race once.
const TRIES: u32 = 5;
/// What the sanitizer says of a race.
const REPORT: &str = "ThreadSanitizer: data race";

/// Shows that a race is found, then runs the tests, in which none may be.
pub(crate) fn run() -> Result<()> {
    let target = host()?;
    let source = cuda_builder::library_source(&paths::root())?;
    let sanitized = |task: &str| {
        let mut command = cargo();
        command
            .args([
                task,
                "--package",
                PACKAGE,
                "--profile",
                "sanitized",
                "--target",
                &target,
            ])
            // Rust's own library too must be built so, or the sanitizer sees neither its locks nor its threads.
            .args(["-Zbuild-std=std,test", "-Zbuild-std-features=panic-unwind"])
            .env("RUSTC_BOOTSTRAP", "1")
            .env("__CARGO_TESTS_ONLY_SRC_ROOT", &source)
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            .env("CARGO_TARGET_DIR", paths::root().join("target/sanitized"))
            .env("TSAN_OPTIONS", "halt_on_error=0");
        command
    };
    planted_race_is_found(|| sanitized("run"))?;
    let status = sanitized("test").status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the tests under a thread sanitizer failed ({status}); what it found is above");
    }
    println!("no data race in the driver's tests, and a planted one was found");
    Ok(())
}

/// The target that this machine is.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").current_dir(paths::root()).output();
    let told = String::from_utf8(output.context("cannot run rustc")?.stdout)?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say what its host is")
}

fn planted_race_is_found(program: impl Fn() -> Command) -> Result<()> {
    for _ in 0..TRIES {
        let output = program().output().context("cannot run cargo")?;
        if found(&output)? {
            return Ok(());
        }
    }
    bail!("the thread sanitizer does not report a race that is in {PACKAGE}, so it would report no other one")
}

/// Whether a program's race was reported; an error where it ended otherwise than by that or well.
fn found(output: &Output) -> Result<bool> {
    let told = String::from_utf8_lossy(&output.stderr);
    match (told.contains(REPORT), output.status.success()) {
        (true, false) => Ok(true),
        (false, true) => Ok(false),
        _ => bail!(
            "a program with a race in it, for the thread sanitizer, ended with {}:\n{told}",
            output.status
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_race_is_a_report_and_a_failure() {
        let ended = |code: i32, told: &str| {
            found(&Output {
                status: std::process::ExitStatus::from_raw(code << 8),
                stdout: Vec::new(),
                stderr: told.into(),
            })
        };
        assert!(ended(66, "WARNING: ThreadSanitizer: data race (pid=1)").unwrap());
        assert!(!ended(0, "Finished").unwrap());
        assert!(ended(101, "error: could not compile").is_err());
        assert!(ended(0, "WARNING: ThreadSanitizer: data race (pid=1)").is_err());
    }
}
