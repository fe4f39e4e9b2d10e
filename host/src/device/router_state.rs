//! What a router's launches share: sums and counters, which one launch after the other uses.
//!
//! The state orders its users. A call on another stream than the last one waits for it by an event. A captured call
//! runs nothing: the state joins the graph, which orders every launch of it in the same way, on whatever stream.

use super::allocation::Allocation;
use super::captures::{self, Unchanged};
use super::context::OpenDevice;
use super::raw::Workspace;
use super::setup::Setup;
use super::stream::Stream;
use super::{Result, check};
use crate::Error;
use crate::plan::WorkspaceSize;
use hopper_cuda_driver::ffi;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The workspace of a router, and who used it last.
#[derive(Debug)]
pub(super) struct RouterState {
    sums: Allocation,
    shared_sums: Option<Allocation>,
    counters: Allocation,
    last: Mutex<LastUse>,
    /// Dropped last: the memory is of its context.
    _device: Arc<OpenDevice>,
}

/// Who used a state last.
#[derive(Debug, Default)]
pub(super) struct LastUse {
    /// Where work ran.
    stream: Option<Stream>,
    /// Where a call was captured, and by which capture.
    captured: Option<(u64, Stream)>,
}

/// A lock whose holder cannot leave things half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RouterState {
    /// A clean state. It may be used once `setup` has finished.
    pub(super) fn new(setup: &Setup, device: &Arc<OpenDevice>, size: &WorkspaceSize, is_shared: bool) -> Result<Self> {
        let zeros = |values: usize| setup.zeroed("allocate a router's workspace", values.saturating_mul(WORD));
        Ok(RouterState {
            sums: zeros(size.sums)?,
            shared_sums: is_shared.then(|| zeros(size.shared_sums)).transpose()?,
            counters: zeros(size.counters)?,
            last: Mutex::default(),
            _device: Arc::clone(device),
        })
    }

    /// Where it lies, for calls of up to so many tokens.
    pub(super) fn workspace(&self, max_tokens: usize) -> Workspace {
        Workspace {
            sums: self.sums.address(),
            shared_sums: self.shared_sums.as_ref().map_or(0, Allocation::address),
            counters: self.counters.address(),
            max_tokens,
        }
    }

    /// Has what is queued on a stream from here on come after all that used the state before. The caller queues the
    /// state's use while it holds the guard, and before the captures may change.
    ///
    /// # Errors
    ///
    /// A stream that something else than [`Engine::capture`](crate::Engine::capture) captures; and a last use on a
    /// stream that is captured now, which nothing can wait for.
    pub(super) fn use_on(self: &Arc<Self>, stream: &Stream, _unchanged: &Unchanged) -> Result<MutexGuard<'_, LastUse>> {
        let mut last = lock(&self.last);
        if let Some(capture) = stream.capture()? {
            if !captures::join(capture, self) {
                return Err(Error::ForeignCapture);
            }
            if let Some((before, other)) = &last.captured
                && *before == capture
                && !other.is_same(stream)
            {
                stream.queue_behind(other)?;
            }
            last.captured = Some((capture, stream.clone()));
            return Ok(last);
        }
        if let Some(other) = last.stream.as_ref().filter(|other| !other.is_same(stream)) {
            if other.capture()?.is_some() {
                return Err(Error::RouterInCapture);
            }
            stream.queue_behind(other)?;
        }
        last.stream = Some(stream.clone());
        Ok(last)
    }

    /// Queues what makes the state clean, after all that used it before.
    pub(super) fn reset(self: &Arc<Self>, stream: &Stream) -> Result<()> {
        let unchanged = captures::unchanged();
        let _last = self.use_on(stream, &unchanged)?;
        for memory in [Some(&self.counters), self.shared_sums.as_ref()].into_iter().flatten() {
            if memory.bytes() > 0 {
                let queue = stream.handle().cast();
                // SAFETY: the memory has so many bytes, and freeing it waits for work that uses it.
                let code = unsafe { ffi::cuMemsetD8Async(memory.address(), 0, memory.bytes(), queue) };
                check("reset a router", code)?;
            }
        }
        Ok(())
    }
}

/// Bytes of a sum, and of a counter.
const WORD: usize = 4;
