//! Graphs made executable: a copy of all that the graph's nodes do, launched as one piece of work.

use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::context::{Context, ready};
use crate::emulated::graph::edge::Edge;
use crate::emulated::graph::program::{Cycle, Step, compile, run};
use crate::emulated::graph::{Graph, find, user};
use crate::emulated::memory;
use crate::emulated::order::{self, When};
use crate::emulated::queue::Ticket;
use crate::emulated::state::{Kind, STATE, lock, pointer, put, put_if_wanted};
use crate::emulated::task::Task;
use crate::types::*;
use std::sync::{Arc, Mutex};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`
const AUTO_FREE: u64 = 1;
/// `CU_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`
const DEVICE_LAUNCH: u64 = 4;
/// All flags that exist: those two, upload, and use the nodes' priorities.
const FLAGS: u64 = 15;

struct Exec {
    handle: usize,
    /// The handle of its context.
    context: usize,
    flags: u64,
    /// Held while it runs within a call: a graph does not run twice at a time.
    steps: Mutex<Vec<Step>>,
    /// The last launch that was left for later.
    launched: Mutex<Option<Ticket>>,
    users: user::Users,
}

impl Kind for Exec {
    const WORDS: &'static str = "executable graph";
    const WRONG: Code = Code::INVALID_VALUE;
    fn context(&self) -> usize {
        self.context
    }
}

impl Exec {
    /// Refuses a launch while memory that the last one allocated is there, unless the graph was to free it.
    fn check_memory(&self, steps: &[Step]) -> Answer {
        for step in steps {
            let Task::Alloc(room) = &step.task else { continue };
            if room.is_taken() {
                if self.flags & AUTO_FREE == 0 {
                    return Err(Code::INVALID_VALUE);
                }
                memory::release(room.address)?;
            }
        }
        Ok(())
    }
}

fn find_exec(exec: CUgraphExec) -> Answer<Arc<Exec>> {
    ready()?;
    STATE.find(exec.addr())
}

/// Keeps what a graph and the graphs within keep.
fn keep(users: &user::Users, graph: &Graph) {
    users.share(&graph.users);
    for node in lock(&graph.nodes).values() {
        if let Task::Child(child) = &node.task {
            keep(users, child);
        }
    }
}

/// Makes a graph executable and returns the handle.
fn make(graph: CUgraph, flags: u64) -> Result<usize, (Code, Option<Cycle>)> {
    let graph = find(graph).map_err(|code| (code, None))?;
    if flags & !FLAGS != 0 {
        return Err((Code::INVALID_VALUE, None));
    }
    if flags & DEVICE_LAUNCH != 0 {
        if flags & AUTO_FREE != 0 {
            return Err((Code::INVALID_VALUE, None));
        }
        return Err((Code::NOT_SUPPORTED, None));
    }
    let steps = compile(&graph).map_err(|cycle| (Code::INVALID_VALUE, Some(cycle)))?;
    let users = user::Users::default();
    keep(&users, &graph);
    let handle = STATE.fresh();
    let exec = Exec {
        handle,
        context: graph.context,
        flags,
        steps: Mutex::new(steps),
        launched: Mutex::default(),
        users,
    };
    STATE.insert(handle, Arc::new(exec));
    Ok(handle)
}

pub(crate) unsafe fn instantiate(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    log: *mut c_char,
    log_bytes: usize,
) -> Answer {
    if exec.is_null() {
        ready()?;
        return Err(Code::INVALID_VALUE);
    }
    let made = make(graph, 0);
    let words: &[u8] = match &made {
        Err((_, Some(_))) => b"the edges of the graph form a cycle\0",
        _ => b"\0",
    };
    if !log.is_null() && log_bytes > 0 {
        let shown = words.len().min(log_bytes);
        // SAFETY: the caller promises a buffer of `log_bytes` bytes, of which no more than all are written.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr().cast(), log, shown);
            log.add(shown - 1).write(0);
        }
    }
    let blamed = match &made {
        Err((_, Some(cycle))) => pointer(cycle.node),
        _ => std::ptr::null_mut(),
    };
    // SAFETY: the caller promises that both are null or valid for a write.
    unsafe {
        put_if_wanted(error_node, blamed);
        put(exec, pointer(made.map_err(|(code, _)| code)?))
    }
}

pub(crate) unsafe fn instantiate_with_flags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Answer {
    if exec.is_null() {
        ready()?;
        return Err(Code::INVALID_VALUE);
    }
    let handle = make(graph, flags).map_err(|(code, _)| code)?;
    // SAFETY: the caller promises that `exec` is valid for a write.
    unsafe { put(exec, pointer(handle)) }
}

pub(crate) unsafe fn instantiate_with_params(
    exec: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Answer {
    ready()?;
    // SAFETY: null or valid for reads and writes, the caller promises.
    let parameters = unsafe { parameters.as_mut() }.ok_or(Code::INVALID_VALUE)?;
    parameters.hErrNode_out = std::ptr::null_mut();
    parameters.result_out = graph_instantiate_result::ERROR;
    if exec.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let handle = make(graph, parameters.flags).map_err(|(code, cycle)| {
        if let Some(cycle) = cycle {
            parameters.hErrNode_out = pointer(cycle.node);
            parameters.result_out = graph_instantiate_result::INVALID_STRUCTURE;
        }
        code
    })?;
    parameters.result_out = graph_instantiate_result::SUCCESS;
    // SAFETY: the caller promises that `exec` is valid for a write.
    unsafe { put(exec, pointer(handle)) }
}

pub(crate) unsafe fn flags(exec: CUgraphExec, flags: *mut u64) -> Answer {
    let exec = find_exec(exec)?;
    // SAFETY: the caller promises that `flags` is valid for a write.
    unsafe { put(flags, exec.flags) }
}

pub(crate) unsafe fn upload(exec: CUgraphExec, stream: CUstream) -> Answer {
    let (_, stream) = order::here(stream)?;
    find_exec(exec)?;
    match capture::of(&stream)? {
        Some(recording) => Err(recording.refuse(Code::STREAM_CAPTURE_UNSUPPORTED)),
        None => Ok(()),
    }
}

/// A graph of the steps, to be part of another one.
fn as_graph(steps: &[Step], context: usize) -> Answer<Arc<Graph>> {
    if steps
        .iter()
        .any(|step| matches!(step.task, Task::Alloc(_) | Task::Free(_)))
    {
        return Err(Code::NOT_SUPPORTED);
    }
    let graph = Graph::new(context, true);
    let mut handles = Vec::with_capacity(steps.len());
    for step in steps {
        // A disabled step becomes an empty node, which a programmatic edge can neither leave nor enter.
        let before = step.before.iter().map(|&(from, data)| Edge {
            from: handles[from],
            data: if step.enabled && steps[from].enabled {
                data
            } else {
                CUgraphEdgeData::default()
            },
        });
        let before = before.collect();
        let task = if step.enabled { step.task.clone() } else { Task::Empty };
        handles.push(graph.add(&step.context, task, before)?);
    }
    Ok(graph)
}

pub(crate) unsafe fn launch(exec: CUgraphExec, stream: CUstream) -> Answer {
    let (context, stream) = order::here(stream)?;
    let exec = find_exec(exec)?;
    let steps = lock(&exec.steps);
    exec.check_memory(&steps)?;
    if let Some(mut recording) = capture::of(&stream)? {
        let child = as_graph(&steps, recording.graph_context())?;
        child.users.share(&exec.users);
        return recording.add(&context, Task::Child(child), false);
    }
    let others: Vec<Ticket> = lock(&exec.launched).clone().into_iter().collect();
    let later = steps.iter().any(Step::may_wait);
    let idle = others.iter().all(Ticket::is_done) && context.unfinished.before(&stream).is_empty();
    if !later && idle {
        lock(&context.work).interrupt(&stream);
        return run(&steps);
    }
    let steps = steps.clone();
    let ticket = order::in_order(&context, &stream, others, When::Later, move |context, stream| {
        lock(&context.work).interrupt(stream);
        run(&steps)
    })?;
    *lock(&exec.launched) = ticket;
    Ok(())
}

pub(crate) unsafe fn destroy(exec: CUgraphExec) -> Answer {
    let exec = find_exec(exec)?;
    STATE.remove::<Exec>(exec.handle).map(|_| ())
}

/// Changes the step that was made from a node of the original graph.
fn with_step<T>(exec: CUgraphExec, node: CUgraphNode, change: impl FnOnce(&mut Step) -> Answer<T>) -> Answer<T> {
    let exec = find_exec(exec)?;
    let mut steps = lock(&exec.steps);
    let step = steps.iter_mut().find(|step| step.node == node.addr());
    change(step.ok_or(Code::INVALID_VALUE)?)
}

/// Lets a step do something else of the same kind, in the same context.
pub(super) fn set(
    exec: CUgraphExec,
    node: CUgraphNode,
    part: impl FnOnce(&Task) -> Answer<(Arc<Context>, Task)>,
) -> Answer {
    with_step(exec, node, |step| {
        let (context, task) = part(&step.task)?;
        if task.kind() != step.task.kind() || !Arc::ptr_eq(&context, &step.context) {
            return Err(Code::INVALID_VALUE);
        }
        step.task = task;
        Ok(())
    })
}

/// Whether a step can be disabled.
fn can_be_disabled(step: &Step) -> Answer {
    match step.task {
        Task::Kernel(_) | Task::Copy(_) | Task::Fill(_) => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

pub(crate) unsafe fn set_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Answer {
    with_step(exec, node, |step| {
        can_be_disabled(step)?;
        step.enabled = enabled != 0;
        Ok(())
    })
}

pub(crate) unsafe fn get_enabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) -> Answer {
    let answer = with_step(exec, node, |step| {
        can_be_disabled(step)?;
        Ok(c_uint::from(step.enabled))
    })?;
    // SAFETY: the caller promises that `enabled` is valid for a write.
    unsafe { put(enabled, answer) }
}

/// Why an executable graph was not updated: what changed, at which node, and at which edge, by the node before it.
struct Refusal {
    result: c_uint,
    node: usize,
    from: usize,
}

/// Takes over what the nodes of a graph do, where it has the same nodes and edges.
fn take_over(steps: &mut [Step], new: Vec<Step>) -> Result<(), Refusal> {
    let refuse = |result, node, from| Err(Refusal { result, node, from });
    if steps.len() != new.len() {
        return refuse(graph_exec_update_result::TOPOLOGY_CHANGED, 0, 0);
    }
    for (old, step) in steps.iter().zip(&new) {
        if old.task.kind() != step.task.kind() {
            return refuse(graph_exec_update_result::NODE_TYPE_CHANGED, step.node, 0);
        }
        if old.before != step.before {
            let added = step.before.iter().find(|edge| !old.before.contains(edge));
            let from = added.map_or(0, |&(step, _)| new[step].node);
            return refuse(graph_exec_update_result::TOPOLOGY_CHANGED, step.node, from);
        }
        if !Arc::ptr_eq(&old.context, &step.context) {
            let result = graph_exec_update_result::UNSUPPORTED_FUNCTION_CHANGE;
            return refuse(result, step.node, 0);
        }
        let same_memory = match (&old.task, &step.task) {
            (Task::Alloc(a), Task::Alloc(b)) => Arc::ptr_eq(a, b),
            (Task::Free(a), Task::Free(b)) => a == b,
            _ => true,
        };
        if !same_memory {
            return refuse(graph_exec_update_result::PARAMETERS_CHANGED, step.node, 0);
        }
    }
    for (old, step) in steps.iter_mut().zip(new) {
        old.task = step.task;
    }
    Ok(())
}

pub(crate) unsafe fn update_v2(exec: CUgraphExec, graph: CUgraph, result: *mut CUgraphExecUpdateResultInfo) -> Answer {
    let (exec, graph) = (find_exec(exec)?, find(graph)?);
    let new = compile(&graph).map_err(|cycle| Refusal {
        result: graph_exec_update_result::TOPOLOGY_CHANGED,
        node: cycle.node,
        from: 0,
    });
    let taken = new.and_then(|new| take_over(&mut lock(&exec.steps), new));
    let told = match &taken {
        Ok(()) => CUgraphExecUpdateResultInfo {
            result: graph_exec_update_result::SUCCESS,
            errorNode: std::ptr::null_mut(),
            errorFromNode: std::ptr::null_mut(),
        },
        Err(refusal) => CUgraphExecUpdateResultInfo {
            result: refusal.result,
            errorNode: pointer(refusal.node),
            errorFromNode: pointer(refusal.from),
        },
    };
    // SAFETY: the caller promises that `result` is valid for a write.
    unsafe { put(result, told) }?;
    taken.map_err(|_| Code::GRAPH_EXEC_UPDATE_FAILURE)
}

pub(crate) unsafe fn update(
    exec: CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    result: *mut c_uint,
) -> Answer {
    let mut told = CUgraphExecUpdateResultInfo {
        result: graph_exec_update_result::ERROR,
        errorNode: std::ptr::null_mut(),
        errorFromNode: std::ptr::null_mut(),
    };
    // SAFETY: the result is a local one.
    let answer = unsafe { update_v2(exec, graph, &mut told) };
    // SAFETY: the caller promises that both are null or valid for a write.
    unsafe {
        put_if_wanted(error_node, told.errorNode);
        put_if_wanted(result, told.result);
    }
    answer
}
