//! Which driver this process uses: decided once, at the first call.

use crate::codes::Code;
use crate::real::Real;
use crate::report;
use crate::seed::{self, SEED_VARIABLE};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The variable that chooses the driver where no call did.
pub const VARIABLE: &str = "HOPPER_PROJ_DEVICE";

/// Which driver to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// NVIDIA's where it loads and has a device, else the emulated one.
    #[default]
    Auto,
    /// NVIDIA's, or an error.
    Cuda,
    /// The emulated one.
    Emulated,
}

/// The driver in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selected {
    /// NVIDIA's.
    Cuda,
    /// The emulated one.
    Emulated,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Choice::Auto => "auto",
            Choice::Cuda => "cuda",
            Choice::Emulated => "emulated",
        })
    }
}

impl fmt::Display for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Selected::Cuda => "cuda",
            Selected::Emulated => "emulated",
        })
    }
}

impl FromStr for Choice {
    type Err = SelectError;

    fn from_str(given: &str) -> Result<Self, SelectError> {
        [Choice::Auto, Choice::Cuda, Choice::Emulated]
            .into_iter()
            .find(|choice| choice.to_string() == given)
            .ok_or_else(|| SelectError::UnknownChoice { given: given.into() })
    }
}

/// Why no driver, or not the one asked for, is in use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The word is none of the choices.
    #[error(
        "`{given}` names no driver; say `auto`, `cuda` or `emulated` (the variable {VARIABLE} takes the same words)"
    )]
    UnknownChoice {
        /// What was given.
        given: String,
    },
    /// The emulated driver would serve, and the variable for its seed holds no seed.
    #[error("{SEED_VARIABLE} is `{given}`; it takes a whole number from 0 to {max}, or nothing", max = u64::MAX)]
    BadSeed {
        /// What the variable holds.
        given: String,
    },
    /// NVIDIA's driver was asked for and cannot serve.
    #[error("no CUDA device can be used: {reason}; install NVIDIA's driver, or choose `emulated` or `auto`")]
    CudaUnavailable {
        /// What stands in the way.
        reason: String,
    },
    /// Another driver is in use already.
    #[error(
        "the driver `{asked}` was asked for, but this process already uses `{selected}`; choose before the first CUDA call"
    )]
    AlreadySelected {
        /// What was asked for.
        asked: Choice,
        /// What is in use.
        selected: Selected,
    },
}

impl SelectError {
    /// What a C caller is told.
    pub(crate) fn code(&self) -> Code {
        match self {
            SelectError::UnknownChoice { .. } | SelectError::BadSeed { .. } => Code::INVALID_VALUE,
            SelectError::CudaUnavailable { .. } | SelectError::AlreadySelected { .. } => Code::NO_DEVICE,
        }
    }
}

/// The driver that calls go to.
pub(crate) enum Driver {
    Cuda(Real),
    Emulated,
}

impl Driver {
    fn selected(&self) -> Selected {
        match self {
            Driver::Cuda(_) => Selected::Cuda,
            Driver::Emulated => Selected::Emulated,
        }
    }
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

static IS_LIBRARY: AtomicBool = AtomicBool::new(false);

/// Makes this copy of the crate a driver library of its own, for programs that know nothing of it: it serves the
/// emulated driver whatever the variable [`VARIABLE`] says, and returns every result code as it is. To be called before
/// any other function, as the `libcuda.so.1` that `cargo xtask emulated-driver` builds does when it is loaded.
pub fn serve_as_library() {
    IS_LIBRARY.store(true, Ordering::Relaxed);
}

/// Whether callers are programs that know nothing of this crate.
pub(crate) fn is_library() -> bool {
    IS_LIBRARY.load(Ordering::Relaxed)
}

/// Chooses the driver for this process. Wins over the variable [`VARIABLE`], and must come before the first CUDA call.
///
/// # Errors
///
/// NVIDIA's driver is asked for and cannot serve, another driver is in use already, or the emulated one would be in use
/// and [`SEED_VARIABLE`] holds no seed.
pub fn select(choice: Choice) -> Result<Selected, SelectError> {
    let selected = open(choice)?.selected();
    match (choice, selected) {
        (Choice::Cuda, Selected::Emulated) | (Choice::Emulated, Selected::Cuda) => Err(SelectError::AlreadySelected {
            asked: choice,
            selected,
        }),
        _ => Ok(selected),
    }
}

/// The driver in use; chooses it as the variable says, or by itself, where nothing has yet.
///
/// # Errors
///
/// The variable holds none of its words, or asks for NVIDIA's driver where that cannot serve, or the emulated driver
/// would serve and [`SEED_VARIABLE`] holds no seed.
pub fn selected() -> Result<Selected, SelectError> {
    driver().map(Driver::selected)
}

/// The driver in use, chosen now if need be.
pub(crate) fn driver() -> Result<&'static Driver, SelectError> {
    match DRIVER.get() {
        Some(driver) => Ok(driver),
        // The program has no other way to learn more than a code.
        None if is_library() => open(Choice::Emulated).inspect_err(report::no_driver),
        None => open(match std::env::var_os(VARIABLE) {
            None => Choice::Auto,
            Some(word) => word.to_string_lossy().parse()?,
        }),
    }
}

/// The driver in use, or, where there is none yet, the chosen one. A failure chooses nothing.
fn open(choice: Choice) -> Result<&'static Driver, SelectError> {
    static OPENING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let driver = match choice {
        _ if is_library() => Driver::Emulated,
        Choice::Emulated => Driver::Emulated,
        Choice::Auto => Real::open().map_or(Driver::Emulated, Driver::Cuda),
        Choice::Cuda => Driver::Cuda(Real::open().map_err(|reason| SelectError::CudaUnavailable { reason })?),
    };
    if let Driver::Emulated = driver {
        seed::use_environment()?;
    }
    Ok(DRIVER.get_or_init(|| driver))
}
