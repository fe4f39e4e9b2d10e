//! Leaks: what has not been freed, counted on request, and listed at the process's exit where the variable asks for it.

use super::host;
use super::memory;
use super::state::{Owner, STATE};
use crate::report;
use std::collections::BTreeMap;
use std::sync::Once;

/// A thing that has not been freed: its kind, and its handle or its address and size.
struct Left {
    kind: &'static str,
    about: String,
}

/// What callers have not given back. An object that goes with another one is no leak of its own.
fn left() -> Vec<Left> {
    let bytes_at = |kind, bytes, address| Left {
        kind,
        about: format!("{bytes} bytes at {address:#x}"),
    };
    let mut left = Vec::new();
    for (handle, object) in STATE.all() {
        if object.owner() == Owner::Caller {
            left.push(Left {
                kind: object.words(),
                about: format!("{handle:#x}"),
            });
        }
    }
    for (address, bytes) in memory::allocated() {
        left.push(bytes_at("device memory", bytes, address));
    }
    for (address, bytes) in host::allocated() {
        left.push(bytes_at("host memory", bytes, address as u64));
    }
    left
}

/// How many things of each kind have not been freed.
pub(super) fn counts() -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for (_, object) in STATE.all() {
        if object.owner() != Owner::Driver {
            *counts.entry(object.words()).or_default() += 1;
        }
    }
    for (kind, count) in [
        ("device memory", memory::allocated().len()),
        ("host memory", host::allocated().len()),
    ] {
        if count > 0 {
            counts.insert(kind, count);
        }
    }
    counts
}

/// Lists what is left.
extern "C" fn list() {
    // A panic must not cross into C.
    let _ = std::panic::catch_unwind(|| {
        let left = left();
        for Left { kind, about } in &left {
            report::leak(&format!("not freed: {kind} {about}"));
        }
        report::leak(&format!("{} things were not freed", left.len()));
    });
}

/// Has what is left listed when the process exits, where the variable asks for it.
pub(super) fn list_at_exit() {
    static ONCE: Once = Once::new();
    if report::wants_leaks() {
        ONCE.call_once(|| {
            #[cfg(unix)]
            // SAFETY: a function that takes nothing and may be called at any time.
            unsafe {
                libc::atexit(list);
            }
        });
    }
}
