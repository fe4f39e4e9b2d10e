//! Contexts: one for the device that all share (the primary one), others on request, and each thread's stack of current
//! ones.

use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::context::{self, Context, current, current_even_if_faulted, named, ready};
use crate::emulated::device;
use crate::emulated::host;
use crate::emulated::memory;
use crate::emulated::state::{STATE, lock, pointer, put, put_if_wanted};
use crate::types::*;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, Mutex};

/// The version of the driver API that `cuCtxCreate_v2` made contexts for.
const API_VERSION: c_uint = 3020;
/// The flags that a context can be made with (`CU_CTX_FLAGS_MASK`).
const FLAGS: c_uint = 0x1f;

/// The primary context: its handle never changes; the context behind it lives while it is retained.
static PRIMARY: LazyLock<Primary> = LazyLock::new(|| Primary {
    handle: STATE.fresh(),
    users: Mutex::default(),
});

struct Primary {
    handle: usize,
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    count: usize,
    flags: c_uint,
}

/// Takes a context down, once its running work has ended.
fn take_down(context: &Context) {
    capture::context_gone(context.context);
    context.finish();
    let _idle = lock(&context.work);
    STATE.remove_context(context.context);
    memory::context_gone(context.context);
    host::context_gone(context.context);
}

fn check_flags(flags: c_uint) -> Answer {
    if flags & !FLAGS == 0 {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

pub(crate) unsafe fn primary_retain(context: *mut CUcontext, device: CUdevice) -> Answer {
    ready()?;
    device::check(device)?;
    if context.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut users = lock(&PRIMARY.users);
    if users.count == 0 {
        STATE.insert(PRIMARY.handle, Context::new(PRIMARY.handle, users.flags));
    }
    users.count += 1;
    // SAFETY: the caller promises that `context` is valid for a write.
    unsafe { put(context, pointer(PRIMARY.handle)) }
}

pub(crate) unsafe fn primary_release(device: CUdevice) -> Answer {
    ready()?;
    device::check(device)?;
    let mut users = lock(&PRIMARY.users);
    users.count = users.count.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    if users.count == 0 {
        take_down(&*STATE.find::<Context>(PRIMARY.handle)?);
    }
    Ok(())
}

pub(crate) unsafe fn primary_reset(device: CUdevice) -> Answer {
    ready()?;
    device::check(device)?;
    let mut users = lock(&PRIMARY.users);
    if users.count > 0 {
        users.count = 0;
        take_down(&*STATE.find::<Context>(PRIMARY.handle)?);
    }
    Ok(())
}

pub(crate) unsafe fn primary_set_flags(device: CUdevice, flags: c_uint) -> Answer {
    ready()?;
    device::check(device)?;
    check_flags(flags)?;
    lock(&PRIMARY.users).flags = flags;
    Ok(())
}

pub(crate) unsafe fn primary_state(device: CUdevice, flags: *mut c_uint, active: *mut c_int) -> Answer {
    ready()?;
    device::check(device)?;
    let users = lock(&PRIMARY.users);
    // SAFETY: the caller promises that both are valid for a write.
    unsafe {
        put(flags, users.flags)?;
        put(active, c_int::from(users.count > 0))
    }
}

pub(crate) unsafe fn create(context: *mut CUcontext, flags: c_uint, device: CUdevice) -> Answer {
    ready()?;
    device::check(device)?;
    check_flags(flags)?;
    let handle = STATE.fresh();
    // SAFETY: the caller promises that `context` is valid for a write.
    unsafe { put(context, pointer(handle)) }?;
    STATE.insert(handle, Context::new(handle, flags));
    context::push(handle);
    Ok(())
}

/// How many multiprocessors a context may use cannot be limited here.
pub(crate) unsafe fn create_v3(
    context: *mut CUcontext,
    _affinity: *mut c_void,
    affinities: c_int,
    flags: c_uint,
    device: CUdevice,
) -> Answer {
    ready()?;
    match affinities {
        // SAFETY: the caller keeps the same promise.
        0 => unsafe { create(context, flags, device) },
        1.. => Err(Code::UNSUPPORTED_EXEC_AFFINITY),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(crate) unsafe fn create_v4(
    context: *mut CUcontext,
    parameters: *mut CUctxCreateParams,
    flags: c_uint,
    device: CUdevice,
) -> Answer {
    ready()?;
    // SAFETY: null or valid, the caller promises.
    let affinities = match unsafe { parameters.as_ref() } {
        None => 0,
        // Nothing here is shared with a graphics system.
        Some(parameters) if !parameters.cigParams.is_null() => return Err(Code::NOT_SUPPORTED),
        Some(parameters) => parameters.numExecAffinityParams,
    };
    // SAFETY: the caller keeps the same promise.
    unsafe { create_v3(context, std::ptr::null_mut(), affinities, flags, device) }
}

pub(crate) unsafe fn destroy(context: CUcontext) -> Answer {
    ready()?;
    let handle = context.addr();
    if handle == PRIMARY.handle {
        return Err(Code::INVALID_CONTEXT);
    }
    let context = STATE.find::<Context>(handle)?;
    take_down(&context);
    if context::top() == Some(handle) {
        context::pop();
    }
    Ok(())
}

pub(crate) unsafe fn push(context: CUcontext) -> Answer {
    ready()?;
    let context = STATE.find::<Context>(context.addr())?;
    context::push(context.context);
    Ok(())
}

pub(crate) unsafe fn pop(context: *mut CUcontext) -> Answer {
    ready()?;
    let handle = context::pop().ok_or(Code::INVALID_CONTEXT)?;
    // SAFETY: the caller promises that `context` is null or valid for a write.
    unsafe { put_if_wanted(context, pointer(handle)) };
    Ok(())
}

pub(crate) unsafe fn set_current(context: CUcontext) -> Answer {
    ready()?;
    if context.is_null() {
        context::pop();
        return Ok(());
    }
    let context = STATE.find::<Context>(context.addr())?;
    context::pop();
    context::push(context.context);
    Ok(())
}

pub(crate) unsafe fn get_current(context: *mut CUcontext) -> Answer {
    ready()?;
    // SAFETY: the caller promises that `context` is valid for a write.
    unsafe { put(context, context::top().map_or(std::ptr::null_mut(), pointer)) }
}

pub(crate) unsafe fn device(device: *mut CUdevice) -> Answer {
    current_even_if_faulted()?;
    // SAFETY: the caller promises that `device` is valid for a write.
    unsafe { put(device, device::ORDINAL) }
}

pub(crate) unsafe fn flags(flags: *mut c_uint) -> Answer {
    let context = current_even_if_faulted()?;
    // SAFETY: the caller promises that `flags` is valid for a write.
    unsafe { put(flags, context.flags.load(Ordering::Relaxed)) }
}

pub(crate) unsafe fn set_flags(flags: c_uint) -> Answer {
    let context = current()?;
    check_flags(flags)?;
    context.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn id(context: CUcontext, id: *mut u64) -> Answer {
    let context = named(context)?;
    // SAFETY: the caller promises that `id` is valid for a write.
    unsafe { put(id, context.id) }
}

pub(crate) unsafe fn device_of(device: *mut CUdevice, context: CUcontext) -> Answer {
    named(context)?;
    // SAFETY: the caller promises that `device` is valid for a write.
    unsafe { put(device, device::ORDINAL) }
}

/// Before contexts had owners, they counted their users.
pub(crate) unsafe fn attach(context: *mut CUcontext, flags: c_uint) -> Answer {
    let current = current()?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises that `context` is valid for a write.
    unsafe { put(context, pointer(current.context)) }
}

pub(crate) unsafe fn detach(context: CUcontext) -> Answer {
    ready()?;
    STATE.find::<Context>(context.addr()).map(|_| ())
}

/// L2 keeps nothing here, so nothing has to be given up.
pub(crate) unsafe fn reset_persisting() -> Answer {
    current().map(|_| ())
}

pub(crate) unsafe fn api_version(context: CUcontext, version: *mut c_uint) -> Answer {
    named(context)?;
    // SAFETY: the caller promises that `version` is valid for a write.
    unsafe { put(version, API_VERSION) }
}

pub(crate) unsafe fn synchronize() -> Answer {
    wait_for(&*current()?)
}

pub(crate) unsafe fn synchronize_that(context: CUcontext) -> Answer {
    let context = named(context)?;
    context.check()?;
    wait_for(&context)
}

fn wait_for(context: &Context) -> Answer {
    capture::forbid_context(context.context)?;
    capture::forbid_unsafe()?;
    context.finish();
    lock(&context.work).settle();
    context.check()
}

pub(crate) unsafe fn set_limit(limit: c_uint, value: usize) -> Answer {
    let context = current()?;
    device::limit(limit)?;
    device::check_limit(limit, value)?;
    lock(&context.settings).limits.insert(limit, value);
    Ok(())
}

pub(crate) unsafe fn get_limit(value: *mut usize, limit: c_uint) -> Answer {
    let context = current()?;
    let by_default = device::limit(limit)?;
    let set = lock(&context.settings).limits.get(&limit).copied();
    // SAFETY: the caller promises that `value` is valid for a write.
    unsafe { put(value, set.unwrap_or(by_default)) }
}

pub(crate) unsafe fn get_cache_config(config: *mut c_uint) -> Answer {
    let context = current()?;
    // SAFETY: the caller promises that `config` is valid for a write.
    unsafe { put(config, lock(&context.settings).cache) }
}

pub(crate) unsafe fn set_cache_config(config: c_uint) -> Answer {
    let context = current()?;
    lock(&context.settings).cache = device::check_cache_config(config)?;
    Ok(())
}

pub(crate) unsafe fn get_shared_config(config: *mut c_uint) -> Answer {
    let context = current()?;
    // SAFETY: the caller promises that `config` is valid for a write.
    unsafe { put(config, lock(&context.settings).shared) }
}

pub(crate) unsafe fn set_shared_config(config: c_uint) -> Answer {
    let context = current()?;
    lock(&context.settings).shared = device::check_shared_config(config)?;
    Ok(())
}

pub(crate) unsafe fn stream_priority_range(least: *mut c_int, greatest: *mut c_int) -> Answer {
    current()?;
    // SAFETY: the caller promises that both are null or valid for a write.
    unsafe {
        put_if_wanted(least, context::LEAST_PRIORITY);
        put_if_wanted(greatest, context::GREATEST_PRIORITY);
    }
    Ok(())
}
