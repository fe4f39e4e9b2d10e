//! Captured sequences of launches, replayed at once.

use super::captures;
use super::context::OpenDevice;
use super::engine::Engine;
use super::router_state::RouterState;
use super::stream::Stream;
use super::{Result, check};
use hopper_cuda_driver::ffi::{self, CUgraph, CUgraphExec, stream_capture_mode};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::Arc;

/// A sequence of launches, captured once by [`Engine::capture`] and launched as one. What it launches refers to its
/// buffers by address: they must outlive it.
#[derive(Debug)]
pub struct Graph {
    exec: CUgraphExec,
    /// Those of the captured routers, in the order of their addresses, in which they are locked.
    states: Vec<Arc<RouterState>>,
    device: Arc<OpenDevice>,
}

// SAFETY: the driver lets any thread use a graph, one at a time, and `launch` takes `&mut self`.
unsafe impl Send for Graph {}

/// The captured, not yet executable form; destroyed as soon as it has been made executable.
struct Captured(CUgraph);

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: captured by us, destroyed once.
            unsafe { ffi::cuGraphDestroy(self.0) };
        }
    }
}

/// A stream that is being captured. The capture ends with the value at the latest, also where recording panics: the
/// stream is of use again.
struct Capturing<'a> {
    stream: &'a Stream,
    id: u64,
}

impl<'a> Capturing<'a> {
    /// Begins a capture. The stream is of the current context, which is the device's.
    fn begin(stream: &'a Stream) -> Result<Self> {
        let _change = captures::change();
        // SAFETY: a live stream of the current context.
        let begun = unsafe { ffi::cuStreamBeginCapture_v2(stream.handle().cast(), stream_capture_mode::THREAD_LOCAL) };
        check("begin a capture", begun)?;
        match stream.capture() {
            Ok(id) => {
                let id = id.unwrap_or_default();
                captures::begin(id);
                Ok(Capturing { stream, id })
            }
            Err(err) => {
                drop(end(stream));
                Err(err)
            }
        }
    }

    /// The graph, and the states of the routers in it.
    fn end(self) -> Result<(Captured, Vec<Arc<RouterState>>)> {
        let capturing = ManuallyDrop::new(self);
        let (captured, states, ended) = capturing.end_now();
        check("end a capture", ended)?;
        Ok((captured, states))
    }

    fn end_now(&self) -> (Captured, Vec<Arc<RouterState>>, u32) {
        let _change = captures::change();
        let (captured, ended) = end(self.stream);
        (captured, captures::end(self.id), ended)
    }
}

/// Ends a capture that began on the stream.
fn end(stream: &Stream) -> (Captured, u32) {
    let mut captured = Captured(null_mut());
    // SAFETY: ends a capture; writes one handle.
    let ended = unsafe { ffi::cuStreamEndCapture(stream.handle().cast(), &raw mut captured.0) };
    (captured, ended)
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
    /// Meanwhile the stream cannot be waited for, and neither can be whatever takes part: the driver refuses such
    /// calls, and the capture has failed. Buffers may be made, filled and dropped, and weights prepared, on any thread:
    /// that work is not captured.
    ///
    /// Other streams take part once they wait for an event that was recorded on a stream that does; at the end, this
    /// one must wait for them in the same way: [`Stream::wait_for`].
    pub fn capture(&self, stream: &Stream, record: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let device = self.open_device();
        device.check_current()?;
        stream.check_device(device)?;
        let capturing = Capturing::begin(stream)?;
        record()?;
        let (captured, mut states) = capturing.end()?;
        states.sort_by_key(Arc::as_ptr);
        let mut exec = null_mut();
        // SAFETY: the graph was captured just now; writes one handle.
        let code = unsafe { ffi::cuGraphInstantiateWithFlags(&raw mut exec, captured.0, 0) };
        check("make a graph executable", code)?;
        Ok(Graph {
            exec,
            states,
            device: Arc::clone(device),
        })
    }
}

impl Graph {
    /// Queues the whole sequence on a stream. It comes after all other calls of the routers that were captured, and
    /// after the last launch of this graph.
    ///
    /// # Safety
    ///
    /// Every buffer, projection and router that the captured launches use still lives, and does so until they have
    /// ended.
    pub unsafe fn launch(&mut self, stream: &Stream) -> Result<()> {
        self.device.check_current()?;
        stream.check_device(&self.device)?;
        let unchanged = captures::unchanged();
        let guards = self.states.iter().map(|state| state.use_on(stream, &unchanged));
        let _guards = guards.collect::<Result<Vec<_>>>()?;
        // SAFETY: a live executable graph, a live stream.
        let launched = unsafe { ffi::cuGraphLaunch(self.exec, stream.handle().cast()) };
        check("launch a graph", launched)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.device.with_context(|| {
            // SAFETY: made by us, destroyed once.
            unsafe { ffi::cuGraphExecDestroy(self.exec) };
        });
    }
}
