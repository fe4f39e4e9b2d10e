//! A kernel with the shape and the parameters of a launch, but no stream: what a launch runs, and what a kernel node of
//! a graph holds.

use super::context::{Context, Work};
use super::device;
use super::function::{Function, Settings};
use super::occupancy;
use super::state::{STATE, lock};
use crate::codes::{Answer, Code};
use crate::types::c_void;
use ptx_emulator::{Error, FaultKind, Launch, LaunchId, Options};
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, OnceLock};

/// Bytes where the blocks of a cooperative launch wait for each other.
const GRID_WORKSPACE: u64 = 8;
/// `extra`: what the next pointer is.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_SIZE: usize = 2;

/// The grid, blocks, clusters and shared memory of a launch.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) dynamic_shared: u32,
    pub(super) cluster: Option<[u32; 3]>,
    /// Whether all blocks must be resident at once.
    pub(super) cooperative: bool,
}

impl Shape {
    /// Holds the shape against the device's and the kernel's limits, and says which cluster it launches with.
    pub(super) fn check(&self, function: &Function) -> Answer<[u32; 3]> {
        let settings = *lock(&function.settings);
        let within =
            |dims: [u32; 3], most: [u32; 3]| dims.iter().zip(most).all(|(&dim, most)| (1..=most).contains(&dim));
        let threads = self.block.iter().copied().fold(1, u32::saturating_mul);
        let fits = within(self.grid, device::MAX_GRID)
            && within(self.block, device::MAX_BLOCK)
            && threads <= function.max_threads()
            && self.dynamic_shared <= settings.max_dynamic;
        if !fits {
            return Err(Code::INVALID_VALUE);
        }
        let cluster = self.cluster_for(&settings).ok_or(Code::INVALID_CLUSTER_SIZE)?;
        let blocks = self
            .grid
            .iter()
            .fold(1, |blocks, &dim| u64::from(dim).saturating_mul(blocks));
        if self.cooperative && blocks > occupancy::resident(function, threads, self.dynamic_shared) {
            return Err(Code::COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(cluster)
    }

    fn cluster_for(&self, settings: &Settings) -> Option<[u32; 3]> {
        let required = Some(settings.required_cluster).filter(|dims| dims.iter().any(|&dim| dim > 0));
        let required = required.map(|dims| dims.map(|dim| dim.max(1)));
        let cluster = match (self.cluster, required) {
            (Some(given), Some(required)) if given != required => return None,
            (None, None) if settings.cluster_must_be_set => return None,
            (given, required) => given.or(required).unwrap_or([1; 3]),
        };
        let most = if settings.non_portable_cluster {
            device::CLUSTER_MAX
        } else {
            device::CLUSTER_PORTABLE
        };
        let size = cluster.iter().copied().fold(1, u32::saturating_mul);
        let divides = self
            .grid
            .iter()
            .zip(cluster)
            .all(|(&blocks, dim)| dim > 0 && blocks.is_multiple_of(dim));
        (divides && size <= most).then_some(cluster)
    }
}

pub(super) struct Kernel {
    pub(super) function: Arc<Function>,
    pub(super) shape: Shape,
    /// The cluster that the shape and the kernel come to.
    cluster: [u32; 3],
    /// The parameter buffer: a copy of what the caller passed.
    params: Vec<u8>,
    /// Where in `params` each parameter is, for callers who ask a node for them.
    pointers: OnceLock<Vec<AtomicPtr<c_void>>>,
}

impl Kernel {
    /// Checks the shape and copies the parameters.
    ///
    /// # Safety
    ///
    /// `parameters` must be null or point to as many pointers as the kernel has parameters, each null or to a value of
    /// its parameter's size; `extra` must be null or point to pairs of a kind and a value that end in `EXTRA_END`.
    pub(super) unsafe fn new(
        function: Arc<Function>,
        shape: Shape,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Answer<Kernel> {
        let cluster = shape.check(&function)?;
        // SAFETY: the caller keeps the promise.
        let params = unsafe { gather(&function, parameters, extra) }?;
        Ok(Kernel {
            function,
            shape,
            cluster,
            params,
            pointers: OnceLock::new(),
        })
    }

    /// The same kernel and parameters in another shape.
    pub(super) fn reshaped(&self, shape: Shape) -> Answer<Kernel> {
        Ok(Kernel {
            function: self.function.clone(),
            shape,
            cluster: shape.check(&self.function)?,
            params: self.params.clone(),
            pointers: OnceLock::new(),
        })
    }

    /// A pointer to each parameter, good as long as the kernel.
    pub(super) fn parameters(&self) -> *mut *mut c_void {
        let at = |offset: usize| AtomicPtr::new(self.params.as_ptr().wrapping_add(offset).cast_mut().cast());
        let pointers = self.pointers.get_or_init(|| {
            let params = &self.function.info.params;
            params.iter().map(|parameter| at(parameter.offset as usize)).collect()
        });
        pointers.as_ptr().cast_mut().cast()
    }

    /// Runs the kernel to its end and returns the launch's number. None after a fault, which the context has noted.
    pub(super) fn run(
        &self,
        context: &Context,
        work: &mut Work,
        overlaps: Option<LaunchId>,
    ) -> Answer<Option<LaunchId>> {
        let launch = Launch {
            entry: &self.function.info.name,
            grid: self.shape.grid,
            block: self.shape.block,
            cluster: self.cluster,
            dynamic_shared: self.shape.dynamic_shared,
            params: &self.params,
            overlaps,
        };
        let workspace = match self.shape.cooperative {
            true => Some(STATE.memory.allocate(GRID_WORKSPACE).ok_or(Code::OUT_OF_MEMORY)?),
            false => None,
        };
        let options = Options {
            seed: work.seed,
            grid_workspace: workspace.unwrap_or(0),
            count_lines: work.counts_lines,
            ..Options::default()
        };
        let outcome = ptx_emulator::launch(&self.function.module.code, &STATE.memory, &launch, &options);
        // It was allocated above, and kernels free nothing.
        let _ = workspace.map(|address| STATE.memory.free(address));
        match outcome {
            Ok(outcome) => {
                work.counters.add(&outcome.counters);
                Ok(Some(outcome.id))
            }
            Err(Error::Fault(fault)) => {
                context.fail(code(fault.kind), fault.to_string());
                Ok(None)
            }
            Err(_) => Err(Code::INVALID_VALUE),
        }
    }
}

/// Collects a kernel's parameters into its parameter buffer.
///
/// # Safety
///
/// `parameters` must be null or point to as many pointers as the kernel has parameters, each null or to a value of its
/// parameter's size; `extra` must be null or point to pairs of a kind and a value that end in `EXTRA_END`.
unsafe fn gather(function: &Function, parameters: *mut *mut c_void, extra: *mut *mut c_void) -> Answer<Vec<u8>> {
    let mut buffer = vec![0; function.info.param_bytes as usize];
    match (parameters.is_null(), extra.is_null()) {
        (false, false) => return Err(Code::INVALID_VALUE),
        (false, true) => {
            for (at, parameter) in function.info.params.iter().enumerate() {
                // SAFETY: the caller promises a pointer per parameter.
                let value = unsafe { *parameters.add(at) };
                if value.is_null() {
                    return Err(Code::INVALID_VALUE);
                }
                let (offset, size) = (parameter.offset as usize, parameter.size as usize);
                let room = buffer.get_mut(offset..offset + size).ok_or(Code::UNKNOWN)?;
                // SAFETY: the caller promises a value of this size there.
                unsafe { std::ptr::copy_nonoverlapping(value.cast(), room.as_mut_ptr(), size) };
            }
        }
        // SAFETY: the caller keeps the promise.
        (true, false) => unsafe { gather_extra(&mut buffer, extra) }?,
        (true, true) if function.info.params.is_empty() => {}
        (true, true) => return Err(Code::INVALID_VALUE),
    }
    Ok(buffer)
}

/// Takes the parameter buffer that `extra` passes whole.
///
/// # Safety
///
/// `extra` must point to pairs of a kind and a value that end in `EXTRA_END`.
unsafe fn gather_extra(buffer: &mut [u8], mut extra: *mut *mut c_void) -> Answer {
    let (mut from, mut size) = (std::ptr::null::<u8>(), None);
    loop {
        // SAFETY: no end has been seen, so there is one more element, and behind a kind its value.
        let next = || unsafe { *extra.add(1) };
        // SAFETY: every pair before this one was no end, so the next kind is there.
        match unsafe { *extra }.addr() {
            EXTRA_END => break,
            EXTRA_BUFFER => from = next().cast(),
            // SAFETY: the value behind this kind is a pointer to the size.
            EXTRA_SIZE => size = unsafe { next().cast::<usize>().as_ref() }.copied(),
            _ => return Err(Code::INVALID_VALUE),
        }
        // SAFETY: a pair has been read and it was not the end.
        extra = unsafe { extra.add(2) };
    }
    if from.is_null() || size != Some(buffer.len()) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises a buffer of the size it gave, which is this one's.
    unsafe { std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len()) };
    Ok(())
}

/// The code that a kind of fault leaves the context with.
fn code(kind: FaultKind) -> Code {
    match kind {
        FaultKind::OutOfBounds => Code::ILLEGAL_ADDRESS,
        FaultKind::Misaligned => Code::MISALIGNED_ADDRESS,
        FaultKind::Deadlock => Code::LAUNCH_TIMEOUT,
        _ => Code::LAUNCH_FAILED,
    }
}
