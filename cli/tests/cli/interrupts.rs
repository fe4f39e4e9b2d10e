//! Runs that a signal ends: they leave nothing, and their status tells the signal.

use crate::common::{Scratch, Tensor, error_line, write};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A run that ends with its test.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Writes a file of one matrix: a TiB of zeros, which takes no room on the disk, and hours to pack.
pub(crate) fn endless(path: &Path) {
    let (n, k) = (1u64 << 19, 1u64 << 20);
    let header = format!(
        r#"{{"w":{{"dtype":"BF16","shape":[{n},{k}],"data_offsets":[0,{}]}}}}"#,
        n * k * 2
    );
    let start = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    std::fs::write(path, &start).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(start.len() as u64 + n * k * 2).unwrap();
}

/// A run of `pack` on one thread, with which an endless file is endless.
pub(crate) fn packing(input: &Path, output: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("hopper-proj"));
    command.arg("pack").args([input, output]).stdout(Stdio::null());
    command.env("RAYON_NUM_THREADS", "1");
    // Where a core would be dumped.
    command.current_dir(input.parent().unwrap());
    command
}

/// Unfinished files in a folder.
pub(crate) fn parts(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == "part"))
        .collect()
}

/// Waits until a run has so many unfinished files in a folder.
pub(crate) fn await_parts(run: &mut Child, folder: &Path, number: usize) {
    while parts(folder).len() < number {
        assert_eq!(run.try_wait().unwrap(), None, "it ended before it had begun so many");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What a run does on a signal, whatever it does in the tests' own process.
fn on_signal(command: &mut Command, signal: libc::c_int, action: libc::sighandler_t) {
    let set = move || {
        // SAFETY: the action is to ignore the signal, or the default one.
        unsafe { libc::signal(signal, action) };
        Ok(())
    };
    // SAFETY: between fork and exec only `signal` is called, which may be.
    unsafe { command.pre_exec(set) };
}

fn send(run: &Child, signal: libc::c_int) {
    // SAFETY: the process was started here and has not been waited for, so the number is still its own.
    assert_eq!(unsafe { libc::kill(run.id() as libc::pid_t, signal) }, 0);
}

const ENDS: [libc::c_int; 5] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGXCPU];

#[test]
fn an_interrupted_run_leaves_nothing_of_a_file() {
    for signal in ENDS {
        let scratch = Scratch::new();
        let (input, out) = (scratch.path().join("in"), scratch.path().join("out"));
        endless(&input);
        std::fs::write(&out, "old").unwrap();
        let mut command = packing(&input, &out);
        on_signal(&mut command, signal, libc::SIG_DFL);
        let mut run = Killed(command.spawn().unwrap());
        await_parts(&mut run.0, scratch.path(), 1);
        send(&run.0, signal);
        assert_eq!(run.0.wait().unwrap().signal(), Some(signal));
        assert_eq!(parts(scratch.path()), Vec::<PathBuf>::new(), "signal {signal}");
        assert_eq!(std::fs::read(&out).unwrap(), b"old");
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_of_a_folder() {
    for there in [false, true] {
        let scratch = Scratch::new();
        let (input, out) = (scratch.path().join("in"), scratch.path().join("new/out"));
        std::fs::create_dir(&input).unwrap();
        write(&input, "1", &[Tensor::bf16("a", [48, 128], |_| 1.0)]);
        endless(&input.join("2"));
        let index = r#"{"weight_map":{"a":"1","w":"2"}}"#;
        std::fs::write(input.join("model.safetensors.index.json"), index).unwrap();
        if there {
            std::fs::create_dir_all(&out).unwrap();
            std::fs::write(out.join("1"), "old").unwrap();
        }
        let mut command = packing(&input, &out);
        on_signal(&mut command, libc::SIGTERM, libc::SIG_DFL);
        let mut run = Killed(command.spawn().unwrap());
        // All of the first file has been written.
        await_parts(&mut run.0, &out, 2);
        send(&run.0, libc::SIGTERM);
        assert_eq!(run.0.wait().unwrap().signal(), Some(libc::SIGTERM));
        if there {
            assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
            assert_eq!(std::fs::read(out.join("1")).unwrap(), b"old");
        } else {
            assert!(!scratch.path().join("new").exists());
        }
    }
}

/// As `nohup` has it, and shells have it for what runs in the background.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_is_ignored_stays_so() {
    for signal in [libc::SIGHUP, libc::SIGINT] {
        let scratch = Scratch::new();
        let (input, out) = (scratch.path().join("in"), scratch.path().join("out"));
        endless(&input);
        let mut command = packing(&input, &out);
        on_signal(&mut command, signal, libc::SIG_IGN);
        on_signal(&mut command, libc::SIGTERM, libc::SIG_DFL);
        let mut run = Killed(command.spawn().unwrap());
        await_parts(&mut run.0, scratch.path(), 1);
        let status = std::fs::read_to_string(format!("/proc/{}/status", run.0.id())).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        assert!(ignored & 1 << (signal - 1) != 0, "{ignored:x}");
        send(&run.0, signal);
        send(&run.0, libc::SIGTERM);
        assert_eq!(run.0.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert_eq!(parts(scratch.path()), Vec::<PathBuf>::new());
    }
}

/// A limit on the size of files is an error, not an end without words.
#[test]
fn a_file_beyond_the_limit_of_its_size_is_an_error() {
    let scratch = Scratch::new();
    let input = write(scratch.path(), "in", &[Tensor::f32("a", [512, 1024], |_| 1.0)]);
    let out = scratch.name("out");
    let mut command = packing(Path::new(&input), Path::new(&out));
    on_signal(&mut command, libc::SIGXFSZ, libc::SIG_DFL);
    let limited = || {
        let most = libc::rlimit {
            rlim_cur: 1 << 20,
            rlim_max: 1 << 20,
        };
        // SAFETY: the limits are a value of this function.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &most) };
        Ok(())
    };
    // SAFETY: between fork and exec only `setrlimit` is called, which may be.
    unsafe { command.pre_exec(limited) };
    let run = command.output().unwrap();
    let line = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{line}");
    assert!(line.starts_with(&format!("error: cannot write {out}: ")), "{line}");
    assert_eq!(parts(scratch.path()), Vec::<PathBuf>::new());
    assert!(!Path::new(&out).exists() && error_line(&["inspect", &out]).contains("cannot open"));
}
