//! Of stream capture and graphs, what `cust`'s bindings lack: edges with data, and the later versions of older
//! functions.

use crate::table::driver_api;
use crate::types::*;

driver_api! { Ours:
    cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz(
        stream: CUstream,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        mode: c_uint,
    ) => capture::begin_to_graph;
    cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        stream: CUstream,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut CUgraph,
        dependencies: *mut *const CUgraphNode,
        edges: *mut *const CUgraphEdgeData,
        count: *mut usize,
    ) => capture::info_v3;
    cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz(
        stream: CUstream,
        dependencies: *mut CUgraphNode,
        edges: *const CUgraphEdgeData,
        count: usize,
        flags: c_uint,
    ) => capture::update_dependencies_v2;
    cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        parameters: *const CUDA_KERNEL_NODE_PARAMS_v2,
    ) => graph::node::add_kernel_v2;
    cuGraphKernelNodeGetParams_v2(
        node: CUgraphNode,
        parameters: *mut CUDA_KERNEL_NODE_PARAMS_v2,
    ) => graph::node::get_kernel_v2;
    cuGraphKernelNodeSetParams_v2(
        node: CUgraphNode,
        parameters: *const CUDA_KERNEL_NODE_PARAMS_v2,
    ) => graph::node::set_kernel_v2;
    cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec,
        node: CUgraphNode,
        parameters: *const CUDA_KERNEL_NODE_PARAMS_v2,
    ) => graph::node::exec_set_kernel_v2;
    cuGraphGetEdges_v2(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        data: *mut CUgraphEdgeData,
        count: *mut usize,
    ) => graph::edge::edges_v2;
    cuGraphNodeGetDependencies_v2(
        node: CUgraphNode,
        nodes: *mut CUgraphNode,
        data: *mut CUgraphEdgeData,
        count: *mut usize,
    ) => graph::edge::before_v2;
    cuGraphNodeGetDependentNodes_v2(
        node: CUgraphNode,
        nodes: *mut CUgraphNode,
        data: *mut CUgraphEdgeData,
        count: *mut usize,
    ) => graph::edge::after_v2;
    cuGraphAddDependencies_v2(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        data: *const CUgraphEdgeData,
        count: usize,
    ) => graph::edge::add_v2;
    cuGraphRemoveDependencies_v2(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        data: *const CUgraphEdgeData,
        count: usize,
    ) => graph::edge::remove_v2;
    cuGraphMemAllocNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS) => graph::memory::get_alloc;
    cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr) => graph::memory::get_free;
    cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void) => graph::memory::get_attribute;
    cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void) => graph::memory::set_attribute;
    cuDeviceGraphMemTrim(device: CUdevice) => graph::memory::trim;
    cuUserObjectCreate(
        out: *mut CUuserObject,
        object: *mut c_void,
        destroy: CUhostFn,
        count: c_uint,
        flags: c_uint,
    ) => graph::user::create;
    cuUserObjectRetain(object: CUuserObject, count: c_uint) => graph::user::retain;
    cuUserObjectRelease(object: CUuserObject, count: c_uint) => graph::user::release;
    cuGraphRetainUserObject(
        graph: CUgraph,
        object: CUuserObject,
        count: c_uint,
        flags: c_uint,
    ) => graph::user::graph_retain;
    cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) => graph::user::graph_release;
    cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint) => graph::exec::set_enabled;
    cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint) => graph::exec::get_enabled;
    cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) => graph::exec::instantiate_with_params;
    cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64) => graph::exec::flags;
    cuGraphExecUpdate_v2(
        exec: CUgraphExec,
        graph: CUgraph,
        result: *mut CUgraphExecUpdateResultInfo,
    ) => graph::exec::update_v2;
}
