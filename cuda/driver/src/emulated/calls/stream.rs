//! Streams: making them, asking about them, waiting for them.

use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::context::{self, Context, current};
use crate::emulated::device::ORDINAL;
use crate::emulated::event::{self, Event};
use crate::emulated::order::{self, When, anywhere, here};
use crate::emulated::queue::Ticket;
use crate::emulated::state::{STATE, lock, pointer, put};
use crate::emulated::stream::{NON_BLOCKING, Stream};
use crate::emulated::submit::submit;
use crate::emulated::task::{HostCall, Task};
use crate::types::*;
use std::sync::Arc;

pub(crate) unsafe fn create(stream: *mut CUstream, flags: c_uint) -> Answer {
    // SAFETY: the caller keeps the same promise.
    unsafe { create_with_priority(stream, flags, 0) }
}

pub(crate) unsafe fn create_with_priority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> Answer {
    let context = current()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let priority = priority.clamp(context::GREATEST_PRIORITY, context::LEAST_PRIORITY);
    let handle = STATE.fresh();
    // SAFETY: the caller promises that `stream` is valid for a write.
    unsafe { put(stream, pointer(handle)) }?;
    STATE.insert(handle, Stream::new(handle, context.context, flags, priority));
    Ok(())
}

pub(crate) unsafe fn priority(stream: CUstream, priority: *mut c_int) -> Answer {
    let (_, stream) = anywhere(stream)?;
    // SAFETY: the caller promises that `priority` is valid for a write.
    unsafe { put(priority, stream.priority) }
}

pub(crate) unsafe fn flags(stream: CUstream, flags: *mut c_uint) -> Answer {
    let (_, stream) = anywhere(stream)?;
    // SAFETY: the caller promises that `flags` is valid for a write.
    unsafe { put(flags, stream.flags) }
}

pub(crate) unsafe fn context(stream: CUstream, context: *mut CUcontext) -> Answer {
    let (owner, _) = anywhere(stream)?;
    // SAFETY: the caller promises that `context` is valid for a write.
    unsafe { put(context, pointer(owner.context)) }
}

pub(crate) unsafe fn context_v2(stream: CUstream, context: *mut CUcontext, green: *mut *mut c_void) -> Answer {
    let (owner, _) = anywhere(stream)?;
    // SAFETY: the caller promises that both are valid for a write.
    unsafe {
        put(context, pointer(owner.context))?;
        put(green, std::ptr::null_mut())
    }
}

pub(crate) unsafe fn device(stream: CUstream, device: *mut CUdevice) -> Answer {
    anywhere(stream)?;
    // SAFETY: the caller promises that `device` is valid for a write.
    unsafe { put(device, ORDINAL) }
}

pub(crate) unsafe fn id(stream: CUstream, id: *mut u64) -> Answer {
    let (context, stream) = anywhere(stream)?;
    // A handle is given once; the default streams have theirs in every context.
    let number = match stream.handle as u64 {
        own @ ..=2 => context.id << 2 | own,
        own => own,
    };
    // SAFETY: the caller promises that `id` is valid for a write.
    unsafe { put(id, number) }
}

