//! Which driver this process uses: decided once, at the first call.

use crate::codes::Code;
use crate::gpcs::{self, GPCS_VARIABLE, MOST_GPCS, MOST_SMS};
use crate::real::Real;
use crate::report;
use crate::seed::{self, SEED_VARIABLE};
use crate::unavailable::Unavailable;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The variable that chooses the driver where no call did. Empty, it chooses nothing.
pub const VARIABLE: &str = "HOPPER_PROJ_DEVICE";

/// Which driver to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// NVIDIA's where it starts and has a Hopper GPU, else the emulated one: [`fallback`] says why.
    Auto,
    /// NVIDIA's, or an error.
    #[default]
    Cuda,
    /// The emulated one.
    Emulated,
}

impl Choice {
    /// What the variable [`VARIABLE`] says, else the choice given: for a program with a default of its own, which goes
    /// to [`select`].
    ///
    /// # Errors
    ///
    /// The variable holds none of its words.
    pub fn from_environment_or(otherwise: Choice) -> Result<Choice, SelectError> {
        match std::env::var_os(VARIABLE) {
            Some(word) if !word.is_empty() => word.to_string_lossy().parse(),
            _ => Ok(otherwise),
        }
    }
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
    /// The variable for the emulated device's GPCs holds no list of them.
    #[error(
        "{GPCS_VARIABLE} is `{given}`; it takes 1 to {MOST_GPCS} numbers of SMs from 1 to {MOST_SMS}, one for each GPC, with \
         commas between them, or nothing"
    )]
    BadGpcs {
        /// What the variable holds.
        given: String,
    },
    /// The emulated driver would serve, and the variable for its seed holds no seed.
    #[error("{SEED_VARIABLE} is `{given}`; it takes a whole number from 0 to {max}, or nothing", max = u64::MAX)]
    BadSeed {
        /// What the variable holds.
        given: String,
    },
    /// NVIDIA's driver was asked for and cannot serve.
    #[error(
        "no CUDA device can be used: {0}; {advice}; to compute on the emulated device instead, which is slow, choose \
         `emulated` or `auto` (the variable {VARIABLE} takes these words)",
        advice = .0.advice()
    )]
    CudaUnavailable(
        /// What stands in the way.
        Unavailable,
    ),
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
            SelectError::UnknownChoice { .. } | SelectError::BadSeed { .. } | SelectError::BadGpcs { .. } => {
                Code::INVALID_VALUE
            }
            SelectError::CudaUnavailable(why) => why.as_code(),
            SelectError::AlreadySelected { .. } => Code::NO_DEVICE,
        }
    }
}

/// The driver that calls go to.
pub(crate) enum Driver {
    Cuda(Real),
    /// With what kept `auto` from taking NVIDIA's, where it was asked for that.
    Emulated(Option<Unavailable>),
}

impl Driver {
    fn selected(&self) -> Selected {
        match self {
            Driver::Cuda(_) => Selected::Cuda,
            Driver::Emulated(_) => Selected::Emulated,
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
/// and [`SEED_VARIABLE`] holds no seed or [`GPCS_VARIABLE`] no GPCs.
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

/// The driver in use; where nothing has chosen one yet, it is chosen as the variable [`VARIABLE`] says, else as
/// [`Choice::default`] does.
///
/// # Errors
///
/// The variable holds none of its words, or NVIDIA's driver is chosen and cannot serve, or the emulated driver would
/// serve and [`SEED_VARIABLE`] holds no seed or [`GPCS_VARIABLE`] no GPCs.
pub fn selected() -> Result<Selected, SelectError> {
    driver().map(Driver::selected)
}

/// Why the emulated driver is in use, where [`Choice::Auto`] found that NVIDIA's does not serve. A program should say
/// so, unless [it is expected](Unavailable::is_expected).
pub fn fallback() -> Option<&'static Unavailable> {
    match DRIVER.get()? {
        Driver::Emulated(why) => why.as_ref(),
        Driver::Cuda(_) => None,
    }
}

/// The driver in use, chosen now if need be.
fn driver() -> Result<&'static Driver, SelectError> {
    match DRIVER.get() {
        Some(driver) => Ok(driver),
        None if is_library() => open(Choice::Emulated),
        None => open(Choice::from_environment_or(Choice::default())?),
    }
}

/// The driver that a call of a C function goes to. Whoever calls one sees no more than a code: what there is to say
/// about the choice goes to stderr, once.
pub(crate) fn driver_of_call() -> Result<&'static Driver, SelectError> {
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let driver = driver().inspect_err(report::no_driver)?;
    if let Driver::Emulated(Some(why)) = driver {
        report::fallback(why);
    }
    Ok(driver)
}

/// The driver in use, or, where there is none yet, the chosen one. A failure chooses nothing.
fn open(choice: Choice) -> Result<&'static Driver, SelectError> {
    static OPENING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let driver = match choice {
        _ if is_library() => Driver::Emulated(None),
        Choice::Emulated => Driver::Emulated(None),
        Choice::Auto => match Real::open().and_then(Real::with_hopper) {
            Ok(real) => Driver::Cuda(real),
            Err(why) => Driver::Emulated(Some(why)),
        },
        Choice::Cuda => Driver::Cuda(Real::open().map_err(SelectError::CudaUnavailable)?),
    };
    if let Driver::Emulated(_) = driver {
        seed::use_environment()?;
        gpcs::use_environment()?;
    }
    Ok(DRIVER.get_or_init(|| driver))
}
