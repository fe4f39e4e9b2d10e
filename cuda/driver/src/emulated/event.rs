//! Events. An event has happened when the call that records it returns; its time is the host clock's.

use super::context::{Context, current, ready};
use super::state::{STATE, lock, pointer, put};
use super::stream;
use crate::codes::{Answer, Code};
use crate::types::*;
use std::sync::{Arc, Mutex};
use std::time::Instant;

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
const FLAGS: c_uint = 7;

pub(super) struct Event {
    /// The handle of its context.
    pub(super) context: usize,
    flags: c_uint,
    recorded: Mutex<Option<Instant>>,
}

/// An event whose context is fit for work.
fn find(handle: CUevent) -> Answer<Arc<Event>> {
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
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let mut work = lock(&context.work);
    work.interrupt(&stream);
    *lock(&event.recorded) = Some(Instant::now());
    Ok(())
}

pub(crate) unsafe fn query(event: CUevent) -> Answer {
    find(event).map(|_| ())
}

pub(crate) unsafe fn synchronize(event: CUevent) -> Answer {
    find(event).map(|_| ())
}

pub(crate) unsafe fn elapsed(milliseconds: *mut f32, start: CUevent, end: CUevent) -> Answer {
    let time = |event| {
        let event = find(event)?;
        if event.flags & DISABLE_TIMING != 0 {
            return Err(Code::INVALID_HANDLE);
        }
        let recorded = *lock(&event.recorded);
        recorded.ok_or(Code::INVALID_HANDLE)
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
