//! The layer below `Engine`: launches in terms of `CUstream`, `CUdeviceptr` and sizes, for use from any other wrapper of the
//! driver API, on its own context and stream.
//!
//! [`Kernels::load`] is slow and happens once per context. A launch neither blocks, allocates, synchronises nor changes the current
//! context, so it can be captured into a graph.

mod launch;
mod product;
mod route;
mod tensor;
mod trial;

pub use product::{NO_GATE, Product};
pub use route::{RouteCall, RouterMemory, Workspace};
pub use tensor::RowMajor;

use crate::device::{Result, check, cust_error};
use crate::plan::{Device, Kernel, Plan, Request, Told, explain, measured, plan};
use crate::{Error, Shape};
use cust::module::Module;
use hopper_cuda_driver::ffi;
use kernels_gpu::instances::{FLOOR_READ, Floor, FloorArgs, Format, Gemm, Gemv, gemms, gemvs, routes};
use launch::Config;
use std::ffi::{CStr, CString, c_void};

pub use cust::sys::{CUdeviceptr, CUfunction, CUstream};

/// The PTX of every kernel, as it ships.
pub const PTX: &str = include_str!("../../ptx/kernels.ptx");

/// Loads PTX text into the calling thread's current context. Where the driver refuses it, the error says why in the words of the
/// driver's compiler.
pub fn load_module(ptx: &str) -> Result<Module> {
    const CALL: &str = "load the kernels";
    // `cust` takes the text for free of zero bytes.
    if ptx.contains('\0') {
        let reason = "it holds a zero byte".to_owned();
        return Err(Error::Device {
            call: CALL,
            code: 218,
            name: "invalid PTX".to_owned(),
            story: Some(reason),
        });
    }
    Module::from_ptx(ptx, &[]).map_err(|err| match cust_error(CALL, err) {
        Error::Device {
            call,
            code,
            name,
            story: None,
        } => Error::Device {
            call,
            code,
            name,
            story: compiler_log(ptx),
        },
        other => other,
    })
}

