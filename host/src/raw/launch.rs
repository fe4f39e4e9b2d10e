//! A launch with its attributes.

use super::{CUfunction, CUstream, Overlap};
use crate::device::{Result, check};
use crate::plan::Plan;
use hopper_cuda_driver::ffi;
use std::ffi::c_void;

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

    /// # Safety
    ///
    /// `parameters` point to the function's parameters, one each; the rest as for [`Kernels::project`](super::Kernels::project).
    pub(super) unsafe fn launch<const COUNT: usize>(
        &self,
        function: CUfunction,
        mut parameters: [*mut c_void; COUNT],
        stream: CUstream,
        overlap: Overlap,
    ) -> Result<()> {
        let attributes = [
            ffi::CUlaunchAttribute::cluster(self.cluster),
            ffi::CUlaunchAttribute::programmatic_serialization(),
        ];
        let used = match overlap {
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
            hStream: stream.cast(),
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
