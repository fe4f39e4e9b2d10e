//! `verify`: every projection of a suite against FP64, on fresh random inputs.

use crate::args::Verify;
use crate::device;
use crate::error::{Error, Result};
use crate::inputs::Inputs;
use crate::progress;
use hopper_proj::convert::PackFormat;
use hopper_proj::cust::memory::DeviceSlice;
use hopper_proj::cust::stream::Stream;
use hopper_proj::reference::{self, TOLERANCE};
use hopper_proj::suites::{Case, Suite};
use hopper_proj::{DriverInUse, Engine, Projection, bf16, plan};
use serde::Serialize;
use std::io::{Write, stdout};

#[derive(Serialize)]
struct Row {
    op: &'static str,
    layer: &'static str,
    m: usize,
    n: usize,
    k: usize,
    format: &'static str,
    device: String,
    instance: &'static str,
    /// Not a number in JSON where a result is infinitely wrong: null.
    rel_error: f64,
    pass: bool,
}

pub(crate) fn run(args: &Verify) -> Result<()> {
    let suite = Suite::from(args.suite);
    let cases = suite.cases()?;
    let engine = device::open(args.device)?;
    let seed = args.device.seed.unwrap_or_else(rand::random);
    if !args.json {
        let mut out = stdout().lock();
        writeln!(out, "{}", device::line(engine.device()))?;
        writeln!(out, "inputs: random, fresh; --seed {seed} repeats them")?;
        for reason in suite.left_out() {
            writeln!(out, "left out: {reason}")?;
        }
        writeln!(out, "{}", HEADER)?;
    }
    let rows = check_all(args, &engine, &cases, seed)?;
    if args.json {
        let mut out = stdout().lock();
        serde_json::to_writer_pretty(&mut out, &rows)?;
        writeln!(out)?;
    }
    let failed = rows.iter().filter(|row| !row.pass).count();
    if failed > 0 {
        return Err(Error::Wrong {
            failed,
            total: rows.len(),
            tolerance: TOLERANCE,
        });
    }
    if !args.json {
        writeln!(
            stdout().lock(),
            "{} of {} pass (relative L2 error against FP64 at most {TOLERANCE:e})",
            rows.len(),
            rows.len()
        )?;
    }
    Ok(())
}

const HEADER: &str = "layer               m      n      k  device    rel error  result  instance";

fn check_all(args: &Verify, engine: &Engine, cases: &[Case], seed: u64) -> Result<Vec<Row>> {
    let stream = engine.stream()?;
    let bar = progress::bar(cases.len());
    let mut inputs = Inputs::new(seed);
    let mut rows = Vec::with_capacity(2 * cases.len());
    // The cases of one layer stand together and share its weights.
    for layer in cases.chunk_by(|a, b| (a.layer, a.shape) == (b.layer, b.shape)) {
        let Some(Case { shape, .. }) = layer.first() else {
            continue;
        };
        let weights = inputs.weights(shape.n() * shape.k());
        let projections =
            [PackFormat::Bf16, PackFormat::Window12].map(|format| engine.prepare_as(&weights, *shape, format));
        let projections = projections.into_iter().collect::<hopper_proj::Result<Vec<_>>>()?;
        for case in layer {
            bar.set_message(format!("{} m={}", case.layer, case.m));
            let x = inputs.x(case.m * shape.k());
            let expected = reference::project(&x, &weights, *shape, case.m)?;
            for projection in &projections {
                let (y, instance) = project(engine, projection, &x, case.m, &stream)?;
                let rel_error = reference::relative_error(&y, &expected);
                let row = Row {
                    op: "project",
                    layer: case.layer,
                    m: case.m,
                    n: shape.n(),
                    k: shape.k(),
                    format: projection.format().name(),
                    device: engine.device().driver.to_string(),
                    instance,
                    rel_error,
                    pass: rel_error <= TOLERANCE,
                };
                if !args.json {
                    bar.suspend(|| writeln!(stdout().lock(), "{}", line(&row)))?;
                }
                rows.push(row);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn line(row: &Row) -> String {
    let result = if row.pass { "pass" } else { "FAIL" };
    format!(
        "{:<16} {:>4} {:>6} {:>6}  {:<8}  {:>9.2e}  {:<6}  {}",
        row.layer, row.m, row.n, row.k, row.device, row.rel_error, result, row.instance
    )
}

/// Values of y beyond its end that a GPU run watches; the emulator checks every access by itself.
const GUARD: usize = 64;
/// A NaN that no kernel writes.
const POISON: bf16 = bf16::from_bits(0xffff);

/// One projection into a poisoned output: a value that no CTA writes stays NaN, and so fails.
fn project(
    engine: &Engine,
    projection: &Projection,
    x: &[bf16],
    m: usize,
    stream: &Stream,
) -> Result<(Vec<bf16>, &'static str)> {
    let len = m * projection.shape().n();
    let guard = if engine.device().driver == DriverInUse::Emulated {
        0
    } else {
        GUARD
    };
    let x = engine.upload(x)?;
    let y = engine.upload(&vec![POISON; len + guard])?;
    let mut live: DeviceSlice<u16> = y.index(0..len);
    let plan = plan(&engine.request(projection, &x, m))?;
    engine.project(projection, &x, m, &mut live, stream)?;
    engine.synchronize(stream)?;
    let mut result = engine.download(&y)?;
    if result[len..].iter().any(|value| value.to_bits() != POISON.to_bits()) {
        // A write past the end is as wrong as a wrong value.
        result.fill(POISON);
    }
    result.truncate(len);
    Ok((result, plan.map_or("", |plan| plan.instance.name)))
}
