//! Graphs made by hand: nodes, edges, executable graphs, updates, copies.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::{graph_exec_update_result as update, graph_node_type as kind, *};
use std::ffi::CString;
use std::ptr::{null, null_mut, without_provenance_mut};

fn fill_of(buffer: CUdeviceptr, value: u32) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: buffer,
        pitch: 0,
        value,
        elementSize: 4,
        width: 1,
        height: 1,
    }
}

fn add_fill(graph: CUgraph, before: &[CUgraphNode], buffer: CUdeviceptr, value: u32) -> CUgraphNode {
    let fill = fill_of(buffer, value);
    handle!(cuGraphAddMemsetNode(
        graph,
        before.as_ptr(),
        before.len(),
        &fill,
        null_mut()
    ))
}

fn connect(graph: CUgraph, from: CUgraphNode, to: CUgraphNode) -> u32 {
    code!(cuGraphAddDependencies(graph, &from, &to, 1))
}

#[test]
fn nodes_run_in_the_order_of_their_edges() {
    let _context = Context::new();
    let (patient, buffer) = (kernel_of(CHAIN, "patient"), upload(&[0_u32]));
    let graph = handle!(cuGraphCreate(0));
    // Added last to first, so that only the edges tell.
    let kernel = add_kernel(graph, &[], patient, buffer);
    let fill = add_fill(graph, &[], buffer, 20);
    let empty = handle!(cuGraphAddEmptyNode(graph, &fill, 1));
    assert_eq!(connect(graph, empty, kernel), SUCCESS);
    assert_eq!(run(executable(graph), buffer), 21);

    assert_eq!(edges(graph), [(2, 0, 0), (1, 2, 0)]);
    let (mut count, mut found) = (9, [null_mut(); 3]);
    ok!(cuGraphGetRootNodes(graph, null_mut(), &mut count));
    assert_eq!(count, 1);
    count = 3;
    ok!(cuGraphGetRootNodes(graph, found.as_mut_ptr(), &mut count));
    assert_eq!((count, found), (1, [fill, null_mut(), null_mut()]));
    count = 1;
    ok!(cuGraphNodeGetDependencies(kernel, found.as_mut_ptr(), &mut count));
    assert_eq!((count, found[0]), (1, empty));
    ok!(cuGraphNodeGetDependentNodes(fill, found.as_mut_ptr(), &mut count));
    assert_eq!((count, found[0]), (1, empty));
    ok!(cuGraphNodeGetDependentNodes(kernel, null_mut(), &mut count));
    assert_eq!(count, 0);

    assert_eq!(connect(graph, empty, kernel), INVALID_VALUE, "there is that edge");
    assert_eq!(connect(graph, kernel, kernel), INVALID_VALUE);
    assert_eq!(connect(graph, graph, kernel), INVALID_VALUE);
    assert_eq!(code!(cuGraphAddDependencies(graph, null(), &kernel, 1)), INVALID_VALUE);
    assert_eq!(
        code!(cuGraphRemoveDependencies(graph, &fill, &kernel, 1)),
        INVALID_VALUE
    );
    ok!(cuGraphRemoveDependencies(graph, &empty, &kernel, 1));
    assert_eq!(edges(graph), [(1, 2, 0)]);
    ok!(cuGraphDestroyNode(empty));
    assert_eq!(code!(cuGraphDestroyNode(empty)), INVALID_VALUE);
    assert_eq!((nodes(graph), edges(graph)), (vec![kernel, fill], vec![]));
}

