//! The arguments of the functions: how each is shown in the log, and what is written through it.

use crate::state;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::fmt;

/// An argument of a function.
pub(crate) trait Argument: Copy {
    /// Makes the new handle that it asks for, if it does.
    fn make(self) -> Handle {
        Handle(0)
    }

    /// How the log shows it. A function that failed has written nothing.
    ///
    /// # Safety
    ///
    /// A pointer that the function reads through is valid, and one that it writes through has been written, where it
    /// served.
    unsafe fn shown(self, served: bool) -> String;
}

macro_rules! as_they_are {
    ($($type:ty)*) => {$(
        impl Argument for $type {
            unsafe fn shown(self, _: bool) -> String {
                self.to_string()
            }
        }
    )*};
}
as_they_are! { i32 u8 u16 u32 u64 usize f32 Handle Address Name }

impl<T> Argument for *const T {
    unsafe fn shown(self, _: bool) -> String {
        format!("{:#x}", self.addr())
    }
}

impl<T> Argument for *mut T {
    unsafe fn shown(self, _: bool) -> String {
        format!("{:#x}", self.addr())
    }
}

/// A handle of the driver's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub(crate) struct Handle(pub(crate) usize);

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An address, of the device's memory or the host's.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Address(pub(crate) u64);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A C string, free of blanks: the name of a kernel.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Name(pub(crate) *const c_char);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: names are strings of the caller's or of ours, which end with a zero byte.
        let text = unsafe { CStr::from_ptr(self.0) }.to_string_lossy();
        f.write_str(&text.replace(' ', "_"))
    }
}

/// A tensor map.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Map(pub(crate) [u64; 16]);

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0[0])
    }
}

/// A place that the function writes to.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// No place.
    pub(crate) const NOWHERE: Self = Out(std::ptr::null_mut());

    /// Writes the value, unless the place is null; success either way.
    pub(crate) fn put(self, value: T) -> u32 {
        if !self.0.is_null() {
            // SAFETY: the driver API asks for a place that is valid for writes, or null.
            unsafe { self.0.write(value) };
        }
        0
    }
}

impl<T: fmt::Display> Argument for Out<T> {
    unsafe fn shown(self, served: bool) -> String {
        if served && !self.0.is_null() {
            // SAFETY: a place of the caller's that has been written.
            unsafe { &*self.0 }.to_string()
        } else {
            "nothing".into()
        }
    }
}

/// A place for a new handle.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct New(*mut usize);

impl Argument for New {
    fn make(self) -> Handle {
        let handle = state::new_handle();
        Out(self.0).put(handle.0);
        handle
    }

    unsafe fn shown(self, served: bool) -> String {
        // SAFETY: the caller's promise, passed on.
        unsafe { Out(self.0.cast::<Handle>()).shown(served) }
    }
}

impl New {
    /// Makes the handle.
    pub(crate) fn make(self) -> Handle {
        Argument::make(self)
    }
}

/// A place that the function reads, and writes what it held before.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Flag(pub(crate) *mut c_uint);

impl Argument for Flag {
    unsafe fn shown(self, served: bool) -> String {
        // SAFETY: the caller's promise, passed on.
        unsafe { Out(self.0).shown(served) }
    }
}

/// The start of `CUlaunchConfig`, up to the stream, which the log shows.
#[repr(C)]
struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: *mut c_void,
}

/// The configuration of a launch: shown as the stream that it is on.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct LaunchConfig(*const Config);

impl Argument for LaunchConfig {
    unsafe fn shown(self, served: bool) -> String {
        // SAFETY: the caller passes a configuration, or null.
        match unsafe { self.0.as_ref() } {
            // SAFETY: no pointer is followed.
            Some(config) => unsafe { config.stream.shown(served) },
            None => "nothing".into(),
        }
    }
}
