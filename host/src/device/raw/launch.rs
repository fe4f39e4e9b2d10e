//! A launch with its attributes.

use super::{CUfunction, CUstream, Overlap};
use crate::device::{Result, check};
use crate::plan::Plan;
use hopper_cuda_driver::ffi;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Where a launch goes.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    /// The stream; null is the context's default stream.
    pub stream: CUstream,
    /// Whether the launch may start before the preceding kernel of the stream has ended.
    pub overlap: Overlap,
}

/// The shape of a launch.
pub(super) struct Config {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) cluster: [u32; 3],
    pub(super) shared_bytes: u32,
}

impl Config {
    pub(super) fn of(plan: &Plan) -> Self {
        Config {
            grid: plan.grid,
            block: plan.block,
            cluster: plan.cluster,
            shared_bytes: plan.shared_bytes,
        }
    }

    /// Queues the launch.
    ///
    /// # Safety
    ///
    /// 1. The function's context is current, and the stream is one of it, or null.
    /// 2. `parameters` point to the function's parameters, one each and in their order; what they refer to is as the
    ///    kernel demands.
    pub(super) unsafe fn launch<const COUNT: usize>(
        &self,
        function: CUfunction,
        mut parameters: [*mut c_void; COUNT],
        queue: Queue,
    ) -> Result<()> {
        let attributes = [
            ffi::CUlaunchAttribute::cluster(self.cluster),
            ffi::CUlaunchAttribute::programmatic_serialization(),
        ];
        let used = match queue.overlap {
            Overlap::Programmatic => attributes.len(),
            Overlap::None => attributes.len() - 1,
        };
        let config = ffi::CUlaunchConfig {
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared_bytes,
            hStream: queue.stream.cast(),
            attrs: attributes.as_ptr(),
            numAttrs: used as u32,
        };
        // SAFETY: the configuration, its attributes and the parameters outlive the call, which copies them.
        let code = unsafe {
            ffi::cuLaunchKernelEx(
                &raw const config,
                function.cast(),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check("launch a kernel", code)
    }
}

/// One by-value parameter of a kernel, whatever its type.
pub(crate) struct Parameter {
    words: MaybeUninit<[u64; Parameter::WORDS]>,
}

impl Parameter {
    /// 8-byte words of the longest parameter that the kernels take.
    const WORDS: usize = 32;

    pub(crate) fn new<T: Copy>(value: T) -> Self {
        const { assert!(size_of::<T>() <= size_of::<[u64; Parameter::WORDS]>() && align_of::<T>() <= align_of::<u64>()) };
        let mut words = MaybeUninit::<[u64; Parameter::WORDS]>::uninit();
        // SAFETY: the words have the room and the alignment that the value needs.
        unsafe { words.as_mut_ptr().cast::<T>().write(value) };
        Parameter { words }
    }

    /// Where the parameter lies, for [`Config::launch`].
    pub(super) fn pointer(&mut self) -> *mut c_void {
        self.words.as_mut_ptr().cast()
    }
}
