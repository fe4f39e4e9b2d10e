//! Which stream a call means, and the order of what streams do. Work is done within the call that asks for it, unless
//! something that it must wait for is unfinished: then it waits for its turn on a thread of its stream's. Functions of
//! the host are what makes streams unfinished: they always run on such a thread, since they may wait for what the
//! caller does next.

use super::context::{Context, current, ready};
use super::queue::Ticket;
use super::state::STATE;
use super::stream::Stream;
use crate::codes::{Answer, Code};
use crate::table::NullStream;
use crate::types::CUstream;
use std::sync::Arc;

/// The stream of the calls that name none.
pub(super) const DEFAULT: CUstream = std::ptr::null_mut();

/// A stream of any context, and that context, fit for work.
pub(super) fn anywhere(handle: CUstream) -> Answer<(Arc<Context>, Arc<Stream>)> {
    ready()?;
    let default = |which: usize| current().map(|context| (context.clone(), context.default_streams[which].clone()));
    match handle.addr() {
        0 if NullStream::meant() == NullStream::PerThread => default(1),
        0 | Stream::DEFAULT => default(0),
        Stream::PER_THREAD => default(1),
        handle => {
            let stream = STATE.find::<Stream>(handle)?;
            let context = STATE
                .find::<Context>(stream.context)
                .map_err(|_| Code::CONTEXT_IS_DESTROYED)?;
            context.check()?;
            Ok((context, stream))
        }
    }
}

/// A stream of the current context, and that context, fit for work.
pub(super) fn here(handle: CUstream) -> Answer<(Arc<Context>, Arc<Stream>)> {
    let current = current()?;
    let (context, stream) = anywhere(handle)?;
    if context.context == current.context {
        Ok((context, stream))
    } else {
        Err(Code::INVALID_HANDLE)
    }
}

/// When a piece of work may be done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Within the call, where nothing before it is unfinished.
    Now,
    /// On a thread of the stream's, whatever is before it.
    Later,
}

/// Does a piece of work in a stream's order, and after `others`. The ticket, where it is left for later; then a code
/// that it answers with becomes a fault of the context.
pub(super) fn in_order(
    context: &Arc<Context>,
    stream: &Arc<Stream>,
    others: Vec<Ticket>,
    when: When,
    run: impl FnOnce(&Arc<Context>, &Arc<Stream>) -> Answer + Send + 'static,
) -> Answer<Option<Ticket>> {
    let mut after = context.unfinished.before(stream);
    after.extend(others.into_iter().filter(|ticket| !ticket.is_done()));
    if after.is_empty() && when == When::Now {
        return run(context, stream).map(|()| None);
    }
    let (owner, target) = (context.clone(), stream.clone());
    let queued = context.unfinished.push(stream, after, move || {
        // A context that has faulted does nothing more.
        if owner.check().is_ok()
            && let Err(code) = run(&owner, &target)
        {
            let story = format!("work that was queued on a stream failed with code {}", code.0);
            owner.fail(code, story);
        }
    });
    queued.map(Some)
}
