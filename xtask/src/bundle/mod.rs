//! `bundle`: one folder with all that a GPU machine without Rust needs to check and to measure the project.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use kernels_gpu::instances::Family;
use serde::Deserialize;

use crate::{cargo, paths};

/// Packages whose tests use a device. Those of the others want a compiler, or nothing of a GPU.
const TESTED: [&str; 3] = ["host", "cli", "tests"];
const RUN: &str = include_str!("run.sh");
const PEERS: &str = "benchmarks/record/h200/2026-11-29-peers.csv";
const ABOUT: &str = "hopper-proj for a machine with a Hopper GPU and a driver, and nothing of Rust or CUDA beside.

run.sh        runs the steps; `run.sh --dry-run` on the emulator
bin/          the command line, and in deps/ the tests
ptx/          the kernels, for a look: the binaries hold them
data/         what the tests read
peers.csv     what others took on an H200, for the plots
";

/// Makes the folder; with `dry_run` also runs its script on the emulator.
pub(crate) fn run(out: Option<PathBuf>, dry_run: bool) -> Result<()> {
    let out = out.unwrap_or_else(|| paths::root().join("target/bundle"));
    let program = executables(&["build", "--release", "--bin", "hopper-proj"])?
        .into_iter()
        .find(|built| built.target.name == "hopper-proj")
        .context("cargo has built no `hopper-proj`")?;
    let tests = executables(&["test", "--no-run"])?;
    let tests: Vec<Built> = tests.into_iter().filter(|test| test.name().is_some()).collect();
    if tests.is_empty() {
        bail!("cargo has built no tests of {TESTED:?}");
    }
    fill(&out, &program, &tests)?;
    println!("{}: the command line and {} test programs", out.display(), tests.len());
    if dry_run { try_out(&out) } else { Ok(()) }
}

/// A program that cargo has built.
#[derive(Deserialize)]
struct Built {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Built {
    /// A test's name in the bundle: its package's folder, then its own.
    fn name(&self) -> Option<String> {
        let package = self.manifest_path.parent()?.file_name()?.to_str()?;
        (self.profile.test && TESTED.contains(&package)).then(|| format!("{package}-{}", self.target.name))
    }
}

/// The programs that cargo has built, or found built.
fn executables(arguments: &[&str]) -> Result<Vec<Built>> {
    Ok(programs(cargo::built(arguments)?))
}

fn programs(mut built: Vec<Built>) -> Vec<Built> {
    built.retain(|built| built.executable.is_some());
    built
}

fn fill(out: &Path, program: &Built, tests: &[Built]) -> Result<()> {
    // What an earlier bundle has left would be run with this one.
    let bin = out.join("bin");
    if bin.exists() {
        fs::remove_dir_all(&bin).with_context(|| format!("cannot remove {}", bin.display()))?;
    }
    let place = |built: &Built, to: PathBuf| -> Result<()> {
        let from = built.executable.as_deref().context("a program without a file")?;
        copy(from, &to)
    };
    place(program, bin.join("hopper-proj"))?;
    for test in tests {
        // The tests look for the program in the folder above theirs, if that is called `deps`.
        place(test, bin.join("deps").join(test.name().context("a test")?))?;
    }
    strip(&bin)?;
    for family in Family::ALL {
        copy(&paths::ptx(family), &out.join("ptx").join(paths::ptx_name(family)))?;
    }
    copy(&paths::root().join(PEERS), &out.join("peers.csv"))?;
    let data = paths::root().join("tests/data");
    for entry in fs::read_dir(&data).with_context(|| format!("cannot read {}", data.display()))? {
        let path = entry?.path();
        if let Some(name) = path.file_name() {
            copy(&path, &out.join("data").join(name))?;
        }
    }
    write(&out.join("README.txt"), ABOUT)?;
    write(&out.join("run.sh"), RUN)
}

/// Takes debugging information out, which is three quarters of the bytes that are to be moved; without the tool for it,
/// they stay.
fn strip(bin: &Path) -> Result<()> {
    let mut programs = vec![bin.join("hopper-proj")];
    let deps = bin.join("deps");
    for entry in fs::read_dir(&deps).with_context(|| format!("cannot read {}", deps.display()))? {
        programs.push(entry?.path());
    }
    match Command::new("strip").args(&programs).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("`strip` failed ({status})"),
        Err(error) => {
            println!("the programs keep their debugging information: `strip` cannot be run ({error})");
            Ok(())
        }
    }
}

