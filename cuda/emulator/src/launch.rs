//! Launching a kernel.

use crate::counters::Counters;
use crate::error::{BadLaunch, Error};
use crate::memory::Memory;
use crate::module::Module;

/// A launch: which kernel, on how many threads, with what.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The kernel's name.
    pub entry: &'a str,
    /// CTAs along each axis.
    pub grid: [u32; 3],
    /// Threads of a CTA along each axis.
    pub block: [u32; 3],
    /// CTAs of a cluster along each axis; `[1, 1, 1]` launches without clusters.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameter buffer, laid out as [`crate::EntryInfo::params`] says.
    pub params: &'a [u8],
    /// The launch before it on the stream, where programmatic serialisation lets the two overlap.
    pub overlaps: Option<LaunchId>,
}

/// Names a launch; unique within one [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaunchId(pub(crate) u32);

/// How to run launches.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Picks the interleaving of warps, CTAs and asynchronous copies; the same seed gives the same run. Without one,
    /// clusters run on all cores.
    pub seed: Option<u64>,
    /// When to give up.
    pub limits: Limits,
}

/// When to give up on a launch that does not end.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Warp instructions that the launch may execute with no visible progress (a store, an atomic that changes a value, a
    /// barrier or copy that completes, an exit): more are taken for an endless spin.
    pub idle_instructions: u64,
    /// Warp instructions that the launch may execute in all.
    pub total_instructions: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            idle_instructions: 50_000_000,
            total_instructions: 1_000_000_000_000,
        }
    }
}

/// What a finished launch answers.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its name, for [`Launch::overlaps`] of the next one.
    pub id: LaunchId,
    /// What it was counted to have done.
    pub counters: Counters,
}

/// Runs a kernel to its end.
///
/// # Errors
///
/// [`Error::BadLaunch`] before its first instruction, or [`Error::Fault`] at the first thing it does wrong; the memory then
/// holds whatever had been written.
pub fn launch(module: &Module, memory: &Memory, launch: &Launch<'_>, options: &Options) -> Result<Outcome, Error> {
    let _ = (memory, options);
    let entry = module
        .entry(launch.entry)
        .ok_or_else(|| BadLaunch::NoSuchEntry(launch.entry.to_owned()))?;
    Err(BadLaunch::Dimensions {
        entry: entry.name.clone(),
        message: "this build has no machine yet".into(),
    }
    .into())
}
