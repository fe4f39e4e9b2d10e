//! Work that prepares device memory: allocations, uploads and memsets, on a stream of its own, in the thread's relaxed
//! capture mode.
//!
//! No other stream waits for this one and it waits for no other, so nothing depends on the context's default stream,
//! and a capture on any thread goes on undisturbed (CUDA driver API, `cuThreadExchangeStreamCaptureMode`).

use super::allocation::Allocation;
use super::{Result, check};
use hopper_cuda_driver::ffi::{self, stream_capture_mode};
use std::ptr::null_mut;

/// The calling thread's capture mode, relaxed until the value is dropped: calls that a capture would forbid are
/// allowed.
pub(super) struct RelaxedCapture {
    before: u32,
}

impl RelaxedCapture {
    pub(super) fn new() -> Result<Self> {
        let mut mode = stream_capture_mode::RELAXED;
        // SAFETY: reads and writes one number.
        let code = unsafe { ffi::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
        check("relax the thread's capture mode", code)?;
        Ok(RelaxedCapture { before: mode })
    }
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        // SAFETY: reads and writes one number, which the driver gave.
        unsafe { ffi::cuThreadExchangeStreamCaptureMode(&raw mut self.before) };
    }
}

/// A stream that memory is prepared on. It is waited for at the end, also where something fails.
pub(crate) struct Setup {
    stream: ffi::CUstream,
    _relaxed: RelaxedCapture,
}

impl Setup {
    /// A new stream in the calling thread's current context.
    pub(crate) fn new() -> Result<Self> {
        let relaxed = RelaxedCapture::new()?;
        const NON_BLOCKING: u32 = 1;
        let mut stream = null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { ffi::cuStreamCreate(&raw mut stream, NON_BLOCKING) };
        check("create a stream", code)?;
        Ok(Setup {
            stream,
            _relaxed: relaxed,
        })
    }

    /// The stream, for launches that [`Setup::finish`] or [`Setup::download`] waits for.
    pub(crate) fn stream(&self) -> ffi::CUstream {
        self.stream
    }

    /// Copies values into new memory, and waits until they are there. `call` says what for.
    pub(crate) fn upload<T: bytemuck::Pod>(&self, call: &'static str, values: &[T]) -> Result<Allocation> {
        let memory = Allocation::new(call, size_of_val(values))?;
        if !values.is_empty() {
            // SAFETY: the memory has as many bytes as the values, which live until the copy has been waited for.
            let code = unsafe {
                ffi::cuMemcpyHtoDAsync_v2(
                    memory.address(),
                    values.as_ptr().cast(),
                    size_of_val(values),
                    self.stream,
                )
            };
            check(call, code).and_then(|()| self.wait(call))?;
        }
        Ok(memory)
    }

    /// New memory of zeros, once [`Setup::finish`] has returned.
    pub(crate) fn zeroed(&self, call: &'static str, bytes: usize) -> Result<Allocation> {
        let memory = Allocation::new(call, bytes)?;
        if bytes > 0 {
            // SAFETY: the memory has so many bytes.
            let code = unsafe { ffi::cuMemsetD8Async(memory.address(), 0, bytes, self.stream) };
            check(call, code)?;
        }
        Ok(memory)
    }

    /// Copies all of some memory out, after what was queued on the stream.
    pub(crate) fn download<T: bytemuck::Pod>(
        &self,
        call: &'static str,
        memory: &Allocation,
        values: &mut [T],
    ) -> Result<()> {
        let bytes = size_of_val(values).min(memory.bytes());
        // SAFETY: both places have so many bytes, and live until the copy has been waited for.
        let code =
            unsafe { ffi::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), memory.address(), bytes, self.stream) };
        check(call, code).and_then(|()| self.wait(call))
    }

    /// Waits until everything that was queued is done.
    pub(crate) fn finish(self) -> Result<()> {
        self.wait("wait for memory to be prepared")
    }

    fn wait(&self, call: &'static str) -> Result<()> {
        // SAFETY: the stream is ours.
        check(call, unsafe { ffi::cuStreamSynchronize(self.stream) })
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // SAFETY: the stream is ours, and destroyed once. What is still queued must end before memory that it uses is
        // freed; a failure of it has been reported, or is the context's.
        unsafe {
            ffi::cuStreamSynchronize(self.stream);
            ffi::cuStreamDestroy_v2(self.stream);
        }
    }
}
