//! What the emulated driver says on request, each kind where a variable of its own tells: calls that it does not serve,
//! faults as they happen, code that is refused, and what was not freed in the end.

use crate::codes::Code;
use crate::select::SelectError;
use crate::table::Served;
use crate::unavailable::Unavailable;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{LazyLock, Mutex, Once, PoisonError};

/// Names calls that are not emulated.
pub const LOG_VARIABLE: &str = "HOPPER_PROJ_DRIVER_LOG";
/// Tells the story of every fault when it happens, and why a module's code was refused.
pub const FAULTS_VARIABLE: &str = "HOPPER_PROJ_FAULTS";
/// Lists what is still there when the process exits.
pub const LEAKS_VARIABLE: &str = "HOPPER_PROJ_LEAKS";

/// Where the lines of a variable go.
enum Sink {
    Nowhere,
    Stderr,
    File(Mutex<File>),
}

impl Sink {
    /// What the variable says: nothing, `stderr`, or a file, which is appended to. A file that does not open is told
    /// once.
    fn of(variable: &str) -> Sink {
        let Some(word) = std::env::var_os(variable).filter(|word| !word.is_empty()) else {
            return Sink::Nowhere;
        };
        if word == "stderr" {
            return Sink::Stderr;
        }
        match OpenOptions::new().append(true).create(true).open(&word) {
            Ok(file) => Sink::File(Mutex::new(file)),
            Err(error) => {
                say(
                    &mut std::io::stderr(),
                    &format!("{variable}: {} does not open: {error}", word.display()),
                );
                Sink::Stderr
            }
        }
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        match self {
            Sink::Nowhere => {}
            Sink::Stderr => say(&mut std::io::stderr().lock(), &line()),
            Sink::File(file) => say(&mut *file.lock().unwrap_or_else(PoisonError::into_inner), &line()),
        }
    }
}

fn say(to: &mut impl Write, line: &str) {
    // A report that cannot be written must not change what the program sees of the driver.
    let _ = to.write_all(format!("hopper-cuda-driver: {line}\n").as_bytes());
}

static LOG: LazyLock<Sink> = LazyLock::new(|| Sink::of(LOG_VARIABLE));
static FAULTS: LazyLock<Sink> = LazyLock::new(|| Sink::of(FAULTS_VARIABLE));
static LEAKS: LazyLock<Sink> = LazyLock::new(|| Sink::of(LEAKS_VARIABLE));

/// A call was answered with "not supported": as is every call of the function, or as it was called.
pub(crate) fn unsupported(name: &CStr, served: Served) {
    let why = match served {
        Served::Never => "is not served by the emulated driver, however it is called",
        Served::Here => "is not supported as it was called",
    };
    LOG.tell(|| format!("{} {why}", name.to_string_lossy()));
}

/// A module, a library or what was added to a linker was refused.
pub(crate) fn refused(code: Code, words: &str) {
    FAULTS.tell(|| format!("the code was refused ({}): {words}", code.0));
}

/// No driver serves, and the caller sees nothing but codes. Told once, whether asked for or not.
pub(crate) fn no_driver(why: &SelectError) {
    static SAID: Once = Once::new();
    SAID.call_once(|| say(&mut std::io::stderr(), &why.to_string()));
}

/// The emulated driver serves where `auto` found something amiss with NVIDIA's. Told once: two threads may have made
/// the first call.
pub(crate) fn fallback(why: &Unavailable) {
    static SAID: Once = Once::new();
    if !why.is_expected() {
        SAID.call_once(|| say(&mut std::io::stderr(), &why.in_place()));
    }
}

/// A kernel did something wrong.
pub(crate) fn fault(story: &str) {
    FAULTS.tell(|| story.to_owned());
}

/// Something is still there as the process exits.
pub(crate) fn leak(what: &str) {
    LEAKS.tell(|| what.to_owned());
}

/// Whether leaks are to be listed.
pub(crate) fn wants_leaks() -> bool {
    !matches!(*LEAKS, Sink::Nowhere)
}
