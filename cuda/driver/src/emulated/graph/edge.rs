//! Dependencies between the nodes of a graph.

use crate::codes::{Answer, Code};
use crate::types::*;

/// A dependency on a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::emulated) struct Edge {
    pub(in crate::emulated) from: usize,
    pub(in crate::emulated) data: CUgraphEdgeData,
}

impl Edge {
    /// A dependency on all of a node.
    pub(in crate::emulated) fn from(node: usize) -> Edge {
        Edge {
            from: node,
            data: CUgraphEdgeData::default(),
        }
    }
}

/// Dependencies as a caller gives them; without data, each is on all of its node.
///
/// # Safety
///
/// `nodes` and `data` must each be null or hold `count` values.
pub(in crate::emulated) unsafe fn edges_from(
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Answer<Vec<Edge>> {
    if nodes.is_null() && count > 0 {
        return Err(Code::INVALID_VALUE);
    }
    let edge = |at: usize| {
        // SAFETY: `at` is below `count`, the caller promises that many nodes.
        let from = unsafe { nodes.add(at).read_unaligned() }.addr();
        // SAFETY: not null, so that many data too.
        let data = (!data.is_null()).then(|| unsafe { data.add(at).read_unaligned() });
        let data = data.unwrap_or_default();
        Edge { from, data }
    };
    Ok((0..count).map(edge).collect())
}
