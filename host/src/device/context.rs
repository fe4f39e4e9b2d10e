//! An open device: its context, its kernels, and what is known of it.

use super::allocation::{Allocation, current_context, with_context};
use super::raw::{CUdeviceptr, Kernels, Replacement};
use super::setup::RelaxedCapture;
use super::{Choice, Result, Selected, Unavailable, cust_error};
use crate::Error;
use cust::context::{Context, CurrentContext};
use cust::device::{Device, DeviceAttribute};
use hopper_cuda_driver::{Capability, HOPPER, emulated};
use std::mem::ManuallyDrop;

/// The oldest CUDA whose driver the kernels run on, major and minor: the ptxas of 12.0, which is part of the driver,
/// serialises `wgmma` in two kernels (its notice C7513).
pub const OLDEST_CUDA: (i32, i32) = (12, 1);

/// How to open a device.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct EngineOptions {
    /// Which driver to use. `None` leaves it to the variable `HOPPER_PROJ_DEVICE`, and where that is unset or empty it
    /// is NVIDIA's driver or an error: the emulator never computes for a program that did not ask for it. A process has
    /// one driver; the first choice stands.
    pub driver: Option<Choice>,
    /// Which of the driver's devices; the first Hopper GPU where it is `None`.
    pub ordinal: Option<u32>,
    /// On the emulator: the interleaving of warps, CTAs and asynchronous copies. One seed, one run, bit by bit and
    /// fault by fault. It belongs to the device's context, which the engines of a process share: the last one given
    /// counts for all. `None` leaves it to the variable `HOPPER_PROJ_SEED`, and without that to chance.
    pub seed: Option<u64>,
    /// PTX to load for some families in place of the shipped text: [`EngineOptions::with_ptx`].
    ptx: &'static [Replacement],
}

impl EngineOptions {
    /// Options that ask for one driver.
    pub fn on(driver: Choice) -> Self {
        EngineOptions {
            driver: Some(driver),
            ..EngineOptions::default()
        }
    }

    /// Loads other PTX for some families in place of the [shipped](crate::raw::ptx) text.
    ///
    /// # Safety
    ///
    /// The text's kernels have the names, parameters and block sizes of the shipped ones, and touch no memory that
    /// those do not touch.
    #[must_use]
    pub unsafe fn with_ptx(mut self, ptx: &'static [Replacement]) -> Self {
        self.ptx = ptx;
        self
    }

    /// Options that ask for the driver that the variable `HOPPER_PROJ_DEVICE` names, and for this one where it is unset
    /// or empty. With [`Choice::Auto`], [`DeviceInfo::fallback`] tells why the emulator computes.
    ///
    /// # Errors
    ///
    /// The variable names no driver.
    pub fn from_environment_or(driver: Choice) -> Result<Self> {
        Ok(Self::on(Choice::from_environment_or(driver)?))
    }
}

/// What is known of an open device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Whose driver serves it.
    pub driver: Selected,
    /// Why that is not NVIDIA's, where [`Choice::Auto`] would have taken it. A program should say so, unless
    /// [it is expected](Unavailable::is_expected).
    pub fallback: Option<Unavailable>,
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

/// A device's primary context, retained, and the kernels in it.
#[derive(Debug)]
pub(crate) struct OpenDevice {
    kernels: ManuallyDrop<Kernels>,
    /// Written by [`Stream::barrier`](super::Stream::barrier), and never read. It is the device's, so that it outlives
    /// every graph that writes to it.
    barrier: Allocation,
    context: Context,
    info: DeviceInfo,
}

