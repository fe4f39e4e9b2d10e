//! Stream capture and graphs. The emulated driver has none of them.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuStreamBeginCapture_v2(stream: CUstream, mode: c_uint) => unsupported;
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) => unsupported;
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) => unsupported;
    cuGraphCreate(graph: *mut CUgraph, flags: c_uint) => unsupported;
    cuGraphAddKernelNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        parameters: *const c_void,
    ) => unsupported;
    cuGraphKernelNodeGetParams(node: CUgraphNode, parameters: *mut c_void) => unsupported;
    cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint) => unsupported;
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) => unsupported;
    cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) => unsupported;
    cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint) => unsupported;
    cuGraphInstantiate_v2(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        log: *mut c_char,
        log_bytes: usize,
    ) => unsupported;
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) => unsupported;
    cuGraphUpload(exec: CUgraphExec, stream: CUstream) => unsupported;
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream) => unsupported;
    cuGraphExecDestroy(exec: CUgraphExec) => unsupported;
    cuGraphDestroy(graph: CUgraph) => unsupported;
}
