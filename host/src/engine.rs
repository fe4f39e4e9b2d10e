//! A device, its context and the loaded kernels.

use crate::convert::PackFormat;
use crate::device::{Choice, Result, Selected, cust_error};
use crate::plan::{Op, Plan, Request, plan_with};
use crate::projection::Projection;
use crate::raw::{Kernels, Output, Overlap, PTX, Product};
use crate::weights::bf16 as packing;
use crate::weights::split::Split;
use crate::weights::window12::{self, Histogram, Packed};
use crate::{Dtype, Error, Shape};
use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use cust::memory::{CopyDestination, DeviceBuffer, DeviceSlice};
use cust::stream::{Stream, StreamFlags};
use half::bf16;
use hopper_cuda_driver::emulated;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// How to open a device.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Which driver to use. `None` leaves it to the variable `HOPPER_PROJ_DEVICE`, and without that to what is there: a CUDA
    /// device, else the emulated one. A process has one driver; the first choice stands.
    pub driver: Option<Choice>,
    /// Which of the driver's devices.
    pub ordinal: u32,
    /// On the emulator: the interleaving of warps, CTAs and asynchronous copies. One seed, one run, bit by bit and fault by fault.
    /// It belongs to the device's context, which the engines of a process share: the last one given counts for all. `None` leaves
    /// it to the variable `HOPPER_PROJ_SEED`, and without that to chance.
    pub seed: Option<u64>,
    /// PTX to load in place of [`PTX`](crate::raw::PTX): kernels of the same names and parameters.
    pub ptx: Option<&'static str>,
}

impl EngineOptions {
    /// Options that ask for one driver.
    pub fn on(driver: Choice) -> Self {
        EngineOptions {
            driver: Some(driver),
            ..EngineOptions::default()
        }
    }
}

/// What is known of an open device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Whose driver serves it.
    pub driver: Selected,
    /// The device's name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of device memory.
    pub memory: usize,
    /// The CUDA version of the driver, major and minor.
    pub cuda: (i32, i32),
}

/// An open device with its kernels loaded. Cheap to clone; the device closes with the last clone and projection.
#[derive(Debug, Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    kernels: ManuallyDrop<Kernels>,
    context: Context,
    info: DeviceInfo,
}

impl Engine {
    /// Opens a device: chooses the driver, makes the device's primary context current on the calling thread, and loads the
    /// kernels. This may take a second the first time, while the driver compiles them. What its compiler is known to get wrong is tried:
    /// see [`Kernels::left_out`].
    pub fn new(options: EngineOptions) -> Result<Self> {
        let driver = match options.driver {
            Some(choice) => hopper_cuda_driver::select(choice),
            None => hopper_cuda_driver::selected(),
        }?;
        cust::init(cust::CudaFlags::empty()).map_err(|err| cust_error("initialise the driver", err))?;
        let count = Device::num_devices().map_err(|err| cust_error("count the devices", err))?;
        if options.ordinal >= count {
            return Err(Error::NoDevice {
                ordinal: options.ordinal,
                count,
            });
        }
        let device = Device::get_device(options.ordinal).map_err(|err| cust_error("get the device", err))?;
        let info = DeviceInfo::read(driver, device)?;
        if info.capability.0 != 9 {
            return Err(Error::NotHopper {
                name: info.name,
                capability: info.capability,
            });
        }
        let context = Context::new(device).map_err(|err| cust_error("open the device's primary context", err))?;
        if options.seed.is_some() {
            emulated::set_seed(options.seed);
        }
        let kernels = ManuallyDrop::new(Kernels::load_from(options.ptx.unwrap_or(PTX))?);
        Ok(Engine {
            inner: Arc::new(Inner { kernels, context, info }),
        })
    }

