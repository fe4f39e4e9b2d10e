//! The structures and numbers of memory: copies of rows, pools, places, what an address is.

use super::{CUcontext, CUdeviceptr, c_int, c_uchar, c_uint, c_void};

/// A memory pool.
pub type CUmemoryPool = *mut c_void;

/// `CUDA_MEMCPY2D`: a copy of rows of bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct CUDA_MEMCPY2D {
    /// Where the rows start in the source, in bytes.
    pub srcXInBytes: usize,
    /// Where they start, in rows.
    pub srcY: usize,
    /// What the source is: one of the [`memory_type`](super::memory_type) numbers.
    pub srcMemoryType: c_uint,
    /// The source, where it is host memory.
    pub srcHost: *const c_void,
    /// The source, where it is device memory.
    pub srcDevice: CUdeviceptr,
    /// The source, where it is an array.
    pub srcArray: *mut c_void,
    /// Bytes from a row of the source to the next.
    pub srcPitch: usize,
    /// Where the rows start in the target, in bytes.
    pub dstXInBytes: usize,
    /// Where they start, in rows.
    pub dstY: usize,
    /// What the target is: one of the [`memory_type`](super::memory_type) numbers.
    pub dstMemoryType: c_uint,
    /// The target, where it is host memory.
    pub dstHost: *mut c_void,
    /// The target, where it is device memory.
    pub dstDevice: CUdeviceptr,
    /// The target, where it is an array.
    pub dstArray: *mut c_void,
    /// Bytes from a row of the target to the next.
    pub dstPitch: usize,
    /// Bytes of a row.
    pub WidthInBytes: usize,
    /// Rows.
    pub Height: usize,
}

/// `CUDA_MEMCPY3D_PEER`: a copy of a box of bytes from one context to another. In the places where
/// [`CUDA_MEMCPY3D`](super::CUDA_MEMCPY3D) has nulls, it has the contexts.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, non_snake_case)]
pub struct CUDA_MEMCPY3D_PEER {
    /// The copy, with contexts in `reserved0` (of the source) and `reserved1` (of the target).
    pub copy: super::CUDA_MEMCPY3D,
}

impl CUDA_MEMCPY3D_PEER {
    /// The contexts of the source and of the target.
    pub fn contexts(&self) -> [CUcontext; 2] {
        [self.copy.reserved0, self.copy.reserved1]
    }
}

/// `CUmemLocation`: where memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUmemLocation {
    /// One of the [`mem_location`] numbers.
    pub r#type: c_uint,
    /// The device.
    pub id: c_int,
}

/// `CUipcEventHandle`, `CUipcMemHandle`: an object as another process gave it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUipcHandle {
    /// 64 bytes without meaning to others.
    pub reserved: [c_uchar; 64],
}

/// `CUctxCreateParams`: what a context is made with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_snake_case)]
pub struct CUctxCreateParams {
    /// How many multiprocessors it may use.
    pub execAffinityParams: *mut c_void,
    /// How many of these there are.
    pub numExecAffinityParams: c_int,
    /// What it shares with a graphics system.
    pub cigParams: *mut c_void,
}

/// `CUdevprop`: a device's numbers, as they were asked for before there were attributes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(non_snake_case)]
pub struct CUdevprop {
    /// Threads of a block.
    pub maxThreadsPerBlock: c_int,
    /// Threads of a block in each direction.
    pub maxThreadsDim: [c_int; 3],
    /// Blocks of a grid in each direction.
    pub maxGridSize: [c_int; 3],
    /// Shared memory of a block, in bytes.
    pub sharedMemPerBlock: c_int,
    /// Constant memory, in bytes.
    pub totalConstantMemory: c_int,
    /// Lanes of a warp.
    pub SIMDWidth: c_int,
    /// Bytes between rows of a copy, at most.
    pub memPitch: c_int,
    /// Registers of a block.
    pub regsPerBlock: c_int,
    /// Clock in kHz.
    pub clockRate: c_int,
    /// What textures' addresses are multiples of.
    pub textureAlign: c_int,
}

/// The numbers of `CUmemLocationType`.
pub mod mem_location {
    /// A device.
    pub const DEVICE: u32 = 1;
    /// The host.
    pub const HOST: u32 = 2;
    /// A NUMA node of the host.
    pub const HOST_NUMA: u32 = 3;
    /// The NUMA node of the calling thread.
    pub const HOST_NUMA_CURRENT: u32 = 4;
}

