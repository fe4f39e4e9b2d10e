//! Captured sequences of launches, replayed at once.

use super::context::OpenDevice;
use super::engine::Engine;
use super::{Result, check};
use cust::stream::Stream;
use cust::sys::{self, CUgraph, CUgraphExec};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::Arc;

/// A sequence of launches, captured once by [`Engine::capture`] and launched as one. What it launches refers to its
/// buffers by address: they must outlive it.
#[derive(Debug)]
pub struct Graph {
    device: Arc<OpenDevice>,
    exec: CUgraphExec,
}

// SAFETY: the driver lets any thread use a graph, one at a time, and `launch` takes `&mut self`.
unsafe impl Send for Graph {}

/// The captured, not yet executable form; destroyed as soon as it has been made executable.
struct Captured(CUgraph);

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: captured by us, destroyed once.
            unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

/// A stream that is being captured. The capture ends with the value at the latest, also where recording panics: the
/// stream is of use again.
struct Capturing<'a>(&'a Stream);

impl<'a> Capturing<'a> {
    /// Begins a capture. The stream is of the current context.
    fn begin(stream: &'a Stream) -> Result<Self> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream of the current context.
        let begun = unsafe { sys::cuStreamBeginCapture_v2(stream.as_inner(), mode) };
        check("begin a capture", begun as u32)?;
        Ok(Capturing(stream))
    }

    fn end(self) -> Result<Captured> {
        let capturing = ManuallyDrop::new(self);
        let (captured, ended) = capturing.end_now();
        check("end a capture", ended)?;
        Ok(captured)
    }

    fn end_now(&self) -> (Captured, u32) {
        let mut captured = Captured(null_mut());
        // SAFETY: ends the capture that `begin` began; writes one handle.
        let ended = unsafe { sys::cuStreamEndCapture(self.0.as_inner(), &raw mut captured.0) };
        (captured, ended as u32)
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        // Whatever becomes of it, there is somewhere else that tells what went wrong.
        let _ = self.end_now();
    }
}

impl Engine {
    /// Captures what `record` queues on the stream, instead of running it.
    ///
    /// Meanwhile nothing may be allocated, freed, synchronised, uploaded or downloaded on this thread, and no thread
    /// may use the context's default stream, as uploads and downloads do, if the stream waits for it (those of
    /// [`Engine::stream`] do): the driver refuses the call, with codes that `cust` knows only as an unknown error, and
    /// the capture has failed.
    ///
    /// Other streams take part once they wait for an event that was recorded on a stream that does; at the end, this
    /// one must wait for them in the same way.
    pub fn capture(&self, stream: &Stream, record: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let device = self.open_device();
        device.check_current()?;
        let capturing = Capturing::begin(stream)?;
        record()?;
        let captured = capturing.end()?;
        let mut exec = null_mut();
        // SAFETY: the graph was captured just now; writes one handle.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, captured.0, 0) };
        check("make a graph executable", code as u32)?;
        Ok(Graph {
            device: Arc::clone(device),
            exec,
        })
    }
}

impl Graph {
    /// Queues the whole sequence on a stream.
    ///
    /// # Safety
    ///
    /// Every buffer that the captured launches use is still allocated, and stays so until they have ended.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<()> {
        self.device.check_current()?;
        // SAFETY: a live executable graph, a live stream.
        let launched = unsafe { sys::cuGraphLaunch(self.exec, stream.as_inner()) };
        check("launch a graph", launched as u32)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.device.with_context(|| {
            // SAFETY: made by us, destroyed once.
            unsafe { sys::cuGraphExecDestroy(self.exec) };
        });
    }
}
