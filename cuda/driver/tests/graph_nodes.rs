//! What each kind of node does, and how it is asked and changed.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::{graph_node_type as kind, *};
use std::ptr::{null, null_mut};

#[test]
fn kernel_nodes_are_asked_and_changed() {
    let _context = Context::new();
    let (module, graph) = (load(CHAIN), handle!(cuGraphCreate(0)));
    let (patient, ranks) = (kernel(module, "patient"), kernel(module, "ranks"));
    let (a, b) = (upload(&[0_u32; 4]), upload(&[10_u32; 4]));
    let node = add_kernel(graph, &[], patient, a);
    let exec = executable(graph);
    assert_eq!(node_kind(node), kind::KERNEL);

    let mut told = launch_of(null_mut(), &mut []);
    ok!(cuGraphKernelNodeGetParams(node, &mut told));
    assert_eq!((told.func, told.gridDimX, told.blockDimX), (patient, 1, 1));
    assert_eq!(code!(**told.kernelParams.cast::<*const u64>()), a);
    let mut told_v2 = CUDA_KERNEL_NODE_PARAMS_v2 {
        v1: told,
        kern: graph,
        ctx: null_mut(),
    };
    ok!(cuGraphKernelNodeGetParams_v2(node, &mut told_v2));
    assert_eq!((told_v2.v1.func, told_v2.kern), (patient, null_mut()));
    assert!(!told_v2.ctx.is_null());

    // The node changes; what was instantiated before does not, until it is told.
    ok!(cuGraphKernelNodeSetParams_v2(node, &told_v2));
    with_launch(patient, b, |launch| ok!(cuGraphKernelNodeSetParams(node, launch)));
    assert_eq!((run(exec, a), run(executable(graph), b)), (1, 11));
    with_launch(patient, b, |launch| {
        ok!(cuGraphExecKernelNodeSetParams(exec, node, launch))
    });
    assert_eq!((run(exec, b), download::<u32>(a, 1)), (12, vec![1]));
    let mut pointers = [parameter(&a).cast_mut()];
    let changed = CUDA_KERNEL_NODE_PARAMS_v2 {
        v1: CUDA_KERNEL_NODE_PARAMS_v1 {
            gridDimX: 4,
            ..launch_of(ranks, &mut pointers)
        },
        ..told_v2
    };
    ok!(cuGraphExecKernelNodeSetParams_v2(exec, node, &changed));
    assert_eq!(run(exec, a), 100);
    ok!(cuGraphKernelNodeSetParams_v2(node, &changed));

    let cluster = CUlaunchAttribute::cluster([2, 1, 1]).value;
    let which = launch_attribute::CLUSTER_DIMENSION;
    ok!(cuGraphKernelNodeSetAttribute(node, which, &cluster));
    let like = handle!(cuGraphAddKernelNode_v2(graph, null(), 0, &changed));
    ok!(cuGraphKernelNodeCopyAttributes(like, node));
    let mut value = CUlaunchAttributeValue { words: [9; 16] };
    ok!(cuGraphKernelNodeGetAttribute(like, which, &mut value));
    assert_eq!(code!(value.cluster), [2, 1, 1]);
    ok!(cuGraphKernelNodeGetAttribute(
        like,
        launch_attribute::PRIORITY,
        &mut value
    ));
    assert_eq!(code!(value.number), 0);
    assert_eq!(run(executable(graph), a), 200);

    let wrong = CUlaunchAttribute::cluster([3, 1, 1]).value;
    let refused = code!(cuGraphKernelNodeSetAttribute(node, which, &wrong));
    assert_eq!(refused, UNKNOWN, "an invalid cluster size, for which cust has no name");
    assert_eq!(code!(cuGraphKernelNodeSetAttribute(node, which, null())), INVALID_VALUE);
    let programmatic = launch_attribute::PROGRAMMATIC_STREAM_SERIALIZATION;
    assert_eq!(
        code!(cuGraphKernelNodeGetAttribute(node, programmatic, &mut value)),
        INVALID_VALUE
    );
    let empty = handle!(cuGraphAddEmptyNode(graph, null(), 0));
    assert_eq!(code!(cuGraphKernelNodeCopyAttributes(empty, node)), INVALID_VALUE);
    assert_eq!(code!(cuGraphKernelNodeGetParams(empty, &mut told)), INVALID_VALUE);
    assert_eq!(code!(cuGraphKernelNodeGetParams_v2(node, null_mut())), INVALID_VALUE);
    with_launch(patient, a, |launch| {
        assert_eq!(code!(cuGraphKernelNodeSetParams(empty, launch)), INVALID_VALUE);
        assert_eq!(
            code!(cuGraphExecKernelNodeSetParams(exec, empty, launch)),
            INVALID_VALUE
        );
        assert_eq!(
            code!(cuGraphExecKernelNodeSetParams(graph, node, launch)),
            INVALID_VALUE
        );
        let mut out = null_mut();
        assert_eq!(
            code!(cuGraphAddKernelNode(&mut out, exec, null(), 0, launch)),
            INVALID_VALUE
        );
        assert_eq!(
            code!(cuGraphAddKernelNode(null_mut(), graph, null(), 0, launch)),
            INVALID_VALUE
        );
        assert_eq!(
            code!(cuGraphAddKernelNode(&mut out, graph, null(), 1, launch)),
            INVALID_VALUE
        );
        let twice = [node, node];
        assert_eq!(
            code!(cuGraphAddKernelNode(&mut out, graph, twice.as_ptr(), 2, launch)),
            INVALID_VALUE
        );
        assert_eq!(
            code!(cuGraphAddKernelNode(&mut out, graph, null(), 0, null())),
            INVALID_VALUE
        );
    });
    with_launch(graph, a, |launch| {
        assert_eq!(
            code!(cuGraphKernelNodeSetParams(node, launch)),
            INVALID_HANDLE,
            "no kernel"
        );
    });
    let mut too_many = launch_of(patient, &mut pointers);
    too_many.blockDimX = 1025;
    assert_eq!(code!(cuGraphKernelNodeSetParams(node, &too_many)), INVALID_VALUE);
}

