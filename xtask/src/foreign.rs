//! `no-foreign-sources`: every kernel and every line of host code is Rust.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::paths;

/// How names of C, C++ and CUDA sources end.
const EXTENSIONS: &[&str] = &[
    "c", "cc", "cpp", "cxx", "c++", "h", "hh", "hpp", "hxx", "h++", "inl", "ipp", "tpp", "cu", "cuh",
];

/// Crates that compile such sources during a build or a run.
const COMPILING_CRATES: &[&str] = &["cc", "cmake", "cxx-build", "cpp_build", "bindgen_cuda", "nvrtc"];

/// Compilers that a build script might call.
const COMPILERS: &[&str] = &[
    "cc", "c++", "gcc", "g++", "clang", "clang++", "nvcc", "hipcc", "cmake", "make",
];

/// Fails if a tracked file is such a source, or builds one.
pub(crate) fn run() -> Result<()> {
    let root = paths::root();
    let mut git = Command::new("git");
    git.args(["ls-files", "-z"]).current_dir(&root);
    let output = git.output().context("cannot run git")?;
    if !output.status.success() {
        bail!(
            "`git ls-files` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let files: Vec<&str> = names.split('\0').filter(|name| !name.is_empty()).collect();
    let text = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    let found: Vec<String> = files
        .iter()
        .filter_map(|file| Some(format!("{file}: {}", fault(file, text)?)))
        .collect();
    if !found.is_empty() {
        bail!("the project is Rust alone, and these are not:\n{}", found.join("\n"));
    }
    println!("{} tracked files, no C, C++ or CUDA source among them", files.len());
    Ok(())
}

/// What is wrong with a file; `text` reads it, and is asked for build scripts, manifests and Rust sources alone.
fn fault(file: &str, text: impl FnOnce(&str) -> String) -> Option<String> {
    let path = Path::new(file);
    let extension = path
        .extension()
        .map(|extension| extension.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    if EXTENSIONS.contains(&extension.as_str()) {
        return Some(format!("a `.{extension}` source"));
    }
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    match name.as_str() {
        "build.rs" => build_script_fault(&text(file)),
        "Cargo.toml" => manifest_fault(&text(file)),
        _ if extension == "rs" => source_fault(&text(file)),
        _ => None,
    }
}

fn build_script_fault(text: &str) -> Option<String> {
    let uses = |name: &&&str| text.contains(&format!("{}::", name.replace('-', "_")));
    if let Some(name) = COMPILING_CRATES.iter().find(uses) {
        return Some(format!("a build script that uses the crate `{name}`"));
    }
    let called = COMPILERS
        .iter()
        .find(|name| text.contains(&format!("Command::new(\"{name}\")")))?;
    Some(format!("a build script that runs `{called}`"))
}

fn manifest_fault(text: &str) -> Option<String> {
    let named = |line: &str| {
        line.split(['=', '.', ' '])
            .next()
            .unwrap_or_default()
            .trim_matches('"')
            .to_owned()
    };
    let lines = text.lines().map(str::trim).map(named);
    let found = lines
        .into_iter()
        .find(|name| COMPILING_CRATES.contains(&name.as_str()))?;
    Some(format!("it depends on `{found}`, which compiles foreign sources"))
}

/// CUDA C in a string, for a run-time compiler.
fn source_fault(text: &str) -> Option<String> {
    // In two pieces, so that this file does not hold what it looks for.
    let kernel = concat!("__glo", "bal__");
    text.contains(kernel).then(|| format!("it holds CUDA C (`{kernel}`)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_of(file: &str, text: &str) -> Option<String> {
        fault(file, |_| text.to_owned())
    }

    #[test]
    fn foreign_sources_are_refused_by_name() {
        for file in [
            "a.c", "dir/a.h", "a.cc", "a.cpp", "a.cxx", "a.hpp", "dir/k.cu", "k.cuh", "A.C",
        ] {
            assert!(fault_of(file, "").is_some(), "{file}");
        }
        for file in ["a.rs", "host/ptx/gemv_bf16.ptx", "README.md", "c", "a.csv", ".ci/run"] {
            assert_eq!(fault_of(file, ""), None, "{file}");
        }
    }

    #[test]
    fn what_compiles_foreign_sources_is_refused_by_content() {
        let script = "fn main() { cc::Build::new().file(\"k\").compile(\"k\"); }";
        assert!(fault_of("cuda/x/build.rs", script).is_some());
        assert!(fault_of("build.rs", "std::process::Command::new(\"nvcc\").status()").is_some());
        assert_eq!(
            fault_of("build.rs", "println!(\"cargo::rerun-if-changed=build.rs\");"),
            None
        );
        assert!(fault_of("Cargo.toml", "[build-dependencies]\ncc = \"1\"\n").is_some());
        assert!(fault_of("Cargo.toml", "cmake.workspace = true\n").is_some());
        assert_eq!(
            fault_of("Cargo.toml", "[dependencies]\nccow = \"1\"\nname = \"cc\"\n"),
            None
        );
        let cuda = concat!("const K: &str = \"extern \\\"C\\\" __glo", "bal__ void k() {}\";");
        assert!(fault_of("src/lib.rs", cuda).is_some());
    }
}
