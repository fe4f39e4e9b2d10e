//! Pieces of work: what a stream does at once, and what a graph keeps to be done later.

use super::context::{self, Context, Work};
use super::copy::{Copy, Fill};
use super::event::Event;
use super::graph::Graph;
use super::kernel::Kernel;
use super::memory;
use super::room::Room;
use crate::codes::{Answer, Code};
use crate::types::*;
use ptx_emulator::LaunchId;
use std::sync::Arc;

#[derive(Clone)]
pub(super) enum Task {
    Kernel(Arc<Kernel>),
    Copy(Box<Copy>),
    Fill(Fill),
    Host(HostCall),
    /// A graph of the node's own.
    Child(Arc<Graph>),
    Empty,
    /// Work is done one piece at a time, so whatever an event stands for has happened.
    Wait(Arc<Event>),
    Record(Arc<Event>),
    Alloc(Arc<Room>),
    Free(u64),
}

/// A call of the host.
#[derive(Clone, Copy)]
pub(super) struct HostCall(pub(super) CUDA_HOST_NODE_PARAMS);

// SAFETY: the caller who gave the function and its data has promised that any thread may call the one with the other.
unsafe impl Send for HostCall {}
// SAFETY: a shared call is only copied or run, and the caller has promised that any thread may run it.
unsafe impl Sync for HostCall {}

impl HostCall {
    pub(super) fn new(params: CUDA_HOST_NODE_PARAMS) -> Answer<HostCall> {
        params.r#fn.ok_or(Code::INVALID_VALUE).map(|_| HostCall(params))
    }

    /// Calls the function, in which no call of the driver's is allowed. No lock may be held: it may wait for other
    /// threads.
    pub(super) fn run(&self) {
        if let Some(function) = self.0.r#fn {
            // SAFETY: the caller has promised that the function takes its data.
            context::in_host_function(|| unsafe { function(self.0.userData) });
        }
    }
}

impl Task {
    /// Its number among the types of a graph's nodes.
    pub(super) fn kind(&self) -> c_uint {
        match self {
            Task::Kernel(_) => graph_node_type::KERNEL,
            Task::Copy(_) => graph_node_type::MEMCPY,
            Task::Fill(_) => graph_node_type::MEMSET,
            Task::Host(_) => graph_node_type::HOST,
            Task::Child(_) => graph_node_type::GRAPH,
            Task::Empty => graph_node_type::EMPTY,
            Task::Wait(_) => graph_node_type::WAIT_EVENT,
            Task::Record(_) => graph_node_type::EVENT_RECORD,
            Task::Alloc(_) => graph_node_type::MEM_ALLOC,
            Task::Free(_) => graph_node_type::MEM_FREE,
        }
    }

    /// Does the piece of work as a part of a graph: memory that is gone by now is a fault of the context. The number of
    /// the launch, where it is one. Host functions and graphs are for the caller to run.
    pub(super) fn replay(
        &self,
        context: &Context,
        work: &mut Work,
        overlaps: Option<LaunchId>,
    ) -> Answer<Option<LaunchId>> {
        let done = match self {
            Task::Kernel(kernel) => return kernel.run(context, work, overlaps),
            Task::Copy(copy) => copy.run(),
            Task::Fill(fill) => fill.run(),
            Task::Record(event) => {
                event.happen();
                Ok(())
            }
            Task::Alloc(room) => {
                if let Err(code) = room.fill(context) {
                    context.fail(code, "a graph's memory is more than is left".into());
                }
                Ok(())
            }
            Task::Free(address) => {
                if memory::release(*address).is_err() {
                    let story = format!("a graph frees {address:#x}, which is not allocated");
                    context.fail(Code::INVALID_VALUE, story);
                }
                Ok(())
            }
            Task::Host(_) | Task::Child(_) | Task::Empty | Task::Wait(_) => Ok(()),
        };
        if let Err(error) = done {
            context.fail(Code::ILLEGAL_ADDRESS, format!("a copy or fill of a graph: {error}"));
        }
        Ok(None)
    }
}
