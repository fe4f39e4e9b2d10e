//! Streams as objects: what they were made with.

use super::state::Kind;
use crate::types::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// `CU_STREAM_NON_BLOCKING`
pub(super) const NON_BLOCKING: c_uint = 1;

pub(super) struct Stream {
    pub(super) handle: usize,
    /// The handle of its context.
    pub(super) context: usize,
    pub(super) flags: c_uint,
    pub(super) priority: c_int,
    pub(super) attributes: Mutex<HashMap<c_uint, CUlaunchAttributeValue>>,
}

impl Kind for Stream {
    const WORDS: &'static str = "stream";
    fn context(&self) -> usize {
        self.context
    }
}

impl Stream {
    /// The default stream (`CU_STREAM_LEGACY`); null names it too.
    pub(super) const DEFAULT: usize = 1;
    /// The per-thread default stream; one serves all threads of a context, whose work is done one piece at a time
    /// anyway.
    pub(super) const PER_THREAD: usize = 2;

    pub(super) fn new(handle: usize, context: usize, flags: c_uint, priority: c_int) -> Arc<Stream> {
        Arc::new(Stream {
            handle,
            context,
            flags,
            priority,
            attributes: Mutex::default(),
        })
    }

    pub(super) fn defaults(context: usize) -> [Arc<Stream>; 2] {
        [Self::DEFAULT, Self::PER_THREAD].map(|handle| Self::new(handle, context, 0, 0))
    }

    pub(super) fn is_default(&self) -> bool {
        self.handle == Self::DEFAULT
    }

    /// Whether its work and the default stream's wait for each other.
    pub(super) fn blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }
}
