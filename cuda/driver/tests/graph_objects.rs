//! Objects of the caller's that graphs keep.

#[macro_use]
mod common;

use common::*;
use hopper_cuda_driver::ffi::*;
use std::ptr::null_mut;

/// An object that counts how often it is destroyed.
fn object(destroyed: &mut u32, references: u32) -> CUuserObject {
    let destroyed = std::ptr::from_mut(destroyed).cast();
    handle!(cuUserObjectCreate(destroyed, Some(increment), references, 1))
}

#[test]
fn an_object_goes_with_its_last_reference() {
    let _context = Context::new();
    let mut destroyed = 0;
    let kept = object(&mut destroyed, 1);
    ok!(cuUserObjectRetain(kept, 2));
    ok!(cuUserObjectRelease(kept, 2));
    assert_eq!(code!(cuUserObjectRelease(kept, 2)), INVALID_VALUE, "it has one");
    assert_eq!(destroyed, 0);
    ok!(cuUserObjectRelease(kept, 1));
    assert_eq!(destroyed, 1);
    assert_eq!(code!(cuUserObjectRelease(kept, 1)), INVALID_VALUE);
    let mut out = null_mut();
    for (destroy, count, flags) in [
        (None, 1, 1),
        (Some(increment as unsafe extern "C" fn(_)), 0, 1),
        (Some(increment), 1, 0),
    ] {
        assert_eq!(
            code!(cuUserObjectCreate(&mut out, null_mut(), destroy, count, flags)),
            INVALID_VALUE
        );
    }
}

#[test]
fn graphs_and_what_is_made_of_them_keep_objects() {
    let _context = Context::new();
    let mut destroyed = 0;
    let kept = object(&mut destroyed, 1);
    let graph = handle!(cuGraphCreate(0));
    assert_eq!(
        code!(cuGraphRetainUserObject(graph, kept, 2, 1)),
        INVALID_VALUE,
        "more than there are"
    );
    ok!(cuGraphRetainUserObject(graph, kept, 1, 1));
    let (clone, exec) = (handle!(cuGraphClone(graph)), executable(graph));
    ok!(cuGraphDestroy(graph));
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(destroyed, 0, "the clone has it");
    assert_eq!(
        code!(cuGraphReleaseUserObject(clone, kept, 2)),
        INVALID_VALUE,
        "more than it holds"
    );
    ok!(cuGraphReleaseUserObject(clone, kept, 1));
    assert_eq!(destroyed, 1);

    let again = object(&mut destroyed, 1);
    let inner = handle!(cuGraphCreate(0));
    ok!(cuGraphRetainUserObject(inner, again, 1, 0));
    ok!(cuUserObjectRelease(again, 1));
    handle!(cuGraphAddChildGraphNode(clone, std::ptr::null(), 0, inner));
    let exec = executable(clone);
    ok!(cuGraphDestroy(inner));
    ok!(cuGraphDestroy(clone));
    assert_eq!(destroyed, 1);
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(destroyed, 2, "with the last that was made of a graph within another");
}
