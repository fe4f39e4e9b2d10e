//! The emulated driver: CUDA's rules over the emulator's memory and launches. Besides the driver API, its contexts tell
//! more than a device's do.
//!
//! The functions of this module speak of the calling thread's current context, and answer with nothing where it has
//! none or where NVIDIA's driver is in use.

// Imports go one way: state and devices; streams and their queues; contexts; memory, events and copies; modules and
// kernels; graphs; captures; and on top of all the calls of the API.
pub(crate) mod calls;
pub(crate) mod context;

mod capture;
mod copy;
mod device;
mod event;
mod function;
mod graph;
mod host;
mod jit;
mod kernel;
mod leaks;
mod library;
mod mapping;
mod memory;
mod module;
mod occupancy;
mod order;
mod pool;
mod queue;
mod room;
mod state;
mod stream;
mod submit;
mod task;

pub use ptx_emulator::{Counters, Traffic};

use crate::codes::{Answer, Code};
use state::lock;
use std::collections::BTreeMap;

/// The answer of every function that is not emulated.
pub(crate) fn unsupported() -> Answer {
    context::ready()?;
    Err(Code::NOT_SUPPORTED)
}

/// What a kernel of the current context did wrong: kernel, PTX line, block, warp, lane, and what happened there. Every
/// later call on that context answers with an error code; this is the story behind it.
pub fn last_fault() -> Option<String> {
    context::current_even_if_faulted().ok()?.story()
}

/// How many things of each kind the process has not freed: contexts, modules, streams, events, graphs and their nodes,
/// memory, ….
pub fn live() -> BTreeMap<&'static str, usize> {
    leaks::counts()
}

/// What the current context's launches were counted to have done since the last [`take_counters`], added up.
pub fn counters() -> Counters {
    context::current_even_if_faulted()
        .map(|context| lock(&context.work).counters.clone())
        .unwrap_or_default()
}

/// As [`counters`], and starts counting from zero.
pub fn take_counters() -> Counters {
    context::current_even_if_faulted()
        .map(|context| std::mem::take(&mut lock(&context.work).counters))
        .unwrap_or_default()
}

/// Says whether the current context's launches count [`Counters::lines`] too, which takes more memory and time.
pub fn count_lines(wanted: bool) {
    if let Ok(context) = context::current_even_if_faulted() {
        lock(&context.work).counts_lines = wanted;
    }
}

/// Runs something whose launches the current context's counters leave out, and with them whatever other threads launch
/// there meanwhile.
pub fn uncounted<T>(run: impl FnOnce() -> T) -> T {
    let before = take_counters();
    let result = run();
    if let Ok(context) = context::current_even_if_faulted() {
        lock(&context.work).counters = before;
    }
    result
}

/// Picks the interleaving of warps, blocks and asynchronous copies in the current context's launches; the same seed
/// gives the same run. Without one, blocks run on all cores. Where the thread has no current context, every context
/// made from now on starts with the seed. The seed, even `None`, takes precedence over the variable
/// [`SEED_VARIABLE`](crate::SEED_VARIABLE).
pub fn set_seed(seed: Option<u64>) {
    match context::current_even_if_faulted() {
        Ok(context) => lock(&context.work).seed = seed,
        Err(_) => *lock(&context::DEFAULT_SEED) = Some(seed),
    }
}
