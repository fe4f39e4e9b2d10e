//! Launches. A launch runs to its end within its call; what its kernel does wrong is the next call's answer, as on a device.

use super::context::Work;
use super::device;
use super::function::{self, Function, Settings};
use super::state::{STATE, lock};
use super::stream;
use crate::codes::{Answer, Code};
use crate::types::{launch_attribute as attribute, *};
use ptx_emulator::{Error, FaultKind, Launch, Options};

/// `extra`: what the next pointer is.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_SIZE: usize = 2;

/// What a launch asks for.
pub(super) struct Request {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) dynamic_shared: u32,
    stream: CUstream,
    pub(super) cluster: Option<[u32; 3]>,
    /// Whether it may start before the launch ahead of it has ended.
    overlaps: bool,
}

impl Request {
    /// Reads a launch configuration and its attributes.
    ///
    /// # Safety
    ///
    /// `config` must be null or valid, with as many attributes as it says.
    pub(super) unsafe fn read(config: *const CUlaunchConfig) -> Answer<Request> {
        // SAFETY: null or valid, the caller promises.
        let config = unsafe { config.as_ref() }.ok_or(Code::INVALID_VALUE)?;
        let mut request = Request {
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            block: [config.blockDimX, config.blockDimY, config.blockDimZ],
            dynamic_shared: config.sharedMemBytes,
            stream: config.hStream,
            cluster: None,
            overlaps: false,
        };
        if config.numAttrs > 0 && config.attrs.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        for at in 0..config.numAttrs as usize {
            // SAFETY: the caller promises this many attributes. Their padding may be anything, so they are read by field.
            let (id, value) = unsafe {
                let attribute = config.attrs.add(at);
                ((*attribute).id, (*attribute).value)
            };
            request.apply(id, value)?;
        }
        Ok(request)
    }

    fn apply(&mut self, id: c_uint, value: CUlaunchAttributeValue) -> Answer {
        // SAFETY: a caller fills the part of the value that the attribute's number means.
        let number = || unsafe { value.number };
        match id {
            // SAFETY: as above.
            attribute::CLUSTER_DIMENSION => self.cluster = Some(unsafe { value.cluster }),
            attribute::PROGRAMMATIC_STREAM_SERIALIZATION => self.overlaps = number() != 0,
            // Advice on speed, which changes no result.
            attribute::IGNORE
            | attribute::ACCESS_POLICY_WINDOW
            | attribute::SYNCHRONIZATION_POLICY
            | attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE
            | attribute::PRIORITY
            | attribute::MEM_SYNC_DOMAIN_MAP
            | attribute::MEM_SYNC_DOMAIN
            | attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => {}
            attribute::COOPERATIVE if number() == 0 => {}
            attribute::COOPERATIVE
            | attribute::PROGRAMMATIC_EVENT
            | attribute::PREFERRED_CLUSTER_DIMENSION
            | attribute::LAUNCH_COMPLETION_EVENT
            | attribute::DEVICE_UPDATABLE_KERNEL_NODE => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    /// Holds the request against the device's and the kernel's limits, and says which cluster it launches with.
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
        self.cluster_for(&settings).ok_or(Code::INVALID_CLUSTER_SIZE)
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

/// Collects a kernel's parameters into its parameter buffer.
///
/// # Safety
///
/// `parameters` must be null or point to as many pointers as the kernel has parameters, each null or to a value of its
/// parameter's size; `extra` must be null or end in `EXTRA_END`.
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
        // SAFETY: as above.
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

/// Launches.
///
/// # Safety
///
/// As [`gather`].
unsafe fn submit(
    request: &Request,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let function = function::find(function)?;
    let (context, stream) = stream::here(request.stream)?;
    let cluster = request.check(&function)?;
    // SAFETY: the caller keeps the promise.
    let params = unsafe { gather(&function, parameters, extra) }?;
    let mut running = lock(&context.work);
    let work: &mut Work = &mut running;
    let launch = Launch {
        entry: &function.info.name,
        grid: request.grid,
        block: request.block,
        cluster,
        dynamic_shared: request.dynamic_shared,
        params: &params,
        overlaps: if request.overlaps {
            work.last_launch(&stream)
        } else {
            None
        },
    };
    work.interrupt(&stream);
    let options = Options {
        seed: work.seed,
        ..Options::default()
    };
    match ptx_emulator::launch(&function.module.code, &STATE.memory, &launch, &options) {
        Ok(outcome) => {
            work.counters.add(&outcome.counters);
            work.note_launch(&stream, outcome.id);
            Ok(())
        }
        Err(Error::Fault(fault)) => {
            context.fail(code(fault.kind), fault.to_string());
            Ok(())
        }
        Err(_) => Err(Code::INVALID_VALUE),
    }
}

#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn kernel(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    dynamic_shared: c_uint,
    stream: CUstream,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let request = Request {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        dynamic_shared,
        stream,
        cluster: None,
        overlaps: false,
    };
    // SAFETY: the caller keeps the same promises.
    unsafe { submit(&request, function, parameters, extra) }
}

pub(crate) unsafe fn kernel_ex(
    config: *const CUlaunchConfig,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { submit(&Request::read(config)?, function, parameters, extra) }
}
