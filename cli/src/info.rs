//! `info`: the device, the driver and the kernels.

use crate::args::Info;
use crate::device;
use crate::error::Result;
use hopper_proj::suites::Suite;
use hopper_proj::{instances, raw};
use serde::Serialize;
use std::io::{Write, stdout};

#[derive(Serialize)]
struct Report {
    version: &'static str,
    device: String,
    name: String,
    capability: String,
    multiprocessors: u32,
    memory_bytes: usize,
    cuda: String,
    ptx: Vec<&'static str>,
    formats: &'static [&'static str],
    suites: Vec<&'static str>,
    kernels: Vec<&'static str>,
    left_out: Vec<&'static str>,
}

pub(crate) fn run(args: &Info) -> Result<()> {
    let engine = device::open(args.device)?;
    let device = engine.device();
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        device: device.driver.to_string(),
        name: device.name.clone(),
        capability: format!("{}.{}", device.capability.0, device.capability.1),
        multiprocessors: device.multiprocessors,
        memory_bytes: device.memory,
        cuda: format!("{}.{}", device.cuda.0, device.cuda.1),
        ptx: header(raw::PTX),
        formats: &["bf16", "window12", "bf16x2", "bf16x3"],
        suites: Suite::ALL.iter().map(|suite| suite.name()).collect(),
        kernels: instances::entries().map(|entry| entry.name).collect(),
        left_out: engine.kernels().left_out().map(|instance| instance.name).collect(),
    };
    let mut out = stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "hopper-proj {}", report.version)?;
    writeln!(out, "{}", device::line(device))?;
    writeln!(
        out,
        "  compute capability {}, {} multiprocessors, {:.1} GB of memory, CUDA {}",
        report.capability,
        report.multiprocessors,
        report.memory_bytes as f64 / 1e9,
        report.cuda
    )?;
    writeln!(out, "formats: {}", report.formats.join(", "))?;
    writeln!(out, "suites: {}", report.suites.join(", "))?;
    for line in &report.ptx {
        writeln!(out, "PTX: {line}")?;
    }
    writeln!(out, "{} kernels:", report.kernels.len())?;
    for kernel in &report.kernels {
        writeln!(out, "  {kernel}")?;
    }
    // The driver's compiler is not the one that the kernels were tested with.
    match report.left_out.as_slice() {
        [] => writeln!(out, "kernels left out after a trial on this device: none")?,
        names => writeln!(
            out,
            "kernels left out, as they gave wrong results on this device: {}",
            names.join(", ")
        )?,
    }
    Ok(())
}

/// What the PTX says of itself: the comments at its top.
fn header(ptx: &'static str) -> Vec<&'static str> {
    let comments = ptx.lines().take_while(|line| line.is_empty() || line.starts_with("//"));
    comments
        .map(|line| line.trim_start_matches('/').trim())
        .filter(|line| !line.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_the_leading_comments() {
        assert_eq!(
            header("//\n// rustc 1\n\n// sm_90a\n.version 8.0\n// not this\n"),
            ["rustc 1", "sm_90a"]
        );
        assert!(header(".version 8.0").is_empty());
    }
}
