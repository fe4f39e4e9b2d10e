//! Nodes: adding them, and asking and changing what they do, in a graph or in one made executable.

use super::exec;
use crate::codes::{Answer, Code};
use crate::emulated::context::{Context, current, named};
use crate::emulated::copy::{Copy, Fill};
use crate::emulated::event;
use crate::emulated::graph::edge::edges_from;
use crate::emulated::graph::{Graph, find, find_node, forget};
use crate::emulated::kernel::{Kernel, Shape};
use crate::emulated::library;
use crate::emulated::state::{STATE, lock, pointer, put};
use crate::emulated::task::{HostCall, Task};
use crate::types::*;
use std::sync::Arc;

/// What a node does, and in which context.
type Part = (Arc<Context>, Task);

/// Adds a node.
///
/// # Safety
///
/// `node` must be null or valid for a write, and `dependencies` null or hold `count` values.
pub(super) unsafe fn add(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    part: impl FnOnce(&Graph) -> Answer<Part>,
) -> Answer {
    let graph = find(graph)?;
    if node.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller keeps the promise.
    let before = unsafe { edges_from(dependencies, std::ptr::null(), count) }?;
    // Checked before `part` runs: a child graph that it makes would leak if the edges were refused afterwards.
    graph.check_edges(&before)?;
    let (context, task) = part(&graph)?;
    // SAFETY: `node` is not null, so valid for a write, the caller promises.
    unsafe { put(node, pointer(graph.add(&context, task, before)?)) }
}

/// Lets a node do something else of the same kind, in the same context.
fn set(node: CUgraphNode, part: impl FnOnce(&Task) -> Answer<Part>) -> Answer {
    let (graph, handle) = find_node(node)?;
    let mut nodes = lock(&graph.nodes);
    let node = nodes.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
    let (context, task) = part(&node.task)?;
    if task.kind() != node.task.kind() || !Arc::ptr_eq(&context, &node.context) {
        return Err(Code::INVALID_VALUE);
    }
    node.task = task;
    Ok(())
}

/// Asks a node what it does.
pub(super) fn get<T>(node: CUgraphNode, get: impl FnOnce(&Task) -> Option<T>) -> Answer<T> {
    let (graph, handle) = find_node(node)?;
    let nodes = lock(&graph.nodes);
    let node = nodes.get(&handle).ok_or(Code::INVALID_VALUE)?;
    get(&node.task).ok_or(Code::INVALID_VALUE)
}

/// The context of a memory node; null is the current one.
fn context_of(context: CUcontext) -> Answer<Arc<Context>> {
    let context = named(context)?;
    context.check()?;
    Ok(context)
}

