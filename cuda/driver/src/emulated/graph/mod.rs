//! Graphs: pieces of work and what each depends on. A graph belongs to the context that was current when it was made,
//! and goes down with it; its nodes may do work of others.

pub(super) mod edge;
pub(super) mod program;
pub(super) mod user;

use super::context::{Context, ready};
use super::state::{Kind, Owner, STATE, lock};
use super::task::Task;
use crate::codes::{Answer, Code};
use crate::types::*;
use edge::Edge;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

pub(super) struct Graph {
    pub(super) handle: usize,
    /// The handle of its context.
    pub(super) context: usize,
    /// Whether it is part of a node, and goes with it.
    pub(super) embedded: bool,
    /// Whether a capture is adding to it: until it ends, nothing may be taken away.
    capturing: AtomicBool,
    /// By handle: in the order in which they were added.
    pub(super) nodes: Mutex<BTreeMap<usize, Node>>,
    pub(super) users: user::Users,
}

impl Kind for Graph {
    const WORDS: &'static str = "graph";
    const WRONG: Code = Code::INVALID_VALUE;
    fn context(&self) -> usize {
        self.context
    }
    fn owner(&self) -> Owner {
        if self.embedded { Owner::Object } else { Owner::Caller }
    }
}

pub(super) struct Node {
    pub(super) context: Arc<Context>,
    pub(super) task: Task,
    /// What must be done before it.
    pub(super) before: Vec<Edge>,
    /// Of a copy of a graph: the node that it is a copy of.
    pub(super) original: Option<usize>,
}

/// What a node's handle names.
pub(super) struct Named {
    pub(super) context: usize,
    node: usize,
    graph: Weak<Graph>,
}

impl Kind for Named {
    const WORDS: &'static str = "graph node";
    const WRONG: Code = Code::INVALID_VALUE;
    fn context(&self) -> usize {
        self.context
    }
    fn owner(&self) -> Owner {
        Owner::Object
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let nodes = self.nodes.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (handle, node) in std::mem::take(nodes) {
            forget(handle, &node);
        }
    }
}

/// Takes a node's handle out of use, and its graph's where it has one. Where the context has gone, they have gone with
/// it.
pub(super) fn forget(handle: usize, node: &Node) {
    let _ = STATE.remove::<Named>(handle);
    if let Task::Child(child) = &node.task {
        let _ = STATE.remove::<Graph>(child.handle);
    }
}

