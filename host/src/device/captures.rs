//! The captures that are under way, of all engines of the process, and who may queue what meanwhile.

use super::router_state::{RouterState, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Whether a stream is captured may change while this is held alone, and not while it is shared. It comes ahead of
/// every other lock.
static CHANGE: RwLock<()> = RwLock::new(());

/// The routers' states that captures use, by the captures' numbers, of which the driver gives each once per process.
static STATES: Mutex<BTreeMap<u64, Vec<Arc<RouterState>>>> = Mutex::new(BTreeMap::new());

/// Has every stream stay captured, or not, as it is by now.
#[derive(Debug)]
pub(super) struct Unchanged(#[expect(dead_code, reason = "is held")] RwLockReadGuard<'static, ()>);

/// Waits for who changes what is captured. A thread holds one at a time.
pub(super) fn unchanged() -> Unchanged {
    Unchanged(CHANGE.read().unwrap_or_else(PoisonError::into_inner))
}

/// The right to change what is captured.
pub(super) fn change() -> RwLockWriteGuard<'static, ()> {
    CHANGE.write().unwrap_or_else(PoisonError::into_inner)
}

/// A capture has begun.
pub(super) fn begin(capture: u64) {
    lock(&STATES).insert(capture, Vec::new());
}

/// Notes that a capture uses a state. False where [`begin`] knows nothing of the capture.
pub(super) fn join(capture: u64, state: &Arc<RouterState>) -> bool {
    let mut captures = lock(&STATES);
    let Some(states) = captures.get_mut(&capture) else {
        return false;
    };
    if !states.iter().any(|known| Arc::ptr_eq(known, state)) {
        states.push(Arc::clone(state));
    }
    true
}

/// Forgets a capture that has ended, and answers which states it uses.
pub(super) fn end(capture: u64) -> Vec<Arc<RouterState>> {
    lock(&STATES).remove(&capture).unwrap_or_default()
}
