//! Graphs: how they are made and launched, and how they are changed.

use super::super::{Bytes, Things};
use super::memory::box_copy;
use super::{Common, ignore, make, nothing};
use hopper_cuda_driver::ffi::*;
use std::ptr::{null, null_mut};

/// What a node launches on an address.
fn launch_of(function: CUfunction, parameters: &mut [*mut c_void; 1], grid: u32) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        v1: CUDA_KERNEL_NODE_PARAMS_v1 {
            func: function,
            gridDimX: grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: parameters.as_mut_ptr(),
            extra: null_mut(),
        },
        kern: null_mut(),
        ctx: null_mut(),
    }
}

fn fill_of(common: &Common) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: common.address,
        pitch: 16,
        value: 1,
        elementSize: 1 + common.size as u32 % 4,
        width: common.size / 4,
        height: 1 + common.size % 2,
    }
}

const HOST: CUDA_HOST_NODE_PARAMS = CUDA_HOST_NODE_PARAMS {
    r#fn: Some(nothing),
    userData: null_mut(),
};

fn room_of(size: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    CUDA_MEM_ALLOC_NODE_PARAMS {
        poolProps: CUmemPoolProps {
            allocType: 1,
            handleTypes: 0,
            location: CUmemLocation {
                r#type: mem_location::DEVICE,
                id: 0,
            },
            win32SecurityAttributes: null_mut(),
            maxSize: 0,
            reserved: [0; 56],
        },
        accessDescs: null(),
        accessDescCount: 0,
        bytesize: size,
        dptr: 0,
    }
}

/// Makes graphs, and launches them.
#[allow(clippy::cognitive_complexity)]
pub(super) fn step(what: usize, common: &Common, b: &mut Bytes<'_>, t: &mut Things<'_>) {
    let &Common { stream, size, .. } = common;
    let mut parameters = [(&raw const common.address).cast_mut().cast()];
    let graph = b.pick(&t.graphs);
    let before = b.pick(&t.nodes);
    let count = size / 2 % 2;
    // SAFETY: host memory is the room, which no copy overruns; all else is looked up, null, or a place for a result.
    unsafe {
        match what {
            0..=3 => make!(t.graphs, cuGraphCreate(0)),
            4..=8 => {
                let launch = launch_of(b.pick(&t.functions), &mut parameters, 1 + size as u32 % 2);
                make!(t.nodes, cuGraphAddKernelNode_v2(graph, &before, count, &launch));
            }
            9..=11 => {
                let copy = box_copy(common, b, t);
                make!(t.nodes, cuGraphAddMemcpyNode(graph, &before, count, &copy, null_mut()));
            }
            12..=14 => make!(
                t.nodes,
                cuGraphAddMemsetNode(graph, &before, count, &fill_of(common), null_mut())
            ),
            15 => make!(t.nodes, cuGraphAddHostNode(graph, &before, count, &HOST)),
            16 => make!(t.nodes, cuGraphAddEmptyNode(graph, &before, count)),
            17..=19 => make!(
                t.nodes,
                cuGraphAddChildGraphNode(graph, &before, count, b.pick(&t.graphs))
            ),
            20 => make!(
                t.nodes,
                cuGraphAddEventRecordNode(graph, &before, count, b.pick(&t.events))
            ),
            21 => make!(
                t.nodes,
                cuGraphAddEventWaitNode(graph, &before, count, b.pick(&t.events))
            ),
            22..=24 => {
                let mut room = room_of(size);
                make!(t.nodes, cuGraphAddMemAllocNode(graph, &before, count, &mut room));
                t.addresses.push(room.dptr);
            }
            25..=27 => make!(
                t.nodes,
                cuGraphAddMemFreeNode(graph, &before, count, b.pick(&t.addresses))
            ),
            28..=30 => make!(t.graphs, cuGraphClone(graph)),
            31..=38 => make!(t.execs, cuGraphInstantiateWithFlags(graph, [0, 0, 1, 2, 8][size % 5])),
            39..=50 => ignore(cuGraphLaunch(b.pick(&t.execs), stream)),
            51 => ignore(cuGraphUpload(b.pick(&t.execs), stream)),
            52 => make!(t.graphs, cuGraphChildGraphNodeGetGraph_of(before)),
            53 => make!(t.nodes, cuGraphNodeFindInClone(before, graph)),
            54 | 55 => ignore(cuGraphExecDestroy(b.pick(&t.execs))),
            56 => ignore(cuGraphDestroy(graph)),
            57 => {
                let mut nodes = [null_mut(); 8];
                let mut count = nodes.len();
                if cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) == 0 {
                    t.nodes.extend_from_slice(&nodes[..count.min(nodes.len())]);
                }
            }
            _ => {}
        }
    }
}

