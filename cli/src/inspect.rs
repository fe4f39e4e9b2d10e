//! `inspect`: how the weights of a checkpoint are stored, or what packing them would give.

use crate::args::Inspect;
use crate::error::Result;
use crate::{output, plot, progress};
use hopper_proj::formats::Description;
use hopper_proj::io::convert::{self, Inspected, Stored};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::io::{Write, stdout};
use std::path::Path;

/// The format of a tensor that is in none of its own.
const PLAIN: &str = "plain";

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
    weights: Option<Weights<'a>>,
}

/// What is to be said of a matrix that is packed or could be.
#[derive(Serialize)]
struct Weights<'a> {
    /// As stored, all parts and padding included.
    bits_per_weight: f64,
    /// What its format says of it; or what the format that it could be packed into would say.
    #[serde(flatten)]
    fields: Fields<'a>,
    /// Why `pack` would leave it as it is.
    left: Option<String>,
    /// `[exponent, weights]`, of all exponents that occur.
    exponents: Vec<(u8, u64)>,
    #[serde(skip)]
    told: String,
}

/// Fields with their names, in order.
struct Fields<'a>(&'a [(&'static str, Value)]);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
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
        Stored::Packed(made) => (made.format, Some(weights(made, made.bits_per_weight, None))),
        Stored::Matrix { packed, left } => {
            let left = match tensor.dtype.as_str() {
                "BF16" => left.clone(),
                dtype => Some(format!(
                    "it is {dtype}: only --cast bf16 makes it packable, which rounds it"
                )),
            };
            let bits = tensor.bytes as f64 * 8.0 / packed.weights() as f64;
            (PLAIN, Some(weights(packed, bits, left)))
        }
        _ => (PLAIN, None),
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

fn weights(packed: &Description, bits_per_weight: f64, left: Option<String>) -> Weights<'_> {
    let exponents = packed.exponents.iter();
    Weights {
        bits_per_weight,
        fields: Fields(&packed.fields),
        left,
        exponents: exponents.map(|one| (one.exponent, one.weights)).collect(),
        told: format!("{} {}", packed.summary, packed.details),
    }
}

fn told(row: &Row<'_>) -> String {
    let Some(weights) = &row.weights else {
        return format!("{} bytes", row.bytes);
    };
    let told = &weights.told;
    match (row.format, &weights.left) {
        (PLAIN, None) => format!("{:.0} bits per weight; packed {told}", weights.bits_per_weight),
        (PLAIN, Some(reason)) => format!(
            "{:.0} bits per weight; left as it is: {reason}; packed {told}",
            weights.bits_per_weight
        ),
        (format, _) => format!("{format}, {told}"),
    }
}
