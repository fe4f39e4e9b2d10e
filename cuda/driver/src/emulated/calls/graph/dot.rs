//! A graph as text for Graphviz.

use crate::codes::{Answer, Code};
use crate::emulated::graph::{Graph, find};
use crate::emulated::state::lock;
use crate::emulated::task::Task;
use crate::types::*;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt::Write as _;

/// The flags that exist; all nodes are shown the same, whatever is asked for.
const FLAGS: c_uint = 0x1_ffff;

fn label(task: &Task) -> String {
    match task {
        Task::Kernel(kernel) => kernel.function.info.name.clone(),
        Task::Copy(_) => "memcpy".into(),
        Task::Fill(_) => "memset".into(),
        Task::Host(_) => "host".into(),
        Task::Child(_) => "graph".into(),
        Task::Empty => "empty".into(),
        Task::Alloc(_) => "alloc".into(),
        Task::Free(_) => "free".into(),
        Task::Wait(_) => "wait".into(),
        Task::Record(_) => "record".into(),
    }
}

fn text(graph: &Graph) -> String {
    let nodes = lock(&graph.nodes);
    let number: BTreeMap<usize, usize> = nodes.keys().copied().zip(0..).collect();
    let mut text = String::from("digraph graph_0 {\n");
    for (at, node) in nodes.values().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  n{at} [label=\"{at}: {}\"];", label(&node.task));
        for edge in &node.before {
            let style = match edge.data.r#type {
                graph_edge::PROGRAMMATIC => " [style=dashed]",
                _ => "",
            };
            if let Some(from) = number.get(&edge.from) {
                let _ = writeln!(text, "  n{from} -> n{at}{style};");
            }
        }
    }
    text + "}\n"
}

pub(crate) unsafe fn print(graph: CUgraph, path: *const c_char, flags: c_uint) -> Answer {
    let graph = find(graph)?;
    if path.is_null() || flags & !FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a C string, the caller promises.
    let path = unsafe { CStr::from_ptr(path) }
        .to_str()
        .map_err(|_| Code::INVALID_VALUE)?;
    std::fs::write(path, text(&graph)).map_err(|_| Code::OPERATING_SYSTEM)
}
