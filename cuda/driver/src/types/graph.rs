//! The structures and numbers of stream capture and graphs.

use super::{
    CUcontext, CUdeviceptr, CUfunction, CUgraphNode, CUhostFn, CUmemAccessDesc, CUmemPoolProps, CUstream, c_uint,
    c_void,
};

/// `CUDA_KERNEL_NODE_PARAMS_v1`: what a kernel node launches.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct CUDA_KERNEL_NODE_PARAMS_v1 {
    /// The kernel.
    pub func: CUfunction,
    /// Width of the grid in blocks.
    pub gridDimX: c_uint,
    /// Height of the grid in blocks.
    pub gridDimY: c_uint,
    /// Depth of the grid in blocks.
    pub gridDimZ: c_uint,
    /// Threads of a block in x.
    pub blockDimX: c_uint,
    /// Threads of a block in y.
    pub blockDimY: c_uint,
    /// Threads of a block in z.
    pub blockDimZ: c_uint,
    /// Dynamic shared memory of a block, in bytes.
    pub sharedMemBytes: c_uint,
    /// A pointer per parameter.
    pub kernelParams: *mut *mut c_void,
    /// The parameters in one buffer instead.
    pub extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`: as version 1, with a kernel of a library and a context.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct CUDA_KERNEL_NODE_PARAMS_v2 {
    /// What both versions have.
    pub v1: CUDA_KERNEL_NODE_PARAMS_v1,
    /// A kernel of a library, where the function is null.
    pub kern: *mut c_void,
    /// The context of that kernel; null is the current one.
    pub ctx: CUcontext,
}

/// `CUDA_MEMSET_NODE_PARAMS`: what a memset node fills.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    /// Where the first row starts.
    pub dst: CUdeviceptr,
    /// Bytes from a row to the next; of no meaning where there is one.
    pub pitch: usize,
    /// The value.
    pub value: c_uint,
    /// Bytes of the value: 1, 2 or 4.
    pub elementSize: c_uint,
    /// Values in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`: what a host node calls.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct CUDA_HOST_NODE_PARAMS {
    /// The function.
    pub r#fn: CUhostFn,
    /// Its argument.
    pub userData: *mut c_void,
}

/// `CUDA_MEMCPY3D`: a copy of a box of bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct CUDA_MEMCPY3D {
    /// Where the box starts in the source, in bytes.
    pub srcXInBytes: usize,
    /// Where it starts, in rows.
    pub srcY: usize,
    /// Where it starts, in slices.
    pub srcZ: usize,
    /// Level of detail; 0.
    pub srcLOD: usize,
    /// What the source is: one of the [`memory_type`] numbers.
    pub srcMemoryType: c_uint,
    /// The source, where it is host memory.
    pub srcHost: *const c_void,
    /// The source, where it is device memory.
    pub srcDevice: CUdeviceptr,
    /// The source, where it is an array.
    pub srcArray: *mut c_void,
    /// Null.
    pub reserved0: *mut c_void,
    /// Bytes from a row of the source to the next.
    pub srcPitch: usize,
    /// Rows from a slice of the source to the next.
    pub srcHeight: usize,
    /// Where the box starts in the target, in bytes.
    pub dstXInBytes: usize,
    /// Where it starts, in rows.
    pub dstY: usize,
    /// Where it starts, in slices.
    pub dstZ: usize,
    /// Level of detail; 0.
    pub dstLOD: usize,
    /// What the target is: one of the [`memory_type`] numbers.
    pub dstMemoryType: c_uint,
    /// The target, where it is host memory.
    pub dstHost: *mut c_void,
    /// The target, where it is device memory.
    pub dstDevice: CUdeviceptr,
    /// The target, where it is an array.
    pub dstArray: *mut c_void,
    /// Null.
    pub reserved1: *mut c_void,
    /// Bytes from a row of the target to the next.
    pub dstPitch: usize,
    /// Rows from a slice of the target to the next.
    pub dstHeight: usize,
    /// Bytes of a row of the box.
    pub WidthInBytes: usize,
    /// Rows of a slice of the box.
    pub Height: usize,
    /// Slices of the box.
    pub Depth: usize,
}

impl Default for CUDA_MEMCPY3D {
    /// A copy of nothing, from nowhere to nowhere.
    fn default() -> Self {
        CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: 0,
            srcHost: std::ptr::null(),
            srcDevice: 0,
            srcArray: std::ptr::null_mut(),
            reserved0: std::ptr::null_mut(),
            srcPitch: 0,
            srcHeight: 0,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: 0,
            dstHost: std::ptr::null_mut(),
            dstDevice: 0,
            dstArray: std::ptr::null_mut(),
            reserved1: std::ptr::null_mut(),
            dstPitch: 0,
            dstHeight: 0,
            WidthInBytes: 0,
            Height: 0,
            Depth: 0,
        }
    }
}

/// The numbers of `CUmemorytype`.
pub mod memory_type {
    /// Host memory.
    pub const HOST: u32 = 1;
    /// Device memory.
    pub const DEVICE: u32 = 2;
    /// An array.
    pub const ARRAY: u32 = 3;
    /// Whatever the address is of; it stands in the place of a device address.
    pub const UNIFIED: u32 = 4;
}

/// `CUgraphEdgeData`: what an edge of a graph waits for; zeros for all of the node before it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CUgraphEdgeData {
    /// What of the node before: one of the [`graph_edge`] ports.
    pub from_port: u8,
    /// What of the node after; 0.
    pub to_port: u8,
    /// How the two depend on each other: one of the [`graph_edge`] types.
    pub r#type: u8,
    /// Zeros.
    pub reserved: [u8; 5],
}

