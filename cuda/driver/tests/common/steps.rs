//! The calls of a sequence.

mod graphs;
mod memory;
mod streams;

use super::{Bytes, Things};
use hopper_cuda_driver::ffi::*;
use std::ptr::null_mut;

/// Calls a function that makes something, and notes what it made.
macro_rules! make {
    ($things:expr, $call:ident($($argument:expr),* $(,)?)) => {{
        let mut out = $things[0];
        if $call(&mut out, $($argument),*) == 0 {
            $things.push(out);
        }
    }};
}
use make;

/// A code that may be any.
pub(super) fn ignore(_: CUresult) {}

unsafe extern "C" fn nothing(_: *mut c_void) {}

unsafe extern "C" fn nothing_on(_: CUstream, _: CUresult, _: *mut c_void) {}

/// A good start: a context with something of each kind that is needed often.
pub(super) fn begin(t: &mut Things<'_>) {
    // SAFETY: places for the results.
    unsafe {
        make!(t.contexts, cuCtxCreate_v2(0, 0));
        make!(t.modules, cuModuleLoadData(t.ptx.as_ptr().cast()));
        make!(t.functions, cuModuleGetFunction(t.modules[1], t.kernel.as_ptr()));
        make!(t.streams, cuStreamCreate(1));
        make!(t.events, cuEventCreate(0));
        make!(t.addresses, cuMemAlloc_v2(64));
    }
}

/// What most calls take.
struct Common {
    stream: CUstream,
    size: usize,
    address: CUdeviceptr,
    host: *mut c_void,
}

/// Makes the call that these bytes are.
pub(super) fn step(b: &mut Bytes<'_>, t: &mut Things<'_>) {
    let what = b.next();
    let stream = b.pick(&t.streams);
    let size = b.next() % t.room.0.len();
    let common = Common {
        stream,
        size,
        address: b.pick(&t.addresses).wrapping_add(size as u64 / 4 % 16),
        host: t.room.0.as_mut_ptr().cast(),
    };
    match what % 4 {
        0 => memory::step(what / 4, &common, b, t),
        1 => streams::step(what / 4, &common, b, t),
        2 => graphs::step(what / 4, &common, b, t),
        _ => graphs::change(what / 4, &common, b, t),
    }
}

/// Launches of one thread or two on an address.
fn launch(common: &Common, function: CUfunction, grid: u32, attributes: &[CUlaunchAttribute]) {
    let mut parameters = [(&raw const common.address).cast_mut().cast()];
    let config = CUlaunchConfig {
        gridDimX: grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: common.stream,
        attrs: attributes.as_ptr(),
        numAttrs: attributes.len() as u32,
    };
    // SAFETY: the kernel takes one address, attributes are as many as the number says, and handles are looked up.
    unsafe { cuLaunchKernelEx(&config, function, parameters.as_mut_ptr(), null_mut()) };
}