/// `CUmemPoolProps`: what a pool is to be.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_snake_case)]
pub struct CUmemPoolProps {
    /// 1: pinned memory, the one kind that there is.
    pub allocType: c_uint,
    /// By what handles it can be given to other processes; 0 for none.
    pub handleTypes: c_uint,
    /// Where its memory is.
    pub location: CUmemLocation,
    /// Null.
    pub win32SecurityAttributes: *mut c_void,
    /// Its size at most; 0 for the device's.
    pub maxSize: usize,
    /// Zeros.
    pub reserved: [c_uchar; 56],
}

/// `CUmemAccessDesc`: who may do what.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUmemAccessDesc {
    /// Who.
    pub location: CUmemLocation,
    /// 0 for nothing, 1 for reads, 3 for reads and writes.
    pub flags: c_uint,
}

/// The numbers of `CUmemPool_attribute`.
pub mod mem_pool_attribute {
    /// Whether memory freed on another stream may be used once an event says so.
    pub const REUSE_FOLLOW_EVENT_DEPENDENCIES: u32 = 1;
    /// Whether it may be used once it happens to be free.
    pub const REUSE_ALLOW_OPPORTUNISTIC: u32 = 2;
    /// Whether it may be used with a dependency that the driver makes.
    pub const REUSE_ALLOW_INTERNAL_DEPENDENCIES: u32 = 3;
    /// Bytes to hold on to when nothing uses them.
    pub const RELEASE_THRESHOLD: u32 = 4;
    /// Bytes held.
    pub const RESERVED_MEM_CURRENT: u32 = 5;
    /// The most of them since the mark was set to zero.
    pub const RESERVED_MEM_HIGH: u32 = 6;
    /// Bytes in use.
    pub const USED_MEM_CURRENT: u32 = 7;
    /// The most of them since the mark was set to zero.
    pub const USED_MEM_HIGH: u32 = 8;
}

/// The numbers of `CUpointer_attribute`.
pub mod pointer_attribute {
    /// The context that it was allocated in.
    pub const CONTEXT: u32 = 1;
    /// Of what kind it is: one of the [`memory_type`](super::super::memory_type) numbers.
    pub const MEMORY_TYPE: u32 = 2;
    /// Where the device has it.
    pub const DEVICE_POINTER: u32 = 3;
    /// Where the host has it.
    pub const HOST_POINTER: u32 = 4;
    /// Tokens for other drivers.
    pub const P2P_TOKENS: u32 = 5;
    /// Whether operations on it wait for their end. Can be set.
    pub const SYNC_MEMOPS: u32 = 6;
    /// A number of its allocation's own.
    pub const BUFFER_ID: u32 = 7;
    /// Whether it is managed memory.
    pub const IS_MANAGED: u32 = 8;
    /// Its device.
    pub const DEVICE_ORDINAL: u32 = 9;
    /// Whether it can be given to another process by `cuIpcGetMemHandle`.
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: u32 = 10;
    /// Where its allocation starts.
    pub const RANGE_START_ADDR: u32 = 11;
    /// The allocation's size.
    pub const RANGE_SIZE: u32 = 12;
    /// Whether it is mapped.
    pub const MAPPED: u32 = 13;
    /// By what handles it can be given to other processes.
    pub const ALLOWED_HANDLE_TYPES: u32 = 14;
    /// Whether other devices can reach it.
    pub const IS_GPU_DIRECT_RDMA_CAPABLE: u32 = 15;
    /// What the device may do there.
    pub const ACCESS_FLAGS: u32 = 16;
    /// The pool that it is of.
    pub const MEMPOOL_HANDLE: u32 = 17;
    /// The size of its mapping.
    pub const MAPPING_SIZE: u32 = 18;
    /// Where its mapping starts.
    pub const MAPPING_BASE_ADDR: u32 = 19;
    /// A number of its memory's own.
    pub const MEMORY_BLOCK_ID: u32 = 20;
    /// Whether the device can decompress into it.
    pub const IS_HW_DECOMPRESS_CAPABLE: u32 = 21;
}

const _: () = {
    assert!(size_of::<CUDA_MEMCPY2D>() == 128);
    assert!(size_of::<CUDA_MEMCPY3D_PEER>() == 200);
    assert!(size_of::<CUmemPoolProps>() == 88);
    assert!(size_of::<CUmemAccessDesc>() == 12);
};
