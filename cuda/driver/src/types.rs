//! The driver API's C types, written once as plain integers, pointers and `repr(C)` structures.
//!
//! Handles are opaque pointers, result codes and enumerations are plain integers: a value that a newer driver invents
//! is then a number like any other, where a Rust `enum` would make it undefined behaviour.

mod graph;
mod memory;

pub use graph::*;
pub use memory::*;
pub use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};

/// A result code; 0 is success.
pub type CUresult = u32;
/// A device's ordinal.
pub type CUdevice = c_int;
/// An address in device memory.
pub type CUdeviceptr = u64;
/// A context.
pub type CUcontext = *mut c_void;
/// A loaded module.
pub type CUmodule = *mut c_void;
/// A kernel of a loaded module.
pub type CUfunction = *mut c_void;
/// A library: modules for every context.
pub type CUlibrary = *mut c_void;
/// A kernel of a library.
pub type CUkernel = *mut c_void;
/// A linker.
pub type CUlinkState = *mut c_void;
/// A stream; null is the default stream.
pub type CUstream = *mut c_void;
/// An event.
pub type CUevent = *mut c_void;
/// A graph.
pub type CUgraph = *mut c_void;
/// A graph made ready to launch.
pub type CUgraphExec = *mut c_void;
/// An object that graphs keep.
pub type CUuserObject = *mut c_void;
/// A node of a graph.
pub type CUgraphNode = *mut c_void;
/// A function that a stream calls on the host.
pub type CUhostFn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
/// A function that a stream calls on the host with its own state.
pub type CUstreamCallback = Option<unsafe extern "C" fn(stream: CUstream, status: CUresult, user_data: *mut c_void)>;
/// A function that says how much dynamic shared memory a block size needs.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(block_size: c_int) -> usize>;

/// `CUlaunchConfig`: what `cuLaunchKernelEx` launches.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_snake_case)]
pub struct CUlaunchConfig {
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
    /// The stream to launch on.
    pub hStream: CUstream,
    /// `numAttrs` attributes.
    pub attrs: *const CUlaunchAttribute,
    /// How many attributes `attrs` holds.
    pub numAttrs: c_uint,
}

/// `CUlaunchAttribute`: one attribute of a launch.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct CUlaunchAttribute {
    /// Which attribute: one of the [`launch_attribute`] numbers.
    pub id: c_uint,
    pad: [u8; 4],
    /// Its value.
    pub value: CUlaunchAttributeValue,
}

/// `CUlaunchAttributeValue`: the value of a launch attribute, 64 bytes whatever its kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CUlaunchAttributeValue {
    /// The whole value.
    pub words: [u32; 16],
    /// Of [`launch_attribute::CLUSTER_DIMENSION`]: blocks of a cluster in x, y and z.
    pub cluster: [u32; 3],
    /// Of every attribute that is a switch or a number.
    pub number: c_int,
}

impl CUlaunchAttribute {
    /// An attribute with the first words of its value; the rest is zero.
    fn new<const N: usize>(id: c_uint, first: [u32; N]) -> Self {
        let mut words = [0; 16];
        words.iter_mut().zip(first).for_each(|(word, value)| *word = value);
        CUlaunchAttribute {
            id,
            pad: [0; 4],
            value: CUlaunchAttributeValue { words },
        }
    }

    /// Launches in clusters of `dim` blocks.
    pub fn cluster(dim: [u32; 3]) -> Self {
        Self::new(launch_attribute::CLUSTER_DIMENSION, dim)
    }

    /// Lets the launch start before the preceding kernel of the stream has ended.
    pub fn programmatic_serialization() -> Self {
        Self::new(launch_attribute::PROGRAMMATIC_STREAM_SERIALIZATION, [1])
    }
}

impl std::fmt::Debug for CUlaunchAttribute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What the value holds depends on the number.
        f.debug_struct("CUlaunchAttribute")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The numbers of `CUlaunchAttributeID`.
