//! The nodes of a graph and what they depend on, asked and changed.

use crate::codes::{Answer, Code};
use crate::emulated::graph::edge::{Edge, edges_from};
use crate::emulated::graph::{Graph, Node, check_edges, find, find_node};
use crate::emulated::state::{lock, pointer, put};
use crate::types::*;
use std::collections::BTreeMap;

/// Writes a list to arrays of the caller's, as far as there is room, and the number written to `count`. Without arrays,
/// `count` becomes the length of the list.
///
/// # Safety
///
/// `count` must be null or valid for reads and writes; each array must be null or have room for as many values as
/// `count` says.
unsafe fn hand_out(
    edges: &[[usize; 2]],
    data: &[CUgraphEdgeData],
    to: [*mut CUgraphNode; 2],
    data_to: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    if count.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if to.iter().all(|to| to.is_null()) && data_to.is_null() {
        // SAFETY: not null, so valid for a write, the caller promises.
        return unsafe { put(count, edges.len()) };
    }
    // SAFETY: not null, so valid for a read, the caller promises.
    let room = unsafe { count.read_unaligned() };
    for at in 0..room {
        // Places beyond the last are cleared.
        let nodes = edges.get(at).copied().unwrap_or_default();
        for (to, node) in to.into_iter().zip(nodes) {
            if !to.is_null() {
                // SAFETY: `at` is below what there is room for, the caller promises.
                unsafe { to.add(at).write_unaligned(pointer(node)) };
            }
        }
        if !data_to.is_null() {
            // SAFETY: `at` is below `room`, and `data_to` is not null: it has room for so many data, the caller
            // promises.
            unsafe {
                data_to
                    .add(at)
                    .write_unaligned(data.get(at).copied().unwrap_or_default())
            };
        }
    }
    // SAFETY: `count` is not null, so valid for a write, the caller promises.
    unsafe { put(count, edges.len().min(room)) }
}

/// Hands out a list of nodes.
///
/// # Safety
///
/// `count` must be null or valid for reads and writes; `to` must be null or have room for as many nodes as `count`
/// says.
unsafe fn hand_out_nodes(nodes: impl Iterator<Item = usize>, to: *mut CUgraphNode, count: *mut usize) -> Answer {
    let nodes: Vec<[usize; 2]> = nodes.map(|node| [node, 0]).collect();
    // SAFETY: the caller keeps the promise.
    unsafe { hand_out(&nodes, &[], [to, std::ptr::null_mut()], std::ptr::null_mut(), count) }
}

pub(crate) unsafe fn nodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> Answer {
    let graph = find(graph)?;
    let known = lock(&graph.nodes);
    // SAFETY: the caller keeps the promise.
    unsafe { hand_out_nodes(known.keys().copied(), nodes, count) }
}

pub(crate) unsafe fn roots(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> Answer {
    let graph = find(graph)?;
    let known = lock(&graph.nodes);
    let roots = known.iter().filter(|(_, node)| node.before.is_empty());
    // SAFETY: the caller keeps the promise.
    unsafe { hand_out_nodes(roots.map(|(&handle, _)| handle), nodes, count) }
}

/// Which edges of a graph are asked for.
#[derive(Clone, Copy)]
enum Which {
    All,
    From(usize),
    To(usize),
}

/// Hands out edges. Where some have data, the caller must take it.
///
/// # Safety
///
/// `count` must be null or valid for reads and writes; each array must be null or have room for as many values as
/// `count` says.
unsafe fn hand_out_edges(
    graph: &Graph,
    which: Which,
    to: [*mut CUgraphNode; 2],
    data_to: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    let known = lock(&graph.nodes);
    let all = known
        .iter()
        .flat_map(|(&to, node)| node.before.iter().map(move |edge| ([edge.from, to], edge.data)));
    let wanted = all.filter(|&([from, to], _)| match which {
        Which::All => true,
        Which::From(node) => from == node,
        Which::To(node) => to == node,
    });
    let (edges, data): (Vec<_>, Vec<_>) = wanted.unzip();
    let asked = to.iter().any(|to| !to.is_null());
    if asked && data_to.is_null() && data.iter().any(|&data| data != CUgraphEdgeData::default()) {
        return Err(Code::LOSSY_QUERY);
    }
    // SAFETY: the caller keeps the promise.
    unsafe { hand_out(&edges, &data, to, data_to, count) }
}

const NO_NODES: *mut CUgraphNode = std::ptr::null_mut();
const NO_DATA: *mut CUgraphEdgeData = std::ptr::null_mut();

pub(crate) unsafe fn edges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { edges_v2(graph, from, to, NO_DATA, count) }
}

