//! `inspect`: how the weights of a checkpoint are stored, or what packing them would give.

use crate::args::Inspect;
use crate::error::Result;
use crate::{output, plot, progress};
use hopper_proj::convert::{self, Inspected, Stored};
use hopper_proj::weights::window12::Histogram;
use serde::Serialize;
use std::io::{Write, stdout};
use std::path::Path;

#[derive(Serialize)]
struct Row<'a> {
    file: &'a Path,
    name: &'a str,
    dtype: &'a str,
    shape: &'a [usize],
    /// Of the file.
    bytes: u64,
    format: &'static str,
    #[serde(flatten)]
    weights: Option<Weights>,
}

/// What is to be said of a matrix that is packed or could be.
#[derive(Serialize)]
struct Weights {
    /// As stored, all parts and padding included.
    bits_per_weight: f64,
    /// As `window12`: what they are, or would be (after a cast, where the type is not BF16).
    window12_bits_per_weight: f64,
    exceptions: u64,
    weights: u64,
    palette: [u8; 8],
    /// Why `pack` would leave it as it is.
    left: Option<String>,
    /// `[exponent, weights]`, of all exponents that occur.
    exponents: Vec<(usize, u64)>,
}

pub(crate) fn run(args: &Inspect) -> Result<()> {
    if let Some(path) = &args.plot {
        let files = convert::files(&args.file)?;
        output::check(path, files.iter().map(|file| &**file))?;
    }
    let (bar, mut watch) = progress::bytes();
    let tensors = convert::inspect(&args.file, &mut watch)?;
    bar.finish_and_clear();
    if let Some(path) = &args.plot {
        output::write(path, &plot::exponents(&tensors)?)?;
    }
    let rows: Vec<Row<'_>> = tensors.iter().map(row).collect();
    let mut out = stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &rows)?;
        writeln!(out)?;
        return Ok(());
    }
    for row in &rows {
        writeln!(out, "{} {} {:?}: {}", row.name, row.dtype, row.shape, told(row))?;
    }
    Ok(())
}

fn row(tensor: &Inspected) -> Row<'_> {
    let (format, weights) = match &tensor.stored {
        Stored::Packed {
            palette,
            exceptions,
            bits_per_weight,
            histogram,
        } => (
            "window12",
            Some(Weights {
                bits_per_weight: *bits_per_weight,
                window12_bits_per_weight: *bits_per_weight,
                exceptions: *exceptions,
                weights: histogram.weights(),
                palette: *palette,
                left: None,
                exponents: exponents(histogram),
            }),
        ),
        Stored::Matrix { estimate, histogram } => (
            "plain",
            Some(Weights {
                bits_per_weight: tensor.bytes as f64 * 8.0 / histogram.weights() as f64,
                window12_bits_per_weight: estimate.bits_per_weight(),
                exceptions: estimate.exceptions(),
                weights: histogram.weights(),
                palette: estimate.palette(),
                left: match tensor.dtype.as_str() {
                    "BF16" => estimate.pays().err().map(|leave| leave.to_string()),
                    dtype => Some(format!(
                        "it is {dtype}: only --cast bf16 makes it packable, which rounds it"
                    )),
                },
                exponents: exponents(histogram),
            }),
        ),
        _ => ("plain", None),
    };
    Row {
        file: &tensor.file,
        name: &tensor.name,
        dtype: &tensor.dtype,
        shape: &tensor.shape,
        bytes: tensor.bytes,
        format,
        weights,
    }
}

fn exponents(histogram: &Histogram) -> Vec<(usize, u64)> {
    let counts = histogram.counts().iter().copied().enumerate();
    counts.filter(|&(_, count)| count > 0).collect()
}

fn told(row: &Row<'_>) -> String {
    let Some(weights) = &row.weights else {
        return format!("{} bytes", row.bytes);
    };
    let share = 100.0 * weights.exceptions as f64 / weights.weights as f64;
    let palette: Vec<String> = weights.palette.iter().map(|entry| format!("{entry:02x}")).collect();
    let window12 = format!(
        "{:.3} bits per weight, {} exceptions ({share:.3} %), palette {}",
        weights.window12_bits_per_weight,
        weights.exceptions,
        palette.join(" ")
    );
    match (row.format, &weights.left) {
        ("window12", _) => format!("window12, {window12}"),
        (_, None) => format!("{:.0} bits per weight; packed {window12}", weights.bits_per_weight),
        (_, Some(reason)) => format!(
            "{:.0} bits per weight; left as it is: {reason}; packed {window12}",
            weights.bits_per_weight
        ),
    }
}
