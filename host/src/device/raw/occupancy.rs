//! How many clusters the device holds at once, as its driver says.
//!
//! The driver is asked about a kernel that does nothing. Its shared memory lets as many CTAs onto a multiprocessor as
//! plans count on, which the checks of the machine code hold every kernel to (`cargo xtask sass`): so one table by
//! cluster size and CTAs on a multiprocessor serves all kernels, and no family is compiled for a question.

use crate::device::setup::RelaxedCapture;
use crate::device::{Result, check};
use crate::plan::Clusters;
use cust::sys::CUdevice_attribute_enum as Attribute;
use hopper_cuda_driver::ffi;
use std::ptr::null_mut;

/// The kernel that the driver is asked about.
const PROBE: &std::ffi::CStr = c".version 8.0
.target sm_90
.address_size 64
.visible .entry probe()
.maxntid 32, 1, 1
{
    ret;
}
";
const THREADS: u32 = 32;
/// Shared memory is given to CTAs in lots of this many bytes.
const SHARED_LOT: usize = 128;

/// Bytes of shared memory, as the driver says.
struct Shared {
    multiprocessor: usize,
    /// What the system takes for each CTA.
    reserved: usize,
    /// The most of a CTA.
    cta: usize,
}

impl Shared {
    fn read(attribute: impl Fn(Attribute) -> Option<usize>) -> Option<Self> {
        Some(Shared {
            multiprocessor: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)?,
            reserved: attribute(Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK)?,
            cta: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        })
    }

    /// The most of a CTA of which a multiprocessor holds so many.
    fn of(&self, ctas: usize) -> usize {
        let room = (self.multiprocessor / ctas).saturating_sub(self.reserved);
        (room / SHARED_LOT * SHARED_LOT).min(self.cta)
    }
}

/// Clusters that the current context's device holds at once. Where the driver does not say, an estimate, which says
/// that it is one: plans are worse for it, but as good as the estimate, so nothing fails.
pub(super) fn clusters(attribute: impl Fn(Attribute) -> Option<usize>) -> Clusters {
    let asked = Shared::read(attribute).map(|shared| {
        let probe = Probe::new(&shared)?;
        Clusters::asked(|size, ctas| probe.clusters(size as u32, shared.of(ctas) as u32))
    });
    match asked {
        Some(Ok(clusters)) => clusters,
        Some(Err(_)) | None => Clusters::ANYWHERE,
    }
}

/// The loaded probe.
struct Probe {
    module: ffi::CUmodule,
    function: ffi::CUfunction,
    _relaxed: RelaxedCapture,
}

impl Probe {
    fn new(shared: &Shared) -> Result<Self> {
        let _relaxed = RelaxedCapture::new()?;
        let mut probe = Probe {
            module: null_mut(),
            function: null_mut(),
            _relaxed,
        };
        // SAFETY: writes one handle; the text ends with a zero byte.
        let code = unsafe { ffi::cuModuleLoadData(&raw mut probe.module, PROBE.as_ptr().cast()) };
        check("load a kernel that measures occupancy", code)?;
        // SAFETY: writes one handle; the module was loaded just now, the name ends with a zero byte.
        let code = unsafe { ffi::cuModuleGetFunction(&raw mut probe.function, probe.module, c"probe".as_ptr()) };
        check("find a kernel that measures occupancy", code)?;
        const MAX_DYNAMIC_SHARED: u32 =
            cust::sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
        // SAFETY: the function was found in the module just now.
        let code = unsafe { ffi::cuFuncSetAttribute(probe.function, MAX_DYNAMIC_SHARED, shared.cta as i32) };
        check("raise a kernel's shared memory", code)?;
        Ok(probe)
    }

    /// Clusters of `size` CTAs that run at a time, with so much shared memory for each CTA.
    fn clusters(&self, size: u32, shared_bytes: u32) -> Result<u32> {
        let attributes = [ffi::CUlaunchAttribute::cluster([size, 1, 1])];
        let config = ffi::CUlaunchConfig {
            gridDimX: size,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: THREADS,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared_bytes,
            hStream: null_mut(),
            attrs: attributes.as_ptr(),
            numAttrs: attributes.len() as u32,
        };
        let mut clusters = 0;
        // SAFETY: writes one number; the function is loaded, the configuration and its attribute outlive the call.
        let code = unsafe { ffi::cuOccupancyMaxActiveClusters(&raw mut clusters, self.function, &raw const config) };
        check("ask how many clusters the device holds", code)?;
        Ok(u32::try_from(clusters).unwrap_or(0))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !self.module.is_null() {
            // SAFETY: loaded by this value, and nothing was launched from it.
            unsafe { ffi::cuModuleUnload(self.module) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_sets_how_many_ctas_fit() {
        let shared = Shared {
            multiprocessor: 228 << 10,
            reserved: 1 << 10,
            cta: 227 << 10,
        };
        for ctas in 1..=8 {
            let of_one = shared.of(ctas) + shared.reserved;
            assert_eq!(shared.multiprocessor / of_one, ctas);
        }
        assert_eq!(shared.of(1), 227 << 10);
    }
}