#[test]
fn copies_move_boxes() {
    let _context = Context::new();
    let graph = handle!(cuGraphCreate(0));
    let source: Vec<u8> = (0..64).collect();
    let device = upload(&[0xff_u8; 64]);
    // Two slices of three rows of four bytes; rows of 8 bytes, slices of 4 rows, on either side.
    let mut copy = CUDA_MEMCPY3D {
        srcXInBytes: 1,
        srcY: 1,
        srcMemoryType: memory_type::HOST,
        srcHost: source.as_ptr().cast(),
        srcPitch: 8,
        srcHeight: 4,
        dstMemoryType: memory_type::DEVICE,
        dstDevice: device,
        dstPitch: 8,
        dstHeight: 4,
        WidthInBytes: 4,
        Height: 3,
        Depth: 2,
        ..CUDA_MEMCPY3D::default()
    };
    let node = handle!(cuGraphAddMemcpyNode(graph, null(), 0, &copy, null_mut()));
    assert_eq!(node_kind(node), kind::MEMCPY);
    let exec = executable(graph);
    ok!(cuGraphLaunch(exec, null_mut()));
    let there = download::<u8>(device, 64);
    let expected = |at: usize| match (at / 32, at / 8 % 4, at % 8) {
        (slice, row @ 0..3, x @ 0..4) => source[32 * slice + 8 * (row + 1) + x + 1],
        _ => 0xff,
    };
    assert_eq!(there, (0..64).map(expected).collect::<Vec<u8>>());

    // Back again, whichever kind of address it is.
    let mut back = [0_u8; 64];
    let all = CUDA_MEMCPY3D {
        srcMemoryType: memory_type::UNIFIED,
        srcDevice: device,
        dstMemoryType: memory_type::UNIFIED,
        dstDevice: back.as_mut_ptr().expose_provenance() as u64,
        WidthInBytes: 64,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    };
    ok!(cuGraphExecMemcpyNodeSetParams(exec, node, &all, null_mut()));
    ok!(cuGraphLaunch(exec, null_mut()));
    assert_eq!(back.as_slice(), there);
    ok!(cuGraphMemcpyNodeSetParams(node, &all));
    let mut told = CUDA_MEMCPY3D::default();
    ok!(cuGraphMemcpyNodeGetParams(node, &mut told));
    assert_eq!((told.srcDevice, told.WidthInBytes), (device, 64));

    let set = |copy: &CUDA_MEMCPY3D| code!(cuGraphMemcpyNodeSetParams(node, copy));
    copy.srcMemoryType = memory_type::ARRAY;
    assert_eq!(set(&copy), NOT_SUPPORTED);
    copy.srcMemoryType = 7;
    assert_eq!(set(&copy), INVALID_VALUE);
    copy.srcMemoryType = memory_type::HOST;
    for wrong in [
        CUDA_MEMCPY3D { dstZ: 1, ..copy },
        CUDA_MEMCPY3D { dstPitch: 3, ..copy },
        CUDA_MEMCPY3D { dstHeight: 2, ..copy },
        CUDA_MEMCPY3D {
            dstPitch: usize::MAX,
            ..copy
        },
        CUDA_MEMCPY3D {
            dstDevice: 4096,
            ..copy
        },
        CUDA_MEMCPY3D {
            Depth: usize::MAX,
            ..copy
        },
        CUDA_MEMCPY3D {
            srcHost: null(),
            srcXInBytes: 0,
            srcY: 0,
            ..copy
        },
        CUDA_MEMCPY3D { srcLOD: 1, ..copy },
    ] {
        assert_eq!(set(&wrong), INVALID_VALUE, "{wrong:?}");
    }
    assert_eq!(set(&CUDA_MEMCPY3D { Depth: 0, ..copy }), SUCCESS, "nothing to do");
    ok!(cuGraphLaunch(executable(graph), null_mut()));
    assert_eq!(code!(cuGraphMemcpyNodeSetParams(node, null())), INVALID_VALUE);
    assert_eq!(code!(cuGraphMemcpyNodeGetParams(graph, &mut told)), INVALID_VALUE);
    let elsewhere = code!(cuGraphExecMemcpyNodeSetParams(exec, node, &all, graph));
    assert_eq!(elsewhere, INVALID_CONTEXT);
}

