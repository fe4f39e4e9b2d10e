//! `bench`: on a GPU, the time of each projection and router beside the time of only reading its weights; on the
//! emulator, which keeps no time, what its memory traffic was counted to be beside the least possible.

mod chart;
mod counted;
mod rows;
mod subjects;
mod timed;

pub(crate) use timed::{copies, per_call, protocol};

use crate::args::{Bench, Mode};
use crate::error::{Error, Result};
use crate::inputs::{DEVIATION, Inputs};
use crate::{device, output, progress, record};
use hopper_proj::formats::{PackFormat, Weights};
use hopper_proj::instances::Format;
use hopper_proj::plan::{Op, Plan, Request};
use hopper_proj::suites::{Case, ChainCase, RouterCase, Suite};
use hopper_proj::{DriverInUse, Engine, PrepareOptions, Projection, RowMajorCopy, Shape, bf16};
use hopper_proj::{Router, RouterOptions, RouterWeights};
use indicatif::ProgressBar;
use rows::{Recorded, Row};
use std::io::{Write, stdout};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::LazyLock;
use subjects::{Chain, Dense, Routing, Subject};

/// How dense weights are kept.
pub(crate) struct Kept {
    pub(crate) name: &'static str,
    format: PackFormat,
    /// Whether a row-major copy is kept beside.
    rows: bool,
}

impl Kept {
    /// Whether that makes a difference to a layer: whether the copy, where there is one, is what is read.
    pub(crate) fn matters(&self, engine: &Engine, shape: Shape, m: usize) -> bool {
        let request = Request::new(Op::Project, Format::Bf16, shape, m).row_major(true);
        let reads_rows = |plan: Option<Plan>| plan.is_some_and(|plan| plan.kernel.reads_rows());
        !self.rows || engine.kernels().plan(&request).is_ok_and(reads_rows)
    }

    /// The same for a pair of layers.
    fn matters_to_pair(&self, engine: &Engine, pair: &ChainCase) -> bool {
        let mut shapes = [pair.down, pair.up].into_iter();
        shapes.any(|shape| self.matters(engine, shape, pair.m))
    }
}

/// What dense weights are benched and verified as.
pub(crate) static KEPT: LazyLock<Vec<Kept>> = LazyLock::new(|| {
    let formats = PackFormat::ALL.into_iter().filter(|&format| format != PackFormat::Auto);
    let mut kept = Vec::new();
    for format in formats {
        let name = format.name();
        kept.push(Kept {
            name,
            format,
            rows: false,
        });
        if format == PackFormat::Bf16 {
            kept.push(Kept {
                name: "bf16rows",
                format,
                rows: true,
            });
        }
    }
    kept
});

/// How rows come about and how they are shown.
trait Meter {
    /// The lines above the first row.
    fn heading(&self) -> String;
    /// Copies that are needed of weights of so many bytes.
    fn copies(&self, bytes: usize) -> usize;
    /// Measures a call, into its row.
    fn measure(&mut self, engine: &Engine, subject: &mut dyn Subject, row: &mut Row) -> Result<()>;
    /// A row as text.
    fn show(&self, row: &Row) -> String;
}

