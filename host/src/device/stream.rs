//! Streams and events of an open device.

use super::captures;
use super::context::OpenDevice;
use super::raw::CUstream;
use super::{Result, check};
use crate::Error;
use hopper_cuda_driver::ffi::{self, CUevent, stream_capture_status};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A queue of work on an open device, made by [`Engine::stream`](crate::Engine::stream). Work on it is ordered; it
/// waits for no other stream, the context's default stream included, unless it is told to. Clones are the same stream.
#[derive(Debug, Clone)]
pub struct Stream {
    owned: Arc<Owned>,
}

/// The stream itself, destroyed once the work on it is done.
#[derive(Debug)]
struct Owned {
    handle: CUstream,
    /// No other stream of the process has it.
    id: u64,
    device: Arc<OpenDevice>,
}

// SAFETY: the driver lets any thread use a stream's handle, and orders calls that come at once.
unsafe impl Send for Owned {}
// SAFETY: no method changes the handle, and the driver orders calls that come at once.
unsafe impl Sync for Owned {}

impl Stream {
    /// The device's context is current.
    pub(super) fn new(device: &Arc<OpenDevice>) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        const NON_BLOCKING: u32 = 1;
        let mut handle = null_mut();
        // SAFETY: writes one handle.
        check("create a stream", unsafe {
            ffi::cuStreamCreate(&raw mut handle, NON_BLOCKING)
        })?;
        Ok(Stream {
            owned: Arc::new(Owned {
                handle: handle.cast(),
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                device: Arc::clone(device),
            }),
        })
    }

    /// The driver's handle, for the [raw](crate::raw) layer and other wrappers. It is valid as long as a clone of the
    /// stream lives.
    pub fn handle(&self) -> CUstream {
        self.owned.handle
    }

    fn ffi(&self) -> ffi::CUstream {
        self.owned.handle.cast()
    }

    /// Waits until the stream has run dry. A failure of anything launched on it arrives here, on the emulator with the
    /// full story.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives.
        check("wait for the stream", unsafe { ffi::cuStreamSynchronize(self.ffi()) })
    }

    /// Has what is queued from here on wait for all that was queued on another stream of the device up to here.
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        let _change = captures::change();
        self.queue_behind(other)
    }

    /// [`Stream::wait_for`] where neither stream's being captured changes by it.
    pub(super) fn queue_behind(&self, other: &Stream) -> Result<()> {
        let event = Event::of_order(&self.owned.device)?;
        other.record(&event)?;
        self.queue_wait(&event)
    }

    /// Has the event happen when all that was queued up to here has ended.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.check_device(&event.device)?;
        // SAFETY: the event and the stream live.
        check("record an event", unsafe {
            ffi::cuEventRecord(event.handle, self.ffi())
        })
    }

    /// Has what is queued from here on wait for an event, as it was last recorded.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // The stream joins the capture in which the event was recorded.
        let _change = captures::change();
        self.queue_wait(event)
    }

    fn queue_wait(&self, event: &Event) -> Result<()> {
        self.check_device(&event.device)?;
        // SAFETY: the event and the stream live.
        check("wait for an event", unsafe {
            ffi::cuStreamWaitEvent(self.ffi(), event.handle, 0)
        })
    }

    /// Has launches that are queued from here on start after every launch before has ended, also those that may
    /// overlap the preceding kernel. Weights that a kernel has written ahead of it may be read by launches after it.
    /// Neither blocks nor allocates; it costs about as much as an empty launch.
    pub fn barrier(&self) -> Result<()> {
        // A memset is no kernel: nothing overlaps it. SAFETY: the memory has the four bytes and lives as long as the
        // device is open, which streams and graphs hold it.
        let code = unsafe { ffi::cuMemsetD32Async(self.owned.device.barrier(), 0, 1, self.ffi()) };
        check("queue a barrier", code)
    }

    /// Whether both are the same stream.
    pub fn is_same(&self, other: &Stream) -> bool {
        self.owned.id == other.owned.id
    }

    /// The number of the capture that the stream is part of, if it is of one.
    pub(super) fn capture(&self) -> Result<Option<u64>> {
        let (mut status, mut id) = (stream_capture_status::NONE, 0);
        let (graph, nodes, count) = (null_mut(), null_mut(), null_mut());
        // SAFETY: the stream lives; two numbers are written, and what is null is not.
        let code =
            unsafe { ffi::cuStreamGetCaptureInfo_v2(self.ffi(), &raw mut status, &raw mut id, graph, nodes, count) };
        check("ask whether the stream is captured", code)?;
        Ok((status != stream_capture_status::NONE).then_some(id))
    }

    /// Fails for a stream of another device.
    pub(super) fn check_device(&self, device: &Arc<OpenDevice>) -> Result<()> {
        if self.owned.device.handle() == device.handle() {
            Ok(())
        } else {
            Err(Error::ForeignStream)
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.device.with_context(|| {
            // SAFETY: made by us, destroyed once; the driver lets queued work end.
            unsafe { ffi::cuStreamDestroy_v2(self.handle.cast()) };
        });
    }
}

/// A point in a stream's work, made by [`Engine::event`](crate::Engine::event) or
/// [`Engine::timing_event`](crate::Engine::timing_event).
#[derive(Debug)]
pub struct Event {
    handle: CUevent,
    device: Arc<OpenDevice>,
}

// SAFETY: the driver lets any thread use an event's handle, and orders calls that come at once.
unsafe impl Send for Event {}
// SAFETY: no method changes the handle, and the driver orders calls that come at once.
unsafe impl Sync for Event {}

impl Event {
    /// One for ordering alone, which costs less than one with a time.
    pub(super) fn of_order(device: &Arc<OpenDevice>) -> Result<Self> {
        const DISABLE_TIMING: u32 = 2;
        Self::new(device, DISABLE_TIMING)
    }

    /// One that remembers when it happened.
    pub(super) fn with_time(device: &Arc<OpenDevice>) -> Result<Self> {
        Self::new(device, 0)
    }

    fn new(device: &Arc<OpenDevice>, flags: u32) -> Result<Self> {
        device.check_current()?;
        let mut handle = null_mut();
        // SAFETY: writes one handle.
        check("create an event", unsafe { ffi::cuEventCreate(&raw mut handle, flags) })?;
        Ok(Event {
            handle,
            device: Arc::clone(device),
        })
    }

    /// Milliseconds from another event to this one; both were recorded, have happened, and remember when.
    pub fn milliseconds_since(&self, start: &Event) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both events live; writes one number.
        let code = unsafe { ffi::cuEventElapsedTime(&raw mut milliseconds, start.handle, self.handle) };
        check("read a time", code)?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.device.with_context(|| {
            // SAFETY: made by us, destroyed once; what waits for it goes on waiting.
            unsafe { ffi::cuEventDestroy_v2(self.handle) };
        });
    }
}
