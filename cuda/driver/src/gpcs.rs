//! The emulated device's GPCs, as far as the environment gives them.

use crate::select::SelectError;
use std::ffi::OsStr;
use std::sync::OnceLock;

/// The variable that says how many SMs each GPC of the emulated device has: numbers with commas between them.
pub const GPCS_VARIABLE: &str = "HOPPER_PROJ_GPCS";

/// The most GPCs that a Hopper GPU has, and the most SMs of each.
pub(crate) const MOST_GPCS: usize = 8;
pub(crate) const MOST_SMS: u32 = 18;
/// The GPCs where the variable says nothing: an H200's 132 SMs. Others of its kind have theirs spread in another way.
const DEFAULT: &[u32] = &[16, 16, 16, 16, 16, 18, 18, 16];

static GPCS: OnceLock<Vec<u32>> = OnceLock::new();

/// Reads the variable. What is found when the emulated driver is chosen counts for the process.
pub(crate) fn use_environment() -> Result<(), SelectError> {
    let given = read(std::env::var_os(GPCS_VARIABLE).as_deref())?;
    GPCS.get_or_init(|| given);
    Ok(())
}

/// SMs of each GPC.
pub(crate) fn sizes() -> &'static [u32] {
    GPCS.get().map_or(DEFAULT, Vec::as_slice)
}

fn read(value: Option<&OsStr>) -> Result<Vec<u32>, SelectError> {
    let text = value.map(OsStr::to_string_lossy).unwrap_or_default();
    if text.is_empty() {
        return Ok(DEFAULT.to_vec());
    }
    let size = |word: &str| word.trim().parse().ok().filter(|sms| (1..=MOST_SMS).contains(sms));
    let sizes: Option<Vec<u32>> = text.split(',').map(size).collect();
    let sizes = sizes.filter(|sizes| sizes.len() <= MOST_GPCS);
    sizes.ok_or_else(|| SelectError::BadGpcs { given: text.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_sizes_are_gpcs_and_nothing_else_is() {
        assert_eq!(read(None).ok().as_deref(), Some(DEFAULT));
        assert_eq!(DEFAULT.iter().sum::<u32>(), 132);
        for (text, sizes) in [
            ("", DEFAULT),
            ("18,18,18,16,16,16,16,14", &[18, 18, 18, 16, 16, 16, 16, 14]),
            ("16, 2", &[16, 2]),
            ("1", &[1]),
        ] {
            assert_eq!(read(Some(text.as_ref())).ok().as_deref(), Some(sizes), "`{text}`");
        }
        for text in ["0", "19", "16,", ",", "16;16", "-1", "x", "16,16,16,16,16,16,16,16,16"] {
            let refused = read(Some(text.as_ref())).expect_err(text).to_string();
            let start = format!("{GPCS_VARIABLE} is `{text}`; it takes 1 to 8 numbers of SMs from 1 to 18");
            assert!(refused.starts_with(&start), "{refused}");
        }
    }
}
