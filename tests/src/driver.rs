//! The driver API as its C functions, for tests that speak to the driver itself: contexts of their own, modules,
//! launches.

use crate::shipped;
use hopper_cuda_driver::{Choice, ffi, select};
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};

/// Chooses the emulated driver for this process.
pub fn emulated_device() {
    select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
}

/// A context of its own, current on the thread that made it until it is dropped.
#[derive(Debug)]
pub struct OwnContext(ffi::CUcontext);

impl OwnContext {
    /// Makes a context on the first device.
    pub fn new() -> Self {
        let mut context = null_mut();
        // SAFETY: writes one handle.
        unsafe {
            assert_eq!(ffi::cuInit(0), 0);
            assert_eq!(ffi::cuCtxCreate_v2(&raw mut context, 0, 0), 0);
        }
        OwnContext(context)
    }
}

impl Default for OwnContext {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for OwnContext {
    fn drop(&mut self) {
        // SAFETY: made by us, destroyed once. A context that a fault has ended may answer with that fault.
        unsafe { ffi::cuCtxDestroy_v2(self.0) };
    }
}

/// The context that is current on this thread.
pub fn current() -> ffi::CUcontext {
    let mut context = null_mut();
    // SAFETY: writes one handle.
    assert_eq!(unsafe { ffi::cuCtxGetCurrent(&raw mut context) }, 0);
    context
}

/// A module in the context that was current when it was loaded.
#[derive(Clone, Copy, Debug)]
pub struct Module(ffi::CUmodule);

/// A kernel of a module.
#[derive(Clone, Copy, Debug)]
pub struct Function(ffi::CUfunction);

impl Function {
    /// A shipped kernel, loaded alone into the current context.
    pub fn shipped(kernel: &str) -> Self {
        Module::load(&shipped(&[kernel])).function(kernel)
    }
}

impl Module {
    /// Loads PTX, which may hold any bytes but zero, into the current context; else the code and the compiler's words.
    pub fn try_load(ptx: &[u8]) -> Result<Self, (u32, String)> {
        let ptx: Vec<u8> = ptx.iter().copied().filter(|&byte| byte != 0).chain([0]).collect();
        let mut log = vec![0u8; 4096];
        let mut options = [
            ffi::jit_option::ERROR_LOG_BUFFER,
            ffi::jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut module = null_mut();
        // SAFETY: the text ends in a zero byte; two options with their values, and a buffer of the size given.
        let code = unsafe {
            ffi::cuModuleLoadDataEx(
                &raw mut module,
                ptx.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        let words = log.split(|&byte| byte == 0).next().unwrap_or_default();
        match code {
            0 => Ok(Module(module)),
            code => Err((code, String::from_utf8_lossy(words).into_owned())),
        }
    }

    /// Loads PTX text that must be right.
    pub fn load(ptx: &str) -> Self {
        Self::try_load(ptx.as_bytes()).unwrap_or_else(|(code, words)| panic!("PTX was refused with {code}: {words}"))
    }

    /// The kernel of that name.
    pub fn function(self, name: &str) -> Function {
        let name = CString::new(name).expect("a name without zero bytes");
        let mut function = null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { ffi::cuModuleGetFunction(&raw mut function, self.0, name.as_ptr().cast::<c_char>()) };
        assert_eq!(code, 0, "{name:?}");
        Function(function)
    }

    /// Unloads the module.
    pub fn unload(self) {
        // SAFETY: a handle of ours; the driver refuses one that is gone.
        assert_eq!(unsafe { ffi::cuModuleUnload(self.0) }, 0);
    }
}

/// Writes bytes to device memory.
pub fn write(address: ffi::CUdeviceptr, bytes: &[u8]) {
    // SAFETY: reads the bytes given; the driver refuses to write what is not allocated.
    let code = unsafe { ffi::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()) };
    assert_eq!(code, 0);
}

/// Device memory with these bytes, freed with its context.
pub fn memory(bytes: &[u8]) -> ffi::CUdeviceptr {
    let mut address = 0;
    // SAFETY: writes one address, then as many bytes as were allocated.
    unsafe {
        assert_eq!(ffi::cuMemAlloc_v2(&raw mut address, bytes.len()), 0);
        assert_eq!(ffi::cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), bytes.len()), 0);
    }
    address
}

/// Bytes of device memory, once the context is idle; else the code.
pub fn read(address: ffi::CUdeviceptr, len: usize) -> Result<Vec<u8>, u32> {
    let mut bytes = vec![0u8; len];
    // SAFETY: writes `len` bytes.
    match unsafe { ffi::cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), address, len) } {
        0 => Ok(bytes),
        code => Err(code),
    }
}