impl CUgraphEdgeData {
    /// Lets a kernel start when all blocks of the kernel before it have let it or ended; its `griddepcontrol.wait`
    /// waits for the end.
    pub const PROGRAMMATIC: CUgraphEdgeData = CUgraphEdgeData {
        from_port: graph_edge::PORT_PROGRAMMATIC,
        to_port: 0,
        r#type: graph_edge::PROGRAMMATIC,
        reserved: [0; 5],
    };
}

/// The numbers of `CUgraphDependencyType` and of a kernel node's ports.
pub mod graph_edge {
    /// The node after waits for the node before.
    pub const DEFAULT: u8 = 0;
    /// The kernel after may start early, and waits by itself.
    pub const PROGRAMMATIC: u8 = 1;
    /// The kernel before has ended.
    pub const PORT_DEFAULT: u8 = 0;
    /// Its blocks have let dependents start.
    pub const PORT_PROGRAMMATIC: u8 = 1;
    /// Its blocks have all started.
    pub const PORT_LAUNCH_ORDER: u8 = 2;
}

/// The numbers of `CUgraphNodeType`.
pub mod graph_node_type {
    /// A kernel.
    pub const KERNEL: u32 = 0;
    /// A copy.
    pub const MEMCPY: u32 = 1;
    /// A fill.
    pub const MEMSET: u32 = 2;
    /// A call of the host.
    pub const HOST: u32 = 3;
    /// A graph.
    pub const GRAPH: u32 = 4;
    /// Nothing.
    pub const EMPTY: u32 = 5;
    /// A wait for an event.
    pub const WAIT_EVENT: u32 = 6;
    /// The record of an event.
    pub const EVENT_RECORD: u32 = 7;
    /// An allocation.
    pub const MEM_ALLOC: u32 = 10;
    /// Its end.
    pub const MEM_FREE: u32 = 11;
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`: what a node allocates.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    /// Where.
    pub poolProps: CUmemPoolProps,
    /// Which other devices may use it.
    pub accessDescs: *const CUmemAccessDesc,
    /// How many these are.
    pub accessDescCount: usize,
    /// How many bytes.
    pub bytesize: usize,
    /// Out: its address.
    pub dptr: CUdeviceptr,
}

/// The numbers of `CUgraphMem_attribute`.
pub mod graph_mem_attribute {
    /// Bytes that graphs have allocated.
    pub const USED_MEM_CURRENT: u32 = 0;
    /// The most of them since the mark was set to zero.
    pub const USED_MEM_HIGH: u32 = 1;
    /// Bytes held for graphs.
    pub const RESERVED_MEM_CURRENT: u32 = 2;
    /// The most of them since the mark was set to zero.
    pub const RESERVED_MEM_HIGH: u32 = 3;
}

/// The numbers of `CUstreamCaptureMode`.
pub mod stream_capture_mode {
    /// Unsafe calls are refused on every thread.
    pub const GLOBAL: u32 = 0;
    /// They are refused on the capturing thread.
    pub const THREAD_LOCAL: u32 = 1;
    /// They are not refused.
    pub const RELAXED: u32 = 2;
}

/// The numbers of `CUstreamCaptureStatus`.
pub mod stream_capture_status {
    /// The stream does its work.
    pub const NONE: u32 = 0;
    /// It notes its work in a graph.
    pub const ACTIVE: u32 = 1;
    /// It did, until something went wrong; the capture has not been ended yet.
    pub const INVALIDATED: u32 = 2;
}

/// The numbers of `CUgraphInstantiateResult`.
pub mod graph_instantiate_result {
    /// The graph was made executable.
    pub const SUCCESS: u32 = 0;
    /// It was not; the returned code says why.
    pub const ERROR: u32 = 1;
    /// Its edges form a cycle.
    pub const INVALID_STRUCTURE: u32 = 2;
}

/// The numbers of `CUgraphExecUpdateResult`.
pub mod graph_exec_update_result {
    /// The executable graph was updated.
    pub const SUCCESS: u32 = 0;
    /// It was not; the returned code says why.
    pub const ERROR: u32 = 1;
    /// Nodes or edges were added or removed.
    pub const TOPOLOGY_CHANGED: u32 = 2;
    /// A node is of another type.
    pub const NODE_TYPE_CHANGED: u32 = 3;
    /// What a node does changed where it must not.
    pub const PARAMETERS_CHANGED: u32 = 5;
    /// A kernel is of another context.
    pub const UNSUPPORTED_FUNCTION_CHANGE: u32 = 7;
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`: how to make a graph executable, and what came of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    /// Flags.
    pub flags: u64,
    /// The stream to upload on, where a flag asks for it.
    pub hUploadStream: CUstream,
    /// Out: a node to blame, or null.
    pub hErrNode_out: CUgraphNode,
    /// Out: one of the [`graph_instantiate_result`] numbers.
    pub result_out: c_uint,
}

/// `CUgraphExecUpdateResultInfo`: what came of an update.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_snake_case)]
pub struct CUgraphExecUpdateResultInfo {
    /// One of the [`graph_exec_update_result`] numbers.
    pub result: c_uint,
    /// The node to blame, or the one after the edge to blame; else null.
    pub errorNode: CUgraphNode,
    /// The node before the edge to blame, else null.
    pub errorFromNode: CUgraphNode,
}

const _: () = {
    assert!(size_of::<CUDA_KERNEL_NODE_PARAMS_v1>() == 56);
    assert!(size_of::<CUDA_KERNEL_NODE_PARAMS_v2>() == 72);
    assert!(size_of::<CUDA_MEMSET_NODE_PARAMS>() == 40);
    assert!(size_of::<CUDA_MEMCPY3D>() == 200);
    assert!(size_of::<CUgraphEdgeData>() == 8);
};
