//! Sequences of calls, made from bytes: whatever they are, nothing may crash, and nothing may be left over.

// Each that includes this file sees it from another place.
#![allow(unreachable_pub)]

mod steps;

use hopper_cuda_driver::ffi::*;
use hopper_cuda_driver::{Choice, emulated, select};
use std::ffi::CStr;
use std::ptr::null_mut;
use steps::ignore;

/// Bytes of the host's that copies read and write, at an address at which they can be registered.
#[repr(align(64))]
struct Room([u8; 64]);

/// Bytes that one call is made from: a change of one call leaves the others as they are.
const RECORD: usize = 8;
/// Most calls of a sequence.
const CALLS: usize = 1000;

/// Everything that the calls so far have given out, live or not. The first of each kind is nothing.
struct Things<'a> {
    ptx: &'a [u8],
    kernel: &'a CStr,
    room: Room,
    contexts: Vec<CUcontext>,
    streams: Vec<CUstream>,
    events: Vec<CUevent>,
    functions: Vec<CUfunction>,
    graphs: Vec<CUgraph>,
    nodes: Vec<CUgraphNode>,
    execs: Vec<CUgraphExec>,
    pools: Vec<CUmemoryPool>,
    libraries: Vec<CUlibrary>,
    kernels: Vec<CUkernel>,
    modules: Vec<CUmodule>,
    objects: Vec<CUuserObject>,
    addresses: Vec<CUdeviceptr>,
    pinned: Vec<*mut c_void>,
}

/// The bytes of a call; zeros behind their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> usize {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first.into()
            }
            None => 0,
        }
    }

    /// One of what there is: half the time one of the last, which are more likely to be live.
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let byte = self.next();
        let recent = &from[from.len().saturating_sub(3)..];
        let from = if byte < 128 { from } else { recent };
        from[byte % from.len()]
    }
}

/// Plays the sequence that these bytes are, with a text of PTX that ends in a zero byte and the name of its kernel,
/// which takes one address.
pub fn play(bytes: &[u8], ptx: &[u8], kernel: &CStr) {
    select(Choice::Emulated).expect("the emulated driver is always there");
    // SAFETY: takes a number.
    assert_eq!(unsafe { cuInit(0) }, 0);
    let mut things = Things {
        ptx,
        kernel,
        room: Room([0; 64]),
        contexts: vec![null_mut()],
        streams: [0, 1, 2, 48].map(std::ptr::without_provenance_mut).to_vec(),
        events: vec![null_mut()],
        functions: vec![null_mut()],
        graphs: vec![null_mut()],
        nodes: vec![null_mut()],
        execs: vec![null_mut()],
        pools: vec![null_mut()],
        libraries: vec![null_mut()],
        kernels: vec![null_mut()],
        modules: vec![null_mut()],
        objects: vec![null_mut()],
        addresses: vec![0],
        pinned: vec![null_mut()],
    };
    steps::begin(&mut things);
    for record in bytes.chunks(RECORD).take(CALLS) {
        steps::step(&mut Bytes(record), &mut things);
    }
    end(&things);
    assert!(emulated::live().is_empty(), "left over: {:?}", emulated::live());
}

/// Gives back what has been made. All work ends before the host's bytes go.
fn end(things: &Things<'_>) {
    let room = (&raw const things.room).cast_mut();
    // SAFETY: handles are looked up, and so are addresses.
    unsafe {
        things
            .contexts
            .iter()
            .for_each(|&context| ignore(cuCtxDestroy_v2(context)));
        cuDevicePrimaryCtxReset_v2(0);
        cuMemHostUnregister(room.cast());
        things.pools.iter().for_each(|&pool| ignore(cuMemPoolDestroy(pool)));
        things
            .libraries
            .iter()
            .for_each(|&library| ignore(cuLibraryUnload(library)));
        // Each once for every reference that a step can have taken.
        for &object in &things.objects {
            while cuUserObjectRelease(object, 1) == 0 {}
        }
        while cuCtxPopCurrent_v2(null_mut()) == 0 {}
        let mut mode = stream_capture_mode::GLOBAL;
        cuThreadExchangeStreamCaptureMode(&mut mode);
    }
}
