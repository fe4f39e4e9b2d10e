//! A decode step as a CUDA graph: captured once, replayed for every new token, held against FP64 now and then.
//!
//! ```text
//! x ─ qkv_gate ─ (attention) ─ o ─┬─ router: experts and their weights
//!                                 └─ pooler ─ unpooler
//! ```
//!
//! Attention is not this library's: here `o` takes the first values that `qkv_gate` gives. So every launch reads what
//! the one before it writes, or one further ahead.
//!
//! `cargo run --release --example decode_step -- --tokens 4 --window12 o,pooler`

mod parts;

use clap::Parser;
use hopper_proj::{Buffer, DriverChoice, DriverInUse, Engine, EngineOptions, Graph, Stream, bf16};
use parts::{EXPERTS, Experts, Layer, Values};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use std::error::Error;
use std::process::ExitCode;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const LAYERS: [&str; 4] = ["qkv_gate", "o", "pooler", "unpooler"];

#[derive(Parser)]
struct Args {
    /// Tokens of a step
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    tokens: u16,
    /// Layers with 12 bits per weight; the others have BF16 weights
    #[arg(long, value_name = "LAYERS", value_delimiter = ',', num_args = 0.., value_parser = LAYERS, default_values = ["qkv_gate", "pooler"])]
    window12: Vec<String>,
    /// Replays of the graph [default: 10000 on a GPU, 200 on the emulator]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    replays: Option<u32>,
    /// Replays from one comparison to the next; the last one is compared, too
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    /// What rows and columns are divided by [default: 1 on a GPU, 32 on the emulator]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    reduce: Option<u16>,
    /// Repeats the random weights and inputs of another run
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    // The GPU where there is one, else the emulated device: `HOPPER_PROJ_DEVICE` decides otherwise.
    let engine = Engine::new(EngineOptions::from_environment_or(DriverChoice::Auto)?)?;
    if let Some(why) = engine.device().fallback.as_ref().filter(|why| !why.is_expected()) {
        eprintln!("warning: {}", why.in_place());
    }
    let emulated = engine.device().driver == DriverInUse::Emulated;
    let reduce = args.reduce.map_or(if emulated { 32 } else { 1 }, usize::from);
    let replays = args.replays.unwrap_or(if emulated { 200 } else { 10_000 });
    let seed = args.seed.unwrap_or_else(rand::random);
    println!(
        "{}, {}; --seed {seed} repeats this run",
        engine.device().name,
        engine.device().driver
    );
    if reduce > 1 {
        println!(
            "rows and columns are divided by {reduce}, which --reduce changes; the router keeps a multiple of {EXPERTS} experts"
        );
    }

    // All that is slow comes first: packing, uploads, memory for results.
    let stream = engine.stream()?;
    let mut values = Values(StdRng::seed_from_u64(seed));
    let mut step = Step::prepare(&engine, args, reduce, &mut values)?;

    // The graph notes the addresses of x and of all results: they must stay where they are, and `step` keeps them
    // there.
    let mut graph = engine.capture(&stream, || step.queue(&engine, &stream))?;

    let (mut worst, mut comparisons) = (Errors::default(), 0);
    for replay in 1..=replays {
        let x = values.bf16(step.x.len(), 1.0);
        let compared = replay.is_multiple_of(args.every) || replay == replays;
        if compared {
            step.poison(&engine, &stream)?;
        }
        step.replay(&engine, &mut graph, &x, &stream)?;
        if compared {
            let errors = step
                .compare(&engine, &x, &stream)
                .map_err(|err| format!("replay {replay}: {err}"))?;
            worst = worst.or(errors);
            comparisons += 1;
        }
    }
    println!(
        "{replays} replays, {comparisons} compared with FP64: experts as FP64 chooses them; worst relative error {:.1e} of a projection, {:.1e} of logits",
        worst.projections, worst.logits
    );
    Ok(())
}

/// All that a step needs on the device, with what the comparison needs beside.
struct Step {
    m: usize,
    x: Buffer<bf16>,
    qkv_gate: Layer,
    o: Layer,
    experts: Experts,
    pooler: Layer,
    unpooler: Layer,
}

impl Step {
    fn prepare(engine: &Engine, args: &Args, reduce: usize, values: &mut Values) -> Result<Self> {
        let m = args.tokens.into();
        let mut layer = |name| Layer::prepare(engine, name, args, reduce, values);
        let (qkv_gate, o, pooler, unpooler) = (layer("qkv_gate")?, layer("o")?, layer("pooler")?, layer("unpooler")?);
        Ok(Step {
            m,
            x: engine.zeroed(m * qkv_gate.shape.k())?,
            experts: Experts::prepare(engine, m, reduce, values)?,
            pooler,
            unpooler,
            qkv_gate,
            o,
        })
    }

    /// Queues one step. Nothing in here allocates, blocks or synchronises, so that it can be captured. Each launch may
    /// start before the one ahead has ended, and brings its weights meanwhile (programmatic dependent launch); in a
    /// graph, that becomes a kind of edge.
    fn queue(&mut self, engine: &Engine, stream: &Stream) -> hopper_proj::Result<()> {
        let m = self.m;
        self.qkv_gate.queue(engine, &self.x, m, stream)?;
        let attention = self.qkv_gate.y.slice(..m * self.o.shape.k())?;
        self.o.queue(engine, attention, m, stream)?;
        self.experts.queue(&self.o.y, m, stream)?;
        self.pooler.queue(engine, &self.o.y, m, stream)?;
        self.unpooler.queue(engine, &self.pooler.y, m, stream)
    }

    /// Makes all results NaNs, and ids of no expert: what a replay leaves out cannot pass for right.
    fn poison(&mut self, engine: &Engine, stream: &Stream) -> Result<()> {
        for layer in [&mut self.qkv_gate, &mut self.o, &mut self.pooler, &mut self.unpooler] {
            layer.poison(engine, stream)?;
        }
        self.experts.poison(engine, stream)
    }

    /// One step on new hidden states.
    fn replay(&mut self, engine: &Engine, graph: &mut Graph, x: &[bf16], stream: &Stream) -> Result<()> {
        engine.write(&mut self.x, x, stream)?;
        // SAFETY: the step keeps every buffer, and a buffer is freed only once the device has done its work.
        unsafe { graph.launch(stream)? };
        Ok(())
    }

    /// Holds what a replay has left against FP64, each layer on the very values that it was given.
    fn compare(&self, engine: &Engine, x: &[bf16], stream: &Stream) -> Result<Errors> {
        let m = self.m;
        let mut worst = Errors::default();
        let mut project = |layer: &Layer, x: &[bf16]| -> Result<Vec<bf16>> {
            let (y, error) = layer.compare(engine, x, m, stream)?;
            worst.projections = worst.projections.max(error);
            Ok(y)
        };
        let attention = project(&self.qkv_gate, x)?;
        let hidden = project(&self.o, &attention[..m * self.o.shape.k()])?;
        let pooled = project(&self.pooler, &hidden)?;
        project(&self.unpooler, &pooled)?;
        worst.logits = self.experts.compare(engine, &hidden, m, stream)?;
        Ok(worst)
    }
}

/// Relative errors against FP64.
#[derive(Clone, Copy, Default)]
struct Errors {
    projections: f64,
    logits: f64,
}

impl Errors {
    fn or(self, other: Self) -> Self {
        Errors {
            projections: self.projections.max(other.projections),
            logits: self.logits.max(other.logits),
        }
    }
}

#[cfg(test)]
mod tests;