#[test]
fn a_cycle_is_found_when_the_graph_is_instantiated() {
    let _context = Context::new();
    let graph = handle!(cuGraphCreate(0));
    let first = handle!(cuGraphAddEmptyNode(graph, null(), 0));
    let second = handle!(cuGraphAddEmptyNode(graph, &first, 1));
    assert_eq!(connect(graph, second, first), SUCCESS);
    let (mut exec, mut blamed, mut log) = (null_mut(), null_mut(), [1_i8 as c_char; 16]);
    assert_eq!(code!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)), INVALID_VALUE);
    let refused = code!(cuGraphInstantiate_v2(
        &mut exec,
        graph,
        &mut blamed,
        log.as_mut_ptr(),
        log.len()
    ));
    assert_eq!((refused, blamed), (INVALID_VALUE, first));
    let words = code!(std::ffi::CStr::from_ptr(log.as_ptr()));
    assert_eq!(words.to_str(), Ok("the edges of th"));
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: 0,
        hUploadStream: null_mut(),
        hErrNode_out: null_mut(),
        result_out: 9,
    };
    assert_eq!(
        code!(cuGraphInstantiateWithParams(&mut exec, graph, &mut params)),
        INVALID_VALUE
    );
    assert_eq!(params.result_out, graph_instantiate_result::INVALID_STRUCTURE);
    assert_eq!(params.hErrNode_out, first);
}

#[test]
fn every_way_to_instantiate_leads_there() {
    let _context = Context::new();
    let (graph, buffer) = (handle!(cuGraphCreate(0)), upload(&[0_u32]));
    add_fill(graph, &[], buffer, 6);
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: 8,
        hUploadStream: null_mut(),
        hErrNode_out: graph,
        result_out: 9,
    };
    let execs = [
        handle!(cuGraphInstantiate(graph, null_mut(), null_mut(), 0)),
        handle!(cuGraphInstantiate_v2(graph, null_mut(), null_mut(), 0)),
        handle!(cuGraphInstantiateWithFlags(graph, 1)),
        handle!(cuGraphInstantiateWithParams(graph, &mut params)),
    ];
    assert_eq!(params.result_out, graph_instantiate_result::SUCCESS);
    assert!(params.hErrNode_out.is_null());
    for (exec, flags) in execs.into_iter().zip([0, 0, 1, 8]) {
        let mut told = 99;
        ok!(cuGraphExecGetFlags(exec, &mut told));
        assert_eq!(told, flags);
        ok!(cuMemsetD32_v2(buffer, 0, 1));
        assert_eq!(run(exec, buffer), 6);
    }
    let mut exec = null_mut();
    for (flags, expected) in [(16, INVALID_VALUE), (4, NOT_SUPPORTED)] {
        assert_eq!(code!(cuGraphInstantiateWithFlags(&mut exec, graph, flags)), expected);
    }
    assert_eq!(code!(cuGraphInstantiateWithFlags(null_mut(), graph, 0)), INVALID_VALUE);
    assert_eq!(
        code!(cuGraphInstantiateWithParams(&mut exec, graph, null_mut())),
        INVALID_VALUE
    );
    let no_log = code!(cuGraphInstantiate_v2(null_mut(), graph, null_mut(), null_mut(), 0));
    assert_eq!(no_log, INVALID_VALUE);
}

