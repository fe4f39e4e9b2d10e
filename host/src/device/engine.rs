//! The built-in engine: an open device, its streams and buffers, and projections on it.

use super::buffer::{Buffer, Element, Slice, SliceMut};
use super::captures;
use super::context::{DeviceInfo, EngineOptions, OpenDevice};
use super::projection::Projection;
use super::raw::{CUdeviceptr, Kernels, Operands, Output, Overlap, Queue};
use super::setup::Setup;
use super::stream::{Event, Stream};
use super::{Result, check};
use crate::plan::{Op, Plan, Request};
use crate::{Error, Shape};
use half::bf16;
use hopper_cuda_driver::ffi;
use std::sync::Arc;

/// An open device. Cheap to clone; the device closes with the last clone and the last value that was made by it:
/// buffer, stream, event, projection, router and graph.
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
        Stream::new(&self.device)
    }

    /// A new event, for ordering streams.
    pub fn event(&self) -> Result<Event> {
        Event::of_order(&self.device)
    }

    /// A new event that remembers when it happened.
    pub fn timing_event(&self) -> Result<Event> {
        Event::with_time(&self.device)
    }

    /// [`Stream::synchronize`].
    pub fn synchronize(&self, stream: &Stream) -> Result<()> {
        stream.synchronize()
    }

    /// Copies values into new device memory, where they are when this returns.
    pub fn upload<T: Element>(&self, values: &[T]) -> Result<Buffer<T>> {
        self.device.check_current()?;
        let memory = Setup::new()?.upload("upload values", values)?;
        Ok(Buffer::new(memory, values.len(), &self.device))
    }

    /// New device memory of `len` zeros.
    pub fn zeroed<T: Element>(&self, len: usize) -> Result<Buffer<T>> {
        self.device.check_current()?;
        let bytes = len.checked_mul(size_of::<T>()).ok_or(Error::TooLarge {
            what: "a buffer",
            rows: 1,
            cols: len,
        })?;
        let setup = Setup::new()?;
        let memory = setup.zeroed("allocate device memory", bytes)?;
        setup.finish()?;
        Ok(Buffer::new(memory, len, &self.device))
    }

    /// Copies values into device memory of as many values, after all that was queued on the stream, and waits until
    /// they are there.
    ///
    /// # Errors
    ///
    /// Lengths that differ. The stream must not be captured.
    pub fn write<'a, T: Element>(&self, to: impl Into<SliceMut<'a, T>>, values: &[T], stream: &Stream) -> Result<()> {
        const CALL: &str = "write values";
        let to = to.into();
        self.device.check_current()?;
        self.device.check_memory("the buffer to write", to.context())?;
        stream.check_device(&self.device)?;
        Shape::check_len("the buffer to write", to.len(), 1, values.len())?;
        if values.is_empty() {
            return Ok(());
        }
        let bytes = size_of_val(values);
        // SAFETY: the device memory has as many bytes as the values, and both live until the copy has been waited for.
        copy(CALL, stream, |queue| unsafe {
            ffi::cuMemcpyHtoDAsync_v2(to.address(), values.as_ptr().cast(), bytes, queue)
        })
    }

    /// Copies values out of device memory, after all that was queued on the stream.
    ///
    /// # Errors
    ///
    /// What failed on the stream arrives here. The stream must not be captured.
    pub fn download<'a, T: Element>(&self, from: impl Into<Slice<'a, T>>, stream: &Stream) -> Result<Vec<T>> {
        const CALL: &str = "download values";
        let from = from.into();
        self.device.check_current()?;
        self.device.check_memory("the buffer to download", from.context())?;
        stream.check_device(&self.device)?;
        let mut values = Shape::filled("a download", 1, from.len(), T::zeroed())?;
        if values.is_empty() {
            return Ok(values);
        }
        let bytes = size_of_val(&values[..]);
        // SAFETY: the device memory has as many bytes as the values, and both live until the copy has been waited for.
        copy(CALL, stream, |queue| unsafe {
            ffi::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), from.address(), bytes, queue)
        })?;
        Ok(values)
    }

    /// Queues `y = x · Wᵀ` on a stream: `x` is `[m, K]`, `y` is `[m, N]`, both row-major in device memory.
    ///
    /// Neither blocks, allocates, synchronises, loads nor changes the current context, so it can be captured into a
    /// graph. The launch may start before the preceding kernel on the stream has ended, and streams in weights
    /// meanwhile; it reads `x` and writes `y` after. `m = 0` does nothing.
    ///
    /// With overlapping launches, no launch on the stream since the last one that did not overlap may write the
    /// weights: an earlier kernel may still run when this one reads them. [`Stream::barrier`] ends the overlap.
    ///
    /// # Errors
    ///
    /// Lengths that do not fit; [`Error::NotPrepared`] for a number of tokens that the weights were not prepared for.
    pub fn project<'x, 'y>(
        &self,
        projection: &Projection,
        x: impl Into<Slice<'x, bf16>>,
        m: usize,
        y: impl Into<SliceMut<'y, bf16>>,
        stream: &Stream,
    ) -> Result<()> {
        self.project_overlapping(projection, x, m, y, stream, Overlap::Programmatic)
    }

    /// [`Engine::project`] with a say in the overlap with the preceding kernel.
    pub fn project_overlapping<'x, 'y>(
        &self,
        projection: &Projection,
        x: impl Into<Slice<'x, bf16>>,
        m: usize,
        y: impl Into<SliceMut<'y, bf16>>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let call = Call::new(projection, x.into(), m, &y.into(), Output::Bf16);
        self.plan_and_launch(&call, stream, overlap)
    }

    /// [`Engine::project`] with an FP32 result: the sums as the tensor cores leave them, before any rounding to BF16.
    pub fn project_fp32<'x, 'y>(
        &self,
        projection: &Projection,
        x: impl Into<Slice<'x, bf16>>,
        m: usize,
        y: impl Into<SliceMut<'y, f32>>,
        stream: &Stream,
    ) -> Result<()> {
        let call = Call::new(projection, x.into(), m, &y.into(), Output::Fp32);
        self.plan_and_launch(&call, stream, Overlap::Programmatic)
    }

    /// [`Engine::project`] with a plan of the caller's for [`Engine::request`] (`None`: nothing to do), and a say in
    /// the overlap.
    #[allow(clippy::too_many_arguments)]
    pub fn project_as<'x, 'y>(
        &self,
        plan: Option<&Plan>,
        projection: &Projection,
        x: impl Into<Slice<'x, bf16>>,
        m: usize,
        y: impl Into<SliceMut<'y, bf16>>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let call = Call::new(projection, x.into(), m, &y.into(), Output::Bf16);
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
        self.device.check_memory("x", call.contexts[0])?;
        self.device.check_memory("y", call.contexts[1])?;
        Shape::check_len("x", call.x_len, m, shape.k())?;
        Shape::check_len("y", call.y_len, m, shape.n())
    }

    /// Queues what a plan for a checked call says.
    fn launch(&self, plan: &Plan, call: &Call<'_>, stream: &Stream, overlap: Overlap) -> Result<()> {
        self.device.check_current()?;
        stream.check_device(&self.device)?;
        let queue = Queue {
            stream: stream.handle(),
            overlap,
        };
        // SAFETY: 1. the engine's context is current, and the stream is of it; 2. lengths were checked, the slices
        // borrow live buffers of the context, and freeing device memory waits for work that uses it; 3. only `prepare`
        // writes weights, by copies that have ended; the plan is for these operands.
        unsafe { self.kernels().launch(plan, &call.operands, queue) }
    }

    /// What is planned for these arguments.
    pub fn request<'a>(&self, projection: &Projection, x: impl Into<Slice<'a, bf16>>, m: usize) -> Request {
        let (shape, rows) = (projection.shape(), projection.row_major());
        Request::new(Op::Project, projection.format(), shape, m)
            .x(x.into().address(), shape.k())
            .row_major(rows.is_some())
    }

    /// What [`Engine::project`] launches for these arguments; `None` for no tokens.
    pub fn plan<'a>(&self, projection: &Projection, x: impl Into<Slice<'a, bf16>>, m: usize) -> Result<Option<Plan>> {
        self.kernels().plan(&self.request(projection, x, m))
    }

    /// The name of the kernel of [`Engine::plan`].
    pub fn kernel<'a>(
        &self,
        projection: &Projection,
        x: impl Into<Slice<'a, bf16>>,
        m: usize,
    ) -> Result<Option<&'static str>> {
        Ok(self.plan(projection, x, m)?.map(|plan| plan.name()))
    }

    pub(super) fn open_device(&self) -> &Arc<OpenDevice> {
        &self.device
    }
}

