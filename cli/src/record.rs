//! What a record of measurements says of itself: where and when it was made, and how.

use crate::error::{Error, Result};
use hopper_proj::{DeviceInfo, DriverInUse};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The keys and values of the lines `# key: value` above a record's rows.
pub(crate) fn notes(device: &DeviceInfo, protocol: &str) -> Vec<(String, String)> {
    let (major, minor) = device.cuda;
    let pairs = [
        ("gpu", device.name.clone()),
        ("driver", driver_version(device)),
        ("cuda", format!("{major}.{minor}")),
        ("date", today()),
        ("made by", format!("hopper-proj {}", env!("CARGO_PKG_VERSION"))),
        ("protocol", protocol.to_owned()),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}

pub(crate) fn text(notes: &[(String, String)]) -> String {
    notes.iter().map(|(key, value)| format!("# {key}: {value}\n")).collect()
}

/// A file for a new record in `folder`: `<gpu>/<date>-<mode>.csv`, with a number where there are such records.
pub(crate) fn path(folder: &Path, device: &DeviceInfo, mode: &str) -> Result<PathBuf> {
    let folder = folder.join(slug(&device.name));
    std::fs::create_dir_all(&folder).map_err(|source| Error::File {
        path: folder.clone(),
        source,
    })?;
    let name = format!("{}-{mode}", today());
    let mut path = folder.join(format!("{name}.csv"));
    let mut number = 1;
    // A link to nothing is there too.
    while path.symlink_metadata().is_ok() {
        number += 1;
        path = folder.join(format!("{name}-{number}.csv"));
    }
    Ok(path)
}

/// A GPU's name as a folder's: "NVIDIA H200" is `h200`.
fn slug(name: &str) -> String {
    let lower = name.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty() && *word != "nvidia").collect();
    if words.is_empty() {
        "gpu".to_owned()
    } else {
        words.join("-")
    }
}

/// The version of NVIDIA's driver, which its kernel module tells.
fn driver_version(device: &DeviceInfo) -> String {
    if device.driver == DriverInUse::Emulated {
        return "emulated".to_owned();
    }
    let told = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    version_in(&told).unwrap_or("unknown").to_owned()
}

/// The first word of the form 1.2 or 1.2.3.
fn version_in(told: &str) -> Option<&str> {
    told.split_whitespace().find(|word| {
        let parts: Vec<&str> = word.split('.').collect();
        (2..=3).contains(&parts.len())
            && parts
                .iter()
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// The day in UTC, as YYYY-MM-DD.
pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    day(since.as_secs() / 86_400)
}

/// The date of a day counted from 1970-01-01.
fn day(mut days: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        for (days, date) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (20_786, "2026-11-29"),
            (20_818, "2026-12-31"),
            (20_819, "2027-01-01"),
        ] {
            assert_eq!(day(days), date);
        }
    }

    #[test]
    fn folders_are_named_after_the_gpu() {
        for (name, folder) in [
            ("NVIDIA H200", "h200"),
            ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
            ("", "gpu"),
        ] {
            assert_eq!(slug(name), folder);
        }
    }

    #[test]
    fn the_version_is_found_among_words() {
        let told = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: gcc 12.3.0";
        assert_eq!(version_in(told), Some("580.159.04"));
        assert_eq!(version_in("x86_64 1. .2 v1.2"), None);
    }
}