pub mod launch_attribute {
    /// Nothing; the entry is passed over.
    pub const IGNORE: u32 = 0;
    /// A window of addresses and how L2 should treat it.
    pub const ACCESS_POLICY_WINDOW: u32 = 1;
    /// All blocks must be resident at once.
    pub const COOPERATIVE: u32 = 2;
    /// How the host waits.
    pub const SYNCHRONIZATION_POLICY: u32 = 3;
    /// Blocks of a cluster in x, y and z.
    pub const CLUSTER_DIMENSION: u32 = 4;
    /// How clusters are spread over the device.
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: u32 = 5;
    /// The launch may start before the preceding kernel of the stream has ended.
    pub const PROGRAMMATIC_STREAM_SERIALIZATION: u32 = 6;
    /// An event that blocks of the kernel trigger.
    pub const PROGRAMMATIC_EVENT: u32 = 7;
    /// Priority of the kernel.
    pub const PRIORITY: u32 = 8;
    /// Where the kernel's memory-synchronisation domains go.
    pub const MEM_SYNC_DOMAIN_MAP: u32 = 9;
    /// The kernel's memory-synchronisation domain.
    pub const MEM_SYNC_DOMAIN: u32 = 10;
    /// A cluster size to try before the given one.
    pub const PREFERRED_CLUSTER_DIMENSION: u32 = 11;
    /// An event recorded when every block has begun.
    pub const LAUNCH_COMPLETION_EVENT: u32 = 12;
    /// A graph node that the device may change.
    pub const DEVICE_UPDATABLE_KERNEL_NODE: u32 = 13;
    /// How much of an SM's memory should be shared memory.
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: u32 = 14;
}

/// The numbers of `CUfunction_attribute`.
pub mod function_attribute {
    /// The most threads a block of this kernel may have.
    pub const MAX_THREADS_PER_BLOCK: u32 = 0;
    /// Static shared memory in bytes.
    pub const SHARED_SIZE_BYTES: u32 = 1;
    /// Constant memory in bytes.
    pub const CONST_SIZE_BYTES: u32 = 2;
    /// Local memory of a thread in bytes.
    pub const LOCAL_SIZE_BYTES: u32 = 3;
    /// Registers of a thread.
    pub const NUM_REGS: u32 = 4;
    /// The PTX target, ten times the major plus the minor number.
    pub const PTX_VERSION: u32 = 5;
    /// The binary's architecture, in the same form.
    pub const BINARY_VERSION: u32 = 6;
    /// Whether loads are cached in L1 by default.
    pub const CACHE_MODE_CA: u32 = 7;
    /// The most dynamic shared memory a launch may ask for. Can be set.
    pub const MAX_DYNAMIC_SHARED_SIZE_BYTES: u32 = 8;
    /// Preferred share of shared memory in percent, or -1. Can be set.
    pub const PREFERRED_SHARED_MEMORY_CARVEOUT: u32 = 9;
    /// Whether a launch must name a cluster size. Can be set.
    pub const CLUSTER_SIZE_MUST_BE_SET: u32 = 10;
    /// Required cluster width, or 0. Can be set.
    pub const REQUIRED_CLUSTER_WIDTH: u32 = 11;
    /// Required cluster height, or 0. Can be set.
    pub const REQUIRED_CLUSTER_HEIGHT: u32 = 12;
    /// Required cluster depth, or 0. Can be set.
    pub const REQUIRED_CLUSTER_DEPTH: u32 = 13;
    /// Whether clusters of more than 8 blocks are allowed. Can be set.
    pub const NON_PORTABLE_CLUSTER_SIZE_ALLOWED: u32 = 14;
    /// How clusters are spread over the device. Can be set.
    pub const CLUSTER_SCHEDULING_POLICY_PREFERENCE: u32 = 15;
}

