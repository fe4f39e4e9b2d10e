//! Stream capture: what is captured, how it is replayed, and what breaks a capture.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::emulated;
use hopper_cuda_driver::ffi::{
    graph_node_type as kind, stream_capture_mode as mode, stream_capture_status as capturing, *,
};
use std::ptr::{null_mut, without_provenance_mut};

const FAULTS: &str = include_str!("ptx/faults.ptx");
const TENSOR: &str = include_str!("ptx/tensor.ptx");

#[test]
fn captured_work_is_done_when_the_graph_is_launched() {
    let _context = Context::new();
    let (stream, patient) = (stream(), kernel_of(CHAIN, "patient"));
    let (buffer, other) = (upload(&[0_u32; 2]), upload(&[9_u32]));
    let (source, mut result, mut calls) = (7_u32, [0_u32; 2], 0_u32);
    let graph = capture(stream, || {
        ok!(cuMemsetD32Async(buffer, 40, 1, stream));
        assert_eq!(launch_on(stream, &[], patient, buffer), SUCCESS);
        ok!(cuMemcpyHtoDAsync_v2(other, (&raw const source).cast(), 4, stream));
        ok!(cuMemcpyDtoDAsync_v2(buffer + 4, other, 4, stream));
        ok!(cuMemcpyDtoHAsync_v2(result.as_mut_ptr().cast(), buffer, 8, stream));
        ok!(cuLaunchHostFunc(stream, Some(increment), (&raw mut calls).cast()));
        // Nothing to do, so nothing to note.
        ok!(cuMemcpyDtoDAsync_v2(buffer, other, 0, stream));
        ok!(cuMemsetD8Async(buffer, 0, 0, stream));
        assert_eq!(status(stream), capturing::ACTIVE);
    });
    assert_eq!(status(stream), capturing::NONE);
    assert_eq!((result, calls), ([0, 0], 0));
    let kinds: Vec<u32> = nodes(graph).into_iter().map(node_kind).collect();
    let copy = kind::MEMCPY;
    assert_eq!(kinds, [kind::MEMSET, kind::KERNEL, copy, copy, copy, kind::HOST]);
    assert_eq!(edges(graph), [(0, 1, 0), (1, 2, 0), (2, 3, 0), (3, 4, 0), (4, 5, 0)]);
    let exec = executable(graph);
    ok!(cuGraphDestroy(graph));
    assert_eq!(code!(cuGraphDestroy(graph)), INVALID_VALUE);
    ok!(cuGraphUpload(exec, stream));
    for launches in 1..4 {
        result = [0; 2];
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!((result, calls), ([41, 7], launches));
    }
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(code!(cuGraphExecDestroy(exec)), INVALID_VALUE);
    assert_eq!(code!(cuGraphLaunch(exec, stream)), INVALID_VALUE);
}

/// Captures `patient`, then perhaps something else, then `second`, both allowed to overlap what is before them.
fn overlapping(then: impl FnOnce(CUstream, CUdeviceptr), second: &str) -> (Vec<u8>, u32, Option<u32>) {
    let _context = Context::new();
    let (stream, module, buffer) = (stream(), load(CHAIN), upload(&[0_u32]));
    let pdl = [CUlaunchAttribute::programmatic_serialization()];
    let graph = capture(stream, || {
        assert_eq!(launch_on(stream, &pdl, kernel(module, "patient"), buffer), SUCCESS);
        then(stream, buffer);
        assert_eq!(launch_on(stream, &pdl, kernel(module, second), buffer), SUCCESS);
    });
    let types = edges(graph).into_iter().map(|(_, _, kind)| kind).collect();
    ok!(cuGraphLaunch(executable(graph), stream));
    let code = code!(cuStreamSynchronize(stream));
    let sum = (code == SUCCESS).then(|| download::<u32>(buffer, 1)[0]);
    assert_eq!(emulated::last_fault().is_some(), code != SUCCESS);
    (types, code, sum)
}

