//! What the tests of the C functions share: codes, calls, and a context that ends with its test.

// Each test binary uses its own part of this.
#![allow(dead_code, unreachable_pub)]

use hopper_cuda_driver::ffi::*;
use hopper_cuda_driver::{Choice, Selected, select};
use std::ffi::CString;
use std::ptr::{null, null_mut, without_provenance_mut};

/// Kernels that are launched one after the other.
pub const CHAIN: &str = include_str!("../ptx/chain.ptx");

pub const SUCCESS: u32 = 0;
pub const INVALID_VALUE: u32 = 1;
pub const OUT_OF_MEMORY: u32 = 2;
pub const NOT_INITIALIZED: u32 = 3;
pub const INVALID_DEVICE: u32 = 101;
pub const INVALID_CONTEXT: u32 = 201;
pub const NO_BINARY_FOR_GPU: u32 = 209;
pub const UNSUPPORTED_LIMIT: u32 = 215;
pub const INVALID_PTX: u32 = 218;
pub const FILE_NOT_FOUND: u32 = 301;
pub const OPERATING_SYSTEM: u32 = 304;
pub const INVALID_HANDLE: u32 = 400;
pub const ILLEGAL_STATE: u32 = 401;
pub const LOSSY_QUERY: u32 = 402;
pub const NOT_FOUND: u32 = 500;
pub const ILLEGAL_ADDRESS: u32 = 700;
pub const LAUNCH_TIMEOUT: u32 = 702;
pub const CONTEXT_IS_DESTROYED: u32 = 709;
pub const HOST_MEMORY_ALREADY_REGISTERED: u32 = 712;
pub const HOST_MEMORY_NOT_REGISTERED: u32 = 713;
pub const MISALIGNED_ADDRESS: u32 = 716;
pub const LAUNCH_FAILED: u32 = 719;
pub const COOPERATIVE_LAUNCH_TOO_LARGE: u32 = 720;
pub const NOT_PERMITTED: u32 = 800;
pub const NOT_SUPPORTED: u32 = 801;
pub const STREAM_CAPTURE_UNSUPPORTED: u32 = 900;
pub const STREAM_CAPTURE_INVALIDATED: u32 = 901;
pub const STREAM_CAPTURE_MERGE: u32 = 902;
pub const STREAM_CAPTURE_UNMATCHED: u32 = 903;
pub const STREAM_CAPTURE_UNJOINED: u32 = 904;
pub const STREAM_CAPTURE_ISOLATION: u32 = 905;
pub const STREAM_CAPTURE_IMPLICIT: u32 = 906;
pub const CAPTURED_EVENT: u32 = 907;
pub const STREAM_CAPTURE_WRONG_THREAD: u32 = 908;
pub const GRAPH_EXEC_UPDATE_FAILURE: u32 = 910;
pub const INVALID_CLUSTER_SIZE: u32 = 912;
pub const UNKNOWN: u32 = 999;

/// The code that a call answers.
macro_rules! code {
    ($call:expr) => {
        // SAFETY: the tests pass valid pointers, nulls, and handles, which are looked up and never followed.
        unsafe { $call }
    };
}

/// A call that must succeed.
macro_rules! ok {
    ($call:expr) => {
        assert_eq!(code!($call), 0, "{}", stringify!($call))
    };
}

/// What a call writes to its first argument, where it must succeed.
macro_rules! get {
    ($function:ident($($argument:expr),*)) => {{
        let mut out = Default::default();
        ok!($function(&mut out, $($argument),*));
        out
    }};
}

/// A handle that a call writes to its first argument, where it must succeed.
macro_rules! handle {
    ($function:ident($($argument:expr),*)) => {{
        let mut out = std::ptr::null_mut();
        ok!($function(&mut out, $($argument),*));
        assert!(!out.is_null());
        out
    }};
}

/// Chooses the emulated driver and starts it.
pub fn start() {
    assert_eq!(
        select(Choice::Emulated).expect("the emulated driver is always there"),
        Selected::Emulated
    );
    ok!(cuInit(0));
}