impl OpenDevice {
    /// Chooses the driver and makes the device's primary context current on the calling thread.
    pub(crate) fn new(options: EngineOptions) -> Result<Self> {
        let driver = match options.driver {
            Some(choice) => hopper_cuda_driver::select(choice),
            None => hopper_cuda_driver::selected(),
        }?;
        cust::init(cust::CudaFlags::empty()).map_err(|err| cust_error("initialise the driver", err))?;
        let cuda = cuda_version()?;
        if cuda < OLDEST_CUDA {
            return Err(Error::OldDriver {
                given: cuda,
                needed: OLDEST_CUDA,
            });
        }
        let device = choose(options.ordinal)?;
        let info = DeviceInfo::read(driver, cuda, device)?;
        if info.capability != HOPPER {
            return Err(Error::NotHopper {
                name: info.name,
                capability: info.capability,
            });
        }
        let context = Context::new(device).map_err(|err| cust_error("open the device's primary context", err))?;
        if options.seed.is_some() {
            emulated::set_seed(options.seed);
        }
        let barrier = {
            let _relaxed = RelaxedCapture::new()?;
            Allocation::new("open the device", size_of::<u32>())?
        };
        Ok(OpenDevice {
            // SAFETY: the text is the shipped one, or the caller of `EngineOptions::with_ptx` has vouched for it.
            kernels: ManuallyDrop::new(unsafe { Kernels::with_ptx(options.ptx) }?),
            barrier,
            context,
            info,
        })
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Four bytes that nothing reads.
    pub(super) fn barrier(&self) -> CUdeviceptr {
        self.barrier.address()
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Makes the context current on the calling thread.
    pub(crate) fn make_current(&self) -> Result<()> {
        CurrentContext::set_current(&self.context).map_err(|err| cust_error("make the context current", err))
    }

    /// The context's handle, as an address.
    pub(super) fn handle(&self) -> usize {
        self.context.as_raw().addr()
    }

    /// Fails unless the context is current on this thread; changes nothing.
    pub(crate) fn check_current(&self) -> Result<()> {
        if current_context()? == self.handle() {
            Ok(())
        } else {
            Err(Error::WrongContext)
        }
    }

    /// Fails unless memory is of this device's context; `what` names it.
    pub(super) fn check_memory(&self, what: &'static str, context: usize) -> Result<()> {
        if context == self.handle() {
            Ok(())
        } else {
            Err(Error::ForeignBuffer { what })
        }
    }

    /// Runs something that needs the context on whatever thread, and leaves the thread's context as it was.
    pub(crate) fn with_context(&self, run: impl FnOnce()) {
        with_context(self.handle(), run);
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // Unloading needs the context, which need not be current here.
        let kernels = &raw mut self.kernels;
        self.with_context(|| {
            // A capture of something else on this thread goes on.
            let _relaxed = RelaxedCapture::new();
            // SAFETY: dropped once, here; not used after.
            unsafe { ManuallyDrop::drop(&mut *kernels) }
        });
    }
}

impl DeviceInfo {
    fn read(driver: Selected, cuda: (i32, i32), device: Device) -> Result<Self> {
        Ok(DeviceInfo {
            driver,
            fallback: hopper_cuda_driver::fallback().cloned(),
            name: device.name().map_err(|err| cust_error("read the device's name", err))?,
            capability: capability(device)?,
            multiprocessors: attribute(device, DeviceAttribute::MultiprocessorCount)?.max(1) as u32,
            memory: device
                .total_memory()
                .map_err(|err| cust_error("read the size of the device's memory", err))?,
            cuda,
        })
    }
}

/// The CUDA version that the driver serves, major and minor.
pub(crate) fn cuda_version() -> Result<(i32, i32)> {
    let version = cust::CudaApiVersion::get().map_err(|err| cust_error("read the driver's version", err))?;
    Ok((version.major(), version.minor()))
}

/// The device asked for, else the first Hopper GPU, else the first of all.
fn choose(ordinal: Option<u32>) -> Result<Device> {
    let count = Device::num_devices().map_err(|err| cust_error("count the devices", err))?;
    let device = |ordinal| Device::get_device(ordinal).map_err(|err| cust_error("get the device", err));
    if ordinal.unwrap_or(0) >= count {
        return Err(Error::NoDevice {
            ordinal: ordinal.unwrap_or(0),
            count,
        });
    }
    if let Some(ordinal) = ordinal {
        return device(ordinal);
    }
    for ordinal in 0..count {
        let candidate = device(ordinal)?;
        if capability(candidate)? == HOPPER {
            return Ok(candidate);
        }
    }
    device(0)
}

fn capability(device: Device) -> Result<Capability> {
    Ok((
        attribute(device, DeviceAttribute::ComputeCapabilityMajor)?,
        attribute(device, DeviceAttribute::ComputeCapabilityMinor)?,
    ))
}

fn attribute(device: Device, attribute: DeviceAttribute) -> Result<i32> {
    let read = device.get_attribute(attribute);
    read.map_err(|err| cust_error("read a device attribute", err))
}
