//! Contexts: one for the device that all share (the primary one), others on request, and each thread's stack of current ones.

use super::capture;
use super::device;
use super::queue;
use super::state::{Kind as _, STATE, lock, pointer, put, put_if_wanted};
use super::stream::Stream;
use crate::codes::{Answer, Code};
use crate::seed;
use crate::types::*;
use ptx_emulator::{Counters, LaunchId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

/// The version of the driver API that `cuCtxCreate_v2` made contexts for.
const API_VERSION: c_uint = 3020;
/// The flags that a context can be made with (`CU_CTX_FLAGS_MASK`).
const FLAGS: c_uint = 0x1f;
/// Priorities of streams, as the H200 has them.
pub(super) const LEAST_PRIORITY: c_int = 0;
pub(super) const GREATEST_PRIORITY: c_int = -5;

pub(super) struct Context {
    /// Its own handle.
    pub(super) context: usize,
    /// A number that no other context has or had.
    pub(super) id: u64,
    flags: AtomicU32,
    settings: Mutex<Settings>,
    fault: Mutex<Option<Fault>>,
    /// Held while work of this context runs: its streams' work is done one piece at a time, in the order of the calls.
    pub(super) work: Mutex<Work>,
    /// The default stream and the per-thread default stream.
    pub(super) default_streams: [Arc<Stream>; 2],
    /// The streams that have work left to do.
    pub(super) unfinished: queue::Unfinished,
}

/// A fault of a kernel, which every later call on the context answers with.
struct Fault {
    code: Code,
    story: String,
}

/// Preferences that are kept and told, and change nothing here.
#[derive(Default)]
struct Settings {
    limits: HashMap<c_uint, usize>,
    cache: c_uint,
    shared: c_uint,
}

#[derive(Default)]
pub(super) struct Work {
    pub(super) seed: Option<u64>,
    pub(super) counters: Counters,
    /// The launch that is the last piece of work on a stream, for those streams where a launch is, by stream.
    last_launch: HashMap<usize, (LaunchId, bool)>,
}

impl Work {
    /// Notes that a stream gets another piece of work: what follows on it no longer follows its last launch. The default stream
    /// waits for the blocking ones and they for it.
    pub(super) fn interrupt(&mut self, stream: &Stream) {
        self.last_launch.retain(|&other, &mut (_, blocking)| {
            let own = other == stream.handle;
            let joined = blocking && (stream.is_default() || (stream.blocking() && other == Stream::DEFAULT));
            !(own || joined)
        });
    }

    /// Notes a launch on a stream and returns the launch right before it, if its last piece of work was one.
    pub(super) fn last_launch(&self, stream: &Stream) -> Option<LaunchId> {
        self.last_launch.get(&stream.handle).map(|&(id, _)| id)
    }

    pub(super) fn note_launch(&mut self, stream: &Stream, id: LaunchId) {
        self.last_launch.insert(stream.handle, (id, stream.blocking()));
    }

    /// Notes that the host has waited for all work.
    fn settle(&mut self) {
        self.last_launch.clear();
    }
}

impl Context {
    fn new(handle: usize, flags: c_uint) -> Arc<Context> {
        Arc::new(Context {
            context: handle,
            id: LAST_ID.fetch_add(1, Ordering::Relaxed),
            flags: AtomicU32::new(flags),
            settings: Mutex::default(),
            fault: Mutex::default(),
            work: Mutex::new(Work {
                seed: lock(&DEFAULT_SEED).unwrap_or_else(seed::of_environment),
                ..Work::default()
            }),
            default_streams: Stream::defaults(handle),
            unfinished: Default::default(),
        })
    }

    /// Refuses the call where a kernel of this context has faulted.
    pub(super) fn check(&self) -> Answer {
        lock(&self.fault).as_ref().map_or(Ok(()), |fault| Err(fault.code))
    }

    /// Notes a kernel's fault; the first one stays.
    pub(super) fn fail(&self, code: Code, story: String) {
        crate::report::fault(&story);
        lock(&self.fault).get_or_insert(Fault { code, story });
    }

    pub(super) fn story(&self) -> Option<String> {
        lock(&self.fault).as_ref().map(|fault| fault.story.clone())
    }
}

static LAST_ID: AtomicU64 = AtomicU64::new(1);

/// The seed of contexts made from now on, or that there is none, where a call has said so; else it is the environment's.
pub(super) static DEFAULT_SEED: Mutex<Option<Option<u64>>> = Mutex::new(None);

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

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs a function of the caller's, in which no call of the driver's is allowed.
pub(super) fn in_host_function(run: impl FnOnce()) {
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            IN_HOST_FUNCTION.set(self.0);
        }
    }
    let _leave = Leave(IN_HOST_FUNCTION.replace(true));
    run();
}

/// Refuses every call before `cuInit`, and those from within a stream's host function.
pub(crate) fn ready() -> Answer {
    if !STATE.initialised.load(Ordering::Acquire) {
        return Err(Code::NOT_INITIALIZED);
    }
    if IN_HOST_FUNCTION.get() {
        return Err(Code::NOT_PERMITTED);
    }
    Ok(())
}

fn top() -> Option<usize> {
    STACK.with_borrow(|stack| stack.last().copied())
}

/// The thread's current context, faulted or not.
pub(super) fn current_even_if_faulted() -> Answer<Arc<Context>> {
    ready()?;
    let handle = top().ok_or(Code::INVALID_CONTEXT)?;
    STATE.find(handle).map_err(|_| Code::CONTEXT_IS_DESTROYED)
}

/// The thread's current context, fit for work.
pub(super) fn current() -> Answer<Arc<Context>> {
    let context = current_even_if_faulted()?;
    context.check()?;
    Ok(context)
}

/// A context by its handle; null means the current one.
pub(super) fn named(handle: CUcontext) -> Answer<Arc<Context>> {
    ready()?;
    if handle.is_null() {
        current_even_if_faulted()
    } else {
        STATE.find(handle.addr())
    }
}

/// Takes a context down, once its running work has ended.
fn take_down(context: &Context) {
    capture::context_gone(context.context);
    queue::finish(context);
    let _idle = lock(&context.work);
    STATE.remove_context(context.context);
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
    STACK.with_borrow_mut(|stack| stack.push(handle));
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
    if top() == Some(handle) {
        STACK.with_borrow_mut(Vec::pop);
    }
    Ok(())
}

pub(crate) unsafe fn push(context: CUcontext) -> Answer {
    ready()?;
    let context = STATE.find::<Context>(context.addr())?;
    STACK.with_borrow_mut(|stack| stack.push(context.context()));
    Ok(())
}

pub(crate) unsafe fn pop(context: *mut CUcontext) -> Answer {
    ready()?;
    let handle = STACK.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
    // SAFETY: the caller promises that `context` is null or valid for a write.
    unsafe { put_if_wanted(context, pointer(handle)) };
    Ok(())
}

pub(crate) unsafe fn set_current(context: CUcontext) -> Answer {
    ready()?;
    if context.is_null() {
        STACK.with_borrow_mut(Vec::pop);
        return Ok(());
    }
    let context = STATE.find::<Context>(context.addr())?;
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        stack.push(context.context());
    });
    Ok(())
}

pub(crate) unsafe fn get_current(context: *mut CUcontext) -> Answer {
    ready()?;
    // SAFETY: the caller promises that `context` is valid for a write.
    unsafe { put(context, top().map_or(std::ptr::null_mut(), pointer)) }
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
    queue::finish(context);
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
        put_if_wanted(least, LEAST_PRIORITY);
        put_if_wanted(greatest, GREATEST_PRIORITY);
    }
    Ok(())
}