    /// The device.
    pub fn device(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// The layer below, for launches on raw handles.
    pub fn kernels(&self) -> &Kernels {
        &self.inner.kernels
    }

    /// Makes the engine's context current on the calling thread, as [`Engine::new`] does on its own. Every other call needs that.
    pub fn make_current(&self) -> Result<()> {
        CurrentContext::set_current(&self.inner.context).map_err(|err| cust_error("make the context current", err))
    }

    /// A new stream in the engine's context.
    pub fn stream(&self) -> Result<Stream> {
        self.inner.check_current()?;
        // `upload`, `zeroed`, `prepare` and `download` work on the default stream: only streams that wait for it, and it for them,
        // find the bytes in place. `cust` makes no others, whatever it is asked for.
        Stream::new(StreamFlags::DEFAULT, None).map_err(|err| cust_error("create a stream", err))
    }

    /// Waits until a stream has run dry. A failure of anything launched on it arrives here, on the emulator with the full story.
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        stream
            .synchronize()
            .map_err(|err| cust_error("wait for the stream", err))
    }

    /// Copies BF16 values into device memory, as their bit patterns. The buffer must go before the engine's last clone does: the memory
    /// is the context's.
    pub fn upload(&self, values: &[bf16]) -> Result<DeviceBuffer<u16>> {
        self.inner.check_current()?;
        DeviceBuffer::from_slice(bytemuck::cast_slice(values)).map_err(|err| cust_error("upload values", err))
    }

    /// A buffer of zeros in device memory. It must go before the engine's last clone does, as with [`Engine::upload`].
    pub fn zeroed(&self, len: usize) -> Result<DeviceBuffer<u32>> {
        self.inner.check_current()?;
        DeviceBuffer::zeroed(len).map_err(|err| cust_error("allocate device memory", err))
    }

    /// Copies BF16 values out of device memory, after all work on the device that precedes the call.
    pub fn download(&self, values: &DeviceSlice<u16>) -> Result<Vec<bf16>> {
        self.inner.check_current()?;
        let mut out = Shape::filled("a download", 1, values.len(), bf16::ZERO)?;
        values
            .copy_to(bytemuck::cast_slice_mut(&mut out))
            .map_err(|err| cust_error("download values", err))?;
        Ok(out)
    }

    /// Packs row-major `[N, K]` weights into the order that the kernels stream, and uploads them. Slow, once per layer.
    ///
    /// Where every row of x starts at a multiple of 16 bytes, any number of tokens reads every weight once: by a GEMV or, beyond 32 tokens
    /// always, a matrix product. Elsewhere, more than 32 tokens are several walks over the weights.
    pub fn prepare(&self, weights: &[bf16], shape: Shape) -> Result<Projection> {
        self.inner.check_current()?;
        let packed = packing::pack(weights, shape)?;
        Projection::bf16(&self.inner, bytemuck::cast_slice(&packed), None, shape)
    }

    /// [`Engine::prepare`] with the weights kept row-major as well, at twice the memory: then more than 32 tokens are one matrix product
    /// wherever x lies, and one that reads weights by tensor copies where it can.
    pub fn prepare_for_many(&self, weights: &[bf16], shape: Shape) -> Result<Projection> {
        self.inner.check_current()?;
        let packed = packing::pack(weights, shape)?;
        let rows = Split::of_bf16(weights, shape)?;
        Projection::bf16(&self.inner, bytemuck::cast_slice(&packed), Some(&rows), shape)
    }

    /// [`Engine::prepare`] in a format of choice: with [`PackFormat::Window12`] at 12 bits per weight, all bits kept; with
    /// [`PackFormat::Auto`] so where it pays.
    pub fn prepare_as(&self, weights: &[bf16], shape: Shape, format: PackFormat) -> Result<Projection> {
        self.inner.check_current()?;
        let window12 = match format {
            PackFormat::Bf16 => false,
            PackFormat::Window12 => true,
            PackFormat::Auto => Histogram::of(weights).estimate(shape)?.pays().is_ok(),
        };
        if window12 {
            self.prepare_packed(&window12::pack(weights, shape)?)
        } else {
            self.prepare(weights, shape)
        }
    }

    /// Uploads weights that are packed already.
    pub fn prepare_packed(&self, packed: &Packed<'_>) -> Result<Projection> {
        self.inner.check_current()?;
        Projection::window12(&self.inner, packed)
    }