/// A context of the test's own, current while it lives.
pub struct Context(pub CUcontext);

impl Context {
    pub fn new() -> Context {
        start();
        Context(handle!(cuCtxCreate_v2(0, 0)))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A test may have destroyed it already.
        code!(cuCtxDestroy_v2(self.0));
    }
}

/// Loads PTX text into the current context.
pub fn load(ptx: &str) -> CUmodule {
    let text = CString::new(ptx).expect("PTX has no zero bytes");
    let mut module = null_mut();
    let mut log = [0_u8; 512];
    let mut options = [jit_option::ERROR_LOG_BUFFER, jit_option::ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), without_provenance_mut(log.len())];
    let loaded = code!(cuModuleLoadDataEx(
        &mut module,
        text.as_ptr().cast(),
        2,
        options.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    assert_eq!(loaded, SUCCESS, "{}", String::from_utf8_lossy(&log[..values[1].addr()]));
    module
}

/// A kernel of a module.
pub fn kernel(module: CUmodule, name: &str) -> CUfunction {
    let name = CString::new(name).expect("a name has no zero bytes");
    handle!(cuModuleGetFunction(module, name.as_ptr()))
}

/// The only kernel of a PTX text, loaded into the current context.
pub fn kernel_of(ptx: &str, name: &str) -> CUfunction {
    kernel(load(ptx), name)
}

/// Device memory that holds these values.
pub fn upload<T: Copy>(values: &[T]) -> CUdeviceptr {
    let bytes = size_of_val(values);
    let address = get!(cuMemAlloc_v2(bytes));
    ok!(cuMemcpyHtoD_v2(address, values.as_ptr().cast(), bytes));
    address
}

/// The values that device memory holds.
pub fn download<T: Copy + Default>(address: CUdeviceptr, count: usize) -> Vec<T> {
    let mut values = vec![T::default(); count];
    ok!(cuMemcpyDtoH_v2(
        values.as_mut_ptr().cast(),
        address,
        size_of_val(values.as_slice())
    ));
    values
}

/// A launch of one block dimension and one grid dimension, on the default stream, without attributes.
pub fn config(grid: u32, block: u32) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: null_mut(),
        attrs: null(),
        numAttrs: 0,
    }
}

/// Launches with parameters of any types, passed by pointers to them.
pub fn launch(config: &CUlaunchConfig, function: CUfunction, parameters: &[*const c_void]) -> u32 {
    let mut parameters: Vec<*mut c_void> = parameters.iter().map(|parameter| parameter.cast_mut()).collect();
    code!(cuLaunchKernelEx(config, function, parameters.as_mut_ptr(), null_mut()))
}

/// A parameter for [`launch`].
pub fn parameter<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

/// Launches with attributes on a stream.
pub fn launch_on(stream: CUstream, attributes: &[CUlaunchAttribute], function: CUfunction, buffer: CUdeviceptr) -> u32 {
    let config = CUlaunchConfig {
        hStream: stream,
        attrs: attributes.as_ptr(),
        numAttrs: attributes.len() as u32,
        ..config(1, 1)
    };
    launch(&config, function, &[parameter(&buffer)])
}

/// Captures what is queued on a stream, minding nothing but the calling thread.
pub fn capture(stream: CUstream, queue: impl FnOnce()) -> CUgraph {
    begin(stream);
    queue();
    let mut graph = null_mut();
    ok!(cuStreamEndCapture(stream, &mut graph));
    graph
}

/// Whether a stream is being captured, and whether the capture is still good.
pub fn status(stream: CUstream) -> u32 {
    let mut status = 9;
    ok!(cuStreamIsCapturing(stream, &mut status));
    status
}

/// A graph made executable.
pub fn executable(graph: CUgraph) -> CUgraphExec {
    handle!(cuGraphInstantiateWithFlags(graph, 0))
}

/// The nodes of a graph.
pub fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    ok!(cuGraphGetNodes(graph, null_mut(), &mut count));
    let mut nodes = vec![null_mut(); count];
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    nodes
}

