//! `pack` and `unpack`: whole checkpoints.

use crate::args::{Pack, Unpack};
use crate::error::Result;
use crate::progress;
use hopper_proj::io::convert::{self, Outcome, PackOptions, PackedTensor, Report};
use std::io::{Write, stdout};
use std::path::Path;
use std::time::Instant;

pub(crate) fn pack(args: &Pack) -> Result<()> {
    let start = Instant::now();
    let only = args.only.as_ref().map(|only| |name: &str| only.is_match(name));
    let mut options = PackOptions::default();
    options.format = args.format;
    options.only = only.as_ref().map(|only| only as &dyn Fn(&str) -> bool);
    options.cast = args.cast.map(Into::into);
    let (bar, mut watch) = progress::bytes();
    let report = convert::pack(&args.input, &args.output, &options, &mut watch)?;
    bar.finish_and_clear();
    let mut out = stdout().lock();
    for tensor in &report.tensors {
        if let Some(line) = line(tensor) {
            writeln!(out, "{line}")?;
        }
    }
    let packed = report
        .tensors
        .iter()
        .filter(|t| matches!(t.outcome, Outcome::Packed(_)));
    writeln!(
        out,
        "packed {} of {} tensors: {}",
        packed.count(),
        report.tensors.len(),
        sizes(&report, &args.output, start)
    )?;
    Ok(())
}

pub(crate) fn unpack(args: &Unpack) -> Result<()> {
    let start = Instant::now();
    let (bar, mut watch) = progress::bytes();
    let report = convert::unpack(&args.input, &args.output, &mut watch)?;
    bar.finish_and_clear();
    let packed = report.tensors.iter().filter(|t| t.was_packed);
    writeln!(
        stdout().lock(),
        "unpacked {} of {} tensors: {}",
        packed.count(),
        report.tensors.len(),
        sizes(&report, &args.output, start)
    )?;
    Ok(())
}

/// What has become of a matrix. Nothing is to be said of other tensors.
fn line(tensor: &PackedTensor) -> Option<String> {
    let (mark, told) = match &tensor.outcome {
        Outcome::NoMatrix => return None,
        Outcome::Packed(made) => ("packed", made.summary.clone()),
        Outcome::Left(reason) => ("left", reason.clone()),
        Outcome::NeedsCast => ("left", "only BF16 can be packed; --cast bf16 would round it".to_owned()),
        Outcome::NotChosen => ("left", "its name does not match --only".to_owned()),
        Outcome::Stored(format) => ("left", format!("it is stored as {format} already")),
        Outcome::Bf16 => ("left", "the format asked for is BF16".to_owned()),
        _ => ("left", String::new()),
    };
    let rounded = tensor.cast.map_or(String::new(), |loss| {
        format!(
            ", rounded to BF16 ({} values changed, {} became infinite)",
            loss.rounded, loss.overflowed
        )
    });
    Some(format!(
        "{mark:6} {} {:?} {}{rounded}: {told}",
        tensor.name, tensor.shape, tensor.dtype
    ))
}

fn sizes<T>(report: &Report<T>, output: &Path, start: Instant) -> String {
    const MB: f64 = 1e6;
    let (before, after) = (report.input_bytes as f64 / MB, report.output_bytes as f64 / MB);
    let seconds = start.elapsed().as_secs_f64();
    let speed = before / seconds;
    format!(
        "{before:.1} MB → {after:.1} MB in {seconds:.2} s ({speed:.0} MB/s) → {}",
        output.display()
    )
}
