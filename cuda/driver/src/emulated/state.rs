//! What the emulated driver holds: the device's memory, and every object that a handle can name.
//!
//! A handle is a number in the shape of a pointer. It is looked up, never followed, and never given out twice, so a foreign, stale
//! or freed one is an error and nothing worse.

use super::context::Context;
use super::device;
use super::event::Event;
use super::function::Function;
use super::graph::exec::Exec;
use super::graph::user::Counted;
use super::graph::{Graph, Named};
use super::host;
use super::library::{Library, LibraryKernel};
use super::link::Link;
use super::memory::Allocated;
use super::module::Module;
use super::pool::Pool;
use super::stream::Stream;
use crate::codes::{Answer, Code};
use crate::types::c_void;
use ptx_emulator::Memory;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

pub(super) static STATE: LazyLock<State> = LazyLock::new(|| State {
    initialised: AtomicBool::new(false),
    memory: Memory::new(device::TOTAL_MEMORY),
    next: AtomicUsize::new(FIRST_HANDLE),
    objects: Mutex::default(),
    allocations: Mutex::default(),
    rooms: Mutex::default(),
});

/// The first handle: a number that is no pointer of any program.
const FIRST_HANDLE: usize = 0xC0DA_0000_0000_0010;
const HANDLE_STEP: usize = 16;

pub(super) struct State {
    pub(super) initialised: AtomicBool,
    pub(super) memory: Memory,
    next: AtomicUsize,
    objects: Mutex<HashMap<usize, Object>>,
    /// What has been allocated and not freed, by its first address.
    pub(super) allocations: Mutex<HashMap<u64, Allocated>>,
    /// What nodes of graphs may allocate, by its first address: its size.
    pub(super) rooms: Mutex<BTreeMap<u64, u64>>,
}

/// A kind of object that handles name.
pub(super) trait Kind: Sized {
    /// What a wrong handle of this kind answers.
    const WRONG: Code = Code::INVALID_HANDLE;
    fn wrap(object: Arc<Self>) -> Object;
    fn unwrap(object: &Object) -> Option<&Arc<Self>>;
    /// The handle of the context that the object goes down with.
    fn context(&self) -> usize;
}

macro_rules! kinds {
    ($($kind:ident $words:literal $(wrong: $wrong:ident)?;)*) => {
        #[derive(Clone)]
        pub(super) enum Object {
            $($kind(Arc<$kind>),)*
        }

        $(impl Kind for $kind {
            $(const WRONG: Code = Code::$wrong;)?
            fn wrap(object: Arc<Self>) -> Object {
                Object::$kind(object)
            }
            fn unwrap(object: &Object) -> Option<&Arc<Self>> {
                match object {
                    Object::$kind(object) => Some(object),
                    _ => None,
                }
            }
            fn context(&self) -> usize {
                self.context
            }
        })*

        impl Object {
            /// What it is, in words.
            pub(super) fn kind(&self) -> &'static str {
                match self {
                    $(Object::$kind(_) => $words,)*
                }
            }

            fn context(&self) -> usize {
                match self {
                    $(Object::$kind(object) => object.context,)*
                }
            }
        }
    };
}
kinds! {
    Context "context" wrong: INVALID_CONTEXT;
    Module "module";
    Function "kernel";
    Stream "stream";
    Event "event";
    Graph "graph" wrong: INVALID_VALUE;
    Named "graph node" wrong: INVALID_VALUE;
    Exec "executable graph" wrong: INVALID_VALUE;
    Pool "memory pool" wrong: INVALID_VALUE;
    Library "library";
    LibraryKernel "kernel of a library";
    Link "linker";
    Counted "object of a graph's" wrong: INVALID_VALUE;
}

/// Locks, whatever a panicking holder may have left: every holder leaves its data whole between statements.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// A handle that was never given out.
    pub(super) fn fresh(&self) -> usize {
        self.next.fetch_add(HANDLE_STEP, Ordering::Relaxed)
    }

    pub(super) fn insert<T: Kind>(&self, handle: usize, object: Arc<T>) {
        lock(&self.objects).insert(handle, T::wrap(object));
    }

    pub(super) fn find<T: Kind>(&self, handle: usize) -> Answer<Arc<T>> {
        lock(&self.objects)
            .get(&handle)
            .and_then(T::unwrap)
            .cloned()
            .ok_or(T::WRONG)
    }

    /// Every object, by handle: in the order in which they were made.
    pub(super) fn all(&self) -> Vec<(usize, Object)> {
        let mut all: Vec<_> = lock(&self.objects)
            .iter()
            .map(|(&handle, object)| (handle, object.clone()))
            .collect();
        all.sort_unstable_by_key(|&(handle, _)| handle);
        all
    }

    pub(super) fn remove<T: Kind>(&self, handle: usize) -> Answer<Arc<T>> {
        let mut objects = lock(&self.objects);
        let object = objects.get(&handle).and_then(T::unwrap).cloned().ok_or(T::WRONG)?;
        objects.remove(&handle);
        Ok(object)
    }

    /// Forgets the objects for which `gone` holds.
    pub(super) fn remove_all(&self, gone: impl Fn(&Object) -> bool) {
        // Dropped after the lock is released: a module can be large.
        let removed: Vec<_> = lock(&self.objects).extract_if(|_, object| gone(object)).collect();
        drop(removed);
    }

    /// Forgets a context with all that belongs to it, its memory included.
    pub(super) fn remove_context(&self, context: usize) {
        self.remove_all(|object| object.context() == context);
        let freed: Vec<_> = lock(&self.allocations)
            .extract_if(|_, allocated| allocated.context == context)
            .collect();
        for (address, allocated) in freed {
            allocated.release(address);
        }
        host::context_gone(context);
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
///
/// `to` must be null or valid for a write.
pub(super) unsafe fn put<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for a write, the caller promises.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes a result where the caller may not want it.
///
/// # Safety
///
/// `to` must be null or valid for a write.
pub(super) unsafe fn put_if_wanted<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not null, so valid for a write, the caller promises.
        unsafe { to.write_unaligned(value) };
    }
}

/// A handle as C holds it.
pub(super) fn pointer(handle: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(handle)
}