#[test]
fn fills_cover_rows() {
    let _context = Context::new();
    let (graph, buffer) = (handle!(cuGraphCreate(0)), upload(&[0_u16; 12]));
    let rows = CUDA_MEMSET_NODE_PARAMS {
        dst: buffer,
        pitch: 8,
        value: 0x1_0007,
        elementSize: 2,
        width: 2,
        height: 3,
    };
    let node = handle!(cuGraphAddMemsetNode(graph, null(), 0, &rows, null_mut()));
    let exec = executable(graph);
    ok!(cuGraphLaunch(exec, null_mut()));
    assert_eq!(download::<u16>(buffer, 12), [7, 7, 0, 0, 7, 7, 0, 0, 7, 7, 0, 0]);
    let wide = CUDA_MEMSET_NODE_PARAMS { width: 4, ..rows };
    ok!(cuGraphMemsetNodeSetParams(node, &wide));
    let mut told = rows;
    ok!(cuGraphMemsetNodeGetParams(node, &mut told));
    assert_eq!(told, wide);
    ok!(cuGraphExecMemsetNodeSetParams(exec, node, &wide, null_mut()));
    ok!(cuGraphLaunch(exec, null_mut()));
    assert_eq!(download::<u16>(buffer, 12), [7; 12]);
    for wrong in [
        CUDA_MEMSET_NODE_PARAMS {
            dst: buffer + 1,
            ..rows
        },
        CUDA_MEMSET_NODE_PARAMS { elementSize: 3, ..rows },
        CUDA_MEMSET_NODE_PARAMS { pitch: 3, ..rows },
        CUDA_MEMSET_NODE_PARAMS { height: 4, ..rows },
        CUDA_MEMSET_NODE_PARAMS {
            width: usize::MAX,
            ..rows
        },
        CUDA_MEMSET_NODE_PARAMS {
            height: usize::MAX,
            ..rows
        },
    ] {
        assert_eq!(
            code!(cuGraphMemsetNodeSetParams(node, &wrong)),
            INVALID_VALUE,
            "{wrong:?}"
        );
    }
    assert_eq!(code!(cuGraphMemsetNodeGetParams(node, null_mut())), INVALID_VALUE);
}

