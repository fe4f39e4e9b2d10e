//! Graphs: nodes, edges, executable graphs.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Cust:
    cuGraphCreate(graph: *mut CUgraph, flags: c_uint) => graph::create;
    cuGraphClone(clone: *mut CUgraph, graph: CUgraph) => graph::duplicate;
    cuGraphDestroy(graph: CUgraph) => graph::destroy;
    cuGraphAddKernelNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        parameters: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) => graph::node::add_kernel;
    cuGraphKernelNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_KERNEL_NODE_PARAMS_v1) => graph::node::get_kernel;
    cuGraphKernelNodeSetParams(node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS_v1) => graph::node::set_kernel;
    cuGraphKernelNodeGetAttribute(
        node: CUgraphNode,
        attribute: c_uint,
        value: *mut CUlaunchAttributeValue,
    ) => graph::node::get_attribute;
    cuGraphKernelNodeSetAttribute(
        node: CUgraphNode,
        attribute: c_uint,
        value: *const CUlaunchAttributeValue,
    ) => graph::node::set_attribute;
    cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) => graph::node::copy_attributes;
    cuGraphAddMemcpyNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        parameters: *const CUDA_MEMCPY3D,
        context: CUcontext,
    ) => graph::node::add_copy;
    cuGraphMemcpyNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_MEMCPY3D) => graph::node::get_copy;
    cuGraphMemcpyNodeSetParams(node: CUgraphNode, parameters: *const CUDA_MEMCPY3D) => graph::node::set_copy;
    cuGraphAddMemsetNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        parameters: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    ) => graph::node::add_fill;
    cuGraphMemsetNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_MEMSET_NODE_PARAMS) => graph::node::get_fill;
    cuGraphMemsetNodeSetParams(node: CUgraphNode, parameters: *const CUDA_MEMSET_NODE_PARAMS) => graph::node::set_fill;
    cuGraphAddHostNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        parameters: *const CUDA_HOST_NODE_PARAMS,
    ) => graph::node::add_host;
    cuGraphHostNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_HOST_NODE_PARAMS) => graph::node::get_host;
    cuGraphHostNodeSetParams(node: CUgraphNode, parameters: *const CUDA_HOST_NODE_PARAMS) => graph::node::set_host;
    cuGraphAddEmptyNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
    ) => graph::node::add_empty;
    cuGraphAddChildGraphNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        child: CUgraph,
    ) => graph::node::add_child;
    cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) => graph::node::get_child;
    cuGraphAddEventRecordNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) => graph::node::add_record;
    cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent) => graph::node::get_record;
    cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) => graph::node::set_record;
    cuGraphAddEventWaitNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) => graph::node::add_wait;
    cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent) => graph::node::get_wait;
    cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) => graph::node::set_wait;
    cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint) => graph::node::kind;
    cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) => graph::node::find_in_clone;
    cuGraphDestroyNode(node: CUgraphNode) => graph::node::destroy;
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) => graph::edge::nodes;
    cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) => graph::edge::roots;
    cuGraphGetEdges(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        count: *mut usize,
    ) => graph::edge::edges;
    cuGraphNodeGetDependencies(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) => graph::edge::before;
    cuGraphNodeGetDependentNodes(node: CUgraphNode, nodes: *mut CUgraphNode, count: *mut usize) => graph::edge::after;
    cuGraphAddDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
    ) => graph::edge::add;
    cuGraphRemoveDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
    ) => graph::edge::remove;
    cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint) => graph::dot::print;
    cuGraphInstantiate(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        log: *mut c_char,
        log_bytes: usize,
    ) => graph::exec::instantiate;
    cuGraphInstantiate_v2(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        log: *mut c_char,
        log_bytes: usize,
    ) => graph::exec::instantiate;
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) => graph::exec::instantiate_with_flags;
    cuGraphExecKernelNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) => graph::node::exec_set_kernel;
    cuGraphExecMemcpyNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: *const CUDA_MEMCPY3D,
        context: CUcontext,
    ) => graph::node::exec_set_copy;
    cuGraphExecMemsetNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    ) => graph::node::exec_set_fill;
    cuGraphExecHostNodeSetParams(
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: *const CUDA_HOST_NODE_PARAMS,
    ) => graph::node::exec_set_host;
    cuGraphExecEventRecordNodeSetEvent(
        exec: CUgraphExec,
        node: CUgraphNode,
        event: CUevent,
    ) => graph::node::exec_set_record;
    cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent) => graph::node::exec_set_wait;
    cuGraphExecUpdate(
        exec: CUgraphExec,
        graph: CUgraph,
        error_node: *mut CUgraphNode,
        result: *mut c_uint,
    ) => graph::exec::update;
    cuGraphUpload / cuGraphUpload_ptsz(exec: CUgraphExec, stream: CUstream) => graph::exec::upload;
    cuGraphLaunch / cuGraphLaunch_ptsz(exec: CUgraphExec, stream: CUstream) => graph::exec::launch;
    cuGraphExecDestroy(exec: CUgraphExec) => graph::exec::destroy;
    cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph) => unsupported;
    cuGraphAddMemAllocNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) => graph::memory::add_alloc;
    cuGraphAddMemFreeNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        address: CUdeviceptr,
    ) => graph::memory::add_free;
}
