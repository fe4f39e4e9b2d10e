//! What is still there: counted for whoever asks, listed at the process's exit where the variable asks for it.

use super::graph::Graph;
use super::host;
use super::pool;
use super::state::{Object, STATE, lock};
use crate::report;
use std::collections::BTreeMap;
use std::sync::Once;

/// A thing that is still there: its kind, and what is known of it.
struct Left {
    kind: &'static str,
    about: String,
}

/// Whether an object goes with another one, and so is no leak of its own.
fn belongs_to_another(object: &Object) -> bool {
    match object {
        Object::Function(_) | Object::Named(_) | Object::LibraryKernel(_) => true,
        Object::Graph(graph) => Graph::is_embedded(graph),
        Object::Pool(pool) => pool::is_default(pool.handle),
        _ => false,
    }
}

fn left() -> Vec<Left> {
    let mut left = Vec::new();
    for (handle, object) in STATE.all() {
        if !belongs_to_another(&object) {
            let about = format!("{handle:#x}");
            left.push(Left {
                kind: object.kind(),
                about,
            });
        }
    }
    let mut memory: Vec<_> = lock(&STATE.allocations)
        .iter()
        .map(|(&address, allocated)| (address, allocated.bytes))
        .collect();
    memory.sort_unstable();
    left.extend(memory.into_iter().map(|(address, bytes)| Left {
        kind: "device memory",
        about: format!("{bytes} bytes at {address:#x}"),
    }));
    left.extend(host::allocated().into_iter().map(|(address, bytes)| Left {
        kind: "host memory",
        about: format!("{bytes} bytes at {address:#x}"),
    }));
    left
}

/// How many things of each kind are still there.
pub(super) fn counts() -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    let is_own = |object: &Object| matches!(object, Object::Pool(pool) if pool::is_default(pool.handle));
    for (_, object) in STATE.all().iter().filter(|(_, object)| !is_own(object)) {
        *counts.entry(object.kind()).or_default() += 1;
    }
    for (kind, count) in [
        ("device memory", lock(&STATE.allocations).len()),
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
