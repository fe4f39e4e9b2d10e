//! Sequences of calls, made from bytes: whatever they are, nothing may crash, and nothing may be left over.

// Each that includes this file sees it from another place.
#![allow(unreachable_pub)]

use hopper_cuda_driver::ffi::*;
use hopper_cuda_driver::{Choice, emulated, select};
use std::ptr::{null, null_mut};

/// Bytes of the host's that copies read and write.
const ROOM: usize = 64;

/// Everything that the calls so far have given out, live or not. The first of each kind is nothing.
struct Things {
    contexts: Vec<CUcontext>,
    streams: Vec<CUstream>,
    events: Vec<CUevent>,
    functions: Vec<CUfunction>,
    graphs: Vec<CUgraph>,
    nodes: Vec<CUgraphNode>,
    execs: Vec<CUgraphExec>,
    pools: Vec<CUmemoryPool>,
    libraries: Vec<CUlibrary>,
    modules: Vec<CUmodule>,
    addresses: Vec<CUdeviceptr>,
    pinned: Vec<*mut c_void>,
}

/// The bytes that a sequence is made from; zeros behind their end.
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

/// Calls a function that makes something, and notes what it made.
macro_rules! make {
    ($things:expr, $call:ident($($argument:expr),*)) => {{
        let mut out = $things[0];
        if $call(&mut out, $($argument),*) == 0 {
            $things.push(out);
        }
    }};
}

/// A code that may be any.
fn ignore(_: CUresult) {}

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// Plays the sequence that these bytes are, with a text of PTX that ends in a zero byte and the name of its kernel, which takes one address.
pub fn play(bytes: &[u8], ptx: &[u8], kernel: &std::ffi::CStr) {
    select(Choice::Emulated).expect("the emulated driver is always there");
    // SAFETY: takes a number.
    assert_eq!(unsafe { cuInit(0) }, 0);
    let mut t = Things {
        contexts: vec![null_mut()],
        streams: [0, 1, 2, 48].map(std::ptr::without_provenance_mut).to_vec(),
        events: vec![null_mut()],
        functions: vec![null_mut()],
        graphs: vec![null_mut()],
        nodes: vec![null_mut()],
        execs: vec![null_mut()],
        pools: vec![null_mut()],
        libraries: vec![null_mut()],
        modules: vec![null_mut()],
        addresses: vec![0],
        pinned: vec![null_mut()],
    };
    let mut room = [0_u8; ROOM];
    let mut bytes = Bytes(bytes);
    // A good start: a context with something of each kind that is needed often.
    // SAFETY: places for the results.
    unsafe {
        make!(t.contexts, cuCtxCreate_v2(0, 0));
        make!(t.modules, cuModuleLoadData(ptx.as_ptr().cast()));
        make!(t.functions, cuModuleGetFunction(t.modules[1], kernel.as_ptr()));
        make!(t.streams, cuStreamCreate(1));
        make!(t.events, cuEventCreate(0));
        make!(t.addresses, cuMemAlloc_v2(ROOM));
    }
    while !bytes.0.is_empty() {
        step(&mut bytes, &mut t, &mut room, ptx, kernel);
    }
    // All work ends before the host's bytes go.
    for &context in &t.contexts {
        // SAFETY: handles are looked up.
        unsafe { cuCtxDestroy_v2(context) };
    }
    for &pool in &t.pools {
        // SAFETY: as above.
        unsafe { cuMemPoolDestroy(pool) };
    }
    for &library in &t.libraries {
        // SAFETY: as above.
        unsafe { cuLibraryUnload(library) };
    }
    // SAFETY: takes the thread's contexts off their stack.
    while unsafe { cuCtxPopCurrent_v2(null_mut()) } == 0 {}
    assert!(emulated::live().is_empty(), "left over: {:?}", emulated::live());
}