/// What the driver's compiler has to say of PTX that it refuses.
fn compiler_log(ptx: &str) -> Option<String> {
    let ptx = CString::new(ptx).ok()?;
    let mut log = vec![0u8; 4096];
    let mut options = [
        ffi::jit_option::ERROR_LOG_BUFFER,
        ffi::jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    // A size is passed as a pointer's value.
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
    let mut module = std::ptr::null_mut();
    // SAFETY: the text ends with a zero byte; the log has the size given; options and values are as many as said.
    let code = unsafe {
        ffi::cuModuleLoadDataEx(
            &raw mut module,
            ptx.as_ptr().cast(),
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    if code == 0 {
        // SAFETY: loaded just now, used by nobody.
        unsafe { ffi::cuModuleUnload(module) };
    }
    let text = CStr::from_bytes_until_nul(&log).ok()?.to_string_lossy();
    (!text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// Whether a launch may start before the kernel ahead of it on the stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// It may (programmatic dependent launch): the weights stream in while the kernel ahead ends. x and y are not touched
    /// before that kernel's writes are visible; the weights must not be written by it.
    #[default]
    Programmatic,
    /// It waits, as launches on a stream do by default.
    None,
}

/// Packed weights in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// The [packed](crate::weights::bf16) form of BF16 values.
    Bf16 {
        /// The units.
        units: CUdeviceptr,
    },
    /// The parts of a [`Packed`](crate::weights::window12::Packed) matrix.
    Window12 {
        /// The units.
        units: CUdeviceptr,
        /// Where each row block's exceptions start: a `u64` each, and the end
        /// [`STARTS_AFTER`](crate::instances::STARTS_AFTER) times.
        starts: CUdeviceptr,
        /// The exceptions, 8 bytes each; not read where there are none.
        exceptions: CUdeviceptr,
        /// The palette as words.
        palette: [u32; 2],
    },
}

impl Weights {
    /// Their format.
    pub fn format(&self) -> Format {
        match self {
            Weights::Bf16 { .. } => Format::Bf16,
            Weights::Window12 { .. } => Format::Window12,
        }
    }

    /// The address of the units.
    pub fn units(&self) -> CUdeviceptr {
        match *self {
            Weights::Bf16 { units } | Weights::Window12 { units, .. } => units,
        }
    }
}

/// Where the result goes, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// BF16 values, rounded to nearest even.
    Bf16(CUdeviceptr),
    /// FP32 values: the sums as they are.
    Fp32(CUdeviceptr),
}

impl Output {
    /// Its address and the bytes of a value.
    fn parts(self) -> (CUdeviceptr, u64) {
        match self {
            Output::Bf16(y) => (y, BF16),
            Output::Fp32(y) => (y, FP32),
        }
    }
}

/// The loaded kernels of one context; to be dropped while that context is current, as dropping unloads them.
#[derive(Debug)]
pub struct Kernels {
    /// In the order of the tables of instances.
    gemv: Vec<CUfunction>,
    route: Vec<CUfunction>,
    gemm: Vec<CUfunction>,
    floor: Vec<CUfunction>,
    device: Device,
    /// Keeps the functions alive.
    _module: Module,
}

// SAFETY: a CUfunction is a handle that the driver lets any thread use, as `Module` lets on by being Send and Sync itself.
unsafe impl Send for Kernels {}
// SAFETY: as above; nothing here changes after loading.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Loads the kernels into the calling thread's current context, lets each have the shared memory that it needs, and tries those that
    /// [`Kernels::left_out`] is about. Plans are made with the user's own [table](crate::plan::measured) from here on, if a variable names
    /// one, and [shown](crate::plan::explain) if another asks for it.
    pub fn load() -> Result<Self> {
        Self::load_from(PTX)
    }

    /// [`Kernels::load`] from other PTX, with kernels of the same names and parameters.
    pub fn load_from(ptx: &str) -> Result<Self> {
        measured::use_environment()?;
        explain::use_environment()?;
        let module = load_module(ptx)?;
        let load = |name: &str, shared_bytes: usize| -> Result<CUfunction> {
            let function = module
                .get_function(name)
                .map_err(|err| cust_error("find a kernel", err))?
                .to_raw();
            let attribute = cust::sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was found in the module just now.
            let code = unsafe { cust::sys::cuFuncSetAttribute(function, attribute, shared_bytes as i32) };
            check("raise a kernel's shared memory", code as u32)?;
            Ok(function)
        };
        let gemv = |instances: &mut dyn Iterator<Item = &'static Gemv>| -> Result<Vec<_>> {
            instances.map(|i| load(i.name, i.shared_bytes())).collect()
        };
        let mut kernels = Kernels {
            gemv: gemv(&mut gemvs())?,
            route: gemv(&mut routes())?,
            gemm: gemms().map(|i| load(i.name, i.shared_bytes())).collect::<Result<_>>()?,
            floor: FLOOR_READ
                .iter()
                .map(|i| load(i.name, i.shared_bytes()))
                .collect::<Result<_>>()?,
            device: Device::described(&told()?),
            _module: module,
        };
        kernels.device = kernels.device.without(trial::failures(&kernels)?);
        Ok(kernels)
    }

    /// The kernels that gave wrong results when they were loaded, and are therefore not used: ptxas before 13.3, which the driver's compiler
    /// may be, can get `wgmma` wrong whose weights go through registers. Every kernel of that kind multiplies a small matrix once.
    pub fn left_out(&self) -> impl Iterator<Item = &'static Gemm> {
        self.device.left_out.iter()
    }

    /// The device, as plans see it.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What is launched for a request: the one place where every call's kernel is chosen.
    pub fn plan(&self, request: &Request) -> Result<Option<Plan>> {
        explain::show(request, &self.device);
        plan(request, &self.device)
    }

    /// The loaded kernel.
    pub fn function(&self, kernel: &Kernel) -> Result<CUfunction> {
        let found = match kernel {
            Kernel::Gemv(instance) => {
                let few = gemvs().zip(&self.gemv).chain(routes().zip(&self.route));
                few.into_iter()
                    .find(|(i, _)| i == instance)
                    .map(|(_, function)| *function)
            }
            Kernel::Gemm(division) => {
                let mut many = gemms().zip(&self.gemm);
                many.find(|(i, _)| *i == division.instance)
                    .map(|(_, function)| *function)
            }
        };
        found.ok_or_else(|| unknown(kernel.name()))
    }

    /// Launches `y = x · Wᵀ` for contiguous rows of x, with the instance that [`Kernels::plan`] chooses. `m = 0` launches nothing.
    ///
    /// # Safety
    ///
    /// 1. The kernels' context is current, and `stream` is a stream of it, or null.
    /// 2. `x` holds `[m, K]` BF16 values in that context, `y` has room for `[m, N]` of its type, and `weights` hold `[N, K]` values; they do
    ///    not overlap, and stay allocated until the launch has ended.
    /// 3. With [`Overlap::Programmatic`], the kernel ahead on the stream does not write `weights`.
    pub unsafe fn project(
        &self,
        (x, weights, y): (CUdeviceptr, Weights, Output),
        shape: Shape,
        m: usize,
        stream: CUstream,
        overlap: Overlap,
    ) -> Result<()> {
        let product = Product {
            x,
            x_stride: shape.k(),
            m,
            shape,
            weights,
            row_major: None,
            y,
        };
        match self.plan(&product.request())? {
            // SAFETY: as the caller promises; the plan is for this product.
            Some(plan) => unsafe { self.launch(&plan, &product, stream, overlap) },
            None => Ok(()),
        }
    }

    /// Launches a reader: streams `bytes` from `data` and computes nothing, to measure what the memory can deliver.
    ///
    /// # Safety
    ///
    /// 1. The kernels' context is current, and `stream` is a stream of it, or null.
    /// 2. `data` holds `bytes` bytes, `out` one `u32` per warp of `ctas` CTAs; both stay allocated until the launch has ended.
    pub unsafe fn floor_read(
        &self,
        floor: &'static Floor,
        (data, bytes, out): (CUdeviceptr, usize, CUdeviceptr),
        ctas: u32,
        stream: CUstream,
        overlap: Overlap,
    ) -> Result<()> {
        aligned("the data", data, PACKED)?;
        aligned("the number of bytes to read", bytes as u64, PACKED)?;
        aligned("the reader's output", out, 4)?;
        let function = FLOOR_READ
            .iter()
            .position(|i| i == floor)
            .and_then(|at| self.floor.get(at))
            .ok_or_else(|| unknown(floor.name))?;
        let mut args = FloorArgs {
            data,
            bytes: bytes as u64,
            out,
        };
        let config = Config {
            grid: [ctas.max(1), 1, 1],
            block: [floor.threads() as u32, 1, 1],
            cluster: [1, 1, 1],
            shared_bytes: floor.shared_bytes() as u32,
        };
        // SAFETY: `args` is the one by-value parameter that every reader takes.
        unsafe { config.launch(*function, [(&raw mut args).cast()], stream, overlap) }
    }
}

