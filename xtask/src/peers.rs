//! `emulated-driver --test`: programs that know nothing of this project, with the emulated driver under the name of
//! NVIDIA's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cargo::cargo;
use crate::paths;

/// The package whose tests are such programs.
const PACKAGE: &str = "hopper-cuda-peers";
/// The wrapper whose own tests are run, and the features that its driver has without other libraries of NVIDIA's. Those
/// of its tests that compile CUDA C++ need the feature `nvrtc`, and are left out with it.
const PEER: &str = "cudarc";
const FEATURES: &str = "std,driver,dynamic-loading,cuda-12080";

/// Tests of its own that cannot pass here, and why.
const EXCLUDED: &[(&str, &str)] = &[
    (
        "driver::safe::core::tests::test_default_pinned_host_reads_are_faster_than_write_combined",
        "times memory: write-combined memory is ordinary memory here, and as fast",
    ),
    (
        "driver::safe::core::tests::test_pinned_copy_is_faster",
        "times copies: there is no engine that copies page-locked memory faster",
    ),
];

/// Runs them all with the library in this folder.
pub(crate) fn run(library: &Path) -> Result<()> {
    for arguments in [&[][..], &["--no-default-features", "--features", "cuda-13"]] {
        let mut command = cargo();
        command.args(["test", "--package", PACKAGE]).args(arguments);
        finish(command.env("LD_LIBRARY_PATH", library))?;
    }
    own_program(library)?;
    own_tests(library)
}

fn finish(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(())
}

/// The project's own program does not take the library for NVIDIA's.
fn own_program(library: &Path) -> Result<()> {
    let info = |device: &str| {
        let mut command = cargo();
        command.args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "hopper-proj-cli",
            "--",
            "info",
        ]);
        command
            .env("LD_LIBRARY_PATH", library)
            .env("HOPPER_PROJ_DEVICE", device);
        command.output().context("cannot run cargo")
    };
    let chosen = info("auto")?;
    let told = String::from_utf8_lossy(&chosen.stdout);
    if !chosen.status.success() || !told.contains("emulated") {
        bail!("`hopper-proj info` does not say that it uses the emulated driver: {told}");
    }
    let refused = info("cuda")?;
    let reason = String::from_utf8_lossy(&refused.stderr);
    if refused.status.success() || !reason.contains("is this emulated driver") {
        bail!("`hopper-proj info` does not say what it found in the place of NVIDIA's driver: {reason}");
    }
    Ok(())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

/// The folder of a package's source.
fn source(metadata: &str, name: &str) -> Result<PathBuf> {
    let metadata: Metadata = serde_json::from_str(metadata).context("cargo's metadata cannot be read")?;
    let package = metadata.packages.into_iter().find(|package| package.name == name);
    let manifest = package.with_context(|| format!("cargo knows no {name}"))?.manifest_path;
    manifest.parent().map(Path::to_owned).context("a manifest in no folder")
}

/// Runs the wrapper's own tests, from a copy of its source.
fn own_tests(library: &Path) -> Result<()> {
    let output = cargo()
        .args(["metadata", "--format-version=1", "--locked"])
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let copy = paths::root().join("target/peers").join(PEER);
    copy_folder(&source(&String::from_utf8_lossy(&output.stdout), PEER)?, &copy)?;
    // Below this project's folder, it would be taken for a part of it.
    let manifest = copy.join("Cargo.toml");
    let text = paths::read(&manifest)? + "\n[workspace]\n";
    fs::write(&manifest, text).with_context(|| format!("cannot write {}", manifest.display()))?;

    let test = |arguments: &[&str]| {
        let mut command = cargo();
        command
            .current_dir(&copy)
            .env("CARGO_TARGET_DIR", copy.with_extension("build"))
            .env("LD_LIBRARY_PATH", library)
            .args([
                "test",
                "--quiet",
                "--lib",
                "--no-default-features",
                "--features",
                FEATURES,
                "driver::",
                "--",
            ])
            .args(arguments);
        command
    };
    let listed = test(&["--list"]).output().context("cannot run cargo")?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut arguments = Vec::new();
    for (name, reason) in EXCLUDED {
        if !listed.lines().any(|line| line.strip_suffix(": test") == Some(name)) {
            bail!("{PEER} has no test {name}, which is excluded because it {reason}; take it off the list");
        }
        println!("{PEER}: {name} is left out: it {reason}");
        arguments.extend(["--skip", name]);
    }
    finish(&mut test(&arguments))
}

/// Copies a folder's files, in the place of whatever was there.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("cannot copy {} to {}", from.display(), to.display());
    fs::create_dir_all(to).with_context(failed)?;
    for entry in fs::read_dir(from).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let target = to.join(entry.file_name());
        if entry.file_type().with_context(failed)?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_in_cargos_metadata() {
        let metadata = r#"{"packages":[{"name":"a","manifest_path":"/r/a-1/Cargo.toml"},{"name":"b","manifest_path":"/r/b/Cargo.toml"}]}"#;
        assert_eq!(source(metadata, "b").unwrap(), PathBuf::from("/r/b"));
        assert!(source(metadata, "c").is_err());
    }
}
