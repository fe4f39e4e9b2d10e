//! Shared memories of CTAs that have ended, for those that start: fresh ones would cost small launches most of their
//! time.

use std::sync::Mutex;

use super::cta::Cta;
use super::shadow::Shadow;

/// Most that are kept. One takes a megabyte and a half at most.
const KEPT: usize = 16;

static SPARE: Mutex<Vec<(Vec<u8>, Shadow)>> = Mutex::new(Vec::new());

/// A shared memory of so many bytes, zeroed, and its books, in which nothing stands.
pub(super) fn take(bytes: usize) -> (Vec<u8>, Shadow) {
    let spare = SPARE.lock().unwrap_or_else(|e| e.into_inner()).pop();
    let (mut shared, mut shadow) = spare.unwrap_or_default();
    shared.clear();
    shared.resize(bytes, 0);
    shadow.reset(bytes);
    (shared, shadow)
}

/// Keeps what CTAs that have ended leave.
pub(super) fn give(ctas: Vec<Cta>) {
    let mut spare = SPARE.lock().unwrap_or_else(|e| e.into_inner());
    let room = KEPT.saturating_sub(spare.len());
    spare.extend(ctas.into_iter().take(room).map(|cta| (cta.shared, cta.shadow)));
}
