//! `bench`: on a GPU, the time of each projection beside the time of only reading its weights; on the emulator, which keeps no
//! time, what its memory traffic was counted to be beside the least possible.

mod counted;
mod timed;

use crate::args::{Bench, Mode};
use crate::device;
use crate::error::{Error, Result};
use crate::progress;
use hopper_proj::suites::{Case, Suite};
use hopper_proj::{DriverInUse, Engine, Projection};
use serde::Serialize;
use std::io::{Write, stdout};
use std::path::Path;

/// One projection's measurements.
#[derive(Serialize)]
struct Row {
    what: String,
    layer: &'static str,
    m: usize,
    n: usize,
    k: usize,
    /// Of the packed weights, padding and exceptions included.
    bytes: usize,
    us: Option<f64>,
    instance: &'static str,
    floor_us: Option<f64>,
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<counted::Counts>,
}

impl Row {
    /// `what` is completed by the format of the weights.
    fn new(what: &str, projection: &Projection, case: &Case, instance: &'static str) -> Self {
        let (n, k) = (case.shape.n(), case.shape.k());
        Row {
            what: format!("{what}_{}", projection.format().name()),
            layer: case.layer,
            m: case.m,
            n,
            k,
            bytes: projection.bytes(),
            us: None,
            instance,
            floor_us: None,
            ratio: None,
            counts: None,
        }
    }
}

/// How rows come about and how they are shown.
trait Meter {
    /// The lines above the first row.
    fn heading(&self) -> String;
    /// Measures the cases of one layer, and hands on each row as soon as it is known.
    fn layer(&self, engine: &Engine, cases: &[Case], done: &mut dyn FnMut(Row) -> Result<()>) -> Result<()>;
    /// A row as text.
    fn show(&self, row: &Row) -> String;
}

pub(crate) fn run(args: &Bench) -> Result<()> {
    const CAN: &str = "times independent calls: pass --mode pdl or --mode graph";
    if args.mode == Mode::Chain {
        return Err(Error::NotYet {
            what: "--mode chain",
            can: CAN,
        });
    }
    if args.plot.is_some() {
        return Err(Error::NotYet {
            what: "--plot",
            can: "writes its rows with --csv or --json",
        });
    }
    let suite = Suite::from(args.suite);
    let cases = suite.cases()?;
    let engine = device::open(args.device)?;
    let meter: Box<dyn Meter> = match engine.device().driver {
        DriverInUse::Emulated => Box::new(counted::Counter),
        DriverInUse::Cuda => Box::new(timed::Clock::new(args.mode)),
    };
    if !args.json {
        let mut out = stdout().lock();
        writeln!(out, "{}", device::line(engine.device()))?;
        for layer in router_layers(suite)? {
            writeln!(
                out,
                "left out: {layer}: routers are not benched yet, `verify` runs them"
            )?;
        }
        writeln!(out, "{}", meter.heading())?;
    }
    let rows = measure(args, &engine, &cases, meter.as_ref())?;
    if let Some(path) = &args.csv {
        write_csv(path, &rows)?;
    }
    if args.json {
        let mut out = stdout().lock();
        serde_json::to_writer_pretty(&mut out, &rows)?;
        writeln!(out)?;
    }
    Ok(())
}

/// The suite's routers, each named once.
fn router_layers(suite: Suite) -> Result<Vec<String>> {
    let mut layers: Vec<String> = (suite.router_cases()?.iter())
        .map(|case| format!("{} {}", case.layer, case.shape))
        .collect();
    layers.dedup();
    Ok(layers)
}

fn measure(args: &Bench, engine: &Engine, cases: &[Case], meter: &dyn Meter) -> Result<Vec<Row>> {
    let bar = progress::bar(cases.len());
    let mut rows = Vec::with_capacity(cases.len());
    for layer in cases.chunk_by(|a, b| (a.layer, a.shape) == (b.layer, b.shape)) {
        meter.layer(engine, layer, &mut |row| {
            bar.inc(1);
            if !args.json {
                bar.suspend(|| writeln!(stdout().lock(), "{}", meter.show(&row)))?;
            }
            rows.push(row);
            Ok(())
        })?;
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn write_csv(path: &Path, rows: &[Row]) -> Result<()> {
    let number = |value: Option<f64>, digits: usize| value.map_or(String::new(), |value| format!("{value:.digits$}"));
    let mut text = String::from("what,layer,m,bytes,us,instance,floor_us,ratio\n");
    for row in rows {
        let (us, floor, ratio) = (number(row.us, 3), number(row.floor_us, 3), number(row.ratio, 3));
        text += &format!(
            "{},{},{},{},{us},{},{floor},{ratio}\n",
            row.what, row.layer, row.m, row.bytes, row.instance
        );
    }
    std::fs::write(path, text).map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}
