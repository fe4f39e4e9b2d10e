//! Events as objects: what each stands for. An event has happened once the work before it is done.

use super::context::{Context, ready};
use super::graph::edge::Edge;
use super::queue::Ticket;
use super::state::{Kind, STATE, lock};
use crate::codes::{Answer, Code};
use crate::types::*;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`: in a capture, a node of its own.
pub(super) const EXTERNAL: c_uint = 1;

pub(super) struct Event {
    /// The handle of its context.
    pub(super) context: usize,
    pub(super) handle: usize,
    pub(super) flags: c_uint,
    recorded: Mutex<Recorded>,
}

/// What an event stands for.
#[derive(Clone, Default)]
pub(super) enum Recorded {
    #[default]
    Nothing,
    At(Instant),
    /// The end of queued work, and the time once it is done.
    Later {
        ticket: Ticket,
        time: Arc<OnceLock<Instant>>,
    },
    /// The end of a stream in a capture: the edges from its last nodes.
    Captured {
        sequence: u64,
        tail: Vec<Edge>,
    },
}

impl Kind for Event {
    const WORDS: &'static str = "event";
    fn context(&self) -> usize {
        self.context
    }
}

impl Event {
    pub(super) fn new(handle: usize, context: usize, flags: c_uint) -> Arc<Event> {
        Arc::new(Event {
            context,
            handle,
            flags,
            recorded: Mutex::default(),
        })
    }

    /// Notes that everything before it has been done.
    pub(super) fn happen(&self) {
        self.stand_for(Recorded::At(Instant::now()));
    }

    pub(super) fn stand_for(&self, recorded: Recorded) {
        *lock(&self.recorded) = recorded;
    }

    /// What it stands for, where that is not done yet.
    pub(super) fn unfinished(&self) -> Option<Ticket> {
        match &*lock(&self.recorded) {
            Recorded::Later { ticket, .. } if !ticket.is_done() => Some(ticket.clone()),
            _ => None,
        }
    }

    pub(super) fn recorded(&self) -> Recorded {
        lock(&self.recorded).clone()
    }
}

/// An event whose context is fit for work.
pub(super) fn find(handle: CUevent) -> Answer<Arc<Event>> {
    ready()?;
    let event = STATE.find::<Event>(handle.addr())?;
    STATE
        .find::<Context>(event.context)
        .map_err(|_| Code::CONTEXT_IS_DESTROYED)?
        .check()?;
    Ok(event)
}
