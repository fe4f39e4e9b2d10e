//! Launches. A launch runs to its end within its call, unless work before it on its stream is unfinished. A fault of
//! its kernel is the next call's answer, as on a device.

use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::kernel::{Kernel, Shape};
use crate::emulated::library;
use crate::emulated::order::{self, When};
use crate::emulated::state::lock;
use crate::emulated::task::Task;
use crate::types::{launch_attribute as attribute, *};
use std::sync::Arc;

/// What a launch asks for.
pub(super) struct Request {
    pub(super) shape: Shape,
    stream: CUstream,
    /// Whether it may start before the preceding kernel has ended.
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
            shape: Shape {
                grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
                block: [config.blockDimX, config.blockDimY, config.blockDimZ],
                dynamic_shared: config.sharedMemBytes,
                cluster: None,
                cooperative: false,
            },
            stream: config.hStream,
            overlaps: false,
        };
        if config.numAttrs > 0 && config.attrs.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        for at in 0..config.numAttrs as usize {
            // SAFETY: the caller promises this many attributes. Their padding may be anything, so they are read by
            // field.
            let (id, value) = unsafe {
                let attribute = config.attrs.add(at);
                ((*attribute).id, (*attribute).value)
            };
            match id {
                attribute::IGNORE => {}
                // SAFETY: a caller fills the part of the value that the attribute's number means.
                attribute::PROGRAMMATIC_STREAM_SERIALIZATION => request.overlaps = unsafe { value.number } != 0,
                _ => request.shape.apply(id, value)?,
            }
        }
        Ok(request)
    }
}

impl Shape {
    /// Takes an attribute of a launch or of a kernel node.
    pub(super) fn apply(&mut self, id: c_uint, value: CUlaunchAttributeValue) -> Answer {
        match id {
            // SAFETY: a caller fills the part of the value that the attribute's number means.
            attribute::CLUSTER_DIMENSION => self.cluster = Some(unsafe { value.cluster }),
            // Advice on speed, which changes no result.
            attribute::ACCESS_POLICY_WINDOW
            | attribute::SYNCHRONIZATION_POLICY
            | attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE
            | attribute::PRIORITY
            | attribute::MEM_SYNC_DOMAIN_MAP
            | attribute::MEM_SYNC_DOMAIN
            | attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => {}
            // SAFETY: a caller that sets this attribute fills `number`.
            attribute::COOPERATIVE => self.cooperative = unsafe { value.number } != 0,
            attribute::PROGRAMMATIC_EVENT
            | attribute::PREFERRED_CLUSTER_DIMENSION
            | attribute::LAUNCH_COMPLETION_EVENT
            | attribute::DEVICE_UPDATABLE_KERNEL_NODE => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    /// The value of an attribute; zeros for what is advice only and was not kept.
    pub(super) fn attribute(&self, id: c_uint) -> Answer<CUlaunchAttributeValue> {
        let mut value = CUlaunchAttributeValue { words: [0; 16] };
        let mut scratch = *self;
        scratch.apply(id, value)?;
        if id == attribute::CLUSTER_DIMENSION {
            value.cluster = self.cluster.unwrap_or_default();
        }
        if id == attribute::COOPERATIVE {
            value.number = c_int::from(self.cooperative);
        }
        Ok(value)
    }
}

/// Launches.
///
/// # Safety
///
/// `parameters` must be null or point to as many pointers as the kernel has parameters, each null or to a value of its
/// parameter's size; `extra` must be null or point to pairs of a kind and a value that end in `CU_LAUNCH_PARAM_END`.
unsafe fn submit(
    request: &Request,
    function: CUfunction,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let function = library::function(function)?;
    let (context, stream) = order::here(request.stream)?;
    // SAFETY: the caller keeps the promise.
    let kernel = unsafe { Kernel::new(function, request.shape, parameters, extra) }?;
    if let Some(mut recording) = capture::of(&stream)? {
        return recording.add(&context, Task::Kernel(Arc::new(kernel)), request.overlaps);
    }
    let may_overlap = request.overlaps;
    order::in_order(&context, &stream, Vec::new(), When::Now, move |context, stream| {
        let mut work = lock(&context.work);
        let overlaps = may_overlap.then(|| work.last_launch(stream)).flatten();
        work.interrupt(stream);
        if let Some(id) = kernel.run(context, &mut work, overlaps)? {
            work.note_launch(stream, id);
        }
        Ok(())
    })
    .map(|_| ())
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
        shape: Shape {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared,
            cluster: None,
            cooperative: false,
        },
        stream,
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

/// A launch whose blocks are all resident at once, and may wait for each other.
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn cooperative(
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
) -> Answer {
    let request = Request {
        shape: Shape {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_shared,
            cluster: None,
            cooperative: true,
        },
        stream,
        overlaps: false,
    };
    // SAFETY: the caller keeps the same promises.
    unsafe { submit(&request, function, parameters, std::ptr::null_mut()) }
}