#[test]
fn graphs_nest_and_are_copied() {
    let _context = Context::new();
    let (patient, buffer) = (kernel_of(CHAIN, "patient"), upload(&[0_u32]));
    let inner = handle!(cuGraphCreate(0));
    let one = add_kernel(inner, &[], patient, buffer);
    add_kernel(inner, &[one], patient, buffer);
    let outer = handle!(cuGraphCreate(0));
    let fill = add_fill(outer, &[], buffer, 50);
    let child = handle!(cuGraphAddChildGraphNode(outer, &fill, 1, inner));
    let nothing = handle!(cuGraphCreate(0));
    let none = handle!(cuGraphAddChildGraphNode(outer, &child, 1, nothing));
    add_kernel(outer, &[none, child], patient, buffer);
    // The node has a copy: what becomes of the graph it was made from is none of its business.
    ok!(cuGraphDestroy(inner));
    assert_eq!(run(executable(outer), buffer), 53);
    let mut within = null_mut();
    ok!(cuGraphChildGraphNodeGetGraph(child, &mut within));
    assert_eq!(nodes(within).len(), 2);
    assert_eq!(code!(cuGraphDestroy(within)), INVALID_VALUE, "it is the node's");
    add_kernel(within, &[], patient, buffer);
    assert_eq!(run(executable(outer), buffer), 54);

    let clone = handle!(cuGraphClone(outer));
    assert_eq!(edges(clone), edges(outer));
    let mut found = null_mut();
    ok!(cuGraphNodeFindInClone(&mut found, child, clone));
    assert_eq!(node_kind(found), kind::GRAPH);
    assert_eq!(code!(cuGraphNodeFindInClone(&mut found, child, outer)), INVALID_VALUE);
    let mut within_clone = null_mut();
    ok!(cuGraphChildGraphNodeGetGraph(found, &mut within_clone));
    assert_ne!(within_clone, within);
    ok!(cuGraphDestroy(outer));
    assert_eq!(code!(cuGraphNodeGetType(child, &mut 0)), INVALID_VALUE);
    assert_eq!(code!(cuGraphGetNodes(within, null_mut(), &mut 0)), INVALID_VALUE);
    assert_eq!(run(executable(clone), buffer), 54);

    assert_eq!(
        code!(cuGraphAddChildGraphNode(&mut found, clone, null(), 0, clone)),
        INVALID_VALUE
    );
    assert_eq!(
        code!(cuGraphAddChildGraphNode(&mut found, clone, null(), 0, inner)),
        INVALID_VALUE
    );
    assert_eq!(code!(cuGraphClone(null_mut(), clone)), INVALID_VALUE);
    assert_eq!(code!(cuGraphCreate(&mut found, 1)), INVALID_VALUE);
    assert_eq!(code!(cuGraphCreate(null_mut(), 0)), INVALID_VALUE);
    let unserved = code!(cuGraphExecChildGraphNodeSetParams(null_mut(), found, clone));
    assert_eq!(unserved, NOT_SUPPORTED);
}

#[test]
fn executable_graphs_are_updated_by_graphs_like_theirs() {
    let _context = Context::new();
    let (patient, a, b) = (kernel_of(CHAIN, "patient"), upload(&[0_u32]), upload(&[0_u32]));
    let make = |buffer, value, connected: bool| {
        let graph = handle!(cuGraphCreate(0));
        let fill = add_fill(graph, &[], buffer, value);
        let before = [fill];
        add_kernel(graph, &before[..usize::from(connected)], patient, buffer);
        graph
    };
    let exec = executable(make(a, 1, true));
    assert_eq!(run(exec, a), 2);
    let (mut node, mut result) = (null_mut(), 99);
    ok!(cuGraphExecUpdate(exec, make(b, 7, true), &mut node, &mut result));
    assert_eq!(
        (run(exec, b), download::<u32>(a, 1), result),
        (8, vec![2], update::SUCCESS)
    );

    let mut info = CUgraphExecUpdateResultInfo {
        result: 99,
        errorNode: null_mut(),
        errorFromNode: null_mut(),
    };
    let apart = make(b, 7, false);
    let failed = code!(cuGraphExecUpdate_v2(exec, apart, &mut info));
    assert_eq!(
        (failed, info.result),
        (GRAPH_EXEC_UPDATE_FAILURE, update::TOPOLOGY_CHANGED)
    );
    assert_eq!(info.errorNode, nodes(apart)[1]);
    let more = make(b, 7, true);
    add_fill(more, &[], b, 1);
    assert_eq!(
        code!(cuGraphExecUpdate_v2(exec, more, &mut info)),
        GRAPH_EXEC_UPDATE_FAILURE
    );
    assert_eq!((info.result, info.errorNode), (update::TOPOLOGY_CHANGED, null_mut()));
    let other = handle!(cuGraphCreate(0));
    let fill = add_fill(other, &[], b, 1);
    let empty = handle!(cuGraphAddEmptyNode(other, &fill, 1));
    assert_eq!(
        code!(cuGraphExecUpdate(exec, other, &mut node, &mut result)),
        GRAPH_EXEC_UPDATE_FAILURE
    );
    assert_eq!((result, node), (update::NODE_TYPE_CHANGED, empty));
    assert_eq!(run(exec, b), 8, "a refused update changes nothing");
    assert_eq!(code!(cuGraphExecUpdate_v2(exec, exec, &mut info)), INVALID_VALUE);
    assert_eq!(code!(cuGraphExecUpdate_v2(other, other, &mut info)), INVALID_VALUE);
    assert_eq!(code!(cuGraphExecUpdate_v2(exec, more, null_mut())), INVALID_VALUE);
}