/// Whether an edge is one that CUDA has: to all of the node before, or from one kernel to another that may start early.
fn check_data(data: CUgraphEdgeData, from: &Task, to: Option<&Task>) -> Answer {
    let plain = data == CUgraphEdgeData::default();
    let programmatic = data.r#type == graph_edge::PROGRAMMATIC
        && data.from_port <= graph_edge::PORT_LAUNCH_ORDER
        && data.to_port == 0
        && data.reserved == [0; 5];
    let is_kernel = |task: &Task| matches!(task, Task::Kernel(_));
    if plain || (programmatic && is_kernel(from) && to.is_none_or(is_kernel)) {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// Whether all edges come from nodes of the graph, no two from the same, and go to a node of this kind, where it is
/// known.
pub(super) fn check_edges(nodes: &BTreeMap<usize, Node>, edges: &[Edge], to: Option<&Task>) -> Answer {
    let mut seen = BTreeSet::new();
    for edge in edges {
        let from = nodes.get(&edge.from).ok_or(Code::INVALID_VALUE)?;
        check_data(edge.data, &from.task, to)?;
        if !seen.insert(edge.from) {
            return Err(Code::INVALID_VALUE);
        }
    }
    Ok(())
}

impl Graph {
    /// An empty graph, known by its handle.
    pub(super) fn new(context: usize, embedded: bool) -> Arc<Graph> {
        let graph = Arc::new(Graph {
            handle: STATE.fresh(),
            context,
            embedded,
            capturing: AtomicBool::new(false),
            nodes: Mutex::default(),
            users: user::Users::default(),
        });
        STATE.insert(graph.handle, graph.clone());
        graph
    }

    /// Adds a node and returns its handle.
    pub(super) fn add(self: &Arc<Self>, context: &Arc<Context>, task: Task, before: Vec<Edge>) -> Answer<usize> {
        let mut nodes = lock(&self.nodes);
        check_edges(&nodes, &before, Some(&task))?;
        let handle = STATE.fresh();
        let node = Node {
            context: context.clone(),
            task,
            before,
            original: None,
        };
        nodes.insert(handle, node);
        self.name(handle);
        Ok(handle)
    }

    /// Lets a node be found by its handle.
    fn name(self: &Arc<Self>, node: usize) {
        let named = Named {
            context: self.context,
            node,
            graph: Arc::downgrade(self),
        };
        STATE.insert(node, Arc::new(named));
    }

    /// A copy with nodes of its own, down to the graphs within. What allocates or frees cannot be copied: it would be
    /// the same memory.
    pub(super) fn copy(&self, context: usize, embedded: bool) -> Answer<Arc<Graph>> {
        let of_memory = |node: &Node| matches!(node.task, Task::Alloc(_) | Task::Free(_));
        if lock(&self.nodes).values().any(of_memory) {
            return Err(Code::NOT_SUPPORTED);
        }
        let copy = Graph::new(context, embedded);
        copy.users.share(&self.users);
        let originals = lock(&self.nodes);
        let handles: BTreeMap<usize, usize> = originals.keys().map(|&node| (node, STATE.fresh())).collect();
        for (original, node) in originals.iter() {
            let edge = |edge: &Edge| {
                let from = *handles.get(&edge.from)?;
                Some(Edge { from, data: edge.data })
            };
            let task = match &node.task {
                Task::Child(child) => Task::Child(child.copy(context, true)?),
                task => task.clone(),
            };
            let node = Node {
                context: node.context.clone(),
                task,
                before: node.before.iter().filter_map(edge).collect(),
                original: Some(*original),
            };
            let handle = handles[original];
            lock(&copy.nodes).insert(handle, node);
            copy.name(handle);
        }
        Ok(copy)
    }

    /// Notes whether a capture is adding to it; returns what was noted before.
    pub(super) fn set_capturing(&self, capturing: bool) -> bool {
        self.capturing.swap(capturing, Ordering::AcqRel)
    }

    /// Whether nothing stands in the way of taking nodes away.
    pub(super) fn check_free(&self) -> Answer {
        if self.capturing.load(Ordering::Acquire) {
            Err(Code::INVALID_VALUE)
        } else {
            Ok(())
        }
    }

    /// Whether a node that is to come can depend on these.
    pub(super) fn check_edges(&self, edges: &[Edge]) -> Answer {
        check_edges(&lock(&self.nodes), edges, None)
    }

    /// The nodes at these edges and all before them.
    pub(super) fn all_before(&self, edges: &[Edge]) -> BTreeSet<usize> {
        let nodes = lock(&self.nodes);
        let mut found = BTreeSet::new();
        let mut left: Vec<usize> = edges.iter().map(|edge| edge.from).collect();
        while let Some(node) = left.pop() {
            if found.insert(node) {
                let before = nodes.get(&node).map(|node| node.before.as_slice());
                left.extend(before.unwrap_or_default().iter().map(|edge| edge.from));
            }
        }
        found
    }
}

/// A graph by its handle.
pub(super) fn find(graph: CUgraph) -> Answer<Arc<Graph>> {
    ready()?;
    STATE.find(graph.addr())
}

/// The graph of a node, and the node's number in it.
pub(super) fn find_node(node: CUgraphNode) -> Answer<(Arc<Graph>, usize)> {
    ready()?;
    let named = STATE.find::<Named>(node.addr())?;
    let graph = named.graph.upgrade().ok_or(Code::INVALID_VALUE)?;
    Ok((graph, named.node))
}
