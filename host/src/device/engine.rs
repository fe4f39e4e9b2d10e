//! The built-in engine: an open device, its streams and buffers, and projections on it.

use super::context::{DeviceInfo, EngineOptions, OpenDevice};
use super::projection::Projection;
use super::raw::{Kernels, Operands, Output, Overlap, Queue};
use super::{Result, cust_error};
use crate::plan::{Op, Plan, Request};
use crate::{Error, Shape};
use cust::memory::{CopyDestination, DeviceBuffer, DeviceSlice};
use cust::stream::{Stream, StreamFlags};
use half::bf16;
use std::sync::Arc;

/// An open device. Cheap to clone; the device closes with the last clone, projection, router and graph.
#[derive(Debug, Clone)]
pub struct Engine {
    device: Arc<OpenDevice>,
}

impl Engine {
    /// Opens a device: chooses the driver, and makes the device's primary context current on the calling thread.
    /// Kernels are loaded by [`Engine::prepare`], as far as they are needed.
    pub fn new(options: EngineOptions) -> Result<Self> {
        Ok(Engine {
            device: Arc::new(OpenDevice::new(options)?),
        })
    }

    /// The device.
    pub fn device(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// The layer below, for launches on raw handles.
    pub fn kernels(&self) -> &Kernels {
        self.device.kernels()
    }

    /// Makes the engine's context current on the calling thread, as [`Engine::new`] does on its own. Every other call
    /// needs that.
    pub fn make_current(&self) -> Result<()> {
        self.device.make_current()
    }

    /// A new stream in the engine's context.
    pub fn stream(&self) -> Result<Stream> {
        self.device.check_current()?;
        // `upload`, `zeroed`, `prepare` and `download` work on the default stream: only streams that wait for it, and
        // it for them, find the bytes in place. `cust` makes no others, whatever it is asked for.
        Stream::new(StreamFlags::DEFAULT, None).map_err(|err| cust_error("create a stream", err))
    }

    /// Waits until a stream has run dry. A failure of anything launched on it arrives here, on the emulator with the
    /// full story.
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        stream
            .synchronize()
            .map_err(|err| cust_error("wait for the stream", err))
    }

    /// Copies BF16 values into device memory, as their bit patterns. The buffer must go before the engine's last clone
    /// does: the memory is the context's.
    pub fn upload(&self, values: &[bf16]) -> Result<DeviceBuffer<u16>> {
        self.device.check_current()?;
        DeviceBuffer::from_slice(bytemuck::cast_slice(values)).map_err(|err| cust_error("upload values", err))
    }

    /// A buffer of zeros in device memory. It must go before the engine's last clone does, as with [`Engine::upload`].
    pub fn zeroed(&self, len: usize) -> Result<DeviceBuffer<u32>> {
        self.device.check_current()?;
        DeviceBuffer::zeroed(len).map_err(|err| cust_error("allocate device memory", err))
    }

    /// Copies BF16 values out of device memory, after all work on the device that precedes the call.
    pub fn download(&self, values: &DeviceSlice<u16>) -> Result<Vec<bf16>> {
        self.device.check_current()?;
        let mut out = Shape::filled("a download", 1, values.len(), bf16::ZERO)?;
        values
            .copy_to(bytemuck::cast_slice_mut(&mut out))
            .map_err(|err| cust_error("download values", err))?;
        Ok(out)
    }

    /// Queues `y = x · Wᵀ` on a stream: `x` is `[m, K]`, `y` is `[m, N]`, both row-major BF16 bit patterns in device
    /// memory.
    ///
    /// Neither blocks, allocates, synchronises, loads nor changes the current context, so it can be captured into a
    /// graph. The launch may start before the preceding kernel on the stream has ended, and streams in weights
    /// meanwhile; it reads `x` and writes `y` after. `m = 0` does nothing.
    ///
    /// A slice that `cust` cuts out of a buffer (`DeviceBuffer::index`) does not keep the buffer: do not drop the
    /// buffer while slices of it are in use.
    ///
    /// # Errors
    ///
    /// Lengths that do not fit; [`Error::NotPrepared`] for a number of tokens that the weights were not prepared for.
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