#[test]
fn nodes_can_be_left_out() {
    let _context = Context::new();
    let (patient, buffer) = (kernel_of(CHAIN, "patient"), upload(&[0_u32]));
    let graph = handle!(cuGraphCreate(0));
    let fill = add_fill(graph, &[], buffer, 5);
    let kernel = add_kernel(graph, &[fill], patient, buffer);
    let empty = handle!(cuGraphAddEmptyNode(graph, null(), 0));
    let exec = executable(graph);
    ok!(cuGraphNodeSetEnabled(exec, kernel, 0));
    let mut enabled = 9;
    ok!(cuGraphNodeGetEnabled(exec, kernel, &mut enabled));
    assert_eq!((enabled, run(exec, buffer)), (0, 5));
    ok!(cuGraphNodeSetEnabled(exec, kernel, 1));
    assert_eq!(run(exec, buffer), 6);
    assert_eq!(code!(cuGraphNodeSetEnabled(exec, empty, 0)), INVALID_VALUE);
    assert_eq!(code!(cuGraphNodeSetEnabled(exec, graph, 0)), INVALID_VALUE);
    assert_eq!(code!(cuGraphNodeGetEnabled(exec, kernel, null_mut())), INVALID_VALUE);
}

#[test]
fn edges_between_kernels_let_them_overlap() {
    let (module_of, expected) = (|| load(CHAIN), [(SUCCESS, "patient"), (LAUNCH_FAILED, "hasty")]);
    for (answer, second) in expected {
        let _context = Context::new();
        let (module, buffer, graph) = (module_of(), upload(&[0_u32]), handle!(cuGraphCreate(0)));
        let first = add_kernel(graph, &[], kernel(module, "patient"), buffer);
        let second = add_kernel(graph, &[], kernel(module, second), buffer);
        let early = [CUgraphEdgeData::PROGRAMMATIC];
        ok!(cuGraphAddDependencies_v2(graph, &first, &second, early.as_ptr(), 1));
        assert_eq!(edges(graph), [(0, 1, 1)]);
        let (mut node, mut data, mut count) = (null_mut(), CUgraphEdgeData::default(), 1);
        ok!(cuGraphNodeGetDependencies_v2(second, &mut node, &mut data, &mut count));
        assert_eq!((node, data), (first, CUgraphEdgeData::PROGRAMMATIC));
        ok!(cuGraphNodeGetDependentNodes_v2(first, &mut node, &mut data, &mut count));
        assert_eq!((node, data), (second, CUgraphEdgeData::PROGRAMMATIC));
        let lossy = code!(cuGraphNodeGetDependencies(second, &mut node, &mut count));
        assert_eq!(lossy, UNKNOWN, "cust has no name for LOSSY_QUERY");
        assert_eq!(
            code!(cuGraphNodeGetDependencies_v2(second, null_mut(), &mut data, &mut count)),
            INVALID_VALUE
        );
        let odd = CUgraphEdgeData { to_port: 1, ..early[0] };
        assert_eq!(
            code!(cuGraphAddDependencies_v2(graph, &second, &first, &odd, 1)),
            INVALID_VALUE
        );
        assert_eq!(
            code!(cuGraphRemoveDependencies(graph, &first, &second, 1)),
            INVALID_VALUE
        );
        ok!(cuGraphLaunch(executable(graph), null_mut()));
        assert_eq!(code!(cuCtxSynchronize()), answer);
        if answer == SUCCESS {
            ok!(cuGraphRemoveDependencies_v2(graph, &first, &second, early.as_ptr(), 1));
            assert!(edges(graph).is_empty());
        }
    }
}

