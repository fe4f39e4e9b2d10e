//! A graph made ready to run: its nodes and those of the graphs within, one after the other, in an order that its edges
//! allow. Of several such orders it is the one nearest to that in which the nodes were added, so one graph always runs
//! the same way.

use super::{Graph, Node};
use crate::codes::{Answer, Code};
use crate::emulated::context::Context;
use crate::emulated::state::{STATE, lock};
use crate::emulated::task::Task;
use crate::types::{CUgraphEdgeData, graph_edge};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A piece of work and the steps that it depends on.
#[derive(Clone)]
pub(in crate::emulated) struct Step {
    /// The node that it was made from.
    pub(in crate::emulated) node: usize,
    pub(in crate::emulated) context: Arc<Context>,
    pub(in crate::emulated) task: Task,
    pub(in crate::emulated) before: Vec<(usize, CUgraphEdgeData)>,
    pub(in crate::emulated) enabled: bool,
}

impl Step {
    /// Whether it may wait for what the caller does next.
    pub(in crate::emulated) fn may_wait(&self) -> bool {
        self.enabled && matches!(self.task, Task::Host(_))
    }

    /// The step that this one may overlap: a kernel before it that may still run when it starts.
    fn overlapped(&self) -> Option<usize> {
        let early = |&&(_, data): &&(usize, CUgraphEdgeData)| data.r#type == graph_edge::PROGRAMMATIC;
        self.before.iter().rev().find(early).map(|&(step, _)| step)
    }
}

/// Why a graph cannot be made ready: a node on a cycle.
pub(in crate::emulated) struct Cycle {
    pub(in crate::emulated) node: usize,
}

/// Nodes in an order in which each comes after those it depends on.
fn ordered(nodes: &BTreeMap<usize, Node>) -> Result<Vec<usize>, Cycle> {
    let mut left: BTreeMap<usize, usize> = nodes.iter().map(|(&node, n)| (node, n.before.len())).collect();
    let mut after: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (&node, n) in nodes {
        for edge in &n.before {
            after.entry(edge.from).or_default().push(node);
        }
    }
    let mut ready: BTreeSet<usize> = nodes
        .iter()
        .filter(|(_, n)| n.before.is_empty())
        .map(|(&n, _)| n)
        .collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(node) = ready.pop_first() {
        order.push(node);
        left.remove(&node);
        for &next in after.get(&node).into_iter().flatten() {
            if let Some(count) = left.get_mut(&next) {
                *count -= 1;
                if *count == 0 {
                    ready.insert(next);
                }
            }
        }
    }
    match left.first_key_value() {
        Some((&node, _)) => Err(Cycle { node }),
        None => Ok(order),
    }
}

/// The steps of a graph.
pub(in crate::emulated) fn compile(graph: &Graph) -> Result<Vec<Step>, Cycle> {
    let mut steps = Vec::new();
    append(&mut steps, graph, &[])?;
    Ok(steps)
}

/// Appends a graph's steps, those without a dependency of their own after `entry`. The steps that nothing in the graph
/// depends on.
fn append(
    steps: &mut Vec<Step>,
    graph: &Graph,
    entry: &[(usize, CUgraphEdgeData)],
) -> Result<Vec<(usize, CUgraphEdgeData)>, Cycle> {
    let nodes = lock(&graph.nodes);
    // For each node, the steps that whatever depends on it has to wait for.
    let mut ends: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut inner: BTreeSet<usize> = BTreeSet::new();
    for handle in ordered(&nodes)? {
        let node = &nodes[&handle];
        inner.extend(node.before.iter().map(|edge| edge.from));
        let mut own = Vec::new();
        for edge in &node.before {
            for &step in ends.get(&edge.from).map(Vec::as_slice).unwrap_or_default() {
                // An empty graph passes on what it depends on, which may be known already.
                if own.iter().all(|&(known, _)| known != step) {
                    own.push((step, edge.data));
                }
            }
        }
        let before = if node.before.is_empty() { entry.to_vec() } else { own };
        let last = match &node.task {
            Task::Child(child) => append(steps, child, &before)?
                .into_iter()
                .map(|(step, _)| step)
                .collect(),
            task => {
                steps.push(Step {
                    node: handle,
                    context: node.context.clone(),
                    task: task.clone(),
                    before,
                    enabled: true,
                });
                vec![steps.len() - 1]
            }
        };
        ends.insert(handle, last);
    }
    if nodes.is_empty() {
        return Ok(entry.to_vec());
    }
    let leaves = ends.into_iter().filter(|(node, _)| !inner.contains(node));
    Ok(leaves
        .flat_map(|(_, steps)| steps)
        .map(|step| (step, CUgraphEdgeData::default()))
        .collect())
}

/// A context that is the one behind its handle still, and fit for work.
fn check_alive(context: &Arc<Context>) -> Answer {
    let there = STATE
        .find::<Context>(context.context)
        .map_err(|_| Code::CONTEXT_IS_DESTROYED)?;
    if Arc::ptr_eq(&there, context) {
        context.check()
    } else {
        Err(Code::CONTEXT_IS_DESTROYED)
    }
}

/// Whether two steps can run under one lock: work of one context, neither a call of the host, which may wait for
/// others.
fn together(a: &Step, b: &Step) -> bool {
    let on_host = |step: &Step| matches!(step.task, Task::Host(_));
    Arc::ptr_eq(&a.context, &b.context) && !on_host(a) && !on_host(b)
}

/// Runs the steps, up to the first that faults: then its context says so from the next call on.
pub(in crate::emulated) fn run(steps: &[Step]) -> Answer {
    steps
        .chunk_by(together)
        .try_for_each(|group| check_alive(&group[0].context))?;
    let mut launches = vec![None; steps.len()];
    let mut at = 0;
    for group in steps.chunk_by(together) {
        let context = &group[0].context;
        if let [
            Step {
                task: Task::Host(call), ..
            },
        ] = group
        {
            call.run();
            at += 1;
            continue;
        }
        let mut work = lock(&context.work);
        for step in group {
            if step.enabled {
                let overlaps = step.overlapped().and_then(|step| launches[step]);
                launches[at] = step.task.replay(context, &mut work, overlaps)?;
                if context.check().is_err() {
                    return Ok(());
                }
            }
            at += 1;
        }
    }
    Ok(())
}