    /// [`Engine::project`] with a say in the overlap with the preceding kernel.
    pub fn project_overlapping(
        &self,
        projection: &Projection,
        x: &DeviceSlice<u16>,
        m: usize,
        y: &mut DeviceSlice<u16>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let call = Call::new(projection, x, m, Output::Bf16(y.as_device_ptr().as_raw()), y.len());
        self.plan_and_launch(&call, stream, overlap)
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
        let call = Call::new(projection, x, m, Output::Fp32(y.as_device_ptr().as_raw()), y.len());
        self.plan_and_launch(&call, stream, Overlap::Programmatic)
    }

    /// [`Engine::project`] with a plan of the caller's for [`Engine::request`] (`None`: nothing to do), and a say in
    /// the overlap.
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
        let call = Call::new(projection, x, m, Output::Bf16(y.as_device_ptr().as_raw()), y.len());
        let request = call.request();
        let expected = plan.map_or(Ok(None), |plan| self.kernels().plan_with(&plan.kernel, &request))?;
        if expected.as_ref() != plan || plan.is_none() != (m == 0) {
            return Err(Error::NoInstance {
                request: request.to_string(),
                reason: "the plan was made for another request".to_owned(),
            });
        }
        self.check(&call)?;
        plan.map_or(Ok(()), |plan| self.launch(plan, &call, stream, overlap))
    }

    fn plan_and_launch(&self, call: &Call<'_>, stream: &Stream, overlap: Overlap) -> Result<()> {
        call.projection.check_tokens(call.operands.m)?;
        let plan = self.kernels().plan(&call.request())?;
        self.check(call)?;
        plan.map_or(Ok(()), |plan| self.launch(&plan, call, stream, overlap))
    }

    /// Fails unless a call's buffers fit a projection of this engine that was prepared for its tokens.
    fn check(&self, call: &Call<'_>) -> Result<()> {
        let Operands { m, shape, .. } = call.operands;
        call.projection.check_device(&self.device)?;
        call.projection.check_tokens(m)?;
        Shape::check_len("x", call.x_len, m, shape.k())?;
        Shape::check_len("y", call.y_len, m, shape.n())
    }

    /// Queues what a plan for a checked call says.
    fn launch(&self, plan: &Plan, call: &Call<'_>, stream: &Stream, overlap: Overlap) -> Result<()> {
        self.device.check_current()?;
        let queue = Queue {
            stream: stream.as_inner(),
            overlap,
        };
        // SAFETY: 1. the engine's context is current, which `stream` must belong to or the driver refuses the launch;
        // 2. lengths were checked, the slices are of live buffers up to here, as the documentation asks where no borrow
        // does, and freeing device memory waits for work that uses it; 3. only `prepare` writes weights, by copies that
        // have ended; the plan is for these operands.
        unsafe { self.kernels().launch(plan, &call.operands, queue) }
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
        self.kernels().plan(&self.request(projection, x, m))
    }

    /// The name of the kernel of [`Engine::plan`].
    pub fn kernel(&self, projection: &Projection, x: &DeviceSlice<u16>, m: usize) -> Result<Option<&'static str>> {
        Ok(self.plan(projection, x, m)?.map(|plan| plan.name()))
    }

    pub(super) fn open_device(&self) -> &Arc<OpenDevice> {
        &self.device
    }
}

/// The arguments of a projection.
pub(super) struct Call<'a> {
    projection: &'a Projection,
    operands: Operands<'a>,
    /// Elements that x and y have room for.
    x_len: usize,
    y_len: usize,
}

impl<'a> Call<'a> {
    pub(super) fn new(projection: &'a Projection, x: &DeviceSlice<u16>, m: usize, y: Output, y_len: usize) -> Self {
        let shape = projection.shape();
        let operands = Operands {
            x: x.as_device_ptr().as_raw(),
            x_stride: shape.k(),
            m,
            shape,
            weights: projection.weights(),
            row_major: projection.row_major(),
            y,
        };
        Call {
            projection,
            operands,
            x_len: x.len(),
            y_len,
        }
    }

    /// What is planned for it.
    pub(super) fn request(&self) -> Request {
        self.operands.request()
    }
}
