//! What later versions of CUDA ask of the device, contexts and streams.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ffi::CStr;
use std::ptr::null_mut;

#[test]
fn the_device_tells_where_it_is_and_has_no_peer() {
    start();
    let mut id = [0 as c_char; 13];
    ok!(cuDeviceGetPCIBusId(id.as_mut_ptr(), 13, 0));
    // SAFETY: the driver ended it with a zero byte.
    let text = unsafe { CStr::from_ptr(id.as_ptr()) };
    assert_eq!(text, c"0000:00:00.0");
    let mut device = 9;
    ok!(cuDeviceGetByPCIBusId(&mut device, id.as_ptr()));
    assert_eq!(device, 0);
    assert_eq!(
        code!(cuDeviceGetByPCIBusId(&mut device, c"0000:01:00.0".as_ptr())),
        INVALID_DEVICE
    );
    assert_eq!(
        code!(cuDeviceGetPCIBusId(id.as_mut_ptr(), 12, 0)),
        INVALID_VALUE,
        "too short"
    );
    let mut properties = CUdevprop::default();
    ok!(cuDeviceGetProperties(&mut properties, 0));
    assert_eq!((properties.SIMDWidth, properties.maxThreadsDim), (32, [1024, 1024, 64]));
    let mut can = 9;
    ok!(cuDeviceCanAccessPeer(&mut can, 0, 0));
    assert_eq!(can, 0);
    assert_eq!(code!(cuDeviceCanAccessPeer(&mut can, 0, 1)), INVALID_DEVICE);
    assert_eq!(
        code!(cuDeviceGetP2PAttribute(&mut can, 1, 0, 0)),
        INVALID_DEVICE,
        "one and the same"
    );
    assert_eq!(code!(cuDeviceGetP2PAttribute(&mut can, 9, 0, 0)), INVALID_VALUE);
    ok!(cuDeviceGetExecAffinitySupport(&mut can, 0, 0));
    assert_eq!(can, 0);
}

#[test]
fn contexts_are_made_and_told_apart() {
    start();
    let first = Context(handle!(cuCtxCreate_v3(null_mut(), 0, 1, 0)));
    let second = Context(handle!(cuCtxCreate_v4(null_mut(), 2, 0)));
    let id = |context: &Context| {
        let mut id = 0_u64;
        ok!(cuCtxGetId(context.0, &mut id));
        id
    };
    assert_ne!(id(&first), id(&second));
    let mut flags = 0;
    ok!(cuCtxSetFlags(4));
    ok!(cuCtxGetFlags(&mut flags));
    assert_eq!(flags, 4);
    let mut device = 9;
    ok!(cuCtxGetDevice_v2(&mut device, first.0));
    ok!(cuCtxSynchronize_v2(first.0));
    assert_eq!(device, 0);
    assert_eq!(
        code!(cuCtxEnablePeerAccess(second.0, 0)),
        INVALID_CONTEXT,
        "the current one"
    );
    assert_eq!(code!(cuCtxEnablePeerAccess(first.0, 0)), 217, "of the same device");
    assert_eq!(code!(cuCtxDisablePeerAccess(first.0)), 705);
    assert_eq!(handle!(cuCtxAttach(0)), second.0);
    ok!(cuCtxDetach(second.0));
    let mut out = null_mut();
    assert_eq!(code!(cuCtxCreate_v3(&mut out, null_mut(), 1, 0, 0)), 224);
    let mut shared = CUctxCreateParams {
        execAffinityParams: null_mut(),
        numExecAffinityParams: 0,
        cigParams: std::ptr::without_provenance_mut(16),
    };
    assert_eq!(code!(cuCtxCreate_v4(&mut out, &mut shared, 0, 0)), NOT_SUPPORTED);
    ok!(cuCtxSetLimit(5, 64));
    assert_eq!(
        code!(cuCtxSetLimit(5, 256)),
        INVALID_VALUE,
        "L2 fetches 128 bytes at most"
    );
    ok!(cuCtxResetPersistingL2Cache());
    ok!(cuProfilerStart());
    ok!(cuProfilerStop());
}

