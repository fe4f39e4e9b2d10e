//! Cargo, run by tasks for what it builds.

use std::env;
use std::ffi::OsString;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

use crate::paths;

/// Cargo, in the repository.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    // Cargo has set it for this command. A cargo that finds it set takes it for a change, and builds everything once
    // more.
    cargo.current_dir(paths::root()).env_remove("CUDA_LIBRARY_PATH");
    cargo
}

/// Has cargo build something, and gives what it says of what it has built, or found built.
pub(crate) fn built<T: DeserializeOwned>(arguments: &[&str]) -> Result<Vec<T>> {
    let output = cargo()
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` failed ({})", arguments.join(" "), output.status);
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Of cargo's messages, a JSON object a line, those that say this.
pub(crate) fn parse<T: DeserializeOwned>(messages: &str) -> Vec<T> {
    let read = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    read.collect()
}
