//! Self-tests of the kernels that a driver's compiler may get wrong.
//!
//! ptxas before 13.3 can give registers of a running `wgmma`'s first operand to something else, and it is part of the
//! driver: what is launched is not what was tested. So each kernel over packed units multiplies one matrix when its
//! family is loaded. All values are whole numbers and every sum is below 2²⁴, so there is one right result, to the
//! last bit. What goes wrong may depend on time: on a GPU the product fills the device, and every tile is compared.

mod size;

pub use size::SelfTestSize;

use super::families::Loaded;
use super::launch::Queue;
use super::operands::{Operands, Output};
use super::project::{self, Launch};
use super::{CUfunction, Kernels, Overlap};
use crate::device::{Allocation, Result, Setup};
use crate::formats::device::Stored;
use crate::formats::store_for_self_test;
use crate::plan::{Device, Division, Kernel, Miscompiled, plan_with};
use crate::{Error, Shape};
use hopper_cuda_driver::emulated;
use kernels_gpu::instances::{Family, Gemm, packed_gemms};
use size::Expected;

/// The operands of a family's self-tests, in the current context.
///
/// They are made before the lock is taken under which a family is loaded: packing waits for threads of a pool, which
/// may themselves wait for that lock.
pub(super) struct SelfTests {
    x: Allocation,
    of_instances: Vec<SelfTest>,
}

/// One kernel's self-test.
struct SelfTest {
    instance: &'static Gemm,
    weights: Box<dyn Stored>,
    size: SelfTestSize,
}

impl SelfTests {
    /// `None` for a family that has no kernels with self-tests. How much they multiply is for the driver in use and a
    /// device of so many multiprocessors.
    pub(super) fn new(family: Family, multiprocessors: usize, setup: &Setup) -> Result<Option<Self>> {
        let driver = hopper_cuda_driver::selected()?;
        let tested = packed_gemms()
            .filter(|instance| instance.family == family)
            .map(|instance| (instance, SelfTestSize::new(driver, multiprocessors, instance)));
        Self::of(tested.collect(), setup)
    }

    fn of(tested: Vec<(&'static Gemm, SelfTestSize)>, setup: &Setup) -> Result<Option<Self>> {
        // Columns are the same for all.
        let Some(columns) = tested.iter().map(|(_, size)| size.columns).max() else {
            return Ok(None);
        };
        let tokens = tested.iter().map(|(_, size)| size.tokens).max().unwrap_or_default();
        let self_test = |(instance, size): (&'static Gemm, SelfTestSize)| {
            let shape = Shape::new(size.rows, size.columns)?;
            let format = Kernel::Gemm(Division::whole(instance)).format();
            Ok(SelfTest {
                instance,
                weights: store_for_self_test(setup, format, &size::weights(size), shape)?,
                size,
            })
        };
        Ok(Some(SelfTests {
            x: setup.upload(UPLOAD, &size::activations(tokens, columns))?,
            of_instances: tested.into_iter().map(self_test).collect::<Result<_>>()?,
        }))
    }

    /// The kernels whose results are not the right ones. The family has been loaded into the current context.
    pub(super) fn failures(&self, loaded: &Loaded, device: Device, setup: &Setup) -> Result<Vec<&'static Gemm>> {
        self.failures_by(setup, device, |kernel| loaded.function(kernel.index()))
    }

    fn failures_by(
        &self,
        setup: &Setup,
        device: Device,
        function: impl Fn(Kernel) -> Option<CUfunction>,
    ) -> Result<Vec<&'static Gemm>> {
        // A kernel that has failed before can be tested again.
        let device = Device {
            miscompiled: Miscompiled::default(),
            ..device
        };
        let mut failed = Vec::new();
        for test in &self.of_instances {
            let kernel = Kernel::Gemm(Division::whole(test.instance));
            let function = function(kernel).ok_or_else(|| not_loaded(test.instance))?;
            let y = emulated::uncounted(|| run(setup, function, kernel, &device, &self.x, test))?;
            if !Expected::new(test.size).is(&y, test.size) {
                failed.push(test.instance);
            }
        }
        Ok(failed)
    }
}

impl Kernels {
    /// Whether a kernel passes its self-test once more, of this size: its family has run one when it was loaded, of the
    /// size that [`SelfTestSize::new`] gives. It allocates, launches and waits, as [`Kernels::prepare`] does. The
    /// kernels' context is current on the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error::NotLoaded`] where the kernel's family is not loaded, and what the driver refuses.
    pub fn self_test(&self, instance: &'static Gemm, size: SelfTestSize) -> Result<bool> {
        let setup = Setup::new()?;
        let Some(tests) = SelfTests::of(vec![(instance, size)], &setup)? else {
            return Ok(true);
        };
        let failures = tests.failures_by(&setup, self.device(), |kernel| self.function(&kernel).ok())?;
        Ok(failures.is_empty())
    }
}

const UPLOAD: &str = "upload the operands of a self-test";

fn not_loaded(instance: &Gemm) -> Error {
    Error::NotLoaded {
        kernel: instance.name,
        family: instance.family.name(),
    }
}

/// The result of one kernel, poisoned before.
fn run(
    setup: &Setup,
    function: CUfunction,
    kernel: Kernel,
    device: &Device,
    x: &Allocation,
    test: &SelfTest,
) -> Result<Vec<f32>> {
    let SelfTestSize { rows, tokens, columns } = test.size;
    let mut result = vec![f32::NAN; tokens * rows];
    let y = setup.upload(UPLOAD, &result)?;
    let operands = Operands {
        x: x.address(),
        x_stride: columns,
        m: tokens,
        shape: Shape::new(rows, columns)?,
        weights: test.weights.weights(),
        row_major: None,
        y: Output::Fp32(y.address()),
    };
    if let Some(plan) = &plan_with(&kernel, &operands.request(), device)? {
        let queue = Queue {
            stream: setup.stream().cast(),
            overlap: Overlap::None,
        };
        // SAFETY: the function was loaded into the current context, whose memory the operands are; the copy below waits
        // for the launch on the same stream.
        unsafe { project::project(Launch { function, plan, queue }, &operands)? };
    }
    setup.download("read the result of a self-test", &y, &mut result)?;
    Ok(result)
}