/// The graph of a node, with the place for the result first, as all that make something have it.
#[allow(non_snake_case)]
unsafe fn cuGraphChildGraphNodeGetGraph_of(graph: &mut CUgraph, node: CUgraphNode) -> CUresult {
    // SAFETY: a handle and a place for a result.
    unsafe { cuGraphChildGraphNodeGetGraph(node, graph) }
}

/// Changes graphs and executable graphs.
#[allow(clippy::cognitive_complexity)]
pub(super) fn change(what: usize, common: &Common, b: &mut Bytes<'_>, t: &mut Things<'_>) {
    let size = common.size;
    let mut parameters = [(&raw const common.address).cast_mut().cast()];
    let (graph, exec) = (b.pick(&t.graphs), b.pick(&t.execs));
    let node = b.pick(&t.nodes);
    // SAFETY: host memory is the room, which no copy overruns; all else is looked up, null, or a place for a result.
    unsafe {
        match what {
            0..=2 => ignore(cuGraphDestroyNode(node)),
            3..=8 => ignore(cuGraphAddDependencies(graph, &node, &b.pick(&t.nodes), 1)),
            9 | 10 => ignore(cuGraphAddDependencies_v2(
                graph,
                &node,
                &b.pick(&t.nodes),
                &CUgraphEdgeData::PROGRAMMATIC,
                1,
            )),
            11..=13 => ignore(cuGraphRemoveDependencies(graph, &node, &b.pick(&t.nodes), 1)),
            14..=16 => {
                let launch = launch_of(b.pick(&t.functions), &mut parameters, 1 + size as u32 % 2);
                cuGraphKernelNodeSetParams_v2(node, &launch);
            }
            17..=19 => {
                let launch = launch_of(b.pick(&t.functions), &mut parameters, 1 + size as u32 % 2);
                cuGraphExecKernelNodeSetParams_v2(exec, node, &launch);
            }
            20 => ignore(cuGraphMemcpyNodeSetParams(node, &box_copy(common, b, t))),
            21 | 22 => {
                let copy = box_copy(common, b, t);
                cuGraphExecMemcpyNodeSetParams(exec, node, &copy, null_mut());
            }
            23 => ignore(cuGraphMemsetNodeSetParams(node, &fill_of(common))),
            24 | 25 => ignore(cuGraphExecMemsetNodeSetParams(exec, node, &fill_of(common), null_mut())),
            26 => ignore(cuGraphExecHostNodeSetParams(exec, node, &HOST)),
            27 => ignore(cuGraphExecEventRecordNodeSetEvent(exec, node, b.pick(&t.events))),
            28 => ignore(cuGraphExecEventWaitNodeSetEvent(exec, node, b.pick(&t.events))),
            29..=34 => {
                let mut found = CUgraphExecUpdateResultInfo {
                    result: 0,
                    errorNode: null_mut(),
                    errorFromNode: null_mut(),
                };
                cuGraphExecUpdate_v2(exec, graph, &mut found);
            }
            35..=37 => ignore(cuGraphNodeSetEnabled(exec, node, size as u32 % 2)),
            38 => ignore(cuGraphKernelNodeCopyAttributes(node, b.pick(&t.nodes))),
            39 | 40 => {
                let attribute = CUlaunchAttribute::cluster([1 + size as u32 % 3, 1, 1]);
                cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value);
            }
            41 => {
                let mut params = CUDA_KERNEL_NODE_PARAMS_v1 {
                    ..launch_of(null_mut(), &mut parameters, 0).v1
                };
                if cuGraphKernelNodeGetParams(node, &mut params) == 0 {
                    cuGraphKernelNodeSetParams(b.pick(&t.nodes), &params);
                }
            }
            42 | 43 => make!(
                t.objects,
                cuUserObjectCreate(null_mut(), Some(nothing), 1 + size as u32 % 3, 1)
            ),
            44 => ignore(cuUserObjectRetain(b.pick(&t.objects), size as u32 % 4)),
            45 => ignore(cuUserObjectRelease(b.pick(&t.objects), size as u32 % 4)),
            46 | 47 => ignore(cuGraphRetainUserObject(
                graph,
                b.pick(&t.objects),
                size as u32 % 4,
                size as u32 / 32,
            )),
            48 => ignore(cuGraphReleaseUserObject(graph, b.pick(&t.objects), size as u32 % 4)),
            49 => ignore(cuDeviceGraphMemTrim(0)),
            50 => ignore(cuGraphMemFreeNodeGetParams(node, &mut 0)),
            51 => ignore(cuGraphEventRecordNodeSetEvent(node, b.pick(&t.events))),
            52 => {
                let (mut from, mut to, mut count) = ([null_mut(); 4], [null_mut(); 4], 4);
                cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count);
            }
            _ => {}
        }
    }
}
