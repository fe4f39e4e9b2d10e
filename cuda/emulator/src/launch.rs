//! Launching a kernel.

use std::borrow::Cow;

use crate::counters::Counters;
use crate::error::{BadLaunch, Error};
use crate::limits::Limits;
use crate::machine::{self, Env, State};
use crate::memory::Memory;
use crate::module::{EntryInfo, Module};
use crate::program::{Program, SHARED_BASE, WARP};

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
    /// Where a grid's CTAs wait for each other: an address of 8 zero bytes, which the kernel finds in `%envreg1` (the
    /// upper half) and `%envreg2`, as CUDA's cooperative groups expect it; 0 for nowhere.
    pub grid_workspace: u64,
    /// Whether to count [`Counters::lines`].
    pub count_lines: bool,
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
/// [`Error::BadLaunch`] before its first instruction, or [`Error::Fault`] at the first thing it does wrong; the memory
/// then holds whatever had been written.
pub fn launch(module: &Module, memory: &Memory, launch: &Launch<'_>, options: &Options) -> Result<Outcome, Error> {
    let (info, program) = module
        .kernel(launch.entry)
        .ok_or_else(|| BadLaunch::NoSuchEntry(launch.entry.to_owned()))?;
    check(info, program, launch)?;
    let too_large = || BadLaunch::Variables {
        bytes: module.variable_bytes(),
    };
    let mut constants = Cow::Borrowed(&program.constants[..]);
    if !program.relocations.is_empty() {
        let addresses = module.place(memory).ok_or_else(too_large)?;
        let patched = constants.to_mut();
        for relocation in &program.relocations {
            let address = addresses[relocation.variable as usize].wrapping_add(relocation.offset as u64);
            patched[relocation.constant as usize] = [address; WARP];
        }
    }
    let allocations = memory.snapshot();
    let (id, early) = memory.begin_launch(launch.overlaps.map(|id| id.0));
    let env = Env {
        program,
        constants: &constants,
        params: launch.params,
        grid: launch.grid,
        block: launch.block,
        cluster: launch.cluster,
        dynamic_shared: launch.dynamic_shared,
        grid_workspace: options.grid_workspace,
        count_lines: options.count_lines,
        allocations: &allocations,
        id,
        seed: options.seed,
        early: &early,
        limits: &options.limits,
        state: State::default(),
    };
    let counters = machine::run(&env, options.seed)?;
    let (waited, waited_first) = (env.state.waited.into_inner(), env.state.waited_first.into_inner());
    memory.end_launch(id, early, waited, waited_first);
    Ok(Outcome {
        id: LaunchId(id),
        counters,
    })
}

/// Most threads of a CTA, and along each axis.
const MAX_THREADS: (u32, [u32; 3]) = (1024, [1024, 1024, 64]);
/// Most CTAs along each axis of a grid.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
/// Most CTAs of a cluster.
const MAX_CLUSTER: u32 = 16;
/// Most shared memory of a CTA.
const MAX_SHARED: u32 = 227 * 1024;

/// Checks a launch against the device's and the kernel's limits.
fn check(info: &EntryInfo, program: &Program, launch: &Launch<'_>) -> Result<(), BadLaunch> {
    let refuse = |message: String| BadLaunch::Dimensions {
        entry: info.name.clone(),
        message,
    };
    if launch.params.len() != info.param_bytes as usize {
        return Err(BadLaunch::ParameterSize {
            entry: info.name.clone(),
            expected: info.param_bytes,
            given: launch.params.len(),
        });
    }
    let volume = |dims: [u32; 3]| dims.iter().fold(1u32, |n, &d| n.saturating_mul(d));
    let within = |dims: [u32; 3], most: [u32; 3]| dims.iter().zip(most).all(|(&d, most)| d >= 1 && d <= most);
    let (grid, block, cluster) = (launch.grid, launch.block, launch.cluster);
    if !within(grid, MAX_GRID) {
        return Err(refuse(format!(
            "a grid of {grid:?} CTAs; 1 to {MAX_GRID:?} are allowed"
        )));
    }
    if !within(block, MAX_THREADS.1) || volume(block) > MAX_THREADS.0 {
        let (total, each) = MAX_THREADS;
        return Err(refuse(format!(
            "CTAs of {block:?} threads; 1 to {each:?} and {total} in all are allowed"
        )));
    }
    if !within(cluster, [MAX_CLUSTER; 3]) || volume(cluster) > MAX_CLUSTER {
        return Err(refuse(format!(
            "clusters of {cluster:?} CTAs; 1 to {MAX_CLUSTER} are allowed"
        )));
    }
    if grid.iter().zip(cluster).any(|(grid, cluster)| grid % cluster != 0) {
        return Err(refuse(format!(
            "a grid of {grid:?} CTAs is not made of whole clusters of {cluster:?}"
        )));
    }
    if let Some(required) = info.required_threads.filter(|&required| required != block) {
        return Err(refuse(format!(
            "CTAs of {block:?} threads; its `.reqntid` demands {required:?}"
        )));
    }
    if let Some(most) = info.max_threads.filter(|&most| volume(block) > volume(most)) {
        return Err(refuse(format!(
            "CTAs of {block:?} threads; its `.maxntid` allows {} in all",
            volume(most)
        )));
    }
    if let Some(required) = info.required_cluster.filter(|&required| required != cluster) {
        return Err(refuse(format!(
            "clusters of {cluster:?} CTAs; its `.reqnctapercluster` demands {required:?}"
        )));
    }
    // What is lost to alignment between the two counts as static.
    let fixed = program.dynamic_base - SHARED_BASE;
    if launch.dynamic_shared > MAX_SHARED || fixed.saturating_add(launch.dynamic_shared) > MAX_SHARED {
        return Err(BadLaunch::SharedMemory {
            entry: info.name.clone(),
            fixed,
            dynamic: launch.dynamic_shared,
            limit: MAX_SHARED,
        });
    }
    Ok(())
}
