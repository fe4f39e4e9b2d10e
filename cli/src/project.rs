//! `project`: y = x · Wᵀ from files.

use crate::args::{Format, Project};
use crate::device;
use crate::error::{Error, Result};
use crate::inputs::file_and_tensor;
use hopper_proj::checkpoint::{Checkpoint, write_bf16};
use hopper_proj::{Dtype, bf16, plan};
use std::io::{Write, stdout};

pub(crate) fn run(args: &Project) -> Result<()> {
    match args.format {
        Format::Auto | Format::Bf16 => {}
        Format::Window12 => return Err(not_yet("--format window12")),
        Format::Nvfp4 => return Err(not_yet("--format nvfp4")),
    }
    let (file, tensor) = file_and_tensor(&args.weights)?;
    let weights_file = Checkpoint::open(file)?;
    let weights = weights_file
        .matrix(tensor.as_deref())?
        .slice(args.rows.clone(), args.cols.clone())?;
    let (file, tensor) = file_and_tensor(&args.x)?;
    let x_file = Checkpoint::open(file)?;
    let x = x_file.matrix(tensor.as_deref())?;
    if x.dtype() != Dtype::Bf16 {
        return Err(hopper_proj::Error::NotBf16 {
            what: "x",
            given: x.dtype().to_string(),
        }
        .into());
    }
    let shape = weights.shape()?;
    if x.cols() != shape.k() {
        return Err(Error::Columns {
            given: x.cols(),
            needed: shape.k(),
            weights: format!("in use are {shape}"),
            hint: "pass matching files, or choose columns of W with --cols A..B",
        });
    }
    let m = x.rows();
    let x = x.to_bf16(None)?;
    let values = weights.to_bf16(args.cast.map(Into::into))?;

    let engine = device::open(args.device)?;
    let stream = engine.stream()?;
    let projection = engine.prepare(&values, shape)?;
    let mut y = Vec::new();
    let mut instance = "no launch: m = 0";
    if m > 0 {
        let x = engine.upload(&x)?;
        let mut result = engine.upload(&vec![bf16::NAN; m * shape.n()])?;
        engine.project(&projection, &x, m, &mut result, &stream)?;
        engine.synchronize(&stream)?;
        y = engine.download(&result)?;
        if let Some(plan) = plan(&engine.request(&projection, &x, m))? {
            instance = plan.instance.name;
        }
    }
    write_bf16(&args.out, "y", m, shape.n(), &y)?;
    let mut out = stdout().lock();
    writeln!(out, "{}", device::line(engine.device()))?;
    writeln!(
        out,
        "y [{m}, {}] = x [{m}, {}] · Wᵀ by {instance} → {}",
        shape.n(),
        shape.k(),
        args.out.display()
    )?;
    Ok(())
}

fn not_yet(what: &'static str) -> Error {
    Error::NotYet {
        what,
        can: "computes with BF16 weights: pass --format bf16 or auto",
    }
}