/// Reads what a kernel node launches.
///
/// # Safety
///
/// `parameters` must be null or valid, with what they point to as a launch wants it.
unsafe fn kernel(parameters: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Answer<Part> {
    // SAFETY: null or valid, the caller promises.
    let p = unsafe { parameters.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    let function = library::function(p.func)?;
    let shape = Shape {
        grid: [p.gridDimX, p.gridDimY, p.gridDimZ],
        block: [p.blockDimX, p.blockDimY, p.blockDimZ],
        dynamic_shared: p.sharedMemBytes,
        cluster: None,
        cooperative: false,
    };
    // SAFETY: the caller keeps the promise.
    let kernel = unsafe { Kernel::new(function, shape, p.kernelParams, p.extra) }?;
    Ok((current()?, Task::Kernel(Arc::new(kernel))))
}

/// Reads the second version of the parameters, which can name a kernel of a library instead of a function.
///
/// # Safety
///
/// `parameters` must be null or valid, with what they point to as a launch wants it.
unsafe fn kernel_v2(parameters: *const CUDA_KERNEL_NODE_PARAMS_v2) -> Answer<Part> {
    // SAFETY: null or valid, the caller promises.
    let mut p = *unsafe { parameters.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    if p.v1.func.is_null() {
        p.v1.func = p.kern;
    }
    // SAFETY: the caller keeps the promise.
    unsafe { kernel(&p.v1) }
}

/// # Safety
///
/// `parameters` must be null or valid.
unsafe fn copy(parameters: *const CUDA_MEMCPY3D, context: CUcontext) -> Answer<Part> {
    let context = context_of(context)?;
    // SAFETY: null or valid, the caller promises.
    let params = unsafe { parameters.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    Ok((context, Task::Copy(Box::new(Copy::new(*params)?))))
}

/// # Safety
///
/// `parameters` must be null or valid.
unsafe fn fill(parameters: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Answer<Part> {
    let context = context_of(context)?;
    // SAFETY: null or valid, the caller promises.
    let params = unsafe { parameters.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    Ok((context, Task::Fill(Fill::new(*params)?)))
}

/// # Safety
///
/// `parameters` must be null or valid.
unsafe fn host(parameters: *const CUDA_HOST_NODE_PARAMS) -> Answer<Part> {
    // SAFETY: null or valid, the caller promises.
    let params = unsafe { parameters.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    Ok((current()?, Task::Host(HostCall::new(*params)?)))
}

/// # Safety
///
/// Asks nothing of the caller: a handle is looked up. It is unsafe because the other readers are.
unsafe fn record(event: CUevent) -> Answer<Part> {
    Ok((current()?, Task::Record(event::find(event)?)))
}

/// # Safety
///
/// Asks nothing of the caller: a handle is looked up. It is unsafe because the other readers are.
unsafe fn wait(event: CUevent) -> Answer<Part> {
    Ok((current()?, Task::Wait(event::find(event)?)))
}

/// For each kind of node, the calls that add one, change it in its graph, and change it in an executable graph. They
/// differ in how they read what the node shall do.
macro_rules! kinds {
    ($($read:ident($parameters:ty $(, $context:ident)?) $add:ident $set:ident $exec_set:ident;)*) => {
        $(
            pub(crate) unsafe fn $add(
                node: *mut CUgraphNode,
                graph: CUgraph,
                dependencies: *const CUgraphNode,
                count: usize,
                parameters: $parameters,
                $($context: CUcontext,)?
            ) -> Answer {
                // SAFETY: the caller keeps the same promises.
                unsafe { add(node, graph, dependencies, count, |_| $read(parameters $(, $context)?)) }
            }

            pub(crate) unsafe fn $exec_set(
                exec: CUgraphExec,
                node: CUgraphNode,
                parameters: $parameters,
                $($context: CUcontext,)?
            ) -> Answer {
                // SAFETY: the caller keeps the same promises.
                exec::set(exec, node, |_| unsafe { $read(parameters $(, $context)?) })
            }

            kinds!(@set $read $set $parameters $(, $context)?);
        )*
    };
    (@set $read:ident $set:ident $parameters:ty) => {
        pub(crate) unsafe fn $set(node: CUgraphNode, parameters: $parameters) -> Answer {
            // SAFETY: the caller keeps the same promises.
            set(node, |_| unsafe { $read(parameters) })
        }
    };
    // A node keeps its context, so the call that changes it is not told one.
    (@set $read:ident $set:ident $parameters:ty, $context:ident) => {
        pub(crate) unsafe fn $set(node: CUgraphNode, parameters: $parameters) -> Answer {
            let $context = context_of_node(node)?;
            // SAFETY: the caller keeps the same promises.
            set(node, |_| unsafe { $read(parameters, $context) })
        }
    };
}

fn context_of_node(node: CUgraphNode) -> Answer<CUcontext> {
    let (graph, handle) = find_node(node)?;
    let nodes = lock(&graph.nodes);
    let node = nodes.get(&handle).ok_or(Code::INVALID_VALUE)?;
    Ok(pointer(node.context.context))
}

kinds! {
    kernel(*const CUDA_KERNEL_NODE_PARAMS_v1) add_kernel set_kernel exec_set_kernel;
    kernel_v2(*const CUDA_KERNEL_NODE_PARAMS_v2) add_kernel_v2 set_kernel_v2 exec_set_kernel_v2;
    copy(*const CUDA_MEMCPY3D, context) add_copy set_copy exec_set_copy;
    fill(*const CUDA_MEMSET_NODE_PARAMS, context) add_fill set_fill exec_set_fill;
    host(*const CUDA_HOST_NODE_PARAMS) add_host set_host exec_set_host;
    record(CUevent) add_record set_record exec_set_record;
    wait(CUevent) add_wait set_wait exec_set_wait;
}

pub(crate) unsafe fn add_empty(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { add(node, graph, dependencies, count, |_| Ok((current()?, Task::Empty))) }
}

pub(crate) unsafe fn add_child(
    node: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> Answer {
    let child = find(child)?;
    // SAFETY: the caller keeps the same promises.
    unsafe {
        add(node, graph, dependencies, count, |graph| {
            if graph.handle == child.handle {
                return Err(Code::INVALID_VALUE);
            }
            Ok((current()?, Task::Child(child.copy(graph.context, true)?)))
        })
    }
}

pub(crate) unsafe fn get_child(node: CUgraphNode, graph: *mut CUgraph) -> Answer {
    let child = get(node, |task| match task {
        Task::Child(child) => Some(child.handle),
        _ => None,
    })?;
    // SAFETY: the caller promises that `graph` is valid for a write.
    unsafe { put(graph, pointer(child)) }
}

/// What a kernel node launches. The pointers in it are good until the node is changed.
fn kernel_of(node: CUgraphNode) -> Answer<Arc<Kernel>> {
    get(node, |task| match task {
        Task::Kernel(kernel) => Some(kernel.clone()),
        _ => None,
    })
}

pub(crate) unsafe fn get_kernel(node: CUgraphNode, parameters: *mut CUDA_KERNEL_NODE_PARAMS_v1) -> Answer {
    let kernel = kernel_of(node)?;
    let ([gx, gy, gz], [bx, by, bz]) = (kernel.shape.grid, kernel.shape.block);
    let told = CUDA_KERNEL_NODE_PARAMS_v1 {
        func: pointer(kernel.function.handle),
        gridDimX: gx,
        gridDimY: gy,
        gridDimZ: gz,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: kernel.shape.dynamic_shared,
        kernelParams: kernel.parameters(),
        extra: std::ptr::null_mut(),
    };
    // SAFETY: the caller promises that `parameters` is valid for a write.
    unsafe { put(parameters, told) }
}

pub(crate) unsafe fn get_kernel_v2(node: CUgraphNode, parameters: *mut CUDA_KERNEL_NODE_PARAMS_v2) -> Answer {
    let context = pointer(kernel_of(node)?.function.context);
    if parameters.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for a write, the caller promises.
    unsafe {
        get_kernel(node, (&raw mut (*parameters).v1).cast())?;
        put(&raw mut (*parameters).kern, std::ptr::null_mut())?;
        put(&raw mut (*parameters).ctx, context)
    }
}

pub(crate) unsafe fn get_copy(node: CUgraphNode, parameters: *mut CUDA_MEMCPY3D) -> Answer {
    let copy = get(node, |task| match task {
        Task::Copy(copy) => Some(copy.params),
        _ => None,
    })?;
    // SAFETY: the caller promises that `parameters` is valid for a write.
    unsafe { put(parameters, copy) }
}

pub(crate) unsafe fn get_fill(node: CUgraphNode, parameters: *mut CUDA_MEMSET_NODE_PARAMS) -> Answer {
    let fill = get(node, |task| match task {
        Task::Fill(fill) => Some(*fill),
        _ => None,
    })?;
    // SAFETY: the caller promises that `parameters` is valid for a write.
    unsafe { put(parameters, fill.0) }
}

pub(crate) unsafe fn get_host(node: CUgraphNode, parameters: *mut CUDA_HOST_NODE_PARAMS) -> Answer {
    let call = get(node, |task| match task {
        Task::Host(call) => Some(*call),
        _ => None,
    })?;
    // SAFETY: the caller promises that `parameters` is valid for a write.
    unsafe { put(parameters, call.0) }
}

pub(crate) unsafe fn get_record(node: CUgraphNode, event: *mut CUevent) -> Answer {
    let handle = get(node, |task| match task {
        Task::Record(event) => Some(event.handle),
        _ => None,
    })?;
    // SAFETY: the caller promises that `event` is valid for a write.
    unsafe { put(event, pointer(handle)) }
}

pub(crate) unsafe fn get_wait(node: CUgraphNode, event: *mut CUevent) -> Answer {
    let handle = get(node, |task| match task {
        Task::Wait(event) => Some(event.handle),
        _ => None,
    })?;
    // SAFETY: the caller promises that `event` is valid for a write.
    unsafe { put(event, pointer(handle)) }
}

pub(crate) unsafe fn get_attribute(node: CUgraphNode, attribute: c_uint, value: *mut CUlaunchAttributeValue) -> Answer {
    let told = kernel_of(node)?.shape.attribute(attribute)?;
    // SAFETY: the caller promises that `value` is valid for a write.
    unsafe { put(value, told) }
}

/// Gives a kernel node another shape.
fn reshape(node: CUgraphNode, change: impl FnOnce(&mut Shape) -> Answer) -> Answer {
    set(node, |task| {
        let Task::Kernel(kernel) = task else {
            return Err(Code::INVALID_VALUE);
        };
        let mut shape = kernel.shape;
        change(&mut shape)?;
        let kernel = kernel.reshaped(shape)?;
        let context = STATE.find::<Context>(kernel.function.context)?;
        Ok((context, Task::Kernel(Arc::new(kernel))))
    })
}

pub(crate) unsafe fn set_attribute(
    node: CUgraphNode,
    attribute: c_uint,
    value: *const CUlaunchAttributeValue,
) -> Answer {
    if value.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so valid for a read, the caller promises.
    let value = unsafe { value.read_unaligned() };
    reshape(node, |shape| shape.apply(attribute, value))
}

pub(crate) unsafe fn copy_attributes(to: CUgraphNode, from: CUgraphNode) -> Answer {
    let cluster = kernel_of(from)?.shape.cluster;
    reshape(to, |shape| {
        shape.cluster = cluster;
        Ok(())
    })
}

pub(crate) unsafe fn kind(node: CUgraphNode, kind: *mut c_uint) -> Answer {
    let number = get(node, |task| Some(task.kind()))?;
    // SAFETY: the caller promises that `kind` is valid for a write.
    unsafe { put(kind, number) }
}

pub(crate) unsafe fn find_in_clone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) -> Answer {
    let (_, original) = find_node(original)?;
    let clone = find(clone)?;
    let nodes = lock(&clone.nodes);
    let found = nodes.iter().find(|(_, node)| node.original == Some(original));
    let (&handle, _) = found.ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the caller promises that `node` is valid for a write.
    unsafe { put(node, pointer(handle)) }
}

pub(crate) unsafe fn destroy(node: CUgraphNode) -> Answer {
    let (graph, handle) = find_node(node)?;
    graph.check_free()?;
    let mut nodes = lock(&graph.nodes);
    let gone = nodes.remove(&handle).ok_or(Code::INVALID_VALUE)?;
    for node in nodes.values_mut() {
        node.before.retain(|edge| edge.from != handle);
    }
    forget(handle, &gone);
    Ok(())
}