pub(crate) fn run(args: &Bench) -> Result<()> {
    for path in args.csv.iter().chain(&args.plot) {
        let inputs = args.peers.iter().chain(&args.from);
        output::check(path, inputs.map(|path| &**path))?;
    }
    let peers = args.peers.as_deref().map(Recorded::read).transpose()?;
    if let Some(path) = &args.from {
        let recorded = Recorded::read(path)?;
        return draw(args.plot.as_deref(), &recorded, peers.as_ref());
    }
    let suite = Suite::from(args.suite);
    let (cases, router_cases, chain_cases) = match args.mode {
        Mode::Chain => (Vec::new(), Vec::new(), suite.chain_cases()?),
        Mode::Pdl | Mode::Graph => (suite.cases()?, suite.router_cases()?, Vec::new()),
    };
    let engine = device::open(args.device)?;
    let timed = engine.device().driver == DriverInUse::Cuda;
    if !timed && (args.plot.is_some() || args.record.is_some()) {
        return Err(Error::NoTimes {
            what: "leave out --plot and --record, whose matter is times, to see counts; `bench --from FILE.csv --plot FILE.svg` draws recorded \
                   times",
        });
    }
    let meter: Box<dyn Meter> = if timed {
        Box::new(timed::Clock::new(&engine, args.mode)?)
    } else {
        Box::new(counted::Counter::new(args.mode))
    };
    if !args.json {
        let mut out = stdout().lock();
        writeln!(out, "{}", device::line(engine.device()))?;
        writeln!(out, "{}", meter.heading())?;
    }
    let rows_of = |kept: &Kept| {
        let layers = cases.iter().filter(|case| kept.matters(&engine, case.shape, case.m));
        let pairs = chain_cases.iter().filter(|pair| kept.matters_to_pair(&engine, pair));
        layers.count() + pairs.count()
    };
    let steps = KEPT.iter().map(rows_of).sum::<usize>() + 2 * router_cases.len();
    let mut bench = Measuring {
        engine: &engine,
        meter,
        mode: args.mode,
        json: args.json,
        inputs: Inputs::new(args.device.seed.unwrap_or(0)),
        bar: progress::bar(steps),
        rows: Vec::new(),
    };
    for layer in cases.chunk_by(|a, b| (a.layer, a.shape) == (b.layer, b.shape)) {
        bench.dense(layer)?;
    }
    for layer in router_cases.chunk_by(|a, b| (a.layer, a.shape) == (b.layer, b.shape)) {
        bench.routers(layer)?;
    }
    for chain in chain_cases.chunk_by(|a, b| a.layer == b.layer) {
        bench.chain(chain)?;
    }
    bench.bar.finish_and_clear();
    let rows = bench.rows;
    let csv = rows::text(&rows);
    if let Some(path) = &args.csv {
        output::write(path, &csv)?;
    }
    let notes = record::notes(engine.device(), &protocol(args.mode));
    if let Some(folder) = &args.record {
        let path = record::path(folder, engine.device(), mode_name(args.mode))?;
        output::write(&path, &format!("{}{csv}", record::text(&notes)))?;
        if !args.json {
            writeln!(stdout().lock(), "recorded: {}", path.display())?;
        }
    }
    if args.plot.is_some() {
        let recorded = Recorded::of(&rows, notes, Path::new("this run"));
        draw(args.plot.as_deref(), &recorded, peers.as_ref())?;
    }
    if args.json {
        let mut out = stdout().lock();
        serde_json::to_writer_pretty(&mut out, &rows)?;
        writeln!(out)?;
    }
    Ok(())
}

fn draw(plot: Option<&Path>, recorded: &Recorded, peers: Option<&Recorded>) -> Result<()> {
    match plot {
        Some(path) => output::write(path, &chart::bars(recorded, peers)?),
        None => Ok(()),
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Pdl => "pdl",
        Mode::Graph => "graph",
        Mode::Chain => "chain",
    }
}

/// A bench on its way.
struct Measuring<'a> {
    engine: &'a Engine,
    meter: Box<dyn Meter>,
    mode: Mode,
    json: bool,
    inputs: Inputs,
    bar: ProgressBar,
    rows: Vec<Row>,
}

