//! One line per function of the driver API, from which its C symbol, its way to NVIDIA's library and its way to the
//! emulated driver are made.

use crate::codes::{Answer, Code, for_cust, keep, number};
use crate::emulated::context;
use crate::report;
use crate::select::{Driver, driver_of_call, is_library};
use crate::types::{CUresult, c_void};
use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// A C symbol of this crate, as `cuGetProcAddress` hands it out.
pub(crate) struct Export {
    pub(crate) name: &'static str,
    pub(crate) address: *const (),
}

// SAFETY: the address is that of a function, which any thread may have.
unsafe impl Sync for Export {}

/// Whose enumeration of result codes a symbol's callers may hold them in.
#[derive(Clone, Copy)]
pub(crate) enum Callers {
    /// `cust` declares the symbol: its callers see no code that `cust` cannot represent.
    Cust,
    /// Newer than `cust`'s bindings: its callers see every code as it is.
    Ours,
}

/// Which stream a symbol's callers mean by a null one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NullStream {
    /// The default stream that all threads share.
    Legacy,
    /// The calling thread's own default stream.
    PerThread,
}

thread_local! {
    static NULL_STREAM: Cell<NullStream> = const { Cell::new(NullStream::Legacy) };
}

impl NullStream {
    /// What the call that is being answered means.
    pub(crate) fn meant() -> NullStream {
        NULL_STREAM.get()
    }

    /// Answers a call that means this one.
    fn during(self, answer: impl FnOnce() -> Answer) -> Answer {
        struct Restore(NullStream);
        impl Drop for Restore {
            fn drop(&mut self) {
                NULL_STREAM.set(self.0);
            }
        }
        let _restore = Restore(NULL_STREAM.replace(self));
        answer()
    }
}

/// Whether the emulated driver has a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// It answers for it, if not for every way of calling it.
    Here,
    /// Every call is answered with "not supported".
    Never,
}

/// Where a call goes.
pub(crate) enum Way {
    Cuda(NonNull<c_void>),
    Emulated,
    Refused(Code),
}

/// The functions that put errors into words. They serve even where no driver can be chosen, so that the reason can be
/// shown.
const WORDS: [&CStr; 2] = [c"cuGetErrorName", c"cuGetErrorString"];

/// The functions that serve before `cuInit`, and within a function of the host's that a stream calls.
const ANYTIME: [&CStr; 4] = [c"cuInit", c"cuDriverGetVersion", WORDS[0], WORDS[1]];

/// Finds the way of a symbol; the address in NVIDIA's library is looked up once and kept in `slot`.
pub(crate) fn way(name: &CStr, slot: &OnceLock<Option<usize>>) -> Way {
    match driver_of_call() {
        Ok(Driver::Emulated(_)) => Way::Emulated,
        Ok(Driver::Cuda(real)) => {
            let look_up = || real.symbol(name).map(|found| found.as_ptr() as usize);
            let address = *slot.get_or_init(look_up);
            match address.and_then(|address| NonNull::new(address as *mut c_void)) {
                Some(address) => Way::Cuda(address),
                None => Way::Refused(Code::NOT_FOUND),
            }
        }
        Err(_) if WORDS.contains(&name) => Way::Emulated,
        Err(error) => Way::Refused(error.code()),
    }
}

/// What the caller is told: the answer's code, or "unknown" where answering panicked (a panic must not cross into C).
pub(crate) fn emulate(
    name: &CStr,
    callers: Callers,
    stream: NullStream,
    served: Served,
    answer: impl FnOnce() -> Answer,
) -> CUresult {
    let answer = || {
        if !ANYTIME.contains(&name) {
            context::ready()?;
        }
        stream.during(answer)
    };
    let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(answer));
    let code = number(answer.unwrap_or(Err(Code::UNKNOWN)));
    if code == Code::NOT_SUPPORTED.0 {
        report::unsupported(name, served);
    }
    told(callers, code)
}

/// The code as a symbol's callers may see it. What it was is kept for the thread.
pub(crate) fn told(callers: Callers, code: CUresult) -> CUresult {
    keep(code);
    match callers {
        Callers::Cust if !is_library() => for_cust(code),
        _ => code,
    }
}

/// Defines driver functions. `name(arguments) => path;` emulates by the function at `emulated::calls::path`, which
/// takes the same arguments; `name(arguments) => unsupported;` has no emulation. `name / other(arguments)` defines the
/// same function twice: as `other`, for which a null stream is the thread's own default stream.
macro_rules! driver_api {
    ($callers:ident: $($name:ident $(/ $per_thread:ident)? ($($arguments:tt)*) => $($how:ident)::+;)*) => {
        $(driver_api! { @function $callers $name $(/ $per_thread)? ($($arguments)*) => $($how)::+ })*

        /// The symbols of this file.
        pub(crate) static EXPORTS: &[$crate::table::Export] = &[
            $(
                $crate::table::Export { name: stringify!($name), address: $name as *const () },
                $($crate::table::Export { name: stringify!($per_thread), address: $per_thread as *const () },)?
            )*
        ];
    };
    (@function $callers:ident $name:ident / $per_thread:ident $arguments:tt => $($how:ident)::+) => {
        driver_api! { @symbol $callers Legacy $name $arguments => $($how)::+ }
        driver_api! { @symbol $callers PerThread $per_thread $arguments => $($how)::+ }
    };
    (@function $callers:ident $name:ident $arguments:tt => $($how:ident)::+) => {
        driver_api! { @symbol $callers Legacy $name $arguments => $($how)::+ }
    };
    (@symbol $callers:ident $stream:ident $name:ident($($argument:ident: $type:ty),* $(,)?) => $($how:ident)::+) => {
        #[doc = concat!("`", stringify!($name), "` of the CUDA driver API, from the driver in use.")]
        ///
        /// # Safety
        ///
        /// As the CUDA driver API asks: every pointer must be null or valid for what the function reads or writes
        /// there.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $crate::types::CUresult {
            static SLOT: std::sync::OnceLock<Option<usize>> = std::sync::OnceLock::new();
            const CALLERS: $crate::table::Callers = $crate::table::Callers::$callers;
            const STREAM: $crate::table::NullStream = $crate::table::NullStream::$stream;
            const SERVED: $crate::table::Served = driver_api!(@served [$($how)::+]);
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            match $crate::table::way(NAME, &SLOT) {
                $crate::table::Way::Cuda(address) => {
                    // SAFETY: NVIDIA's function of this name has this C signature, and the caller keeps its promises.
                    let code = unsafe {
                        let function: unsafe extern "C" fn($($type),*) -> $crate::types::CUresult =
                            std::mem::transmute(address.as_ptr());
                        function($($argument),*)
                    };
                    $crate::table::told(CALLERS, code)
                }
                $crate::table::Way::Emulated => $crate::table::emulate(NAME, CALLERS, STREAM, SERVED, || {
                    driver_api!(@emulated [$($how)::+] ($($argument),*))
                }),
                $crate::table::Way::Refused(code) => $crate::table::told(CALLERS, code.0),
            }
        }
    };
    (@served [unsupported]) => { $crate::table::Served::Never };
    (@served [$($how:ident)::+]) => { $crate::table::Served::Here };
    (@emulated [unsupported] ($($argument:ident),*)) => {{
        $(let _ = $argument;)*
        $crate::emulated::unsupported()
    }};
    (@emulated [$($how:ident)::+] ($($argument:ident),*)) => {
        // SAFETY: the caller keeps the promises of the driver API, which are the ones the emulation asks for.
        unsafe { $crate::emulated::calls::$($how)::+($($argument),*) }
    };
}
pub(crate) use driver_api;
