//! What the emulated driver holds: the device's memory, and every object that a handle can name.
//!
//! A handle is a number in the shape of a pointer. It is looked up, never followed, and never given out twice, so a
//! foreign, stale or freed one is an error and nothing worse.

use super::device;
use crate::codes::{Answer, Code};
use crate::types::c_void;
use ptx_emulator::Memory;
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

pub(super) static STATE: LazyLock<State> = LazyLock::new(|| State {
    initialised: AtomicBool::new(false),
    memory: Memory::new(device::TOTAL_MEMORY),
    next: AtomicUsize::new(FIRST_HANDLE),
    objects: Mutex::default(),
});

/// The first handle: a number that is no pointer of any program.
const FIRST_HANDLE: usize = 0xC0DA_0000_0000_0010;
const HANDLE_STEP: usize = 16;

pub(super) struct State {
    pub(super) initialised: AtomicBool,
    pub(super) memory: Memory,
    next: AtomicUsize,
    objects: Mutex<HashMap<usize, Arc<dyn Object>>>,
}

/// A kind of object that handles name. Each kind implements it in its own file.
pub(super) trait Kind: Any + Send + Sync {
    /// What it is, in the words of a leak report.
    const WORDS: &'static str;
    /// What a wrong handle of this kind answers.
    const WRONG: Code = Code::INVALID_HANDLE;
    /// The handle of the context that the object goes down with; 0 where it belongs to none.
    fn context(&self) -> usize;
    /// Who has to destroy it.
    fn owner(&self) -> Owner {
        Owner::Caller
    }
}

/// Who has to destroy an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Caller,
    /// Another object, which it goes with.
    Object,
    /// The driver, which made it for itself.
    Driver,
}

/// An object of any kind.
pub(super) trait Object: Any + Send + Sync {
    /// [`Kind::WORDS`]
    fn words(&self) -> &'static str;
    /// [`Kind::context`]
    fn context(&self) -> usize;
    /// [`Kind::owner`]
    fn owner(&self) -> Owner;
}

impl<T: Kind> Object for T {
    fn words(&self) -> &'static str {
        T::WORDS
    }

    fn context(&self) -> usize {
        Kind::context(self)
    }

    fn owner(&self) -> Owner {
        Kind::owner(self)
    }
}

/// The object, where it is of this kind.
fn of_kind<T: Kind>(object: &Arc<dyn Object>) -> Option<Arc<T>> {
    let object: Arc<dyn Any + Send + Sync> = object.clone();
    object.downcast().ok()
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
        lock(&self.objects).insert(handle, object);
    }

    pub(super) fn find<T: Kind>(&self, handle: usize) -> Answer<Arc<T>> {
        lock(&self.objects).get(&handle).and_then(of_kind).ok_or(T::WRONG)
    }

    /// Every object, by handle: in the order in which they were made.
    pub(super) fn all(&self) -> Vec<(usize, Arc<dyn Object>)> {
        let mut all: Vec<_> = lock(&self.objects)
            .iter()
            .map(|(&handle, object)| (handle, object.clone()))
            .collect();
        all.sort_unstable_by_key(|&(handle, _)| handle);
        all
    }

    pub(super) fn remove<T: Kind>(&self, handle: usize) -> Answer<Arc<T>> {
        let mut objects = lock(&self.objects);
        let object = objects.get(&handle).and_then(of_kind).ok_or(T::WRONG)?;
        objects.remove(&handle);
        Ok(object)
    }

    /// Forgets the objects of a kind for which `gone` holds.
    pub(super) fn remove_kind<T: Kind>(&self, gone: impl Fn(&T) -> bool) {
        self.remove_where(|object| (object as &dyn Any).downcast_ref().is_some_and(&gone));
    }

    /// Forgets all objects that belong to a context, and the context itself.
    pub(super) fn remove_context(&self, context: usize) {
        self.remove_where(|object| object.context() == context);
    }

    fn remove_where(&self, gone: impl Fn(&dyn Object) -> bool) {
        // Dropped after the lock is released: a module can be large.
        let removed: Vec<_> = lock(&self.objects).extract_if(|_, object| gone(&**object)).collect();
        drop(removed);
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