pub(crate) unsafe fn edges_v2(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    let graph = find(graph)?;
    if from.is_null() != to.is_null() || (from.is_null() && !data.is_null()) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller keeps the same promises.
    unsafe { hand_out_edges(&graph, Which::All, [from, to], data, count) }
}

pub(crate) unsafe fn before(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { before_v2(node, nodes, NO_DATA, count) }
}

pub(crate) unsafe fn before_v2(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    let (graph, node) = find_node(node)?;
    if nodes.is_null() && !data.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller keeps the same promises.
    unsafe { hand_out_edges(&graph, Which::To(node), [nodes, NO_NODES], data, count) }
}

pub(crate) unsafe fn after(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { after_v2(node, nodes, NO_DATA, count) }
}

pub(crate) unsafe fn after_v2(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    let (graph, node) = find_node(node)?;
    if nodes.is_null() && !data.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller keeps the same promises.
    unsafe { hand_out_edges(&graph, Which::From(node), [NO_NODES, nodes], data, count) }
}

/// Changes edges, all or none.
///
/// # Safety
///
/// `from`, `to` and `data` must each be null or hold `count` values.
unsafe fn change(
    graph: CUgraph,
    [from, to]: [*const CUgraphNode; 2],
    data: *const CUgraphEdgeData,
    count: usize,
    change: impl Fn(&BTreeMap<usize, Node>, Edge, usize, &mut Vec<Edge>) -> Answer,
) -> Answer {
    let graph = find(graph)?;
    // SAFETY: the caller keeps the promise.
    let (edges, targets) = unsafe { (edges_from(from, data, count)?, edges_from(to, std::ptr::null(), count)?) };
    let mut nodes = lock(&graph.nodes);
    let mut changed: BTreeMap<usize, Vec<Edge>> = BTreeMap::new();
    for (edge, target) in edges.into_iter().zip(targets) {
        let to = target.from;
        let before = nodes.get(&to).map(|node| &node.before).ok_or(Code::INVALID_VALUE)?;
        let before = changed.entry(to).or_insert_with(|| before.clone());
        change(&nodes, edge, to, before)?;
    }
    for (to, before) in changed {
        if let Some(node) = nodes.get_mut(&to) {
            node.before = before;
        }
    }
    Ok(())
}

pub(crate) unsafe fn add(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { add_v2(graph, from, to, NO_DATA, count) }
}

pub(crate) unsafe fn add_v2(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe {
        change(graph, [from, to], data, count, |nodes, edge, to, before| {
            if edge.from == to {
                return Err(Code::INVALID_VALUE);
            }
            before.push(edge);
            check_edges(nodes, before, nodes.get(&to).map(|node| &node.task))
        })
    }
}

pub(crate) unsafe fn remove(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe { remove_v2(graph, from, to, NO_DATA, count) }
}

pub(crate) unsafe fn remove_v2(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Answer {
    // SAFETY: the caller keeps the same promises.
    unsafe {
        change(graph, [from, to], data, count, |_, edge, _, before| {
            let at = before.iter().position(|&known| known == edge);
            before.remove(at.ok_or(Code::INVALID_VALUE)?);
            Ok(())
        })
    }
}
