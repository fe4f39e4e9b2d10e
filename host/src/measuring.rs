//! What those need who measure kernels: projections by a kernel of choice, readers of memory, counters.

use crate::device::{Result, Selected};
use crate::plan::{Kernel, Plan, kernels, plan_with};
use crate::raw::Overlap;
use crate::{Engine, Projection, Shape};
use cust::memory::DeviceSlice;
use cust::stream::Stream;
use hopper_cuda_driver::emulated::{self, Counters};
use kernels_gpu::instances::Floor;

impl Engine {
    /// The kernels that make sense for these arguments, those first that should be the fastest: [`Engine::plan_by`] makes plans of them.
    pub fn choices(&self, projection: &Projection, x: &DeviceSlice<u16>, m: usize) -> Vec<Kernel> {
        kernels(&self.request(projection, x, m), self.kernels().device())
    }

    /// A plan with a kernel of choice, for [`Engine::project_as`]. One that cannot give the right result for these arguments is refused;
    /// one that should not be chosen for them is not.
    pub fn plan_by(
        &self,
        kernel: &Kernel,
        projection: &Projection,
        x: &DeviceSlice<u16>,
        m: usize,
    ) -> Result<Option<Plan>> {
        plan_with(kernel, &self.request(projection, x, m), self.kernels().device())
    }

    /// Queues a reader of the units of a projection's packed weights, which computes nothing: what the memory can deliver for these bytes, as a
    /// limit to compare with. `out` takes one value per warp of [`Engine::floor_ctas`] CTAs.
    pub fn floor_read(
        &self,
        floor: &'static Floor,
        projection: &Projection,
        out: &mut DeviceSlice<u32>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        projection.check_engine(self.inner())?;
        self.read(
            floor,
            (projection.pointer(), projection.unit_bytes()),
            out,
            stream,
            overlap,
        )
    }

    /// [`Engine::floor_read`] of any data: a multiple of 16 bytes.
    pub fn floor_read_data(
        &self,
        floor: &'static Floor,
        data: &DeviceSlice<u32>,
        out: &mut DeviceSlice<u32>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let data = (data.as_device_ptr().as_raw(), data.len() * size_of::<u32>());
        self.read(floor, data, out, stream, overlap)
    }

    fn read(
        &self,
        floor: &'static Floor,
        (data, bytes): (u64, usize),
        out: &mut DeviceSlice<u32>,
        stream: &Stream,
        overlap: Overlap,
    ) -> Result<()> {
        let ctas = self.floor_ctas(floor);
        Shape::check_len("the reader's output", out.len(), ctas as usize, floor.warps)?;
        self.inner().check_current()?;
        let buffers = (data, bytes, out.as_device_ptr().as_raw());
        // SAFETY: 1. as in `project_as`; 2. the sizes are those of the buffers, and the output's was checked.
        unsafe {
            self.kernels()
                .floor_read(floor, buffers, ctas, stream.as_inner(), overlap)
        }
    }

    /// CTAs of a reader's launch: as many as the device holds at a time.
    pub fn floor_ctas(&self, floor: &Floor) -> u32 {
        let each = u32::try_from(floor.min_ctas).unwrap_or(u32::MAX);
        self.device().multiprocessors.saturating_mul(each)
    }

    /// On the emulated device, what the launches of the engine's context were counted to have done since the last call; `None` on a GPU,
    /// which does not count.
    pub fn take_counters(&self) -> Result<Option<Counters>> {
        self.inner().check_current()?;
        Ok((self.device().driver == Selected::Emulated).then(emulated::take_counters))
    }
}
