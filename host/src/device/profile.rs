//! For measurements: projections by a kernel of choice, readers of memory, counters.

use super::buffer::{Slice, SliceMut};
use super::engine::Engine;
use super::projection::Projection;
use super::raw::{Overlap, Queue};
use super::stream::Stream;
use super::{Result, Selected};
use crate::Shape;
use crate::instances::{Family, StreamRead};
use crate::plan::{Kernel, Plan, kernels};
use half::bf16;
use hopper_cuda_driver::emulated::{self, Counters};

impl Engine {
    /// The kernels that make sense for these arguments, those first that should be the fastest: [`Engine::plan_by`]
    /// makes plans of them. Loads them all.
    pub fn choices<'a>(&self, projection: &Projection, x: impl Into<Slice<'a, bf16>>, m: usize) -> Result<Vec<Kernel>> {
        self.open_device().check_current()?;
        let able = kernels(&self.request(projection, x, m), &self.kernels().device());
        able.iter()
            .try_for_each(|kernel| self.kernels().load(kernel.family()))?;
        Ok(able)
    }

    /// A plan with a kernel of choice, for [`Engine::project_as`]. One that cannot give the right result for these
    /// arguments is refused; one that should not be chosen for them is not. Loads the kernel's family.
    pub fn plan_by<'a>(
        &self,
        kernel: &Kernel,
        projection: &Projection,
        x: impl Into<Slice<'a, bf16>>,
        m: usize,
    ) -> Result<Option<Plan>> {
        self.open_device().check_current()?;
        self.kernels().load(kernel.family())?;
        self.kernels().plan_with(kernel, &self.request(projection, x, m))
    }

    /// Loads the readers of memory, for [`Engine::stream_read`].
    pub fn prepare_readers(&self) -> Result<()> {
        self.open_device().check_current()?;
        self.kernels().load(Family::StreamRead)
    }

    /// Queues a reader of the units of a projection's packed weights, which computes nothing: what the memory can
    /// deliver for these bytes, as a limit to compare with. `out` takes one value per warp of [`Engine::reader_ctas`]
    /// CTAs. [`Engine::prepare_readers`] comes first.
    pub fn stream_read<'a>(
        &self,
        reader: &'static StreamRead,
        projection: &Projection,
        out: impl Into<SliceMut<'a, u32>>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        projection.check_device(self.open_device())?;
        let bytes = projection.unit_bytes();
        self.read(reader, projection.pointer(), bytes, &out.into(), stream, overlap)
    }

    /// [`Engine::stream_read`] of any data: a multiple of 16 bytes.
    pub fn stream_read_data<'x, 'y>(
        &self,
        reader: &'static StreamRead,
        data: impl Into<Slice<'x, u32>>,
        out: impl Into<SliceMut<'y, u32>>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let data = data.into();
        self.open_device().check_memory("the data to read", data.context())?;
        let bytes = data.len() * size_of::<u32>();
        self.read(reader, data.address(), bytes, &out.into(), stream, overlap)
    }

    fn read(
        &self,
        reader: &'static StreamRead,
        data: u64,
        bytes: usize,
        out: &SliceMut<'_, u32>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let ctas = self.reader_ctas(reader);
        Shape::check_len("the reader's output", out.len(), ctas as usize, reader.warps)?;
        let device = self.open_device();
        device.check_current()?;
        device.check_memory("the reader's output", out.context())?;
        stream.check_device(device)?;
        let queue = Queue {
            stream: stream.handle(),
            overlap,
        };
        let out = out.address();
        // SAFETY: 1. the engine's context is current, and the stream is of it; 2. the sizes are those of the buffers,
        // the output's was checked, and freeing device memory waits for work that uses it.
        unsafe { self.kernels().stream_read(reader, data, bytes, out, ctas, queue) }
    }

    /// CTAs of a reader's launch: as many as the device holds at a time.
    pub fn reader_ctas(&self, reader: &StreamRead) -> u32 {
        let each = u32::try_from(reader.min_ctas).unwrap_or(u32::MAX);
        self.device().multiprocessors.saturating_mul(each)
    }

    /// On the emulated device, what the launches of the engine's context were counted to have done since the last call;
    /// `None` on a GPU, which does not count.
    pub fn take_counters(&self) -> Result<Option<Counters>> {
        self.open_device().check_current()?;
        Ok((self.device().driver == Selected::Emulated).then(emulated::take_counters))
    }
}
