//! Compiles a kernel crate with rustc's own PTX backend.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustc_build_sysroot::{SysrootBuilder, SysrootConfig};

use crate::error::BuildError;
use crate::finish::finish;
use crate::library_source;
use crate::spec::EntrySpec;
use crate::toolchain::{Toolchain, describe, output_of};

const TARGET: &str = "nvptx64-nvidia-cuda";

/// For `core` and for the kernels alike. Jump threading copies a barrier into both arms of a branch, which is legal for
/// a CPU and wrong for a GPU, where all threads of a CTA must meet at the same one.
///
/// The unrolling threshold is what a nest of constant loops over accumulators may cost: a loop that stays a loop
/// indexes its array at run time, which puts the array in local memory.
const CODEGEN_FLAGS: &[&str] = &[
    "-Zmir-enable-passes=-JumpThreading",
    "-Cllvm-args=-unroll-threshold=5000",
];

/// Overrules whatever the workspace's profiles say: one module, optimised as a whole, nothing in it but code.
const PROFILE: &[&str] = &[
    "profile.release.lto=\"fat\"",
    "profile.release.codegen-units=1",
    "profile.release.panic=\"abort\"",
    "profile.release.opt-level=3",
    "profile.release.debug=false",
    "profile.release.debug-assertions=false",
    "profile.release.overflow-checks=false",
    "profile.release.incremental=false",
    "profile.release.strip=\"none\"",
];

/// A GPU architecture to compile for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NvvmArch {
    /// Hopper, without what later parts will not have.
    Compute90,
    /// Hopper with all it has: `wgmma`, `setmaxnreg`. Runs on compute capability 9.0 alone.
    #[default]
    Compute90a,
}

impl NvvmArch {
    /// The name that rustc and ptxas know it by.
    pub fn target_cpu(self) -> &'static str {
        match self {
            Self::Compute90 => "sm_90",
            Self::Compute90a => "sm_90a",
        }
    }
}

/// Builds one kernel crate to one PTX file.
///
/// The crate is an ordinary library (no `cdylib` declared), `no_std` on the GPU, with `extern "ptx-kernel"` functions
/// that are `#[unsafe(no_mangle)]`. The same crate, compiler and table give the same bytes in any folder, with any
/// source of the library.
#[derive(Clone, Debug)]
pub struct CudaBuilder {
    krate: PathBuf,
    arch: NvvmArch,
    copy_to: Option<PathBuf>,
    target_dir: Option<PathBuf>,
    entries: Vec<EntrySpec>,
}

impl CudaBuilder {
    /// Prepares to build the crate in the folder `path`.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            krate: path.as_ref().to_owned(),
            arch: NvvmArch::default(),
            copy_to: None,
            target_dir: None,
            entries: Vec::new(),
        }
    }

    /// Sets the architecture; Hopper with all it has where this is not called.
    pub fn arch(mut self, arch: NvvmArch) -> Self {
        self.arch = arch;
        self
    }

    /// Sets where the finished PTX goes, in place of a file in the build folder.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.copy_to = Some(path.as_ref().to_owned());
        self
    }

    /// Sets the build folder, in place of `target/ptx` of the crate's workspace.
    pub fn target_dir(mut self, path: impl AsRef<Path>) -> Self {
        self.target_dir = Some(path.as_ref().to_owned());
        self
    }

    /// Sets the table of entries: each gets its launch bounds, and the crate must define these and no others.
    pub fn launch_bounds(mut self, entries: impl IntoIterator<Item = EntrySpec>) -> Self {
        self.entries = entries.into_iter().collect();
        self
    }

    /// Builds, and returns the path of the finished PTX.
    pub fn build(self) -> Result<PathBuf, BuildError> {
        let manifest = self.krate.join("Cargo.toml");
        let krate = self.krate.canonicalize().ok().filter(|_| manifest.is_file());
        let krate = krate.ok_or_else(|| BuildError::NotACrate {
            path: self.krate.clone(),
        })?;
        let toolchain = Toolchain::active_in(&krate)?;
        let folder = match &self.target_dir {
            Some(folder) => folder.clone(),
            None => workspace_of(&toolchain, &krate)?.join("target").join("ptx"),
        };
        fs::create_dir_all(&folder).map_err(BuildError::file("make", &folder))?;
        let folder = folder.canonicalize().map_err(BuildError::file("find", &folder))?;
        // Held to the end of the build: two builds into one folder would take each other's files away.
        let _lock = lock(&folder.join(".cuda-builder-lock"))?;

        let output = folder.join(TARGET);
        let sysroot = build_core(&toolchain, &folder.join("sysroot"), &output)?;
        let raw_path = output.join("release").join("compiled.ptx");
        output_of(kernel_command(
            &toolchain, &krate, &folder, &sysroot, self.arch, &raw_path,
        ))?;
        let raw = fs::read_to_string(&raw_path).map_err(BuildError::file("read", &raw_path))?;
        let target = self.arch.target_cpu();
        let finished = finish(&raw, &self.entries, toolchain.description(), target)?;

        let path = self.copy_to.unwrap_or_else(|| folder.join("finished.ptx"));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(BuildError::file("make", parent))?;
        }
        fs::write(&path, finished).map_err(BuildError::file("write", &path))?;
        Ok(path)
    }
}

