//! The compiler in use, and a command line that the surrounding build cannot disturb.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::error::BuildError;

/// What an outer cargo, or a user's shell, may have set and what must not reach the kernel build: each of these changes
/// code generation or where its output goes.
const DISTURBING: &[&str] = &[
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_ENCODED_RUSTDOCFLAGS",
    "RUSTC",
    "RUSTDOC",
    "CARGO_INCREMENTAL",
    "CARGO_MAKEFLAGS",
    "MAKEFLAGS",
    "MFLAGS",
    "TARGET",
    "HOST",
    "OUT_DIR",
    "PROFILE",
    "OPT_LEVEL",
    "DEBUG",
    "NUM_JOBS",
    "__CARGO_DEFAULT_LIB_METADATA",
];

/// The same, by how the name begins.
const DISTURBING_PREFIXES: &[&str] = &[
    "CARGO_BUILD_",
    "CARGO_TARGET_",
    "CARGO_PROFILE_",
    "CARGO_UNSTABLE_",
    "CARGO_PKG_",
    "CARGO_MANIFEST_",
    "CARGO_CFG_",
    "CARGO_FEATURE_",
    "CARGO_BIN_",
    "RUSTC_",
];

/// The compiler that is active in a folder.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    sysroot: PathBuf,
    rustc: PathBuf,
    cargo: PathBuf,
    /// `1.95.0`, or `1.97.0-nightly`.
    release: String,
    /// `rustc 1.95.0 (59807616e 2026-04-14), LLVM 22.1.2`.
    description: String,
}

impl Toolchain {
    /// Asks for the compiler that is active in `folder`.
    ///
    /// Its programs are then called by their own paths, so that cargo and rustc always belong together.
    pub(crate) fn active_in(folder: &Path) -> Result<Self, BuildError> {
        let asked = |args: &[&str]| {
            let mut command = Command::new("rustc");
            command.args(args).current_dir(folder);
            output_of(command)
        };
        let sysroot = PathBuf::from(asked(&["--print", "sysroot"])?.trim());
        let program = |name: &str| {
            let own = sysroot
                .join("bin")
                .join(name)
                .with_extension(env::consts::EXE_EXTENSION);
            if own.is_file() { own } else { PathBuf::from(name) }
        };
        let (rustc, cargo) = (program("rustc"), program("cargo"));
        let version = asked(&["-vV"])?;
        let field = |name: &'static str| {
            let value = version.lines().find_map(|line| line.strip_prefix(name));
            value.map(|v| v.trim().to_owned()).ok_or_else(|| BuildError::Answer {
                command: "rustc -vV".into(),
                answer: version.clone(),
                wanted: name,
            })
        };
        let release = field("release:")?;
        let first = version.lines().next().unwrap_or_default();
        let description = format!("{first}, LLVM {}", field("LLVM version:")?);
        Ok(Self {
            sysroot,
            rustc,
            cargo,
            release,
            description,
        })
    }

    pub(crate) fn sysroot(&self) -> &Path {
        &self.sysroot
    }

    pub(crate) fn release(&self) -> &str {
        &self.release
    }

    pub(crate) fn description(&self) -> &str {
        &self.description
    }

    /// `rustc`, undisturbed.
    pub(crate) fn rustc(&self) -> Command {
        undisturbed(&self.rustc)
    }

    /// `cargo`, undisturbed, that uses this toolchain's compiler and may use unstable features.
    pub(crate) fn bootstrap_cargo(&self) -> Command {
        let mut command = undisturbed(&self.cargo);
        command.env("RUSTC", &self.rustc).env("RUSTC_BOOTSTRAP", "1");
        // Empty, not unset: an empty variable also overrules a wrapper from a configuration file.
        command.env("RUSTC_WRAPPER", "").env("RUSTC_WORKSPACE_WRAPPER", "");
        command
    }
}

/// A command without the variables that an outer build sets for its own purposes.
fn undisturbed(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if is_disturbing(&name) {
            command.env_remove(&name);
        }
    }
    command
}

fn is_disturbing(name: &OsString) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    DISTURBING.contains(&name) || DISTURBING_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Runs a command to its end, however it ends.
pub(crate) fn run(command: &mut Command) -> Result<Output, BuildError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|source| BuildError::Start { program, source })
}

/// Runs a command and returns what it printed; an error holds what it complained of.
pub(crate) fn output_of(mut command: Command) -> Result<String, BuildError> {
    let output = run(&mut command)?;
    if !output.status.success() {
        return Err(BuildError::Failed {
            command: describe(&command),
            status: output.status,
            stderr: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command as one would type it.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_an_outer_build_are_taken_out_and_the_users_own_stay() {
        for name in [
            "RUSTFLAGS",
            "CARGO_TARGET_DIR",
            "RUSTC_WRAPPER",
            "CARGO_PROFILE_RELEASE_LTO",
        ] {
            assert!(is_disturbing(&name.into()), "{name}");
        }
        for name in [
            "PATH",
            "CARGO_HOME",
            "CARGO_HTTP_PROXY",
            "CARGO_NET_OFFLINE",
            "RUSTUP_HOME",
        ] {
            assert!(!is_disturbing(&name.into()), "{name}");
        }
    }
}