/// What a node is.
pub fn node_kind(node: CUgraphNode) -> u32 {
    let mut kind = 99;
    ok!(cuGraphNodeGetType(node, &mut kind));
    kind
}

/// The edges of a graph, by the places of their nodes among its nodes, and their types.
pub fn edges(graph: CUgraph) -> Vec<(usize, usize, u8)> {
    let (nodes, mut count) = (nodes(graph), 0);
    ok!(cuGraphGetEdges_v2(
        graph,
        null_mut(),
        null_mut(),
        null_mut(),
        &mut count
    ));
    let (mut from, mut to) = (vec![null_mut(); count], vec![null_mut(); count]);
    let mut data = vec![CUgraphEdgeData::default(); count];
    ok!(cuGraphGetEdges_v2(
        graph,
        from.as_mut_ptr(),
        to.as_mut_ptr(),
        data.as_mut_ptr(),
        &mut count
    ));
    let place = |node| {
        nodes
            .iter()
            .position(|&known| known == node)
            .expect("a node of the graph")
    };
    (0..count)
        .map(|at| (place(from[at]), place(to[at]), data[at].r#type))
        .collect()
}

/// Streams that do not wait for the default stream, so that tests can use it while they capture.
pub fn stream() -> CUstream {
    handle!(cuStreamCreate(1))
}

/// Begins a capture that minds nothing but the calling thread.
pub fn begin(stream: CUstream) {
    ok!(cuStreamBeginCapture_v2(stream, stream_capture_mode::THREAD_LOCAL));
}

/// Ends a capture that must have failed with this code.
pub fn end_failed(stream: CUstream, expected: u32) {
    let mut graph = without_provenance_mut(1);
    assert_eq!(code!(cuStreamEndCapture(stream, &mut graph)), expected);
    assert!(graph.is_null());
    assert_eq!(status(stream), stream_capture_status::NONE);
}

/// What a node launches: one thread of a kernel of one parameter.
pub fn launch_of(function: CUfunction, parameters: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS_v1 {
    CUDA_KERNEL_NODE_PARAMS_v1 {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: parameters.as_mut_ptr(),
        extra: null_mut(),
    }
}

/// Calls with the parameters of a launch on this buffer.
pub fn with_launch<T>(
    function: CUfunction,
    buffer: CUdeviceptr,
    call: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS_v1) -> T,
) -> T {
    let mut pointers = [parameter(&buffer).cast_mut()];
    call(&launch_of(function, &mut pointers))
}

/// Adds a node that launches one thread of a kernel on this buffer.
pub fn add_kernel(graph: CUgraph, before: &[CUgraphNode], function: CUfunction, buffer: CUdeviceptr) -> CUgraphNode {
    with_launch(function, buffer, |launch| {
        handle!(cuGraphAddKernelNode(graph, before.as_ptr(), before.len(), launch))
    })
}

/// What a graph leaves in a buffer.
pub fn run(exec: CUgraphExec, buffer: CUdeviceptr) -> u32 {
    ok!(cuGraphLaunch(exec, null_mut()));
    ok!(cuCtxSynchronize());
    download::<u32>(buffer, 1)[0]
}

/// A host function that counts its calls.
pub unsafe extern "C" fn increment(number: *mut c_void) {
    // SAFETY: the tests pass a number.
    unsafe { *number.cast::<u32>() += 1 };
}

type Word = usize;
type Function = unsafe extern "C" fn(
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
    Word,
) -> u32;

/// Calls a function with these words and zeros behind them, of which it takes those that it has arguments for.
pub fn call_with(address: *const (), first: &[Word]) -> u32 {
    let word = |at: usize| first.get(at).copied().unwrap_or(0);
    // SAFETY: a function of C that takes words in registers and on the stack, and leaves those on the stack to its
    // caller.
    let function = unsafe { std::mem::transmute::<*const (), Function>(address) };
    // SAFETY: zeros are nulls, which every function refuses or does without; what is not zero is a handle, which is
    // looked up, or a number.
    unsafe {
        function(
            word(0),
            word(1),
            word(2),
            word(3),
            word(4),
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        )
    }
}