fn folder_of(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    folder_of(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn write(to: &Path, text: &str) -> Result<()> {
    folder_of(to)?;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}

/// Runs the script on the emulator with an environment in which there is nothing of Rust, from another folder.
fn try_out(bundle: &Path) -> Result<()> {
    let bundle = fs::canonicalize(bundle).with_context(|| format!("cannot find {}", bundle.display()))?;
    let status = Command::new("bash")
        .arg(bundle.join("run.sh"))
        .arg("--dry-run")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("OUT", bundle.join("out"))
        .current_dir(env::temp_dir())
        .status()
        .context("cannot run bash")?;
    if !status.success() {
        bail!(
            "a step of the bundle failed ({status}); {} has what each said",
            bundle.join("out").display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    fn message(package: &str, name: &str, test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/r/{package}/Cargo.toml","target":{{"kind":["test"],"name":"{name}"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
        )
    }

    #[test]
    fn tests_that_use_a_device_are_found_among_the_messages() {
        let messages = [
            message("tests", "faults", true, r#""/t/faults-1""#),
            message("host", "hopper_proj", true, r#""/t/hopper_proj-2""#),
            message("host", "hopper_proj", false, "null"),
            message("cli", "hopper-proj", false, r#""/t/hopper-proj""#),
            message("emulator", "spaces", true, r#""/t/spaces-3""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "not JSON".to_owned(),
        ];
        let built = programs(cargo::parse(&messages.join("\n")));
        let names: Vec<String> = built.iter().filter_map(Built::name).collect();
        assert_eq!(names, ["tests-faults", "host-hopper_proj"]);
        assert_eq!(built.len(), 4);
    }

    /// A bundle whose program does nothing, and whose one test ends with a status.
    fn bundle(status: u8) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        // Another process writes it: what this one has open for writing, processes that other tests start meanwhile
        // have open too until they are under way, and then it cannot be run.
        let program = |path: &str, text: &str| {
            let plain = folder.path().join("plain");
            fs::write(&plain, text).unwrap();
            let mut install = Command::new("install");
            install
                .args(["-D", "-m", "755"])
                .arg(&plain)
                .arg(folder.path().join(path));
            assert!(install.status().unwrap().success(), "{path}");
        };
        program("run.sh", RUN);
        program("bin/hopper-proj", "#!/bin/sh\necho \"$@\"\n");
        program("tools/compute-sanitizer", "#!/bin/sh\necho \"$@\"\n");
        program(
            "bin/deps/one",
            &format!("#!/bin/sh\necho \"$HOPPER_PROJ_DEVICE\"\nexit {status}\n"),
        );
        folder
    }

    /// The script's exit status and its summary.
    fn run_of(bundle: &Path, arguments: &[&str]) -> (Option<i32>, String) {
        let out = bundle.join("results");
        let mut script = Command::new("bash");
        script.arg(bundle.join("run.sh")).args(arguments).env("OUT", &out);
        // The stand-in for the sanitizer goes before one that is installed.
        let path = env::var("PATH").unwrap();
        script.env("PATH", format!("{}:{path}", bundle.join("tools").display()));
        let status = script.stdout(Stdio::null()).status().unwrap();
        (status.code(), fs::read_to_string(out.join("summary.txt")).unwrap())
    }

    #[test]
    fn the_script_fails_if_a_step_does() {
        let good = bundle(0);
        let (status, summary) = run_of(good.path(), &["--dry-run"]);
        assert_eq!(status, Some(0), "{summary}");
        for line in [
            "ok         info",
            "ok         tests-one-list",
            "ok         bench-chain",
            "left out   sanitizer: it needs a GPU",
        ] {
            assert!(summary.contains(line), "{line} is not in {summary}");
        }
        let said = |name: &str| fs::read_to_string(good.path().join("results").join(name)).unwrap();
        assert_eq!(said("verify-small.txt"), "verify --suite small\n");
        assert_eq!(said("tests-one-list.txt"), "emulated\n");

        let bad = bundle(3);
        let (status, summary) = run_of(bad.path(), &["--dry-run"]);
        assert_eq!(status, Some(1), "{summary}");
        assert!(summary.contains("FAILED 3   tests-one-list"), "{summary}");
        assert!(
            summary.contains("ok         bench-chain"),
            "the steps after it run: {summary}"
        );
    }

    #[test]
    fn on_a_gpu_machine_all_of_it_runs() {
        let bundle = bundle(0);
        let (status, summary) = run_of(bundle.path(), &[]);
        assert_eq!(status, Some(0), "{summary}");
        for line in [
            "ok         verify-muse",
            "ok         tests-one:",
            "ok         bench-pdl",
            "ok         tune",
            "ok         sanitizer-racecheck",
        ] {
            assert!(summary.contains(line), "{line} is not in {summary}");
        }
        let said = |name: &str| fs::read_to_string(bundle.path().join("results").join(name)).unwrap();
        assert_eq!(said("tests-one.txt"), "cuda\n");
        let sanitizer = said("sanitizer-memcheck.txt");
        assert_eq!(
            sanitizer,
            "--tool memcheck --error-exitcode 9 bin/hopper-proj verify --suite small\n"
        );
    }

    #[test]
    fn steps_are_chosen_by_their_names() {
        let bundle = bundle(0);
        let (status, summary) = run_of(bundle.path(), &["--dry-run", "bench", "tests-one"]);
        assert_eq!((status, summary.lines().count()), (Some(0), 4), "{summary}");
        let (status, summary) = run_of(bundle.path(), &["--dry-run", "nonsense"]);
        assert_eq!(status, Some(2), "{summary}");
        assert!(summary.contains("nonsense"), "{summary}");
    }
}