/// The shape of a launch on the default stream.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// CTAs along x and y.
    pub grid: [u32; 2],
    /// Threads of a CTA.
    pub threads: u32,
    /// CTAs of a cluster.
    pub cluster: u32,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Whether the launch may overlap the one ahead of it.
    pub overlaps: bool,
}

impl Launch {
    /// Launches a kernel of one by-value parameter and returns the launch's own code.
    ///
    /// # Safety
    ///
    /// The kernel takes one parameter of the argument's size.
    pub unsafe fn run<T>(&self, function: Function, argument: &T) -> u32 {
        let [x, y] = self.grid;
        // SAFETY: the one parameter is the argument, whose size is the parameter's; it lives until the call returns,
        // which copies it.
        unsafe { self.run_on([x, y, 1], function, &[(&raw const *argument).cast()]) }
    }

    /// Launches a kernel of these by-value parameters over this grid, in place of the launch's own, and returns the
    /// launch's own code.
    ///
    /// # Safety
    ///
    /// The kernel takes these parameters.
    pub unsafe fn run_on(&self, grid: [u32; 3], function: Function, parameters: &[*const c_void]) -> u32 {
        // SAFETY: each pointer is to a parameter of the kernel, in its order; the null stream is one that every context
        // has.
        unsafe { self.run_in(null_mut(), grid, function, parameters) }
    }

    /// [`Launch::run_on`] on a stream.
    ///
    /// # Safety
    ///
    /// The kernel takes these parameters.
    pub unsafe fn run_in(
        &self,
        stream: ffi::CUstream,
        grid: [u32; 3],
        function: Function,
        parameters: &[*const c_void],
    ) -> u32 {
        let attributes = [
            ffi::CUlaunchAttribute::cluster([self.cluster, 1, 1]),
            ffi::CUlaunchAttribute::programmatic_serialization(),
        ];
        let config = ffi::CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared,
            hStream: stream,
            attrs: attributes.as_ptr(),
            numAttrs: if self.overlaps { 2 } else { 1 },
        };
        let most = ffi::function_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: takes a handle and numbers. Should it fail, the launch does.
        unsafe { ffi::cuFuncSetAttribute(function.0, most, self.shared as i32) };
        let mut parameters: Vec<*mut c_void> = parameters.iter().map(|parameter| parameter.cast_mut()).collect();
        // SAFETY: the configuration and its attributes are locals that outlive the call; the driver reads as many
        // parameters as the kernel declares, and each pointer is to one of them.
        unsafe { ffi::cuLaunchKernelEx(&raw const config, function.0, parameters.as_mut_ptr(), null_mut()) }
    }
}

/// The tensor map of BF16 values at `address`: its sizes, innermost first, the bytes between neighbours along each axis
/// but the innermost, and the box of a copy, which lies swizzled over 128 bytes.
pub fn tensor_map(address: ffi::CUdeviceptr, sizes: &[u64], strides: &[u64], copied: &[u32]) -> ffi::CUtensorMap {
    assert!(sizes.len() == strides.len() + 1 && sizes.len() == copied.len());
    let mut map = ffi::CUtensorMap::default();
    // SAFETY: writes one map; the arrays have as many elements as the rank says.
    let code = unsafe {
        ffi::cuTensorMapEncodeTiled(
            &raw mut map,
            ffi::tensor_map_data_type::BFLOAT16,
            sizes.len() as u32,
            std::ptr::without_provenance_mut(address as usize),
            sizes.as_ptr(),
            strides.as_ptr(),
            copied.as_ptr(),
            vec![1; sizes.len()].as_ptr(),
            ffi::tensor_map_interleave::NONE,
            ffi::tensor_map_swizzle::BYTES_128,
            ffi::tensor_map_l2_promotion::BYTES_256,
            ffi::tensor_map_fill::ZERO,
        )
    };
    assert_eq!(code, 0, "a map of {sizes:?}, {strides:?}, {copied:?}");
    map
}

/// Waits for all work of the current context; the code says what became of it.
pub fn synchronize() -> u32 {
    // SAFETY: takes nothing.
    unsafe { ffi::cuCtxSynchronize() }
}

/// The name of a code.
pub fn name(code: u32) -> String {
    let mut text = null();
    // SAFETY: writes one pointer, to a constant string or null.
    let found = unsafe { ffi::cuGetErrorName(code, &raw mut text) } == 0 && !text.is_null();
    if !found {
        return code.to_string();
    }
    // SAFETY: the driver's strings end with a zero byte and live for ever.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
