//! `emulated-driver`: the emulated CUDA driver as a library that any program finds under the name of NVIDIA's.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{cargo, paths, peers};

/// The package that is the library.
const PACKAGE: &str = "hopper-cuda-library";
/// The name by which programs link with NVIDIA's library, and that by which they load it.
const LINKED: &str = "libcuda.so";
const LOADED: &str = "libcuda.so.1";

/// Builds the library into a folder of its own and says how to use it, or runs other people's programs with it.
pub(crate) fn run(out: Option<PathBuf>, test: bool) -> Result<()> {
    let out = build(out)?;
    if test {
        return peers::run(&out);
    }
    let out = out.display();
    println!("{out} holds {LOADED} and {LINKED}: a CUDA driver with one emulated sm_90 device.");
    println!("A program finds it before NVIDIA's with");
    println!("  LD_LIBRARY_PATH={out} PROGRAM");
    println!("and says more with HOPPER_PROJ_FAULTS=stderr (what kernels do wrong, and why code is refused),");
    println!(
        "HOPPER_PROJ_LEAKS=stderr (what was not freed) and HOPPER_PROJ_DRIVER_LOG=stderr (calls that are not emulated);"
    );
    println!(
        "each also takes the name of a file. HOPPER_PROJ_SEED=N picks the interleaving of a run. cuda/driver/README.md has the rest."
    );
    Ok(())
}

/// Builds the library; the folder that it is in.
fn build(out: Option<PathBuf>) -> Result<PathBuf> {
    let out = out.unwrap_or_else(|| paths::root().join("target/emulated-driver"));
    let built = library(cargo::built(&["build", "--release", "--package", PACKAGE])?)
        .with_context(|| format!("cargo has built no library of {PACKAGE}; it can be built on Linux"))?;
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let out = out
        .canonicalize()
        .with_context(|| format!("cannot find {}", out.display()))?;
    replace(&out.join(LOADED), |to| fs::copy(&built, to).map(|_| ()))?;
    // A link and no copy: a program that loads both names must find one driver.
    replace(&out.join(LINKED), |to| std::os::unix::fs::symlink(LOADED, to))?;
    Ok(out)
}

/// Puts a file in the place of another one, which a running program may have loaded.
fn replace(to: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
    let failed = || format!("cannot write {}", to.display());
    match fs::remove_file(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).with_context(failed),
        _ => {}
    }
    make(to).with_context(failed)
}

/// One of cargo's messages: a target that was built.
#[derive(Deserialize)]
struct Built {
    target: Target,
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    crate_types: Vec<String>,
}

/// The shared library among what cargo has built.
fn library(built: Vec<Built>) -> Option<PathBuf> {
    let libraries = built.into_iter().filter(|built| built.target.crate_types == ["cdylib"]);
    libraries
        .flat_map(|built| built.filenames)
        .find(|file| file.extension().is_some_and(|end| end == "so"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shared_library_is_found_among_the_messages() {
        let message = |kind: &str, file: &str| {
            format!(r#"{{"reason":"compiler-artifact","target":{{"crate_types":["{kind}"]}},"filenames":["{file}"]}}"#)
        };
        let messages = [
            message("proc-macro", "/t/libthiserror.so"),
            message("lib", "/t/libx.rlib"),
            message("cdylib", "/t/libhopper.so"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        assert_eq!(
            library(cargo::parse(&messages.join("\n"))),
            Some(PathBuf::from("/t/libhopper.so"))
        );
        assert_eq!(library(cargo::parse(&messages[..2].join("\n"))), None);
    }
}
