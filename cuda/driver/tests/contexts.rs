//! Contexts: the stack of each thread, the primary one, handles that are wrong, stale or destroyed.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Mutex, PoisonError};

fn current() -> CUcontext {
    let mut context = null_mut();
    ok!(cuCtxGetCurrent(&mut context));
    context
}

#[test]
fn each_thread_has_a_stack_of_contexts() {
    let first = Context::new();
    let second = Context::new();
    assert_ne!(first.0, second.0);
    assert_eq!(current(), second.0);
    assert_eq!(handle!(cuCtxPopCurrent_v2()), second.0);
    assert_eq!(current(), first.0);
    ok!(cuCtxPushCurrent_v2(second.0));
    ok!(cuCtxSetCurrent(first.0));
    assert_eq!(current(), first.0);
    ok!(cuCtxPopCurrent_v2(null_mut()));
    assert_eq!(
        current(),
        first.0,
        "setting replaces the top, so the first one is there twice"
    );
    ok!(cuCtxSetCurrent(null_mut()));
    assert_eq!(current(), null_mut());
    assert_eq!(code!(cuCtxPopCurrent_v2(null_mut())), INVALID_CONTEXT);
    assert_eq!(code!(cuCtxSynchronize()), INVALID_CONTEXT);
    std::thread::spawn(|| assert_eq!(current(), null_mut()))
        .join()
        .expect("the thread's assertions hold");
}

#[test]
fn handles_of_no_context_are_refused() {
    let context = Context::new();
    let stream = handle!(cuStreamCreate(0));
    for wrong in [
        without_provenance_mut(0x1234),
        stream,
        without_provenance_mut(usize::MAX),
    ] {
        assert_eq!(code!(cuCtxSetCurrent(wrong)), INVALID_CONTEXT);
        assert_eq!(code!(cuCtxPushCurrent_v2(wrong)), INVALID_CONTEXT);
        assert_eq!(code!(cuCtxDestroy_v2(wrong)), INVALID_CONTEXT);
    }
    assert_eq!(code!(cuCtxDestroy_v2(null_mut())), INVALID_CONTEXT);
    assert_eq!(code!(cuCtxCreate_v2(null_mut(), 0, 0)), INVALID_VALUE);
    let mut other = null_mut();
    assert_eq!(code!(cuCtxCreate_v2(&mut other, 0x1000, 0)), INVALID_VALUE);
    assert_eq!(code!(cuCtxCreate_v2(&mut other, 0, 1)), INVALID_DEVICE);
    assert_eq!(current(), context.0);
}

#[test]
fn a_destroyed_context_is_known_as_such_where_it_was_current() {
    let context = Context::new();
    let stream = handle!(cuStreamCreate(0));
    ok!(cuCtxPushCurrent_v2(context.0));
    ok!(cuCtxDestroy_v2(context.0));
    assert_eq!(current(), context.0, "it was there twice; destroying it pops one");
    let mut address = 0;
    assert_eq!(code!(cuMemAlloc_v2(&mut address, 16)), CONTEXT_IS_DESTROYED);
    assert_eq!(code!(cuStreamSynchronize(stream)), INVALID_HANDLE);
    assert_eq!(code!(cuCtxSetCurrent(context.0)), INVALID_CONTEXT);
    assert_eq!(code!(cuCtxDestroy_v2(context.0)), INVALID_CONTEXT);
    ok!(cuCtxPopCurrent_v2(null_mut()));
}

#[test]
fn a_context_takes_its_memory_with_it() {
    let first = Context::new();
    let kept = upload(&[1_u32; 64]);
    let second = Context::new();
    let lost = upload(&[2_u32; 64]);
    assert_eq!(download::<u32>(kept, 64), [1; 64], "pointers are good in every context");
    ok!(cuCtxDestroy_v2(second.0));
    assert_eq!(current(), first.0);
    let mut bytes = [0_u8; 4];
    assert_eq!(
        code!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), lost, 4)),
        INVALID_VALUE
    );
    assert_eq!(code!(cuMemFree_v2(lost)), INVALID_VALUE);
    assert_eq!(download::<u32>(kept, 64), [1; 64]);
}

#[test]
fn limits_and_preferences_are_kept() {
    let _context = Context::new();
    assert_eq!(get!(cuCtxGetLimit(0)), 1024_usize);
    ok!(cuCtxSetLimit(0, 2048));
    assert_eq!(get!(cuCtxGetLimit(0)), 2048_usize);
    let mut value = 0;
    assert_eq!(code!(cuCtxGetLimit(&mut value, 3)), UNSUPPORTED_LIMIT);
    assert_eq!(code!(cuCtxSetLimit(99, 1)), UNSUPPORTED_LIMIT);
    ok!(cuCtxSetCacheConfig(2));
    assert_eq!(get!(cuCtxGetCacheConfig()), 2);
    assert_eq!(code!(cuCtxSetCacheConfig(4)), INVALID_VALUE);
    ok!(cuCtxSetSharedMemConfig(1));
    assert_eq!(get!(cuCtxGetSharedMemConfig()), 1);
    assert_eq!(get!(cuCtxGetDevice()), 0);
}

/// The primary context is the device's, so the tests of it take turns.
static PRIMARY: Mutex<()> = Mutex::new(());

fn primary_is_active() -> bool {
    let (mut flags, mut active) = (0, 0);
    ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    active == 1
}

#[test]
fn the_primary_context_lives_while_it_is_retained() {
    start();
    let _turn = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(!primary_is_active());
    assert_eq!(code!(cuDevicePrimaryCtxRelease_v2(0)), INVALID_CONTEXT);
    let context = handle!(cuDevicePrimaryCtxRetain(0));
    assert_eq!(handle!(cuDevicePrimaryCtxRetain(0)), context);
    ok!(cuCtxSetCurrent(context));
    assert_eq!(
        code!(cuCtxDestroy_v2(context)),
        INVALID_CONTEXT,
        "it is released, not destroyed"
    );
    let address = upload(&[7_u32; 4]);
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(download::<u32>(address, 4), [7; 4]);
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    assert!(!primary_is_active());
    assert_eq!(code!(cuCtxSynchronize()), CONTEXT_IS_DESTROYED);

    assert_eq!(handle!(cuDevicePrimaryCtxRetain(0)), context, "its handle stays");
    ok!(cuCtxSynchronize());
    assert_eq!(code!(cuMemFree_v2(address)), INVALID_VALUE, "its memory does not");
    ok!(cuDevicePrimaryCtxReset_v2(0));
    assert!(!primary_is_active());
    assert_eq!(code!(cuCtxSynchronize()), CONTEXT_IS_DESTROYED);
    assert_eq!(code!(cuDevicePrimaryCtxRetain(null_mut(), 0)), INVALID_VALUE);
    assert_eq!(code!(cuDevicePrimaryCtxReset_v2(3)), INVALID_DEVICE);
    ok!(cuCtxSetCurrent(null_mut()));
}