    /// [`Engine::prepare`] for weights as little-endian bytes of some type; the bytes may start anywhere.
    pub fn prepare_bytes(&self, weights: &[u8], dtype: Dtype, shape: Shape) -> Result<Projection> {
        match dtype {
            Dtype::Bf16 => {}
            Dtype::F32 => return Err(Error::Fp32Weights),
            given => return Err(Error::NeedsCast { given }),
        }
        let row_bytes = shape.k() * dtype.bytes();
        Shape::check_len("the weights, in bytes,", weights.len(), shape.n(), row_bytes)?;
        match bytemuck::try_cast_slice(weights) {
            Ok(values) => self.prepare(values, shape),
            Err(_) => {
                let values: Vec<bf16> = weights
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&pair| bf16::from_le_bytes(pair))
                    .collect();
                self.prepare(&values, shape)
            }
        }
    }

    /// Queues `y = x · Wᵀ` on a stream: `x` is `[m, K]`, `y` is `[m, N]`, both row-major BF16 bit patterns in device memory.
    ///
    /// Neither blocks, allocates, synchronises nor changes the current context, so it can be captured into a graph. The
    /// launch may start before the kernel ahead of it on the stream has ended, and streams in weights meanwhile; it reads
    /// `x` and writes `y` after. `m = 0` does nothing.
    ///
    /// A slice that `cust` cuts out of a buffer (`DeviceBuffer::index`) does not keep the buffer: do not drop the buffer while slices of
    /// it are in use.
    pub fn project(
        &self,
        projection: &Projection,
        x: &DeviceSlice<u16>,
        m: usize,
        y: &mut DeviceSlice<u16>,
        stream: &Stream,
    ) -> Result<()> {
        self.project_overlapping(projection, x, m, y, stream, Overlap::Programmatic)
    }

    /// [`Engine::project`] with a say in the overlap with the kernel ahead.
    pub fn project_overlapping(
        &self,
        projection: &Projection,
        x: &DeviceSlice<u16>,
        m: usize,
        y: &mut DeviceSlice<u16>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let output = (Output::Bf16(y.as_device_ptr().as_raw()), y.len());
        self.project_to(projection, x, m, output, (stream, overlap))
    }

    /// [`Engine::project`] with an FP32 result: the sums as the tensor cores leave them, before any rounding to BF16.
    pub fn project_fp32(
        &self,
        projection: &Projection,
        x: &DeviceSlice<u16>,
        m: usize,
        y: &mut DeviceSlice<f32>,
        stream: &Stream,
    ) -> Result<()> {
        let output = (Output::Fp32(y.as_device_ptr().as_raw()), y.len());
        self.project_to(projection, x, m, output, (stream, Overlap::Programmatic))
    }

    fn project_to(
        &self,
        projection: &Projection,
        x: &DeviceSlice<u16>,
        m: usize,
        output: (Output, usize),
        queue: (&Stream, Overlap),
    ) -> Result<()> {
        let plan = self.plan(projection, x, m)?;
        self.queue(plan.as_ref(), projection, x, m, output, queue)
    }

    /// [`Engine::project`] with a plan of the caller's for [`Engine::request`] (`None`: nothing to do), and a say in the overlap.
    #[allow(clippy::too_many_arguments)]
    pub fn project_as(
        &self,
        plan: Option<&Plan>,
        projection: &Projection,
        x: &DeviceSlice<u16>,
        m: usize,
        y: &mut DeviceSlice<u16>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let request = self.request(projection, x, m);
        let device = self.inner.kernels.device();
        let expected = plan.map_or(Ok(None), |plan| plan_with(&plan.kernel, &request, device))?;
        if expected.as_ref() != plan || plan.is_none() != (m == 0) {
            return Err(Error::NoInstance {
                request: request.to_string(),
                reason: "the plan was made for another request".to_owned(),
            });
        }
        let output = (Output::Bf16(y.as_device_ptr().as_raw()), y.len());
        self.queue(plan, projection, x, m, output, (stream, overlap))
    }

    /// Queues what a plan for these arguments says.
    fn queue(
        &self,
        plan: Option<&Plan>,
        projection: &Projection,
        x: &DeviceSlice<u16>,
        m: usize,
        (y, y_len): (Output, usize),
        (stream, overlap): (&Stream, Overlap),
    ) -> Result<()> {
        let shape = projection.shape();
        projection.check_engine(&self.inner)?;
        Shape::check_len("x", x.len(), m, shape.k())?;
        Shape::check_len("y", y_len, m, shape.n())?;
        let Some(plan) = plan else { return Ok(()) };
        self.inner.check_current()?;
        let product = Product {
            x: x.as_device_ptr().as_raw(),
            x_stride: shape.k(),
            m,
            shape,
            weights: projection.weights(),
            row_major: projection.row_major(),
            y,
        };
        // SAFETY: 1. the engine's context is current, which `stream` must belong to or the driver refuses the launch; 2. lengths were
        // checked, the slices are of live buffers up to here, as the documentation asks where no borrow does, and freeing device
        // memory waits for work that uses it; 3. only `prepare` and its kin write weights, by copies that have ended; the plan is for
        // these weights, this x and this m.
        unsafe { self.inner.kernels.launch(plan, &product, stream.as_inner(), overlap) }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// What is planned for these arguments.
    pub fn request(&self, projection: &Projection, x: &DeviceSlice<u16>, m: usize) -> Request {
        let (shape, rows) = (projection.shape(), projection.row_major());
        Request::new(Op::Project, projection.format(), shape, m)
            .x(x.as_device_ptr().as_raw(), shape.k())
            .row_major(rows.is_some())
    }

    /// What [`Engine::project`] launches for these arguments; `None` for no tokens.
    pub fn plan(&self, projection: &Projection, x: &DeviceSlice<u16>, m: usize) -> Result<Option<Plan>> {
        self.inner.kernels.plan(&self.request(projection, x, m))
    }

    /// The name of the kernel of [`Engine::plan`].
    pub fn kernel(&self, projection: &Projection, x: &DeviceSlice<u16>, m: usize) -> Result<Option<&'static str>> {
        Ok(self.plan(projection, x, m)?.map(|plan| plan.name()))
    }
}

