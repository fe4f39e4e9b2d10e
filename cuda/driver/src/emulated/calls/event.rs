//! Events: making them, recording them, waiting for them. An event's time is the host clock's.

use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::context::current;
use crate::emulated::event::{EXTERNAL, Event, Recorded, find};
use crate::emulated::order::{self, When};
use crate::emulated::state::{STATE, lock, pointer, put};
use crate::emulated::task::Task;
use crate::types::*;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

const DISABLE_TIMING: c_uint = 2;
const INTERPROCESS: c_uint = 4;
const FLAGS: c_uint = 7;

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
    STATE.insert(handle, Event::new(handle, context.context, flags));
    Ok(())
}

pub(crate) unsafe fn record(event: CUevent, stream: CUstream) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { record_with_flags(event, stream, 0) }
}

pub(crate) unsafe fn record_with_flags(event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
    let event = find(event)?;
    let (context, stream) = order::anywhere(stream)?;
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
    let ticket = order::in_order(&context, &stream, Vec::new(), When::Now, move |context, stream| {
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
        // The work before the event may have faulted its context.
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
