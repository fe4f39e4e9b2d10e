//! The parts of a step: layers, the router, random values.

use super::{Args, Result};
use hopper_proj::formats::{PackFormat, Weights};
use hopper_proj::reference::{self, LOGITS_GOAL, TOLERANCE, gate};
use hopper_proj::suites::{RouterCase, Suite};
use hopper_proj::{Buffer, Element, Engine, PrepareOptions, Projection, Shape, Slice, Stream, bf16};
use hopper_proj::{Choices, Router, RouterOptions, RouterWeights, Tokens};
use rand::Rng as _;
use rand::rngs::StdRng;

/// A projection, its weights here and there, and where its result goes.
pub(super) struct Layer {
    name: &'static str,
    pub(super) shape: Shape,
    pub(super) weights: Vec<bf16>,
    pub(super) projection: Projection,
    pub(super) y: Buffer<bf16>,
}

impl Layer {
    pub(super) fn prepare(
        engine: &Engine,
        name: &'static str,
        args: &Args,
        reduce: usize,
        values: &mut Values,
    ) -> Result<Self> {
        // The suite has slices of layers for few tokens, ahead of whole ones.
        let cases = Suite::Muse.cases()?;
        let case = cases
            .iter()
            .rfind(|case| case.layer == name)
            .ok_or("the suite lacks a layer")?;
        let shape = Shape::new(case.shape.n().div_ceil(reduce), case.shape.k().div_ceil(reduce))?;
        let weights = values.bf16(shape.n() * shape.k(), DEVIATION);
        let format = if args.window12.iter().any(|layer| layer == name) {
            PackFormat::Window12
        } else {
            PackFormat::Bf16
        };
        let tokens = usize::from(args.tokens);
        let options = PrepareOptions::tokens(tokens..=tokens).format(format);
        Ok(Layer {
            name,
            shape,
            projection: engine.prepare(Weights::bf16(&weights, shape)?, &options)?,
            weights,
            y: engine.zeroed(usize::from(args.tokens) * shape.n())?,
        })
    }

    pub(super) fn queue<'a>(
        &mut self,
        engine: &Engine,
        x: impl Into<Slice<'a, bf16>>,
        m: usize,
        stream: &Stream,
    ) -> hopper_proj::Result<()> {
        engine.project(&self.projection, x, m, &mut self.y, stream)
    }

    pub(super) fn poison(&mut self, engine: &Engine, stream: &Stream) -> Result<()> {
        // A NaN that no kernel writes.
        fill(engine, &mut self.y, bf16::from_bits(0xffff), stream)
    }

    /// The result and its relative error, if that is small enough.
    pub(super) fn compare(&self, engine: &Engine, x: &[bf16], m: usize, stream: &Stream) -> Result<(Vec<bf16>, f64)> {
        let y = engine.download(&self.y, stream)?;
        let error = reference::relative_error(&y, &reference::project(x, &self.weights, self.shape, m)?);
        within(self.name, error, TOLERANCE)?;
        Ok((y, error))
    }
}

/// A router, its weights here and there, and where its results go.
pub(super) struct Experts {
    pub(super) weights: Vec<f32>,
    router: Router,
    pub(super) ids: Buffer<i32>,
    pub(super) shares: Buffer<f32>,
    logits: Buffer<f32>,
}

impl Experts {
    pub(super) fn prepare(engine: &Engine, m: usize, reduce: usize, values: &mut Values) -> Result<Self> {
        let cases = Suite::Muse.router_cases()?;
        let RouterCase { shape, config, .. } = cases.into_iter().next().ok_or("the suite lacks a router")?;
        let shape = Shape::new(
            shape.n().div_ceil(reduce).next_multiple_of(EXPERTS),
            shape.k().div_ceil(reduce),
        )?;
        let weights = values.fp32(shape.n() * shape.k(), DEVIATION);
        let config = config.bias(values.fp32(shape.n(), DEVIATION));
        let options = RouterOptions::default().max_tokens(m);
        let router = Router::prepare(engine, RouterWeights::Fp32(&weights), shape, &config, options)?;
        Ok(Experts {
            ids: engine.zeroed(m * router.gate().top_k())?,
            shares: engine.zeroed(m * router.gate().top_k())?,
            logits: engine.zeroed(m * shape.n())?,
            weights,
            router,
        })
    }

    pub(super) fn queue(&mut self, x: &Buffer<bf16>, m: usize, stream: &Stream) -> hopper_proj::Result<()> {
        let choices = Choices::new(&mut self.ids, &mut self.shares).logits(&mut self.logits);
        self.router.route(Tokens::new(x, m), choices, stream)
    }

    pub(super) fn poison(&mut self, engine: &Engine, stream: &Stream) -> Result<()> {
        fill(engine, &mut self.ids, i32::MIN, stream)?;
        fill(engine, &mut self.shares, f32::NAN, stream)?;
        fill(engine, &mut self.logits, f32::NAN, stream)
    }

    /// The logits' relative error, if that is small enough and experts and weights are those that FP64 makes of the
    /// logits.
    pub(super) fn compare(&self, engine: &Engine, x: &[bf16], m: usize, stream: &Stream) -> Result<f64> {
        let logits = engine.download(&self.logits, stream)?;
        let exact = reference::logits(x, &self.weights, self.router.shape(), m)?;
        let error = reference::relative_error_fp32(&logits, &exact);
        within("the router's logits", error, LOGITS_GOAL)?;
        let (ids, shares) = (
            engine.download(&self.ids, stream)?,
            engine.download(&self.shares, stream)?,
        );
        gate::check(&ids, &shares, &logits, self.router.gate(), None)
            .map_err(|wrong| format!("the router: {wrong}"))?;
        Ok(error)
    }
}

fn within(what: &str, error: f64, allowed: f64) -> Result<()> {
    if error <= allowed {
        Ok(())
    } else {
        Err(format!("{what}: the relative error against FP64 is {error:.1e}, of {allowed:.0e} allowed").into())
    }
}

/// The gate has eight groups of experts and chooses among four: a reduced router keeps a multiple of so many.
pub(super) const EXPERTS: usize = 32;

/// What weights deviate from zero at most.
const DEVIATION: f32 = 0.03;

/// Random values.
pub(super) struct Values(pub(super) StdRng);

impl Values {
    pub(super) fn fp32(&mut self, len: usize, most: f32) -> Vec<f32> {
        (0..len).map(|_| self.0.random_range(-most..most)).collect()
    }

    pub(super) fn bf16(&mut self, len: usize, most: f32) -> Vec<bf16> {
        (0..len)
            .map(|_| bf16::from_f32(self.0.random_range(-most..most)))
            .collect()
    }
}

fn fill<T: Element>(engine: &Engine, buffer: &mut Buffer<T>, value: T, stream: &Stream) -> Result<()> {
    let values = vec![value; buffer.len()];
    Ok(engine.write(buffer, &values, stream)?)
}
