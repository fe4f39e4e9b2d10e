//! Opening the device that the arguments ask for.

use crate::args::{DeviceArgs, DeviceChoice};
use crate::error::Result;
use hopper_proj::{DeviceInfo, DriverChoice, Engine, EngineOptions};

pub(crate) fn open(args: DeviceArgs) -> Result<Engine> {
    let mut options = EngineOptions::default();
    options.driver = args.device.map(|choice| match choice {
        DeviceChoice::Auto => DriverChoice::Auto,
        DeviceChoice::Cuda => DriverChoice::Cuda,
        DeviceChoice::Emulated => DriverChoice::Emulated,
    });
    options.seed = args.seed;
    Ok(Engine::new(options)?)
}

/// A device in one line.
pub(crate) fn line(device: &DeviceInfo) -> String {
    format!("device: {} ({})", device.name, device.driver)
}