fn lock(path: &Path) -> Result<File, BuildError> {
    let file = File::create(path).map_err(BuildError::file("make", path))?;
    file.lock().map_err(BuildError::file("lock", path))?;
    Ok(file)
}

fn workspace_of(toolchain: &Toolchain, krate: &Path) -> Result<PathBuf, BuildError> {
    let mut command = toolchain.bootstrap_cargo();
    command
        .args(["locate-project", "--workspace", "--message-format", "plain"])
        .current_dir(krate);
    let asked = describe(&command);
    let answer = output_of(command)?;
    let manifest = Path::new(answer.trim());
    manifest
        .parent()
        .filter(|_| manifest.is_absolute())
        .map(Path::to_owned)
        .ok_or_else(|| BuildError::Answer {
            command: asked,
            answer: answer.clone(),
            wanted: "workspace",
        })
}

/// Builds `core` for the GPU into `folder` where it is not there yet. `output`, where crates are that use it, goes away
/// before another `core` takes its place, because cargo does not know that they belong together.
fn build_core(toolchain: &Toolchain, folder: &Path, output: &Path) -> Result<PathBuf, BuildError> {
    let source = library_source::find(toolchain)?;
    let failed = |reason: String| BuildError::Sysroot {
        target: TARGET,
        source_dir: source.clone(),
        reason,
    };
    fs::create_dir_all(folder).map_err(BuildError::file("make", folder))?;
    let version =
        rustc_version::VersionMeta::for_command(toolchain.rustc()).map_err(|error| failed(error.to_string()))?;
    let mut removed = Ok(());
    let built = SysrootBuilder::new(folder, TARGET)
        .sysroot_config(SysrootConfig::NoStd)
        .cargo(toolchain.bootstrap_cargo())
        .rustc_version(version)
        .rustflags(CODEGEN_FLAGS.iter().copied())
        .rustflag(remap(&source, "/rust/library"))
        .when_build_required(|| {
            if output.exists() {
                removed = fs::remove_dir_all(output);
            }
        })
        .build_from_source(&source);
    removed.map_err(BuildError::file("remove", output))?;
    built.map_err(|error| failed(format!("{error:#}")))?;
    Ok(folder.to_owned())
}

/// The command that compiles the crate and, for a by-product, prints the PTX: what fat LTO leaves of the whole program
/// *is* the module, so nothing needs linking.
fn kernel_command(
    toolchain: &Toolchain,
    krate: &Path,
    folder: &Path,
    sysroot: &Path,
    arch: NvvmArch,
    ptx: &Path,
) -> Command {
    let mut flags: Vec<String> = CODEGEN_FLAGS.iter().map(|&flag| flag.to_owned()).collect();
    flags.push(format!("--sysroot={}", sysroot.display()));
    flags.push(format!("-Ctarget-cpu={}", arch.target_cpu()));
    flags.push("-Clinker=true".to_owned());
    flags.push(remap(krate, "/kernels"));

    let mut command = toolchain.bootstrap_cargo();
    command
        .current_dir(krate)
        .args(["rustc", "--quiet", "--lib", "--release", "--crate-type", "cdylib"]);
    command.args(["--target", TARGET, "--target-dir"]).arg(folder);
    for setting in PROFILE {
        command.args(["--config", setting]);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    command.arg("--").arg(format!("--emit=asm={}", ptx.display()));
    command
}

fn remap(folder: &Path, name: &str) -> String {
    format!("--remap-path-prefix={}={name}", folder.display())
}