impl Measuring<'_> {
    /// Measures one call, and shows its row as soon as it is known.
    fn add(
        &mut self,
        op: &str,
        format: &str,
        layer: &str,
        m: usize,
        shape: Shape,
        subject: &mut dyn Subject,
    ) -> Result<()> {
        self.bar.set_message(format!("{layer} m={m}"));
        let launches = subject.launches();
        let names: Vec<&str> = launches.iter().map(|launch| launch.kernel).collect();
        let mut row = Row {
            what: format!("{op}_{}_{format}", mode_name(self.mode)),
            layer: layer.to_owned(),
            m,
            n: shape.n(),
            k: shape.k(),
            bytes: launches.iter().map(|launch| launch.bytes).sum(),
            us: None,
            instance: names.join("+"),
            floor_us: None,
            ratio: None,
            tb_per_s: None,
            floor_tb_per_s: None,
            calls: subject.copies(),
            replays: None,
            counts: None,
        };
        self.meter.measure(self.engine, subject, &mut row)?;
        self.bar.inc(1);
        if !self.json {
            self.bar
                .suspend(|| writeln!(stdout().lock(), "{}", self.meter.show(&row)))?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// The cases of one layer, which share its weights.
    fn dense(&mut self, layer: &[Case]) -> Result<()> {
        let Some(Case { shape, .. }) = layer.first() else {
            return Ok(());
        };
        let weights = self.inputs.weights(shape.n() * shape.k(), DEVIATION);
        for kept in KEPT.iter() {
            let engine = self.engine;
            let mut cases = layer
                .iter()
                .filter(|case| kept.matters(engine, case.shape, case.m))
                .peekable();
            if cases.peek().is_none() {
                continue;
            }
            let m = tokens(cases.clone().map(|case| case.m));
            let copies = prepared(self.engine, &weights, *shape, kept, m, |bytes| self.meter.copies(bytes))?;
            for case in cases {
                let mut subject = Dense::new(self.engine, &copies, case.m, &mut self.inputs)?;
                self.add("project", kept.name, case.layer, case.m, *shape, &mut subject)?;
            }
        }
        Ok(())
    }

    fn routers(&mut self, layer: &[RouterCase]) -> Result<()> {
        let Some(RouterCase {
            shape, config, biased, ..
        }) = layer.first()
        else {
            return Ok(());
        };
        let weights = self.inputs.fp32_weights(shape.n() * shape.k());
        let config = if *biased {
            config.clone().bias(self.inputs.fp32_weights(shape.n()))
        } else {
            config.clone()
        };
        let most = layer.iter().map(|case| case.m).max().unwrap_or(1);
        let options = RouterOptions::default().max_tokens(most);
        let prepare = || Router::prepare(self.engine, RouterWeights::Fp32(&weights), *shape, &config, options);
        let copies = copied(prepare, |router| self.meter.copies(router.unit_bytes()))?;
        for case in layer {
            for (op, alone) in [("logits", true), ("route", false)] {
                let mut subject = Routing::new(self.engine, &copies, case.m, alone, &mut self.inputs)?;
                self.add(op, "f32", case.layer, case.m, *shape, &mut subject)?;
            }
        }
        Ok(())
    }

    fn chain(&mut self, chain: &[ChainCase]) -> Result<()> {
        let Some(ChainCase { down, up, .. }) = chain.first() else {
            return Ok(());
        };
        // Of a deviation that keeps values at their size, however often they go through.
        let [down_weights, up_weights] = [down, up].map(|shape| {
            let deviation = (shape.k() as f32).sqrt().recip();
            self.inputs.weights(shape.n() * shape.k(), deviation)
        });
        let engine = self.engine;
        for kept in KEPT.iter() {
            let mut cases = chain
                .iter()
                .filter(|pair| kept.matters_to_pair(engine, pair))
                .peekable();
            if cases.peek().is_none() {
                continue;
            }
            let number = |bytes: usize| self.meter.copies(2 * bytes);
            let m = tokens(cases.clone().map(|case| case.m));
            let down_copies = prepared(self.engine, &down_weights, *down, kept, m.clone(), number)?;
            let up_copies = prepared(self.engine, &up_weights, *up, kept, m.clone(), number)?;
            for case in cases {
                let mut subject = Chain::new(self.engine, &down_copies, &up_copies, case.m, &mut self.inputs)?;
                self.add("pair", kept.name, case.layer, case.m, *down, &mut subject)?;
            }
        }
        Ok(())
    }
}

/// As many copies of weights as `number` says for their bytes, for calls of `m` tokens.
pub(crate) fn prepared(
    engine: &Engine,
    weights: &[bf16],
    shape: Shape,
    kept: &Kept,
    m: RangeInclusive<usize>,
    number: impl Fn(usize) -> usize,
) -> Result<Vec<Projection>> {
    let row_major = if kept.rows {
        RowMajorCopy::Keep
    } else {
        RowMajorCopy::Never
    };
    let options = PrepareOptions::tokens(m).format(kept.format).row_major(row_major);
    // To fewer bits once, whatever the number of copies.
    let weights = Weights::bf16(weights, shape)?.into_format(kept.format, None)?;
    copied(
        || engine.prepare(weights.clone(), &options),
        |projection| number(projection.bytes()),
    )
}

/// The range of the numbers of tokens of some cases.
pub(crate) fn tokens(of_cases: impl Iterator<Item = usize> + Clone) -> RangeInclusive<usize> {
    of_cases.clone().min().unwrap_or(1)..=of_cases.max().unwrap_or(1)
}

/// One, and then as many more as `number` says.
pub(crate) fn copied<T>(make: impl Fn() -> hopper_proj::Result<T>, number: impl Fn(&T) -> usize) -> Result<Vec<T>> {
    let mut copies = vec![make()?];
    for _ in 1..number(&copies[0]) {
        copies.push(make()?);
    }
    Ok(copies)
}
