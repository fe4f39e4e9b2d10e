//! Device memory that is freed with its value.

use super::setup::RelaxedCapture;
use super::{Result, check};
use hopper_cuda_driver::ffi::{self, CUdeviceptr};
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// Bytes of device memory in one context, freed on whatever thread drops them. The context outlives them: whoever owns
/// an allocation keeps it.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// 0 where there are no bytes.
    address: CUdeviceptr,
    bytes: usize,
    /// The context's handle, as an address.
    context: usize,
}

impl Allocation {
    /// Bytes of any content in the current context; `call` says what for.
    pub(super) fn new(call: &'static str, bytes: usize) -> Result<Self> {
        let context = current_context()?;
        let mut address = 0;
        if bytes > 0 {
            // SAFETY: writes one address.
            check(call, unsafe { ffi::cuMemAlloc_v2(&raw mut address, bytes) })?;
        }
        Ok(Allocation {
            address,
            bytes,
            context,
        })
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn context(&self) -> usize {
        self.context
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.address != 0 {
            with_context(self.context, || {
                // Freeing waits for work that uses the memory; a capture of something else must not stand in its way.
                let _relaxed = RelaxedCapture::new();
                // SAFETY: allocated by `new` in this context, freed once.
                unsafe { ffi::cuMemFree_v2(self.address) };
            });
        }
    }
}

/// The handle of the calling thread's current context as an address; 0 where there is none.
pub(super) fn current_context() -> Result<usize> {
    let mut current = null_mut();
    // SAFETY: writes one handle.
    check("ask for the current context", unsafe {
        ffi::cuCtxGetCurrent(&raw mut current)
    })?;
    Ok(current.expose_provenance())
}

/// Runs something with a context current, and leaves the thread's own as it was.
pub(super) fn with_context(context: usize, run: impl FnOnce()) {
    // SAFETY: the handle is the driver's, of a context that its user keeps alive; what was pushed is popped.
    unsafe {
        if ffi::cuCtxPushCurrent_v2(with_exposed_provenance_mut(context)) == 0 {
            run();
            let mut popped = null_mut();
            ffi::cuCtxPopCurrent_v2(&raw mut popped);
        }
    }
}
