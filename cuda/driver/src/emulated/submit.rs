//! Pieces of work on their way to a stream: queued, or captured.

use super::capture;
use super::context::Context;
use super::order::{self, When};
use super::queue::Ticket;
use super::state::lock;
use super::stream::Stream;
use super::task::Task;
use crate::codes::{Answer, Code};
use std::sync::Arc;

/// Does a piece of work in a stream's order, or notes it where the stream is being captured. The ticket, where it is
/// left for later.
pub(super) fn submit((context, stream): (Arc<Context>, Arc<Stream>), task: Task) -> Answer<Option<Ticket>> {
    if let Some(mut recording) = capture::of(&stream)? {
        return recording.add(&context, task, false).map(|()| None);
    }
    let when = match task {
        Task::Host(_) => When::Later,
        _ => When::Now,
    };
    order::in_order(&context, &stream, Vec::new(), when, move |context, stream| {
        let mut work = lock(&context.work);
        work.interrupt(stream);
        let done = match task {
            Task::Copy(copy) => copy.run(),
            Task::Fill(fill) => fill.run(),
            Task::Host(call) => {
                drop(work);
                call.run();
                Ok(())
            }
            _ => Ok(()),
        };
        done.map_err(|_| Code::INVALID_VALUE)
    })
}