#[test]
fn captured_launches_overlap_as_they_would_on_the_stream() {
    assert_eq!(overlapping(|_, _| (), "patient"), (vec![1], SUCCESS, Some(2)));
    assert_eq!(overlapping(|_, _| (), "hasty"), (vec![1], LAUNCH_FAILED, None));
    let fill = |stream, buffer| ok!(cuMemsetD32Async(buffer, 41, 1, stream));
    assert_eq!(overlapping(fill, "hasty"), (vec![0, 0], SUCCESS, Some(42)));
}

#[test]
fn clusters_are_captured() {
    let _context = Context::new();
    let (stream, ranks, buffer) = (stream(), kernel_of(CHAIN, "ranks"), upload(&[0_u32; 8]));
    let cluster = [CUlaunchAttribute::cluster([4, 1, 1])];
    let config = CUlaunchConfig {
        hStream: stream,
        attrs: cluster.as_ptr(),
        numAttrs: 1,
        ..config(8, 32)
    };
    let graph = capture(stream, || {
        assert_eq!(launch(&config, ranks, &[parameter(&buffer)]), SUCCESS);
        let refused = CUlaunchConfig { gridDimX: 6, ..config };
        assert_eq!(launch(&refused, ranks, &[parameter(&buffer)]), INVALID_CLUSTER_SIZE);
    });
    let mut value = CUlaunchAttributeValue { words: [9; 16] };
    ok!(cuGraphKernelNodeGetAttribute(
        nodes(graph)[0],
        launch_attribute::CLUSTER_DIMENSION,
        &mut value
    ));
    assert_eq!(code!(value.cluster), [4, 1, 1]);
    ok!(cuGraphLaunch(executable(graph), stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download::<u32>(buffer, 8), [400, 401, 402, 403, 400, 401, 402, 403]);
}

#[test]
fn parameters_are_copied_when_a_launch_is_captured() {
    let _context = Context::new();
    let (stream, tile) = (stream(), kernel_of(TENSOR, "tile"));
    let values: Vec<u16> = (0..64 * 16).collect();
    let (tensor, out) = (upload(&values), upload(&[0_u16; 64 * 16]));
    let mut map = CUtensorMap::default();
    let data_type = tensor_map_data_type::BFLOAT16;
    let at = without_provenance_mut(tensor as usize);
    let (size, stride, box_size, step) = ([64, 16], [128], [64, 16], [1, 1]);
    ok!(cuTensorMapEncodeTiled(
        &mut map,
        data_type,
        2,
        at,
        size.as_ptr(),
        stride.as_ptr(),
        box_size.as_ptr(),
        step.as_ptr(),
        0,
        tensor_map_swizzle::NONE,
        0,
        0
    ));
    let (mut place, mut origin) = (out, 0_i32);
    let config = CUlaunchConfig {
        hStream: stream,
        sharedMemBytes: 3072,
        ..config(1, 32)
    };
    let graph = capture(stream, || {
        let parameters = [
            parameter(&map),
            parameter(&place),
            parameter(&origin),
            parameter(&origin),
        ];
        assert_eq!(launch(&config, tile, &parameters), SUCCESS);
    });
    // What was passed is gone by the time of the launch.
    (map, place, origin) = (CUtensorMap::default(), 0, 99);
    let exec = executable(graph);
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!((map, place, origin), (CUtensorMap::default(), 0, 99));
    let rows = download::<u16>(out, 64 * 16);
    assert!(rows == values, "{rows:?}");
}

#[test]
fn streams_fork_and_join_by_events() {
    let _context = Context::new();
    let (first, second, patient) = (stream(), stream(), kernel_of(CHAIN, "patient"));
    let (forked, joined) = (handle!(cuEventCreate(0)), handle!(cuEventCreate(0)));
    let (a, b) = (upload(&[0_u32]), upload(&[0_u32]));
    let graph = capture(first, || {
        ok!(cuMemsetD32Async(a, 10, 1, first));
        ok!(cuEventRecord(forked, first));
        ok!(cuStreamWaitEvent(second, forked, 0));
        assert_eq!(status(second), capturing::ACTIVE);
        ok!(cuMemcpyDtoDAsync_v2(b, a, 4, second));
        assert_eq!(launch_on(first, &[], patient, a), SUCCESS);
        ok!(cuEventRecord(joined, second));
        ok!(cuStreamWaitEvent(first, joined, 0));
        assert_eq!(launch_on(first, &[], patient, b), SUCCESS);
    });
    assert_eq!(status(second), capturing::NONE);
    assert_eq!(edges(graph), [(0, 1, 0), (0, 2, 0), (2, 3, 0), (1, 3, 0)]);
    ok!(cuGraphLaunch(executable(graph), second));
    ok!(cuStreamSynchronize(second));
    assert_eq!((download::<u32>(a, 1), download::<u32>(b, 1)), (vec![11], vec![11]));
    assert_eq!(
        code!(cuEventQuery(joined)),
        CAPTURED_EVENT,
        "it stands for nothing that was done"
    );
    assert_eq!(code!(cuStreamWaitEvent(first, joined, 0)), CAPTURED_EVENT);
    ok!(cuEventRecord(joined, first));
    ok!(cuEventQuery(joined));
}

#[test]
fn external_events_are_nodes() {
    let _context = Context::new();
    let stream = stream();
    let (start, end) = (handle!(cuEventCreate(0)), handle!(cuEventCreate(0)));
    let graph = capture(stream, || {
        ok!(cuEventRecordWithFlags(start, stream, 1));
        ok!(cuStreamWaitEvent(stream, start, 1));
        ok!(cuEventRecordWithFlags(end, stream, 1));
    });
    let kinds: Vec<u32> = nodes(graph).into_iter().map(node_kind).collect();
    assert_eq!(kinds, [kind::EVENT_RECORD, kind::WAIT_EVENT, kind::EVENT_RECORD]);
    let mut milliseconds = -1.0;
    let elapsed = |milliseconds: &mut f32| code!(cuEventElapsedTime(milliseconds, start, end));
    assert_eq!(elapsed(&mut milliseconds), INVALID_HANDLE, "not recorded yet");
    ok!(cuGraphLaunch(executable(graph), stream));
    assert_eq!(elapsed(&mut milliseconds), SUCCESS);
    assert!(milliseconds >= 0.0);
    let outside = "the flag is for captures";
    assert_eq!(
        code!(cuEventRecordWithFlags(start, stream, 1)),
        INVALID_VALUE,
        "{outside}"
    );
    assert_eq!(code!(cuStreamWaitEvent(stream, start, 1)), INVALID_VALUE, "{outside}");
}

#[test]
fn every_thread_captures_its_own_default_stream() {
    let context = Context::new();
    let per_thread: CUstream = without_provenance_mut(2);
    let (buffer, there) = (upload(&[0_u32]), context.0.addr());
    let graph = capture(per_thread, || {
        ok!(cuMemsetD32Async(buffer, 3, 1, per_thread));
        let other = std::thread::spawn(move || {
            ok!(cuCtxSetCurrent(without_provenance_mut(there)));
            status(without_provenance_mut(2))
        });
        assert_eq!(other.join().expect("it answers"), capturing::NONE);
    });
    assert_eq!(nodes(graph).len(), 1);
}

#[test]
fn a_capture_tells_about_itself() {
    let _context = Context::new();
    let (stream, patient, buffer) = (stream(), kernel_of(CHAIN, "patient"), upload(&[0_u32]));
    let (mut status, mut id, mut graph) = (9, 7, null_mut());
    ok!(cuStreamGetCaptureInfo(stream, &mut status, &mut id));
    assert_eq!((status, id), (capturing::NONE, 0));
    assert_eq!(
        code!(cuStreamGetCaptureInfo(stream, null_mut(), &mut id)),
        INVALID_VALUE
    );
    assert_eq!(code!(cuStreamIsCapturing(stream, null_mut())), INVALID_VALUE);
    begin(stream);
    assert_eq!(launch_on(stream, &[], patient, buffer), SUCCESS);
    let (mut dependencies, mut data, mut count) = (std::ptr::null(), std::ptr::null(), 9);
    ok!(cuStreamGetCaptureInfo_v2(
        stream,
        &mut status,
        &mut id,
        &mut graph,
        &mut dependencies,
        &mut count
    ));
    assert_eq!((status, count), (capturing::ACTIVE, 1));
    assert_ne!(id, 0);
    let first = nodes(graph)[0];
    assert_eq!(code!(*dependencies), first);
    assert_eq!(code!(cuGraphDestroy(graph)), INVALID_VALUE, "it is captured into");
    assert_eq!(code!(cuGraphDestroyNode(first)), INVALID_VALUE);

    // The next launch depends on the first one early, and on a node that the caller adds.
    let empty = handle!(cuGraphAddEmptyNode(graph, std::ptr::null(), 0));
    let programmatic = [CUgraphEdgeData::PROGRAMMATIC];
    let update = |nodes: &[CUgraphNode], data: *const CUgraphEdgeData, flags| {
        code!(cuStreamUpdateCaptureDependencies_v2(
            stream,
            nodes.as_ptr().cast_mut(),
            data,
            nodes.len(),
            flags
        ))
    };
    assert_eq!(update(&[first], programmatic.as_ptr(), 1), SUCCESS);
    assert_eq!(update(&[empty], std::ptr::null(), 0), SUCCESS);
    assert_eq!(
        update(&[empty], programmatic.as_ptr(), 0),
        INVALID_VALUE,
        "only kernels let others start early"
    );
    assert_eq!(update(&[first], std::ptr::null(), 2), INVALID_VALUE);
    assert_eq!(update(&[stream], std::ptr::null(), 0), INVALID_VALUE, "no node");
    assert_eq!(
        code!(cuStreamUpdateCaptureDependencies(stream, null_mut(), 1, 0)),
        INVALID_VALUE
    );
    let lossy = code!(cuStreamGetCaptureInfo_v2(
        stream,
        &mut status,
        &mut id,
        null_mut(),
        &mut dependencies,
        &mut count
    ));
    assert_eq!(lossy, UNKNOWN, "cust has no name for LOSSY_QUERY");
    ok!(cuStreamGetCaptureInfo_v3(
        stream,
        &mut status,
        null_mut(),
        null_mut(),
        &mut dependencies,
        &mut data,
        &mut count
    ));
    assert_eq!(count, 2);
    assert_eq!(
        code!([*data, *data.add(1)]),
        [CUgraphEdgeData::PROGRAMMATIC, CUgraphEdgeData::default()]
    );
    assert_eq!(
        code!(cuStreamGetCaptureInfo_v3(
            stream,
            &mut status,
            null_mut(),
            null_mut(),
            null_mut(),
            &mut data,
            &mut count
        )),
        INVALID_VALUE
    );
    assert_eq!(launch_on(stream, &[], patient, buffer), SUCCESS);
    let mut ended = null_mut();
    ok!(cuStreamEndCapture(stream, &mut ended));
    assert_eq!(ended, graph);
    assert_eq!(edges(graph), [(0, 2, 1), (1, 2, 0)]);
    assert_eq!(update(&[first], std::ptr::null(), 0), ILLEGAL_STATE);
    ok!(cuGraphLaunch(executable(graph), stream));
    assert_eq!(download::<u32>(buffer, 1), [2]);
}

#[test]
fn a_capture_can_go_into_a_graph_of_the_callers() {
    let _context = Context::new();
    let (stream, buffer) = (stream(), upload(&[0_u32]));
    let graph = handle!(cuGraphCreate(0));
    let root = handle!(cuGraphAddEmptyNode(graph, std::ptr::null(), 0));
    let to_graph = |graph, nodes: &[CUgraphNode]| {
        code!(cuStreamBeginCaptureToGraph(
            stream,
            graph,
            nodes.as_ptr(),
            std::ptr::null(),
            nodes.len(),
            mode::THREAD_LOCAL
        ))
    };
    assert_eq!(to_graph(stream, &[]), INVALID_VALUE);
    assert_eq!(to_graph(graph, &[graph]), INVALID_VALUE);
    assert_eq!(to_graph(graph, &[root]), SUCCESS);
    ok!(cuMemsetD32Async(buffer, 4, 1, stream));
    let mut ended = null_mut();
    ok!(cuStreamEndCapture(stream, &mut ended));
    assert_eq!((ended, edges(graph)), (graph, vec![(0, 1, 0)]));
    assert_eq!(to_graph(graph, &[root]), SUCCESS);
    assert_eq!(code!(cuStreamSynchronize(stream)), STREAM_CAPTURE_UNSUPPORTED);
    end_failed(stream, STREAM_CAPTURE_INVALIDATED);
    assert_eq!(nodes(graph).len(), 2, "the graph was the caller's before");
    ok!(cuGraphDestroy(graph));
}

#[test]
fn a_captured_graph_launch_is_a_graph_within() {
    let _context = Context::new();
    let (stream, patient, buffer) = (stream(), kernel_of(CHAIN, "patient"), upload(&[0_u32]));
    let pdl = [CUlaunchAttribute::programmatic_serialization()];
    let twice = executable(capture(stream, || {
        assert_eq!(launch_on(stream, &pdl, patient, buffer), SUCCESS);
        assert_eq!(launch_on(stream, &pdl, patient, buffer), SUCCESS);
    }));
    let graph = capture(stream, || {
        ok!(cuMemsetD32Async(buffer, 10, 1, stream));
        ok!(cuGraphLaunch(twice, stream));
        ok!(cuGraphLaunch(twice, stream));
    });
    ok!(cuGraphExecDestroy(twice));
    let kinds: Vec<u32> = nodes(graph).into_iter().map(node_kind).collect();
    assert_eq!(kinds, [kind::MEMSET, kind::GRAPH, kind::GRAPH]);
    ok!(cuGraphLaunch(executable(graph), stream));
    assert_eq!(download::<u32>(buffer, 1), [14]);
}

#[test]
fn a_fault_in_a_replay_stays() {
    let _context = Context::new();
    let (stream, buffer) = (stream(), upload(&[0_u32; 4]));
    let module = load(FAULTS);
    let graph = capture(stream, || {
        assert_eq!(launch_on(stream, &[], kernel(module, "out_of_bounds"), buffer), SUCCESS);
        assert_eq!(launch_on(stream, &[], kernel(module, "fine"), buffer), SUCCESS);
    });
    let exec = executable(graph);
    ok!(cuGraphLaunch(exec, stream));
    let story = emulated::last_fault().expect("a story");
    assert!(
        story.contains("out_of_bounds") && story.contains("out of bounds"),
        "{story}"
    );
    for _ in 0..2 {
        assert_eq!(code!(cuStreamSynchronize(stream)), ILLEGAL_ADDRESS);
        assert_eq!(code!(cuGraphLaunch(exec, stream)), ILLEGAL_ADDRESS);
        assert_eq!(code!(cuStreamBeginCapture_v2(stream, 0)), ILLEGAL_ADDRESS);
    }
}

#[test]
fn memory_that_is_gone_at_the_replay_is_a_fault() {
    let _context = Context::new();
    let (stream, buffer) = (stream(), upload(&[0_u32; 4]));
    let exec = executable(capture(stream, || ok!(cuMemsetD32Async(buffer, 1, 4, stream))));
    ok!(cuMemFree_v2(buffer));
    ok!(cuGraphLaunch(exec, stream));
    assert_eq!(code!(cuStreamSynchronize(stream)), ILLEGAL_ADDRESS);
    assert!(emulated::last_fault().is_some_and(|story| story.contains("fill of a graph")));
}

#[test]
fn what_goes_down_with_its_context_is_refused_afterwards() {
    let context = Context::new();
    let (stream, kernel) = (stream(), kernel_of(CHAIN, "patient"));
    let buffer = upload(&[0_u32]);
    let graph = capture(stream, || {
        assert_eq!(launch_on(stream, &[], kernel, buffer), SUCCESS);
    });
    let (exec, node) = (executable(graph), nodes(graph)[0]);
    begin(stream);
    ok!(cuCtxDestroy_v2(context.0));
    let _other = Context::new();
    assert_eq!(code!(cuGraphLaunch(exec, null_mut())), INVALID_VALUE);
    assert_eq!(code!(cuGraphDestroy(graph)), INVALID_VALUE);
    assert_eq!(code!(cuGraphDestroyNode(node)), INVALID_VALUE);
    assert_eq!(code!(cuStreamEndCapture(stream, &mut null_mut())), INVALID_HANDLE);
    ok!(cuMemAlloc_v2(&mut 0, 16));
}