#[test]
fn host_and_event_nodes() {
    let _context = Context::new();
    let graph = handle!(cuGraphCreate(0));
    let (mut first, mut second) = (0_u32, 0_u32);
    let call = |number: &mut u32| CUDA_HOST_NODE_PARAMS {
        r#fn: Some(increment),
        userData: std::ptr::from_mut(number).cast(),
    };
    let (on_first, on_second) = (call(&mut first), call(&mut second));
    let node = handle!(cuGraphAddHostNode(graph, null(), 0, &on_first));
    let (event, other) = (handle!(cuEventCreate(0)), handle!(cuEventCreate(0)));
    let record = handle!(cuGraphAddEventRecordNode(graph, &node, 1, event));
    let wait = handle!(cuGraphAddEventWaitNode(graph, &record, 1, event));
    let exec = executable(graph);
    ok!(cuGraphLaunch(exec, null_mut()));
    ok!(cuGraphExecHostNodeSetParams(exec, node, &on_second));
    ok!(cuGraphLaunch(exec, null_mut()));
    ok!(cuCtxSynchronize());
    assert_eq!((first, second), (1, 1));

    let mut told = on_second;
    ok!(cuGraphHostNodeGetParams(node, &mut told));
    assert_eq!(told.userData, on_first.userData);
    ok!(cuGraphHostNodeSetParams(node, &on_second));
    let mut milliseconds = 0.0;
    assert_eq!(
        code!(cuEventElapsedTime(&mut milliseconds, event, other)),
        INVALID_HANDLE
    );
    ok!(cuGraphExecEventRecordNodeSetEvent(exec, record, other));
    ok!(cuGraphExecEventWaitNodeSetEvent(exec, wait, other));
    ok!(cuGraphLaunch(exec, null_mut()));
    ok!(cuCtxSynchronize());
    ok!(cuEventElapsedTime(&mut milliseconds, event, other));
    ok!(cuGraphEventRecordNodeSetEvent(record, other));
    ok!(cuGraphEventWaitNodeSetEvent(wait, other));
    let mut found = null_mut();
    ok!(cuGraphEventRecordNodeGetEvent(record, &mut found));
    assert_eq!(found, other);
    ok!(cuGraphEventWaitNodeGetEvent(wait, &mut found));
    assert_eq!(found, other);

    assert_eq!(code!(cuGraphEventRecordNodeGetEvent(wait, &mut found)), INVALID_VALUE);
    assert_eq!(code!(cuGraphEventWaitNodeGetEvent(record, &mut found)), INVALID_VALUE);
    assert_eq!(code!(cuGraphEventRecordNodeSetEvent(record, graph)), INVALID_HANDLE);
    assert_eq!(code!(cuGraphEventWaitNodeSetEvent(record, event)), INVALID_VALUE);
    assert_eq!(code!(cuGraphHostNodeGetParams(wait, &mut told)), INVALID_VALUE);
    let nobody = CUDA_HOST_NODE_PARAMS { r#fn: None, ..told };
    assert_eq!(code!(cuGraphHostNodeSetParams(node, &nobody)), INVALID_VALUE);
}
