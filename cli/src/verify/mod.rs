//! `verify`: every projection and router of a suite against FP64, on fresh random inputs.

mod projections;
mod routers;

use crate::args::Verify;
use crate::device;
use crate::error::{Error, Result};
use crate::inputs::Inputs;
use crate::progress;
use hopper_proj::reference::{LOGITS_GOAL, TOLERANCE};
use hopper_proj::suites::Suite;
use indicatif::ProgressBar;
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
    let (cases, router_cases) = (suite.cases()?, suite.router_cases()?);
    let engine = device::open(args.device)?;
    let seed = args.device.seed.unwrap_or_else(rand::random);
    if !args.json {
        let mut out = stdout().lock();
        writeln!(out, "{}", device::line(engine.device()))?;
        writeln!(out, "inputs: random, fresh; --seed {seed} repeats them")?;
        writeln!(out, "{}", HEADER)?;
    }
    let shapes = cases.len() + router_cases.len();
    let bar = progress::bar(shapes);
    let mut report = Report {
        rows: Vec::new(),
        bar: &bar,
        json: args.json,
    };
    let mut inputs = Inputs::new(seed);
    // The cases of one layer stand together and share its weights.
    for layer in cases.chunk_by(|a, b| (a.layer, a.shape) == (b.layer, b.shape)) {
        projections::check(&engine, layer, &mut inputs, &mut report)?;
    }
    for layer in router_cases.chunk_by(|a, b| (a.layer, a.shape) == (b.layer, b.shape)) {
        routers::check(&engine, layer, &mut inputs, &mut report)?;
    }
    let rows = report.rows;
    bar.finish_and_clear();
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
        });
    }
    if !args.json {
        writeln!(
            stdout().lock(),
            "{} of {} pass, of {shapes} shapes at their full size (relative L2 error against FP64 at most {TOLERANCE:e} for BF16 results, {LOGITS_GOAL:e} for logits; experts and \
             weights as FP64 chooses and weighs)",
            rows.len(),
            rows.len(),
        )?;
    }
    Ok(())
}

const HEADER: &str = "layer               m      n      k  format    device    rel error  result  instance";

/// The rows so far, and where they are shown.
struct Report<'a> {
    rows: Vec<Row>,
    bar: &'a ProgressBar,
    json: bool,
}

impl Report<'_> {
    fn start(&self, layer: &str, m: usize) {
        self.bar.set_message(format!("{layer} m={m}"));
    }

    fn add(&mut self, row: Row) -> Result<()> {
        self.say(&line(&row))?;
        self.rows.push(row);
        Ok(())
    }

    /// Shows a line, unless the output is JSON.
    fn say(&self, line: &str) -> Result<()> {
        if !self.json {
            self.bar.suspend(|| writeln!(stdout().lock(), "{line}"))?;
        }
        Ok(())
    }

    fn done(&self) {
        self.bar.inc(1);
    }
}

fn line(row: &Row) -> String {
    let result = if row.pass { "pass" } else { "FAIL" };
    format!(
        "{:<16} {:>4} {:>6} {:>6}  {:<8}  {:<8}  {:>9.2e}  {:<6}  {}",
        row.layer, row.m, row.n, row.k, row.format, row.device, row.rel_error, result, row.instance
    )
}