impl Inner {
    /// Fails unless the engine's context is current on this thread; changes nothing.
    pub(crate) fn check_current(&self) -> Result<()> {
        let mut current = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { cust::sys::cuCtxGetCurrent(&raw mut current) };
        crate::device::check("ask for the current context", code as u32)?;
        if current == self.context.as_raw() {
            Ok(())
        } else {
            Err(Error::WrongContext)
        }
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Runs something that needs the context on whatever thread, and leaves the thread's context as it was.
    pub(crate) fn with_context(&self, run: impl FnOnce()) {
        // SAFETY: the context is retained as long as `self` lives; what was pushed is popped.
        unsafe {
            if cust::sys::cuCtxPushCurrent_v2(self.context.as_raw()) as u32 == 0 {
                run();
                let mut popped = std::ptr::null_mut();
                cust::sys::cuCtxPopCurrent_v2(&raw mut popped);
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Unloading needs the context, which need not be current here.
        let kernels = &raw mut self.kernels;
        self.with_context(|| {
            // SAFETY: dropped once, here; not used after.
            unsafe { ManuallyDrop::drop(&mut *kernels) }
        });
    }
}

impl DeviceInfo {
    fn read(driver: Selected, device: Device) -> Result<Self> {
        let attribute = |a| {
            device
                .get_attribute(a)
                .map_err(|err| cust_error("read a device attribute", err))
        };
        let version = cust::CudaApiVersion::get().map_err(|err| cust_error("read the driver's version", err))?;
        Ok(DeviceInfo {
            driver,
            name: device.name().map_err(|err| cust_error("read the device's name", err))?,
            capability: (
                attribute(DeviceAttribute::ComputeCapabilityMajor)?,
                attribute(DeviceAttribute::ComputeCapabilityMinor)?,
            ),
            multiprocessors: attribute(DeviceAttribute::MultiprocessorCount)?.max(1) as u32,
            memory: device
                .total_memory()
                .map_err(|err| cust_error("read the size of the device's memory", err))?,
            cuda: (version.major(), version.minor()),
        })
    }
}