#[test]
fn streams_have_numbers_and_attributes() {
    let context = Context::new();
    let (first, second) = (stream(), stream());
    let id = |stream| {
        let mut id = 0_u64;
        ok!(cuStreamGetId(stream, &mut id));
        id
    };
    let mut per_thread = 0_u64;
    ok!(cuStreamGetId_ptsz(null_mut(), &mut per_thread));
    let ids = [id(first), id(second), id(null_mut()), per_thread];
    assert!((0..4).all(|at| !ids[..at].contains(&ids[at])), "{ids:?}");
    let (mut device, mut owner, mut green) = (9, null_mut(), first);
    ok!(cuStreamGetDevice(first, &mut device));
    ok!(cuStreamGetCtx_v2(first, &mut owner, &mut green));
    assert_eq!((device, owner, green), (0, context.0, null_mut()));
    let set = CUlaunchAttributeValue { words: [7; 16] };
    ok!(cuStreamSetAttribute(first, launch_attribute::PRIORITY, &set));
    ok!(cuStreamCopyAttributes(second, first));
    let mut told = CUlaunchAttributeValue { words: [0; 16] };
    ok!(cuStreamGetAttribute(second, launch_attribute::PRIORITY, &mut told));
    // SAFETY: all values are words.
    assert_eq!(unsafe { told.words }, [7; 16]);
    let cluster = launch_attribute::CLUSTER_DIMENSION;
    assert_eq!(
        code!(cuStreamSetAttribute(first, cluster, &set)),
        INVALID_VALUE,
        "of launches alone"
    );
}

/// Launches `sums` with all blocks there at once; the code.
fn cooperate(kernel: CUfunction, blocks: u32, buffer: CUdeviceptr) -> u32 {
    let mut parameters = [parameter(&buffer).cast_mut()];
    let parameters = parameters.as_mut_ptr();
    code!(cuLaunchCooperativeKernel(
        kernel,
        blocks,
        1,
        1,
        1,
        1,
        1,
        0,
        null_mut(),
        parameters
    ))
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    let context = Context::new();
    let kernel = kernel_of(include_str!("ptx/barrier.ptx"), "sums");
    let (mut per_sm, buffer) = (0, upload(&[0_u32; 700]));
    let check = |blocks: u32| {
        let (n, found) = (blocks as usize, download::<u32>(buffer, 700));
        let sum = blocks * (blocks + 1) / 2;
        assert!(found[n..2 * n].iter().all(|&found| found == sum), "{blocks} blocks");
        assert_eq!(found[2 * n], blocks * sum, "{blocks} blocks");
        ok!(cuMemsetD8_v2(buffer, 0, 2800));
    };
    for blocks in [1, 2, 7, 140] {
        assert_eq!(cooperate(kernel, blocks, buffer), SUCCESS);
        check(blocks);
    }
    for seed in 0..4 {
        hopper_cuda_driver::emulated::set_seed(Some(seed));
        assert_eq!(cooperate(kernel, 12, buffer), SUCCESS);
        check(12);
    }
    // As an attribute, and in a graph.
    let mut attribute = CUlaunchAttribute::programmatic_serialization();
    attribute.id = launch_attribute::COOPERATIVE;
    let config = CUlaunchConfig {
        attrs: &attribute,
        numAttrs: 1,
        hStream: stream(),
        ..config(20, 1)
    };
    let graph = capture(config.hStream, || {
        assert_eq!(launch(&config, kernel, &[parameter(&buffer)]), SUCCESS);
    });
    let mut value = CUlaunchAttribute::cluster([0; 3]).value;
    ok!(cuGraphKernelNodeGetAttribute(nodes(graph)[0], attribute.id, &mut value));
    // SAFETY: the attribute is a number.
    assert_eq!(unsafe { value.number }, 1);
    run(executable(graph), buffer);
    check(20);

    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut per_sm, kernel, 1, 0));
    let most = 132 * per_sm as u32;
    let too_many = cooperate(kernel, most + 1, buffer);
    assert_eq!(too_many, COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_eq!(code!(cuCtxSynchronize()), SUCCESS);
    // Without all blocks at once, there is nowhere to wait.
    assert_eq!(launch_on(null_mut(), &[], kernel, buffer), SUCCESS);
    assert_eq!(code!(cuCtxSynchronize()), ILLEGAL_ADDRESS);
    drop(context);
}

#[test]
fn first_names_of_functions_do_what_later_ones_do() {
    start();
    let context = handle!(cuCtxCreate_v2(0, 0));
    ok!(cuStreamDestroy(stream()));
    let event = handle!(cuEventCreate(0));
    ok!(cuEventDestroy(event));
    ok!(cuCtxPushCurrent(context));
    assert_eq!(handle!(cuCtxPopCurrent()), context);
    ok!(cuCtxDestroy(context));
    let primary = handle!(cuDevicePrimaryCtxRetain(0));
    ok!(cuDevicePrimaryCtxSetFlags(0, 0));
    ok!(cuDevicePrimaryCtxRelease(0));
    assert_eq!(code!(cuCtxPushCurrent(primary)), INVALID_CONTEXT, "nobody retains it");
    ok!(cuDevicePrimaryCtxReset(0));
}
