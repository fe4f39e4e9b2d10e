//! `project`: y = x · Wᵀ from files.

use crate::args::{Format, Project};
use crate::error::{Error, Result};
use crate::inputs::{activations, file_and_tensor};
use crate::{device, output};
use hopper_proj::checkpoint::{Checkpoint, write_bf16};
use hopper_proj::convert::PackFormat;
use hopper_proj::plan::FEW_TOKENS;
use hopper_proj::weights::window12::{self, Histogram, Packed};
use hopper_proj::{Engine, Projection, Shape, bf16};
use std::io::{Write, stdout};
use std::ops::Range;

pub(crate) fn run(args: &Project) -> Result<()> {
    let format = match args.format {
        Format::Auto => PackFormat::Auto,
        Format::Bf16 => PackFormat::Bf16,
        Format::Window12 => PackFormat::Window12,
        Format::Nvfp4 => {
            return Err(Error::NotYet {
                what: "--format nvfp4",
                can: "computes with BF16 weights, as they are or packed: pass --format auto, bf16 or window12",
            });
        }
    };
    let (file, tensor) = file_and_tensor(&args.operands.weights)?;
    let (x_file, x_tensor) = file_and_tensor(&args.operands.x)?;
    output::check(&args.out, [&*file, &*x_file])?;
    let weights_file = Checkpoint::open(file)?;
    let weights = Weights::read(&weights_file, tensor.as_deref(), args, format)?;
    let x_file = Checkpoint::open(x_file)?;
    let x = activations(&x_file, x_tensor.as_deref())?;
    let shape = weights.shape();
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
    let projection = weights.prepare(&engine, format, m)?;
    let mut instance = "no launch: m = 0";
    if m > 0 {
        let x = engine.upload(&x)?;
        let mut result = engine.upload(&y)?;
        engine.project(&projection, &x, m, &mut result, &stream)?;
        engine.synchronize(&stream)?;
        y = engine.download(&result)?;
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

/// The weights of a call, as their file has them or as they must be read.
enum Weights {
    Plain(Vec<bf16>, Shape),
    Packed(Packed<'static>),
}

impl Weights {
    fn read(file: &Checkpoint, tensor: Option<&str>, args: &Project, format: PackFormat) -> Result<Self> {
        let packed = file.packed()?;
        let mut names = packed.names();
        // A file made of packed matrices has other two-dimensional tensors only where it says so by a name.
        let name = match tensor {
            Some(name) => names.find(|packed| *packed == name),
            None => names
                .next()
                .filter(|_| names.next().is_none() && file.matrix(None).is_err()),
        };
        let Some(name) = name else {
            let weights = file.matrix(tensor)?.slice(args.rows.clone(), args.cols.clone())?;
            let values = weights.to_bf16(args.cast.map(Into::into))?;
            return Ok(Weights::Plain(values.into_owned(), weights.shape()?));
        };
        let whole = packed.get(name).map_err(|fault| hopper_proj::Error::PackedTensor {
            path: file.path().to_owned(),
            name: name.to_owned(),
            fault: Box::new(fault),
        })?;
        // What units can be cut to stays packed.
        if format != PackFormat::Bf16
            && let Ok(slice) = whole.slice(args.rows.clone(), args.cols.clone())
        {
            return Ok(Weights::Packed(slice.into_owned()));
        }
        let shape = whole.shape();
        let values = window12::unpack(&whole)?;
        let (values, shape) = cut(&values, shape, args.rows.clone(), args.cols.clone())?;
        Ok(Weights::Plain(values, shape))
    }

    fn shape(&self) -> Shape {
        match self {
            Weights::Plain(_, shape) => *shape,
            Weights::Packed(packed) => packed.shape(),
        }
    }

    fn prepare(&self, engine: &Engine, format: PackFormat, m: usize) -> Result<Projection> {
        let (values, shape) = match self {
            Weights::Plain(values, shape) => (values, *shape),
            Weights::Packed(packed) => return Ok(engine.prepare_packed(packed)?),
        };
        let stays = match format {
            PackFormat::Auto => Histogram::of(values).estimate(shape)?.pays().is_err(),
            format => format == PackFormat::Bf16,
        };
        Ok(if !stays {
            engine.prepare_packed(&window12::pack(values, shape)?)?
        } else if m > FEW_TOKENS {
            // Beyond a few tokens, one product is sooner done than walks over packed weights.
            engine.prepare_for_many(values, shape)?
        } else {
            engine.prepare(values, shape)?
        })
    }
}

/// Some rows and columns of a row-major matrix.
fn cut(
    values: &[bf16],
    shape: Shape,
    rows: Option<Range<usize>>,
    cols: Option<Range<usize>>,
) -> Result<(Vec<bf16>, Shape)> {
    let (rows, cols) = (rows.unwrap_or(0..shape.n()), cols.unwrap_or(0..shape.k()));
    for (what, range, len) in [("rows", &rows, shape.n()), ("columns", &cols, shape.k())] {
        if range.is_empty() || range.end > len {
            let range = range.clone();
            return Err(hopper_proj::Error::Slice { what, range, len }.into());
        }
    }
    let kept = values.chunks(shape.k()).skip(rows.start).take(rows.len());
    let values = kept.flat_map(|row| &row[cols.clone()]).copied().collect();
    Ok((values, Shape::new(rows.len(), cols.len())?))
}