/// Queues a copy from or to memory of the host's, and waits for it. A graph would refer to that memory when it is gone:
/// nothing is queued where the stream is captured.
fn copy(call: &'static str, stream: &Stream, queue: impl FnOnce(ffi::CUstream) -> u32) -> Result<()> {
    let queued = {
        let _unchanged = captures::unchanged();
        if stream.capture()?.is_some() {
            // The driver's own refusal, which fails the capture.
            stream.synchronize()?;
        }
        check(call, queue(stream.handle().cast()))
    };
    stream.synchronize().and(queued)
}

/// The arguments of a projection.
pub(super) struct Call<'a> {
    projection: &'a Projection,
    operands: Operands<'a>,
    /// Elements that x and y have room for.
    x_len: usize,
    y_len: usize,
    /// The contexts that x and y are of.
    contexts: [usize; 2],
}

impl<'a> Call<'a> {
    pub(super) fn new<T: Element>(
        projection: &'a Projection,
        x: Slice<'_, bf16>,
        m: usize,
        y: &SliceMut<'_, T>,
        output: fn(CUdeviceptr) -> Output,
    ) -> Self {
        let shape = projection.shape();
        let operands = Operands {
            x: x.address(),
            x_stride: shape.k(),
            m,
            shape,
            weights: projection.weights(),
            row_major: projection.row_major(),
            y: output(y.address()),
        };
        Call {
            projection,
            operands,
            x_len: x.len(),
            y_len: y.len(),
            contexts: [x.context(), y.context()],
        }
    }

    /// What is planned for it.
    pub(super) fn request(&self) -> Request {
        self.operands.request()
    }
}
