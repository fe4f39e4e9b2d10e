//! Objects of the caller's that graphs keep: counted, and destroyed by a function of the caller's with their last
//! reference.

use crate::codes::{Answer, Code};
use crate::emulated::context::in_host_function;
use crate::emulated::state::{Kind, STATE, lock};
use crate::types::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub(in crate::emulated) struct Counted {
    pub(in crate::emulated) handle: usize,
    /// Of no context.
    pub(in crate::emulated) context: usize,
    pub(in crate::emulated) object: CUDA_HOST_NODE_PARAMS,
    pub(in crate::emulated) references: Mutex<usize>,
}

impl Kind for Counted {
    const WORDS: &'static str = "object of a graph's";
    const WRONG: Code = Code::INVALID_VALUE;
    fn context(&self) -> usize {
        self.context
    }
}

// SAFETY: the caller who gave the object and its destructor has promised that any thread may call the one with the
// other.
unsafe impl Send for Counted {}
// SAFETY: the object is touched by its destructor alone, which runs once; the count is behind a lock.
unsafe impl Sync for Counted {}

impl Counted {
    pub(in crate::emulated) fn retain(&self, count: usize) {
        *lock(&self.references) += count;
    }

    /// Takes references away, and destroys the object with the last of them.
    pub(in crate::emulated) fn release(&self, count: usize) -> Answer {
        let mut references = lock(&self.references);
        *references = references.checked_sub(count).ok_or(Code::INVALID_VALUE)?;
        if *references == 0 {
            drop(references);
            // Where two release at once, one of them finds the last reference.
            if STATE.remove::<Counted>(self.handle).is_ok()
                && let Some(destroy) = self.object.r#fn
            {
                // SAFETY: the caller has promised that the destructor takes the object.
                in_host_function(|| unsafe { destroy(self.object.userData) });
            }
        }
        Ok(())
    }
}

/// References that a graph holds, by the object's handle. They go with it.
#[derive(Default)]
pub(in crate::emulated) struct Users(Mutex<BTreeMap<usize, (Arc<Counted>, usize)>>);

impl Users {
    pub(in crate::emulated) fn add(&self, object: Arc<Counted>, count: usize) {
        lock(&self.0).entry(object.handle).or_insert((object, 0)).1 += count;
    }

    pub(in crate::emulated) fn take(&self, object: usize, count: usize) -> Answer {
        let mut users = lock(&self.0);
        let (known, held) = users.get_mut(&object).ok_or(Code::INVALID_VALUE)?;
        let (known, left) = (known.clone(), held.checked_sub(count).ok_or(Code::INVALID_VALUE)?);
        *held = left;
        if left == 0 {
            users.remove(&object);
        }
        drop(users);
        known.release(count)
    }

    /// Takes references of its own to all that another one holds.
    pub(in crate::emulated) fn share(&self, with: &Users) {
        for (object, count) in lock(&with.0).values() {
            object.retain(*count);
            self.add(object.clone(), *count);
        }
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        let users = self.0.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (object, count) in std::mem::take(users).into_values() {
            // It holds what it gives back.
            let _ = object.release(count);
        }
    }
}
