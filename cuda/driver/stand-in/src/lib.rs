//! A stand-in for NVIDIA's driver, for tests: a `libcuda.so.1` that needs no GPU, answers as it is told and logs every
//! call.
//!
//! The library is found when a process makes its first CUDA call, and a process chooses its driver once. So a test that
//! wants it runs one of its own functions in a process of its own:
//!
//! ```no_run
//! use hopper_cuda_stand_in::StandIn;
//!
//! #[test]
//! fn a_stream_is_waited_for() {
//!     if StandIn::is_loaned() {
//!         // The child: open an engine with the driver `cuda`, and do things.
//!         return;
//!     }
//!     let stand_in = StandIn::new().unwrap();
//!     let mut child = stand_in.test("a_stream_is_waited_for");
//!     let output = child.env("FAKE_DEVICES", "8.0,9.0").output().unwrap();
//!     assert!(output.status.success());
//!     let calls = stand_in.calls().unwrap();
//!     assert!(calls.iter().any(|call| call.name == "cuStreamSynchronize"));
//! }
//! ```
//!
//! A test of a program lends the library to it: [`StandIn::lend_to`].
//!
//! # What the library does
//!
//! Device memory is the host's, and fills and copies happen at once, within the call that asks for them. Launches do
//! nothing. Handles are numbers, never the same twice. Streams and events are numbers alone: nothing waits. A stream is
//! captured from the beginning of a capture to its end, others that wait for its events are not, and graphs are empty.
//! All that it serves is one table, `library/main.rs`; it has no other function, as an old driver has no new ones.
//!
//! # What it is told, by variables
//!
//! | variable | what it holds | without it |
//! |---|---|---|
//! | `FAKE_DEVICES` | the devices' compute capabilities: `8.0,9.0`, or nothing for no device | `9.0` |
//! | `FAKE_VERSION` | what `cuDriverGetVersion` answers | `12080` |
//! | `FAKE_CODE_` and a symbol, as `FAKE_CODE_cuModuleLoadData` | the code that it answers | `0` |
//! | `FAKE_LOG` | the file that calls are appended to | no log |
//!
//! A function whose code is not 0 does nothing else. Of several codes, as in `0,700`, the first call answers the first
//! and so on, and all calls after them the last.
//!
//! # The log
//!
//! One line for each call, in the order in which they ended: [`StandIn::calls`] reads it. An argument that the function
//! writes to is shown as what it wrote.
//!
//! ```text
//! cuMemcpyHtoDAsync_v2 code=0 thread=1 to=0x7f2e3c000b00 from=0x5581d60ef2a0 bytes=512 stream=0x1003
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use tempfile::TempDir;

/// The library, as a foreign one.
const FOREIGN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/foreign"));
/// The library with the marker by which the emulated driver knows itself.
const MARKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/marked"));
/// The name under which programs look for NVIDIA's driver.
const NAME: &str = "libcuda.so.1";

/// Set where a process has the library on loan.
const LOANED: &str = "FAKE_LOANED";
const LOG: &str = "FAKE_LOG";

/// The library in a folder of its own, which goes with this value.
#[derive(Debug)]
pub struct StandIn {
    folder: TempDir,
}

impl StandIn {
    /// Writes the library.
    pub fn new() -> io::Result<Self> {
        Self::of(FOREIGN)
    }

    /// Writes one that carries the emulated driver's marker, so that `hopper-cuda-driver` takes it for its own.
    pub fn marked() -> io::Result<Self> {
        Self::of(MARKED)
    }

    /// Writes bytes that are no library.
    pub fn broken() -> io::Result<Self> {
        Self::of(b"no library")
    }

    /// An empty folder: no library at all.
    pub fn missing() -> io::Result<Self> {
        Ok(StandIn {
            folder: TempDir::new()?,
        })
    }

    fn of(bytes: &[u8]) -> io::Result<Self> {
        let stand_in = Self::missing()?;
        std::fs::write(stand_in.folder().join(NAME), bytes)?;
        Ok(stand_in)
    }

    /// Where the library lies.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where calls are logged.
    pub fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    /// Has a command find the library, and log to this value's file. What chose a driver for this process does not
    /// choose one for the command.
    pub fn lend_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env_remove("HOPPER_PROJ_DEVICE")
            .env("LD_LIBRARY_PATH", self.folder())
            .env("DYLD_LIBRARY_PATH", self.folder())
            .env(LOG, self.log())
            .env(LOANED, "1")
    }

    /// One test of this process's program, in a process that has the library on loan. Both its outputs are shown.
    pub fn test(&self, name: &str) -> Command {
        // A process that runs can be asked for its program.
        let program = std::env::current_exe().unwrap_or_default();
        let mut command = Command::new(program);
        command.args(["--exact", name, "--nocapture"]);
        self.lend_to(&mut command);
        command
    }

    /// Whether this process has the library on loan.
    pub fn is_loaned() -> bool {
        std::env::var_os(LOANED).is_some()
    }

    /// The calls so far; none where nothing was called.
    pub fn calls(&self) -> io::Result<Vec<Call>> {
        match std::fs::read_to_string(self.log()) {
            Ok(text) => text.lines().map(str::parse).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

/// A call, as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The function's symbol.
    pub name: String,
    /// What it answered.
    pub code: u32,
    /// The thread that called: the first is 1.
    pub thread: u64,
    /// The arguments by name, as the log shows them.
    pub arguments: Vec<(String, String)>,
}

impl Call {
    /// An argument, as the log shows it.
    pub fn argument(&self, name: &str) -> Option<&str> {
        let found = self.arguments.iter().find(|(argument, _)| argument == name);
        found.map(|(_, value)| value.as_str())
    }

    /// An argument that is a number, a handle or an address.
    pub fn number(&self, name: &str) -> Option<u64> {
        number(self.argument(name)?)
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl FromStr for Call {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        let parse = || {
            let mut words = line.split(' ');
            let name = words.next()?.to_owned();
            let mut pairs = words.map(|word| word.split_once('='));
            let (code, thread) = (pairs.next()??.1, pairs.next()??.1);
            let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            Some(Call {
                name,
                code: code.parse().ok()?,
                thread: number(thread)?,
                arguments: pairs.map(|pair| pair.map(owned)).collect::<Option<_>>()?,
            })
        };
        parse().ok_or_else(|| io::Error::other(format!("no line of a log: {line}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_log_are_calls() {
        let call: Call = "cuMemFree_v2 code=3 thread=2 address=0x1f".parse().unwrap();
        assert_eq!((call.name.as_str(), call.code, call.thread), ("cuMemFree_v2", 3, 2));
        assert_eq!((call.number("address"), call.argument("bytes")), (Some(31), None));
        for line in [
            "",
            "cuInit",
            "cuInit code=0",
            "cuInit code=x thread=1",
            "cuInit code=0 thread=1 flags",
        ] {
            assert!(line.parse::<Call>().is_err(), "{line}");
        }
    }
}
