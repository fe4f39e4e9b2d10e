//! Kernels that do wrong: the code that each comes back as, and what it does to its context and to no other.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::emulated;
use hopper_cuda_driver::ffi::*;
use std::ptr::null_mut;

const FAULTS: &str = include_str!("ptx/faults.ptx");

#[test]
fn each_fault_has_its_code_and_its_story() {
    for (name, code, words) in [
        ("out_of_bounds", ILLEGAL_ADDRESS, "out of bounds"),
        ("misaligned", MISALIGNED_ADDRESS, "misaligned"),
        ("deadlock", LAUNCH_TIMEOUT, "deadlock"),
        ("uninitialised", LAUNCH_FAILED, "before it was written"),
        ("traps", LAUNCH_FAILED, "trap"),
    ] {
        let _context = Context::new();
        let buffer = upload(&[0_u32; 4]);
        assert_eq!(emulated::last_fault(), None);
        assert_eq!(
            launch(&config(1, 64), kernel_of(FAULTS, name), &[parameter(&buffer)]),
            SUCCESS,
            "{name}"
        );
        assert_eq!(code!(cuCtxSynchronize()), code, "{name}: the next call tells");
        let story = emulated::last_fault().expect("there is a story");
        for part in [words, name, "line", "CTA", "warp", "lane"] {
            assert!(story.contains(part), "{name}: no `{part}` in `{story}`");
        }
    }
}

#[test]
fn a_faulted_context_answers_every_call_with_its_fault() {
    let context = Context::new();
    let module = load(FAULTS);
    let (wrong, fine) = (kernel(module, "out_of_bounds"), kernel(module, "fine"));
    let stream = handle!(cuStreamCreate(1));
    let event = handle!(cuEventCreate(0));
    let buffer = upload(&[0_u32; 4]);
    let parameters = [parameter(&buffer)];
    assert_eq!(launch(&config(1, 32), wrong, &parameters), SUCCESS);

    let (mut number, mut size, mut address, mut pointer) = (0, 0, 0, null_mut());
    let answers = [
        code!(cuMemAlloc_v2(&mut address, 16)),
        code!(cuMemFree_v2(buffer)),
        code!(cuMemcpyDtoH_v2((&raw mut number).cast(), buffer, 4)),
        code!(cuMemsetD8Async(buffer, 0, 4, stream)),
        code!(cuMemGetInfo_v2(&mut size, &mut size.clone())),
        code!(cuModuleLoadData(&mut pointer, c".version 8.0".as_ptr().cast())),
        code!(cuModuleUnload(module)),
        code!(cuModuleGetFunction(&mut pointer, module, c"fine".as_ptr())),
        code!(cuFuncGetAttribute(&mut number, 0, fine)),
        launch(&config(1, 32), fine, &parameters),
        code!(cuStreamCreate(&mut pointer, 0)),
        code!(cuStreamQuery(stream)),
        code!(cuStreamSynchronize(stream)),
        code!(cuStreamDestroy_v2(stream)),
        code!(cuEventRecord(event, stream)),
        code!(cuEventQuery(event)),
        code!(cuEventSynchronize(event)),
        code!(cuCtxSynchronize()),
    ];
    assert_eq!(answers, [ILLEGAL_ADDRESS; 18]);

    let mut current = null_mut();
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, context.0);
    ok!(cuCtxDestroy_v2(context.0));
}

#[test]
fn another_context_goes_on() {
    let faulted = Context::new();
    let buffer = upload(&[0_u32; 4]);
    assert_eq!(
        launch(&config(1, 32), kernel_of(FAULTS, "misaligned"), &[parameter(&buffer)]),
        SUCCESS
    );
    assert_eq!(code!(cuCtxSynchronize()), MISALIGNED_ADDRESS);
    {
        let _other = Context::new();
        let buffer = upload(&[0_u32; 4]);
        assert_eq!(
            launch(&config(1, 32), kernel_of(FAULTS, "fine"), &[parameter(&buffer)]),
            SUCCESS
        );
        ok!(cuCtxSynchronize());
        assert_eq!(download::<u32>(buffer, 1), [7]);
        assert_eq!(emulated::last_fault(), None);
    }
    ok!(cuCtxSetCurrent(faulted.0));
    assert_eq!(code!(cuCtxSynchronize()), MISALIGNED_ADDRESS);
    assert!(emulated::last_fault().is_some_and(|story| story.contains("misaligned")));
}

#[test]
fn the_primary_context_is_whole_again_after_a_reset() {
    start();
    let context = handle!(cuDevicePrimaryCtxRetain(0));
    ok!(cuCtxSetCurrent(context));
    let buffer = upload(&[0_u32; 4]);
    assert_eq!(
        launch(&config(1, 32), kernel_of(FAULTS, "traps"), &[parameter(&buffer)]),
        SUCCESS
    );
    assert_eq!(code!(cuCtxSynchronize()), LAUNCH_FAILED);
    ok!(cuDevicePrimaryCtxReset_v2(0));
    assert_eq!(code!(cuCtxSynchronize()), CONTEXT_IS_DESTROYED);
    let context = handle!(cuDevicePrimaryCtxRetain(0));
    ok!(cuCtxSetCurrent(context));
    ok!(cuCtxSynchronize());
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    ok!(cuCtxSetCurrent(null_mut()));
}
