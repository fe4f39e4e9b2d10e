//! What the tests of the C functions share: codes, calls, and a context that ends with its test.

// Each test binary uses its own part of this.
#![allow(dead_code, unreachable_pub)]

use hopper_cuda_driver::ffi::*;
use hopper_cuda_driver::{Choice, Selected, select};
use std::ffi::CString;
use std::ptr::{null, null_mut};

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
pub const INVALID_HANDLE: u32 = 400;
pub const NOT_FOUND: u32 = 500;
pub const ILLEGAL_ADDRESS: u32 = 700;
pub const LAUNCH_TIMEOUT: u32 = 702;
pub const CONTEXT_IS_DESTROYED: u32 = 709;
pub const HOST_MEMORY_ALREADY_REGISTERED: u32 = 712;
pub const HOST_MEMORY_NOT_REGISTERED: u32 = 713;
pub const MISALIGNED_ADDRESS: u32 = 716;
pub const LAUNCH_FAILED: u32 = 719;
pub const NOT_PERMITTED: u32 = 800;
pub const NOT_SUPPORTED: u32 = 801;
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
    let mut values = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
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