/// Where BF16 data may start.
const BF16: u64 = 2;
/// Where FP32 data may start.
const FP32: u64 = 4;
/// Where exceptions and their starts may start.
const ENTRY: u64 = 8;
/// Where packed weights may start: bulk copies want it.
const PACKED: u64 = 16;

fn aligned(what: &'static str, value: u64, to: u64) -> Result<()> {
    if value.is_multiple_of(to) {
        Ok(())
    } else {
        Err(Error::Alignment { what, value, to })
    }
}

/// Fails where a result shares a byte with x, each given by its address and its bytes.
fn check_apart((x, x_bytes): (u64, u64), results: &[(&'static str, u64, u64)]) -> Result<()> {
    for &(what, y, y_bytes) in results {
        if x < y.saturating_add(y_bytes) && y < x.saturating_add(x_bytes) {
            return Err(Error::Overlapping { what, x, y });
        }
    }
    Ok(())
}

/// What the driver tells of the current context's device.
fn told() -> Result<Told> {
    use cust::sys::CUdevice_attribute_enum as Attribute;
    let mut device = 0;
    // SAFETY: writes one number.
    let code = unsafe { cust::sys::cuCtxGetDevice(&raw mut device) };
    check("ask for the current device", code as u32)?;
    let attribute = |attribute: Attribute| {
        let mut value = 0;
        // SAFETY: writes one number.
        let code = unsafe { cust::sys::cuDeviceGetAttribute(&raw mut value, attribute, device) };
        // A driver need not know all of them.
        (code as u32 == 0)
            .then_some(value)
            .and_then(|value| usize::try_from(value).ok())
    };
    Ok(Told {
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        clock: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        memory_clock: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        bus_bits: attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    })
}

fn unknown(name: &str) -> Error {
    Error::NoInstance {
        request: format!("the kernel {name}"),
        reason: "it is not in the loaded module".to_owned(),
    }
}
