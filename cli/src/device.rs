//! Opening the device that the arguments ask for.

use crate::args::{DeviceArgs, DeviceChoice};
use crate::error::Result;
use hopper_proj::{DeviceInfo, DriverChoice, Engine, EngineOptions};
use std::io::{Write, stderr};

pub(crate) fn open(args: DeviceArgs) -> Result<Engine> {
    let mut options = match args.device {
        Some(DeviceChoice::Auto) => EngineOptions::on(DriverChoice::Auto),
        Some(DeviceChoice::Cuda) => EngineOptions::on(DriverChoice::Cuda),
        Some(DeviceChoice::Emulated) => EngineOptions::on(DriverChoice::Emulated),
        None => EngineOptions::from_environment_or(DriverChoice::Auto)?,
    };
    options.seed = args.seed;
    let engine = Engine::new(options)?;
    if let Some(why) = engine.device().fallback.as_ref().filter(|why| !why.is_expected()) {
        // A closed stderr is no reason to fail.
        let _ = writeln!(stderr(), "warning: {}", why.in_place());
    }
    Ok(engine)
}

/// A device in one line.
pub(crate) fn line(device: &DeviceInfo) -> String {
    format!("device: {} ({})", device.name, device.driver)
}
