//! The JIT's options and refusals. The options that say where its log goes are served; the others choose machine code,
//! which is not made here.

use super::state::pointer;
use crate::codes::{Answer, Code};
use crate::report;
use crate::types::*;
use std::time::Instant;

/// Why an image was refused: the code, and the words for the JIT's error log, if there is more to say than the code
/// does.
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) words: String,
}

impl Refusal {
    /// Reports the words where the environment asks for reports, and returns the code.
    pub(super) fn told(self) -> Code {
        if !self.words.is_empty() {
            report::refused(self.code, &self.words);
        }
        self.code
    }

    /// The refusal of machine code.
    pub(super) fn binary() -> Self {
        Refusal {
            code: Code::NO_BINARY_FOR_GPU,
            words: "the image is a binary; the emulated driver takes PTX text".into(),
        }
    }
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Refusal {
            code,
            words: String::new(),
        }
    }
}

/// A buffer of the caller's for the JIT's log.
struct Log {
    buffer: *mut c_char,
    /// Where the caller put the buffer's size and expects the number of bytes written.
    size: *mut *mut c_void,
}

impl Log {
    /// Finds the options of a log; none where the caller gave no buffer or no size.
    ///
    /// # Safety
    ///
    /// `options` and `values` must hold `count` options and their values, and a buffer's size must be its size.
    unsafe fn find(
        count: usize,
        options: *const c_uint,
        values: *mut *mut c_void,
        [buffer, size]: [c_uint; 2],
    ) -> Option<Log> {
        let (mut found_buffer, mut found_size) = (std::ptr::null_mut(), None);
        for at in 0..count {
            // SAFETY: `at` is below `count`, and both arrays have that many elements, the caller promises.
            let (option, value) = unsafe { (*options.add(at), values.add(at)) };
            if option == buffer {
                // SAFETY: the value is an element of the caller's array.
                found_buffer = unsafe { *value };
            } else if option == size {
                found_size = Some(value);
            }
        }
        let log = Log {
            buffer: found_buffer.cast(),
            size: found_size?,
        };
        (!log.buffer.is_null()).then_some(log)
    }

    /// Writes words, cut to what the buffer holds, and how many bytes they take.
    ///
    /// # Safety
    ///
    /// The log must have been found by [`Log::find`] for arrays that are still there.
    unsafe fn write(&self, words: &str) {
        // SAFETY: the size is an element of the caller's array, and the buffer has that many bytes, the caller
        // promises.
        unsafe {
            // The API passes this size as the low 32 bits of a pointer.
            let room = (*self.size).addr() as u32 as usize;
            let shown = words.len().min(room.saturating_sub(1));
            if room > 0 {
                std::ptr::copy_nonoverlapping(words.as_ptr().cast(), self.buffer, shown);
                self.buffer.add(shown).write(0);
            }
            *self.size = pointer(shown);
        }
    }
}

/// Compiles something, and writes the log and the time to where the options say.
///
/// # Safety
///
/// `options` and `values` must be null or hold `count` options and their values, and a buffer must have the size that
/// is given for it.
pub(super) unsafe fn compile(
    count: c_uint,
    options: *const c_uint,
    values: *mut *mut c_void,
    compile: impl FnOnce() -> Result<(), Refusal>,
) -> Answer {
    if count > 0 && (options.is_null() || values.is_null()) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises `count` options.
    let option = |at: usize| unsafe { *options.add(at) };
    let [info, error] = [
        [jit_option::INFO_LOG_BUFFER, jit_option::INFO_LOG_BUFFER_SIZE_BYTES],
        [jit_option::ERROR_LOG_BUFFER, jit_option::ERROR_LOG_BUFFER_SIZE_BYTES],
    ]
    // SAFETY: the caller promises `count` options and values, and buffers as large as their sizes say.
    .map(|wanted| unsafe { Log::find(count as usize, options, values, wanted) });
    let start = Instant::now();
    let compiled = compile();
    let milliseconds = start.elapsed().as_secs_f32() * 1e3;
    let words = compiled.as_ref().err().map_or("", |refusal| refusal.words.as_str());
    let remark = match &compiled {
        Ok(()) => format!("read for emulation in {milliseconds:.3} ms"),
        Err(_) => String::new(),
    };
    // SAFETY: the logs and values are in the caller's arrays.
    unsafe {
        if let Some(log) = info {
            log.write(&remark);
        }
        if let Some(log) = error {
            log.write(words);
        }
        for at in (0..count as usize).filter(|&at| option(at) == jit_option::WALL_TIME) {
            // The API passes this number as the low 32 bits of a pointer.
            *values.add(at) = pointer(milliseconds.to_bits() as usize);
        }
    }
    compiled.map_err(Refusal::told)
}
