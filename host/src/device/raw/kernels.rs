//! The kernels of a context: which are loaded, and which is launched for a request.

use super::families::{Families, Loaded};
use super::launch::{Config, Parameter, Queue};
use super::occupancy;
use super::operands::{PACKED, check_aligned};
use super::ptx::Replacement;
use super::self_test::SelfTests;
use super::{CUdeviceptr, CUfunction};
use crate::Error;
use crate::device::allocation::current_context;
use crate::device::{Result, Setup, check};
use crate::plan::{Device, DriverFacts, Kernel, Plan, Planner, Request, Workload, explain, measured};
use kernels_gpu::instances::{Family, Gemm, StreamRead, StreamReadArgs, packed_gemms};

/// The kernels of one context; to be dropped while that context is current, as dropping unloads them.
///
/// PTX is compiled by the driver, which takes CPU seconds for some families. So a family is loaded when
/// [`Kernels::prepare`] finds that a plan can name one of its kernels, or [`Kernels::load`] is asked to; a launch loads
/// nothing.
#[derive(Debug)]
pub struct Kernels {
    /// The address of the context's handle: families are loaded into it alone.
    context: usize,
    families: Families,
    planner: Planner,
}

impl Kernels {
    /// The kernels for the calling thread's current context, none of them loaded. From here on, plans are made with the
    /// user's own [table](crate::plan::measured), if a variable names one, and [shown](crate::plan::explain), if
    /// another asks for it.
    pub fn new() -> Result<Self> {
        // SAFETY: the text of every family is the shipped one.
        unsafe { Self::with_ptx(&[]) }
    }

    /// [`Kernels::new`] with other PTX for some families.
    ///
    /// # Safety
    ///
    /// As for [`EngineOptions::with_ptx`](crate::EngineOptions::with_ptx).
    pub unsafe fn with_ptx(replaced: &'static [Replacement]) -> Result<Self> {
        measured::use_environment()?;
        explain::use_environment()?;
        Ok(Kernels {
            context: current_context()?,
            families: Families::new(replaced),
            planner: Planner::new(Device::described(&driver_facts()?)),
        })
    }

    /// Loads every kernel that a plan for the workload can name, and runs the self-tests of those that a driver's
    /// compiler may get wrong. After it, no call of the workload loads anything. It allocates, launches and waits, on a
    /// stream of its own and in the thread's relaxed capture mode: captures go on undisturbed.
    ///
    /// The kernels' context is current on the calling thread.
    ///
    /// # Errors
    ///
    /// A workload that no kernel serves, and what the driver refuses.
    pub fn prepare(&self, workload: &Workload) -> Result<()> {
        loop {
            let device = self.device();
            let needed = self.planner.families(workload)?;
            match needed.iter().find(|&&family| !self.families.is_loaded(family)) {
                Some(&missing) => self.load(missing)?,
                // A self-test that has failed meanwhile, here or on another thread, changes the plans: they are made
                // again.
                None if self.device() == device => return Ok(()),
                None => {}
            }
        }
    }

    /// Loads a family, unless that has been done: see [`Kernels::prepare`].
    pub fn load(&self, family: Family) -> Result<()> {
        if self.families.is_loaded(family) {
            return Ok(());
        }
        if current_context()? != self.context {
            return Err(Error::WrongContext);
        }
        let setup = Setup::new()?;
        let tests = SelfTests::new(family, self.device().multiprocessors, &setup)?;
        self.families.load(family, |loaded: &Loaded| {
            if let Some(tests) = &tests {
                self.planner.exclude(tests.failures(loaded, self.device(), &setup)?);
            }
            Ok(())
        })
    }

    /// The families that are loaded, in the order of [`Family::ALL`].
    pub fn loaded(&self) -> impl Iterator<Item = Family> {
        Family::ALL
            .into_iter()
            .filter(|&family| self.families.is_loaded(family))
    }

    /// The loaded kernels that failed their self-test, and are therefore not used: ptxas before 13.3, which the
    /// driver's compiler may be, can get `wgmma` wrong whose weights go through registers. Every kernel of that kind
    /// multiplies a matrix once: see [`SelfTestSize`](super::SelfTestSize).
    pub fn miscompiled(&self) -> impl Iterator<Item = &'static Gemm> {
        let miscompiled = self.device().miscompiled;
        packed_gemms().filter(move |instance| miscompiled.contains(instance))
    }

    /// The device, as plans see it.
    pub fn device(&self) -> Device {
        self.planner.device()
    }

    /// What is launched for a request: the one place where every call's kernel is chosen.
    pub fn plan(&self, request: &Request) -> Result<Option<Plan>> {
        self.planner.plan(request)
    }

    /// The launch of one given kernel for a request, which need not be the one that [`Kernels::plan`] chooses.
    pub fn plan_with(&self, kernel: &Kernel, request: &Request) -> Result<Option<Plan>> {
        self.planner.plan_with(kernel, request)
    }

    /// The function of a kernel.
    ///
    /// # Errors
    ///
    /// [`Error::NotLoaded`] where its family is not loaded.
    pub fn function(&self, kernel: &Kernel) -> Result<CUfunction> {
        let function = self.families.function(kernel.family(), kernel.index());
        function.ok_or_else(|| Error::NotLoaded {
            kernel: kernel.name(),
            family: kernel.family().name(),
        })
    }

    /// Launches a reader: streams `bytes` from `data` and computes nothing, to measure what the memory can deliver. Its
    /// family, [`Family::StreamRead`], must be [loaded](Kernels::load).
    ///
    /// # Safety
    ///
    /// 1. The kernels' context is current, and the queue's stream is a stream of it, or null.
    /// 2. `data` holds `bytes` bytes, `out` one `u32` per warp of `ctas` CTAs; both stay allocated until the launch has
    ///    ended.
    pub unsafe fn stream_read(
        &self,
        reader: &'static StreamRead,
        data: CUdeviceptr,
        bytes: usize,
        out: CUdeviceptr,
        ctas: u32,
        queue: Queue,
    ) -> Result<()> {
        check_aligned("the data", data, PACKED)?;
        check_aligned("the number of bytes to read", bytes as u64, PACKED)?;
        check_aligned("the reader's output", out, 4)?;
        let function = self.families.function(Family::StreamRead, reader.index);
        let function = function.ok_or_else(|| Error::NotLoaded {
            kernel: reader.name,
            family: Family::StreamRead.name(),
        })?;
        let mut args = Parameter::new(StreamReadArgs {
            data,
            bytes: bytes as u64,
            out,
        });
        let config = Config {
            grid: [ctas.max(1), 1, 1],
            block: [reader.threads() as u32, 1, 1],
            cluster: [1, 1, 1],
            shared_bytes: reader.shared_bytes() as u32,
        };
        // SAFETY: `args` is the one by-value parameter that every reader takes; the rest is the caller's contract.
        unsafe { config.launch(function, [args.pointer()], queue) }
    }
}

/// What the driver says of the current context's device.
fn driver_facts() -> Result<DriverFacts> {
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
    Ok(DriverFacts {
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        clock: attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        memory_clock: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        bus_bits: attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
        clusters: Some(occupancy::clusters(attribute)),
    })
}