#[allow(clippy::cognitive_complexity)]
fn step(b: &mut Bytes<'_>, t: &mut Things, room: &mut [u8; ROOM], ptx: &[u8], kernel: &std::ffi::CStr) {
    let what = b.next() % 60;
    let (stream, size) = (b.pick(&t.streams), b.next() % ROOM);
    let address = b.pick(&t.addresses).wrapping_add(b.next() as u64 % 40);
    let (host, none) = (room.as_mut_ptr().cast::<c_void>(), null_mut::<c_void>());
    // SAFETY: host memory is `room`, which no copy overruns; all else is looked up, null, or a place for a result.
    unsafe {
        match what {
            0 if t.contexts.len() < 4 => make!(t.contexts, cuCtxCreate_v2(0, 0)),
            1 => ignore(cuCtxSetCurrent(b.pick(&t.contexts))),
            2 if b.next().is_multiple_of(8) => ignore(cuCtxDestroy_v2(b.pick(&t.contexts))),
            3 => ignore(cuCtxSynchronize()),
            4 | 5 => make!(t.streams, cuStreamCreateWithPriority(b.next() as u32 % 3, -1)),
            6 => ignore(cuStreamDestroy_v2(stream)),
            7 => ignore(cuStreamSynchronize(stream)),
            8 => ignore(cuStreamQuery(stream)),
            9 => make!(t.events, cuEventCreate(b.next() as u32 % 4)),
            10 | 11 => ignore(cuEventRecord(b.pick(&t.events), stream)),
            12 | 13 => ignore(cuStreamWaitEvent(stream, b.pick(&t.events), 0)),
            14 => ignore(cuEventSynchronize(b.pick(&t.events))),
            15 => ignore(cuEventDestroy_v2(b.pick(&t.events))),
            16 => ignore(cuEventElapsedTime(&mut 0.0, b.pick(&t.events), b.pick(&t.events))),
            17 | 18 => make!(t.addresses, cuMemAlloc_v2(size)),
            19 | 20 => make!(t.addresses, cuMemAllocAsync(size, stream)),
            21 => make!(t.addresses, cuMemAllocFromPoolAsync(size, b.pick(&t.pools), stream)),
            22 => make!(t.addresses, cuMemAllocManaged(size, 1)),
            23 => ignore(cuMemFree_v2(b.pick(&t.addresses))),
            24 | 25 => ignore(cuMemFreeAsync(b.pick(&t.addresses), stream)),
            26 | 27 => ignore(cuMemcpyHtoDAsync_v2(address, host, size, stream)),
            28 | 29 => ignore(cuMemcpyDtoHAsync_v2(host, address, size, stream)),
            30 => ignore(cuMemcpyDtoDAsync_v2(address, b.pick(&t.addresses), size, stream)),
            31 | 32 => ignore(cuMemsetD8Async(address, 7, size, stream)),
            33 => ignore(cuMemsetD2D32_v2(address, 8, 7, 1, size)),
            34 => ignore(cuMemcpyDtoH_v2(host, address, size)),
            35 if t.modules.len() < 8 => make!(t.modules, cuModuleLoadData(ptx.as_ptr().cast())),
            36 => make!(t.functions, cuModuleGetFunction(b.pick(&t.modules), kernel.as_ptr())),
            37 if b.next().is_multiple_of(4) => ignore(cuModuleUnload(b.pick(&t.modules))),
            38..=41 => {
                let mut parameters = [(&raw const address).cast_mut().cast()];
                let (function, grid) = (b.pick(&t.functions), 1 + b.next() as u32 % 2);
                cuLaunchKernel(
                    function,
                    grid,
                    1,
                    1,
                    1,
                    1,
                    1,
                    0,
                    stream,
                    parameters.as_mut_ptr(),
                    null_mut(),
                );
            }
            42 => ignore(cuLaunchHostFunc(stream, Some(nothing), none)),
            43 | 44 => ignore(cuStreamBeginCapture_v2(stream, b.next() as u32 % 4)),
            45 | 46 => {
                let mut graph = null_mut();
                if cuStreamEndCapture(stream, &mut graph) == 0 {
                    t.graphs.push(graph);
                }
            }
            47 => make!(t.graphs, cuGraphCreate(0)),
            48 => {
                let (graph, before) = (b.pick(&t.graphs), b.pick(&t.nodes));
                let fill = CUDA_MEMSET_NODE_PARAMS {
                    dst: address,
                    pitch: 0,
                    value: 1,
                    elementSize: 1,
                    width: size,
                    height: 1,
                };
                let count = b.next() % 2;
                make!(t.nodes, cuGraphAddMemsetNode(graph, &before, count, &fill, null_mut()));
            }
            49 => make!(t.nodes, cuGraphAddEmptyNode(b.pick(&t.graphs), null(), 0)),
            50 => make!(
                t.nodes,
                cuGraphAddChildGraphNode(b.pick(&t.graphs), null(), 0, b.pick(&t.graphs))
            ),
            51 => ignore(cuGraphDestroyNode(b.pick(&t.nodes))),
            52 => ignore(cuGraphDestroy(b.pick(&t.graphs))),
            53 => make!(t.graphs, cuGraphClone(b.pick(&t.graphs))),
            54 => make!(
                t.execs,
                cuGraphInstantiateWithFlags(b.pick(&t.graphs), b.next() as u64 % 3)
            ),
            55 | 56 => ignore(cuGraphLaunch(b.pick(&t.execs), stream)),
            57 => ignore(cuGraphExecDestroy(b.pick(&t.execs))),
            58 => make!(t.pinned, cuMemHostAlloc(size, b.next() as u32 % 9)),
            59 => ignore(cuMemFreeHost(b.pick(&t.pinned))),
            _ => {}
        }
    }
}