/// What `cuStreamSetAttribute` and its like take: advice on speed, which changes no result.
fn check_attribute(which: c_uint) -> Answer {
    match which {
        launch_attribute::ACCESS_POLICY_WINDOW
        | launch_attribute::SYNCHRONIZATION_POLICY
        | launch_attribute::PRIORITY
        | launch_attribute::MEM_SYNC_DOMAIN_MAP
        | launch_attribute::MEM_SYNC_DOMAIN => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(crate) unsafe fn get_attribute(stream: CUstream, which: c_uint, value: *mut CUlaunchAttributeValue) -> Answer {
    let (_, stream) = anywhere(stream)?;
    check_attribute(which)?;
    let known = lock(&stream.attributes).get(&which).copied();
    // SAFETY: the caller promises that `value` is valid for a write.
    unsafe { put(value, known.unwrap_or(CUlaunchAttributeValue { words: [0; 16] })) }
}

pub(crate) unsafe fn set_attribute(stream: CUstream, which: c_uint, value: *const CUlaunchAttributeValue) -> Answer {
    let (_, stream) = anywhere(stream)?;
    check_attribute(which)?;
    if value.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for a read, the caller promises.
    let value = unsafe { value.read_unaligned() };
    lock(&stream.attributes).insert(which, value);
    Ok(())
}

pub(crate) unsafe fn copy_attributes(to: CUstream, from: CUstream) -> Answer {
    let ((_, to), (_, from)) = (anywhere(to)?, anywhere(from)?);
    let attributes = lock(&from.attributes).clone();
    *lock(&to.attributes) = attributes;
    Ok(())
}

pub(crate) unsafe fn wait_event(stream: CUstream, event: CUevent, flags: c_uint) -> Answer {
    let (context, stream) = anywhere(stream)?;
    let event = STATE.find::<Event>(event.addr())?;
    if flags > event::EXTERNAL {
        return Err(Code::INVALID_VALUE);
    }
    if capture::wait(&context, &stream, event.clone(), flags == event::EXTERNAL)? {
        return Ok(());
    }
    let others = event.unfinished().into_iter().collect();
    order::in_order(&context, &stream, others, When::Now, |context, stream| {
        lock(&context.work).interrupt(stream);
        Ok(())
    })
    .map(|_| ())
}

/// A callback and what it is called with.
struct Callback {
    callback: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
    stream: CUstream,
    user_data: *mut c_void,
}

// SAFETY: the caller who gave the callback and its data has promised that any thread may call the one with the other.
unsafe impl Send for Callback {}

impl Callback {
    fn run(&self) {
        // SAFETY: the caller has promised that the callback takes its data.
        context::in_host_function(|| unsafe { (self.callback)(self.stream, 0, self.user_data) });
    }
}

pub(crate) unsafe fn add_callback(
    stream: CUstream,
    callback: CUstreamCallback,
    user_data: *mut c_void,
    flags: c_uint,
) -> Answer {
    let callback = callback.ok_or(Code::INVALID_VALUE)?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let (context, target) = here(stream)?;
    if let Some(recording) = capture::of(&target)? {
        return Err(recording.refuse(Code::STREAM_CAPTURE_UNSUPPORTED));
    }
    let call = Callback {
        callback,
        stream,
        user_data,
    };
    order::in_order(&context, &target, Vec::new(), When::Later, move |context, stream| {
        lock(&context.work).interrupt(stream);
        call.run();
        Ok(())
    })
    .map(|_| ())
}

pub(crate) unsafe fn launch_host_func(stream: CUstream, function: CUhostFn, user_data: *mut c_void) -> Answer {
    let call = HostCall::new(CUDA_HOST_NODE_PARAMS {
        r#fn: function,
        userData: user_data,
    })?;
    submit(here(stream)?, Task::Host(call)).map(|_| ())
}

/// What a stream has still to do, where it may be asked.
fn unfinished(stream: CUstream) -> Answer<(Arc<Context>, Arc<Stream>, Vec<Ticket>)> {
    let (context, stream) = anywhere(stream)?;
    if let Some(recording) = capture::of(&stream)? {
        return Err(recording.refuse(Code::STREAM_CAPTURE_UNSUPPORTED));
    }
    capture::forbid_unsafe()?;
    let tickets = context.unfinished.before(&stream);
    Ok((context, stream, tickets))
}

pub(crate) unsafe fn query(stream: CUstream) -> Answer {
    let (context, stream, tickets) = unfinished(stream)?;
    if !tickets.iter().all(Ticket::is_done) {
        return Err(Code::NOT_READY);
    }
    lock(&context.work).interrupt(&stream);
    context.check()
}

pub(crate) unsafe fn synchronize(stream: CUstream) -> Answer {
    let (context, stream, tickets) = unfinished(stream)?;
    tickets.iter().for_each(Ticket::wait);
    lock(&context.work).interrupt(&stream);
    context.check()
}

pub(crate) unsafe fn destroy(stream: CUstream) -> Answer {
    let (context, stream) = anywhere(stream)?;
    if stream.is_default() || stream.handle == Stream::PER_THREAD {
        return Err(Code::INVALID_HANDLE);
    }
    capture::stream_gone(&stream);
    lock(&context.work).interrupt(&stream);
    STATE.remove::<Stream>(stream.handle).map(|_| ())
}