#[test]
fn graphs_are_drawn() {
    let _context = Context::new();
    let (patient, buffer) = (kernel_of(CHAIN, "patient"), upload(&[0_u32]));
    let graph = handle!(cuGraphCreate(0));
    let fill = add_fill(graph, &[], buffer, 5);
    add_kernel(graph, &[fill], patient, buffer);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("graph.dot");
    let name = CString::new(path.to_str().expect("a path of text")).expect("without zero bytes");
    ok!(cuGraphDebugDotPrint(graph, name.as_ptr(), 0));
    let text = std::fs::read_to_string(path).expect("it was written");
    for part in ["digraph", "memset", "patient", "n0 -> n1;"] {
        assert!(text.contains(part), "{text}");
    }
    let nowhere = c"/nowhere/at/all/graph.dot";
    assert_eq!(
        code!(cuGraphDebugDotPrint(graph, nowhere.as_ptr(), 0)),
        OPERATING_SYSTEM
    );
    assert_eq!(code!(cuGraphDebugDotPrint(graph, null(), 0)), INVALID_VALUE);
    assert_eq!(
        code!(cuGraphDebugDotPrint(graph, name.as_ptr(), 1 << 30)),
        INVALID_VALUE
    );
}

#[test]
fn handles_of_anything_else_are_refused() {
    let context = Context::new();
    let (graph, event) = (handle!(cuGraphCreate(0)), handle!(cuEventCreate(0)));
    let (mut out, mut number) = (null_mut(), 0);
    for wrong in [null_mut(), context.0, event, without_provenance_mut(0x7fff_0000)] {
        for answer in [
            code!(cuGraphDestroy(wrong)),
            code!(cuGraphClone(&mut out, wrong)),
            code!(cuGraphExecDestroy(wrong)),
            code!(cuGraphLaunch(wrong, null_mut())),
            code!(cuGraphUpload(wrong, null_mut())),
            code!(cuGraphInstantiateWithFlags(&mut out, wrong, 0)),
            code!(cuGraphExecGetFlags(wrong, &mut 0)),
            code!(cuGraphNodeGetType(wrong, &mut number)),
            code!(cuGraphDestroyNode(wrong)),
            code!(cuGraphAddEmptyNode(&mut out, wrong, null(), 0)),
            code!(cuGraphAddEmptyNode(&mut out, graph, &wrong, 1)),
            code!(cuGraphGetNodes(wrong, null_mut(), &mut 0)),
            code!(cuGraphGetEdges(wrong, null_mut(), null_mut(), &mut 0)),
        ] {
            assert_eq!(answer, INVALID_VALUE, "{wrong:?}");
        }
    }
    let exec = executable(graph);
    assert_eq!(code!(cuGraphLaunch(exec, event)), INVALID_HANDLE, "no stream");
    assert_eq!(code!(cuGraphGetNodes(graph, null_mut(), null_mut())), INVALID_VALUE);
    ok!(cuGraphLaunch(exec, null_mut()));
    let allocation = code!(cuGraphAddMemAllocNode(&mut out, graph, null(), 0, null_mut()));
    let free = code!(cuGraphAddMemFreeNode(&mut out, graph, null(), 0, 0));
    assert_eq!((allocation, free), (INVALID_VALUE, INVALID_VALUE));
}
