//! Events. An event has happened when the call that records it returns; its time is the host clock's.

use super::capture;
use super::context::{Context, current, ready};
use super::graph::Edge;
use super::queue::{self, Ticket, When};
use super::state::{STATE, lock, pointer, put};
use super::stream;
use super::task::Task;
use crate::codes::{Answer, Code};
use crate::types::*;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
const FLAGS: c_uint = 7;
/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`: in a capture, a node of its own.
pub(super) const EXTERNAL: c_uint = 1;

pub(super) struct Event {
    /// The handle of its context.
    pub(super) context: usize,
    pub(super) handle: usize,
    flags: c_uint,
    recorded: Mutex<Recorded>,
}

/// What an event stands for.
#[derive(Clone, Default)]
pub(super) enum Recorded {
    #[default]
    Nothing,
    At(Instant),
    /// The end of work that was left for later, and when that came.
    Later {
        ticket: Ticket,
        time: Arc<OnceLock<Instant>>,
    },
    /// The end of a stream in a capture, by the nodes that what follows it depends on.
    Captured {
        sequence: u64,
        tail: Vec<Edge>,
    },
}

impl Event {
    /// Notes that everything before it has been done.
    pub(super) fn happen(&self) {
        self.stand_for(Recorded::At(Instant::now()));
    }

    pub(super) fn stand_for(&self, recorded: Recorded) {
        *lock(&self.recorded) = recorded;
    }

    /// What it stands for, where that is not done yet.
    pub(super) fn unfinished(&self) -> Option<Ticket> {
        match &*lock(&self.recorded) {
            Recorded::Later { ticket, .. } if !ticket.is_done() => Some(ticket.clone()),
            _ => None,
        }
    }

    pub(super) fn recorded(&self) -> Recorded {
        lock(&self.recorded).clone()
    }
}

/// An event whose context is fit for work.
pub(super) fn find(handle: CUevent) -> Answer<Arc<Event>> {
    ready()?;
    let event = STATE.find::<Event>(handle.addr())?;
    STATE
        .find::<Context>(event.context)
        .map_err(|_| Code::CONTEXT_IS_DESTROYED)?
        .check()?;
    Ok(event)
}

pub(crate) unsafe fn create(event: *mut CUevent, flags: c_uint) -> Answer {
    let context = current()?;
    if flags & !FLAGS != 0 || flags & (INTERPROCESS | DISABLE_TIMING) == INTERPROCESS {
        return Err(Code::INVALID_VALUE);
    }
    if flags & INTERPROCESS != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    let handle = STATE.fresh();
    // SAFETY: the caller promises that `event` is valid for a write.
    unsafe { put(event, pointer(handle)) }?;
    STATE.insert(
        handle,
        Arc::new(Event {
            context: context.context,
            handle,
            flags,
            recorded: Mutex::default(),
        }),
    );
    Ok(())
}

pub(crate) unsafe fn record(event: CUevent, stream: CUstream) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { record_with_flags(event, stream, 0) }
}

pub(crate) unsafe fn record_with_flags(event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
    let event = find(event)?;
    let (context, stream) = stream::anywhere(stream)?;
    if event.context != context.context {
        return Err(Code::INVALID_HANDLE);
    }
    if flags > EXTERNAL {
        return Err(Code::INVALID_VALUE);
    }
    if let Some(mut recording) = capture::of(&stream)? {
        return match flags {
            EXTERNAL => recording.add(&context, Task::Record(event), false),
            _ => recording.mark(&event),
        };
    }
    if flags == EXTERNAL {
        return Err(Code::INVALID_VALUE);
    }
    let time = Arc::new(OnceLock::new());
    let stop = time.clone();
    let ticket = queue::in_order(&context, &stream, Vec::new(), When::Now, move |context, stream| {
        lock(&context.work).interrupt(stream);
        // The one call that sets it.
        let _ = stop.set(Instant::now());
        Ok(())
    })?;
    match (ticket, time.get()) {
        (Some(ticket), _) => event.stand_for(Recorded::Later { ticket, time }),
        (None, Some(&time)) => event.stand_for(Recorded::At(time)),
        (None, None) => return Err(Code::UNKNOWN),
    }
    Ok(())
}

/// An event that can be asked about.
fn find_real(handle: CUevent) -> Answer<Arc<Event>> {
    let event = find(handle)?;
    if let Recorded::Captured { sequence, .. } = event.recorded() {
        capture::invalidate(sequence);
        return Err(Code::CAPTURED_EVENT);
    }
    Ok(event)
}

pub(crate) unsafe fn query(event: CUevent) -> Answer {
    let event = find_real(event)?;
    capture::forbid_unsafe()?;
    event.unfinished().map_or(Ok(()), |_| Err(Code::NOT_READY))
}

pub(crate) unsafe fn synchronize(event: CUevent) -> Answer {
    let found = find_real(event)?;
    capture::forbid_unsafe()?;
    if let Some(ticket) = found.unfinished() {
        ticket.wait();
        // What the event waited for may have gone wrong.
        find(event)?;
    }
    Ok(())
}

pub(crate) unsafe fn elapsed(milliseconds: *mut f32, start: CUevent, end: CUevent) -> Answer {
    let time = |event| {
        let event = find_real(event)?;
        if event.flags & DISABLE_TIMING != 0 {
            return Err(Code::INVALID_HANDLE);
        }
        match event.recorded() {
            Recorded::At(time) => Ok(time),
            Recorded::Later { ticket, .. } if !ticket.is_done() => Err(Code::NOT_READY),
            Recorded::Later { time, .. } => time.get().copied().ok_or(Code::NOT_READY),
            _ => Err(Code::INVALID_HANDLE),
        }
    };
    let (start, end) = (time(start)?, time(end)?);
    let seconds = if end >= start {
        (end - start).as_secs_f64()
    } else {
        -(start - end).as_secs_f64()
    };
    // SAFETY: the caller promises that `milliseconds` is valid for a write.
    unsafe { put(milliseconds, (seconds * 1e3) as f32) }
}

pub(crate) unsafe fn destroy(event: CUevent) -> Answer {
    find(event)?;
    STATE.remove::<Event>(event.addr()).map(|_| ())
}
