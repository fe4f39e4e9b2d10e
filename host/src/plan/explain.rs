//! Plans on stderr, as they are made, to show why a kernel runs.

use super::measured::Tables;
use super::{Device, List, Request};
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Write, stderr};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Where it is `1`, the [`List`] of every new request goes to stderr, once each. Empty, or `0`, it asks for nothing.
pub const EXPLAIN_VARIABLE: &str = "HOPPER_PROJ_EXPLAIN";

static IS_ON: OnceLock<bool> = OnceLock::new();
static SHOWN: Mutex<BTreeSet<Key>> = Mutex::new(BTreeSet::new());

/// A request, in an order of its own.
type Key = (super::Op, crate::instances::Format, [usize; 3], [bool; 2]);

fn key(request: &Request) -> Key {
    let (shape, m) = (request.shape, request.m);
    (
        request.op,
        request.format,
        [shape.n(), shape.k(), m],
        [request.x_aligned, request.row_major],
    )
}

/// Has plans shown if [`EXPLAIN_VARIABLE`] asks for it. Loading the kernels does this; what the first of a process
/// finds counts for all.
pub(crate) fn use_environment() -> Result<()> {
    let asked = is_asked_for(std::env::var_os(EXPLAIN_VARIABLE).as_deref())?;
    IS_ON.get_or_init(|| asked);
    Ok(())
}

fn is_asked_for(value: Option<&OsStr>) -> Result<bool> {
    match value.map(OsStr::to_string_lossy).as_deref() {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(given) => Err(Error::Variable {
            name: EXPLAIN_VARIABLE,
            given: given.to_owned(),
            allowed: "1, to have every plan shown, or 0, to have none",
        }),
    }
}

/// Shows how a request is planned, if that is asked for and has not been done.
pub(super) fn show(request: &Request, device: &Device, tables: Tables) {
    if IS_ON.get() != Some(&true) {
        return;
    }
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if shown.insert(key(request)) {
        // A closed stderr is no reason to fail.
        let _ = write!(stderr().lock(), "{}", List::with_tables(request, device, tables));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_asks_for_it_and_other_words_are_refused() {
        let asked = |value: Option<&str>| is_asked_for(value.map(OsStr::new));
        for (value, expected) in [(None, false), (Some(""), false), (Some("0"), false), (Some("1"), true)] {
            assert_eq!(asked(value).unwrap(), expected, "{value:?}");
        }
        for bad in ["2", "yes", "true", " 1"] {
            let message = asked(Some(bad)).unwrap_err().to_string();
            assert!(message.contains(EXPLAIN_VARIABLE) && message.contains(bad), "{message}");
        }
    }
}
