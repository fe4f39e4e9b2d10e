//! `info`: the device, the driver and the kernels.

use crate::args::{Info, PlanOp};
use crate::device;
use crate::error::Result;
use hopper_proj::instances::{Family, Format};
use hopper_proj::plan::{Candidate, FORMATS, List, Waves};
use hopper_proj::suites::Suite;
use hopper_proj::{CudaUnavailable, Engine, Request, Shape, instances, raw};
use serde::Serialize;
use std::io::{Write, stdout};

/// Why a GPU's driver was not taken.
#[derive(Serialize)]
struct Fallback {
    reason: String,
    /// The driver's code, if it gave one, and the code's name.
    code: Option<u32>,
    name: Option<&'static str>,
    advice: &'static str,
}

impl From<&CudaUnavailable> for Fallback {
    fn from(why: &CudaUnavailable) -> Self {
        Fallback {
            reason: why.to_string(),
            code: why.code(),
            name: why.code_name(),
            advice: why.advice(),
        }
    }
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    device: String,
    fallback: Option<Fallback>,
    name: String,
    capability: String,
    multiprocessors: u32,
    memory_bytes: usize,
    cuda: String,
    ptx: Vec<&'static str>,
    formats: Vec<&'static str>,
    suites: Vec<&'static str>,
    kernels: Vec<&'static str>,
}

/// A plan as JSON.
#[derive(Serialize)]
struct Planned {
    op: &'static str,
    format: &'static str,
    n: usize,
    k: usize,
    m: usize,
    x_aligned: bool,
    row_major: bool,
    device: String,
    multiprocessors: usize,
    tb_per_second: f64,
    l2_bytes: usize,
    /// Who says how many clusters run at a time.
    clusters_by: String,
    instances: Vec<PlannedInstance>,
}

#[derive(Serialize)]
struct PlannedInstance {
    instance: &'static str,
    cluster: usize,
    slices: usize,
    /// Clusters of the launch, those that run at a time, and the waves that makes.
    clusters: Option<usize>,
    clusters_at_a_time: Option<usize>,
    waves: Option<usize>,
    chosen: bool,
    /// `measured`, `proposed`, `model` or `rejected`.
    by: &'static str,
    us: Option<f64>,
    reason: Option<String>,
}

pub(crate) fn run(args: &Info) -> Result<()> {
    let engine = device::open(args.device)?;
    let device = engine.device();
    if let Some(sizes) = args.plan {
        return plan(args, sizes, &engine);
    }
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        device: device.driver.to_string(),
        fallback: device.fallback.as_ref().map(Fallback::from),
        name: device.name.clone(),
        capability: format!("{}.{}", device.capability.0, device.capability.1),
        multiprocessors: device.multiprocessors,
        memory_bytes: device.memory,
        cuda: format!("{}.{}", device.cuda.0, device.cuda.1),
        ptx: header(raw::ptx(Family::GemvBf16)),
        formats: FORMATS.map(Format::name).to_vec(),
        suites: Suite::ALL.iter().map(|suite| suite.name()).collect(),
        kernels: instances::entries().map(|entry| entry.name).collect(),
    };
    let mut out = stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "hopper-proj {}", report.version)?;
    writeln!(out, "{}", device::line(device))?;
    if let Some(Fallback { reason, advice, .. }) = &report.fallback {
        writeln!(out, "  no GPU is used: {reason}: {advice}")?;
    }
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
    Ok(())
}

/// Every instance with its verdict.
fn plan(args: &Info, [n, k, m]: [usize; 3], engine: &Engine) -> Result<()> {
    let format = args.format.unwrap_or(match args.op {
        PlanOp::Project => Format::Bf16,
        PlanOp::Route => Format::Bf16x2,
    });
    let request = Request::new(args.op.into(), format, Shape::new(n, k)?, m);
    let request = request.row_major(args.row_major.unwrap_or(args.op == PlanOp::Route));
    let request = if args.unaligned { request.x(2, k) } else { request };
    let list = List::new(&request, &engine.kernels().device());
    let mut out = stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &planned(&list, engine))?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}", device::line(engine.device()))?;
        write!(out, "{list}")?;
    }
    // What nothing serves is an error, once its list has been shown.
    hopper_proj::plan(&request, &engine.kernels().device())?;
    Ok(())
}

fn planned(list: &List, engine: &Engine) -> Planned {
    let (request, device) = (&list.request, &list.device);
    let instance = |candidate: &Candidate| {
        let costed = candidate.us().is_some();
        let waves = costed.then(|| Waves::new(&candidate.kernel, request, device)).flatten();
        PlannedInstance {
            instance: candidate.kernel.name(),
            cluster: candidate.kernel.cluster(),
            slices: candidate.kernel.slices(),
            clusters: waves.map(|waves| waves.clusters),
            clusters_at_a_time: waves.map(|waves| waves.at_a_time),
            waves: waves.map(|waves| waves.count()),
            chosen: candidate.chosen,
            by: candidate.source(),
            us: candidate.us(),
            reason: candidate.reason().map(|reason| reason.to_string()),
        }
    };
    Planned {
        op: request.op.name(),
        format: request.format.name(),
        n: request.shape.n(),
        k: request.shape.k(),
        m: request.m,
        x_aligned: request.x_aligned,
        row_major: request.row_major,
        device: engine.device().driver.to_string(),
        multiprocessors: device.multiprocessors,
        tb_per_second: device.stream * device.multiprocessors as f64 / 1e6,
        l2_bytes: device.l2_bytes,
        clusters_by: device.clusters.to_string(),
        instances: list.candidates.iter().map(instance).collect(),
    }
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