/// The numbers of `CUjit_option` that ask for the compiler's words.
pub mod jit_option {
    /// Out: milliseconds that the compiler took.
    pub const WALL_TIME: u32 = 2;
    /// A buffer for the compiler's remarks.
    pub const INFO_LOG_BUFFER: u32 = 3;
    /// In: its size. Out: the bytes written.
    pub const INFO_LOG_BUFFER_SIZE_BYTES: u32 = 4;
    /// A buffer for the compiler's errors.
    pub const ERROR_LOG_BUFFER: u32 = 5;
    /// In: its size. Out: the bytes written.
    pub const ERROR_LOG_BUFFER_SIZE_BYTES: u32 = 6;
}

/// `CUtensorMap`: the tensor that a TMA tile load or store works on. It is opaque: only the driver in use reads it.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUtensorMap {
    /// 128 bytes without meaning to others.
    pub opaque: [u64; 16],
}

impl Default for CUtensorMap {
    /// Zeros, which no kernel can use: room for `cuTensorMapEncodeTiled` to write to.
    fn default() -> Self {
        CUtensorMap { opaque: [0; 16] }
    }
}

/// The numbers of `CUtensorMapDataType`.
pub mod tensor_map_data_type {
    /// Unsigned, 8 bits.
    pub const UINT8: u32 = 0;
    /// Unsigned, 16 bits.
    pub const UINT16: u32 = 1;
    /// Unsigned, 32 bits.
    pub const UINT32: u32 = 2;
    /// Signed, 32 bits.
    pub const INT32: u32 = 3;
    /// Unsigned, 64 bits.
    pub const UINT64: u32 = 4;
    /// Signed, 64 bits.
    pub const INT64: u32 = 5;
    /// Half precision.
    pub const FLOAT16: u32 = 6;
    /// Single precision.
    pub const FLOAT32: u32 = 7;
    /// Double precision.
    pub const FLOAT64: u32 = 8;
    /// bfloat16.
    pub const BFLOAT16: u32 = 9;
    /// Single precision, subnormals flushed.
    pub const FLOAT32_FTZ: u32 = 10;
    /// TF32.
    pub const TFLOAT32: u32 = 11;
    /// TF32, subnormals flushed.
    pub const TFLOAT32_FTZ: u32 = 12;
}

/// The numbers of `CUtensorMapInterleave`.
pub mod tensor_map_interleave {
    /// Rows lie as the strides say.
    pub const NONE: u32 = 0;
    /// Channels lie in slices of 16 bytes.
    pub const BYTES_16: u32 = 1;
    /// Channels lie in slices of 32 bytes.
    pub const BYTES_32: u32 = 2;
}

/// The numbers of `CUtensorMapSwizzle`.
pub mod tensor_map_swizzle {
    /// A box lies in shared memory as it is.
    pub const NONE: u32 = 0;
    /// Its pieces of 16 bytes are permuted within 32 bytes.
    pub const BYTES_32: u32 = 1;
    /// Within 64 bytes.
    pub const BYTES_64: u32 = 2;
    /// Within 128 bytes.
    pub const BYTES_128: u32 = 3;
}

/// The numbers of `CUtensorMapL2promotion`.
pub mod tensor_map_l2_promotion {
    /// L2 fetches what is asked for.
    pub const NONE: u32 = 0;
    /// It fetches 64 bytes at once.
    pub const BYTES_64: u32 = 1;
    /// It fetches 128 bytes at once.
    pub const BYTES_128: u32 = 2;
    /// It fetches 256 bytes at once.
    pub const BYTES_256: u32 = 3;
}

/// The numbers of `CUtensorMapFloatOOBfill`.
pub mod tensor_map_fill {
    /// Zeros take the places outside the tensor.
    pub const ZERO: u32 = 0;
    /// A NaN takes them.
    pub const NAN: u32 = 1;
}

const _: () = {
    assert!(size_of::<CUlaunchConfig>() == 56);
    assert!(size_of::<CUlaunchAttribute>() == 72);
    assert!(std::mem::offset_of!(CUlaunchAttribute, value) == 8);
    assert!(size_of::<CUtensorMap>() == 128 && align_of::<CUtensorMap>() == 64);
};
