//! The emulated driver's seed, as far as the environment gives it.

use crate::select::SelectError;
use std::ffi::OsStr;
use std::sync::OnceLock;

/// The variable that picks the interleaving of the emulator's runs where no call of
/// [`set_seed`](crate::emulated::set_seed) does.
pub const SEED_VARIABLE: &str = "HOPPER_PROJ_SEED";

static SEED: OnceLock<Option<u64>> = OnceLock::new();

/// Reads the variable. What is found when the emulated driver is chosen counts for the process.
pub(crate) fn use_environment() -> Result<(), SelectError> {
    let given = read(std::env::var_os(SEED_VARIABLE).as_deref())?;
    SEED.get_or_init(|| given);
    Ok(())
}

/// The seed of the environment, if there is one.
pub(crate) fn of_environment() -> Option<u64> {
    SEED.get().copied().flatten()
}

fn read(value: Option<&OsStr>) -> Result<Option<u64>, SelectError> {
    match value.map(OsStr::to_string_lossy).as_deref() {
        None | Some("") => Ok(None),
        Some(word) => word
            .parse()
            .map(Some)
            .map_err(|_| SelectError::BadSeed { given: word.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_seeds_and_nothing_else_is() {
        for (word, seed) in [("", None), ("0", Some(0)), ("18446744073709551615", Some(u64::MAX))] {
            assert_eq!(read(Some(word.as_ref())).ok(), Some(seed), "`{word}`");
        }
        assert_eq!(read(None).ok(), Some(None));
        for word in ["-1", "1.5", "0x10", " 1", "none", "18446744073709551616"] {
            let refused = read(Some(word.as_ref())).expect_err(word).to_string();
            let start = format!("{SEED_VARIABLE} is `{word}`; it takes a whole number");
            assert!(refused.starts_with(&start), "{refused}");
        }
    }
}
