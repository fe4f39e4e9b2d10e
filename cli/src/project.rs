//! `project`: y = x · Wᵀ from files.

use crate::args::Project;
use crate::error::{Error, Result};
use crate::inputs::{activations, file_and_tensor};
use crate::{device, output};
use hopper_proj::formats::PackFormat;
use hopper_proj::io::checkpoint::{Checkpoint, write_bf16};
use hopper_proj::{PrepareOptions, Shape, bf16};
use std::io::{Write, stdout};

pub(crate) fn run(args: &Project) -> Result<()> {
    let format = args.format.known(format!(
        "computes with BF16 weights, as they are or packed: pass --format {}",
        PackFormat::names()
    ))?;
    let (file, tensor) = file_and_tensor(&args.operands.weights)?;
    let (x_file, x_tensor) = file_and_tensor(&args.operands.x)?;
    output::check(&args.out, [&*file, &*x_file])?;
    let weights_file = Checkpoint::open(file)?;
    let weights = weights_file.weights(tensor.as_deref())?;
    let weights = weights.slice(args.rows.clone(), args.cols.clone())?;
    let weights = weights.into_format(format, args.cast.map(Into::into))?;
    let x_file = Checkpoint::open(x_file)?;
    let x = activations(&x_file, x_tensor.as_deref())?;
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
    // Small files can have a large product.
    let mut y = Shape::filled("y", m, shape.n(), bf16::NAN)?;

    let engine = device::open(args.device)?;
    let stream = engine.stream()?;
    let projection = engine.prepare(weights, &PrepareOptions::tokens(m..=m))?;
    let mut instance = "no launch: m = 0";
    if m > 0 {
        let x = engine.upload(&x)?;
        let mut result = engine.upload(&y)?;
        engine.project(&projection, &x, m, &mut result, &stream)?;
        engine.synchronize(&stream)?;
        y = engine.download(&result, &stream)?;
        instance = engine.kernel(&projection, &x, m)?.unwrap_or(instance);
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
