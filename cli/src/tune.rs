//! `tune`: which kernel is the fastest for each shape, measured, as a table that plans are made with.

use crate::args::Tune;
use crate::bench::{KEPT, copied, copies, per_call, prepared, tokens};
use crate::error::{Error, Result};
use crate::inputs::{DEVIATION, Inputs};
use crate::{device, output, progress, record};
use hopper_proj::plan::Kernel;
use hopper_proj::plan::measured::{Measurement, TABLE_VARIABLE, Table};
use hopper_proj::raw::Overlap;
use hopper_proj::suites::{Case, RouterCase, Suite};
use hopper_proj::{DriverInUse, Engine, Request, Shape, Stream, bf16};
use hopper_proj::{Router, RouterOptions, RouterWeights, Tokens};
use indicatif::ProgressBar;
use std::io::{Write, stdout};

/// Kernels that are measured for a request, the cheapest by the plan's model first. There are hundreds of ways to
/// divide a matrix product.
const MOST_KERNELS: usize = 32;
/// What a decode step has: launches that overlap.
const OVERLAP: Overlap = Overlap::Programmatic;

pub(crate) fn run(args: &Tune) -> Result<()> {
    let (cases, router_cases) = asked_for(args)?;
    output::check(&args.out, [])?;
    let engine = device::open(args.device)?;
    if engine.device().driver != DriverInUse::Cuda {
        return Err(Error::NoTimes {
            what: "a table of measurements cannot be made here; plans follow the library's own table and its model",
        });
    }
    for case in &cases {
        fits(case, engine.device().memory)?;
    }
    writeln!(stdout().lock(), "{}", device::line(engine.device()))?;
    let mut tuning = Tuning {
        stream: engine.stream()?,
        engine: &engine,
        date: record::today(),
        inputs: Inputs::new(0),
        bar: progress::bar(KEPT.len() * cases.len() + router_cases.len()),
        rows: Vec::new(),
    };
    for layer in cases.chunk_by(|a, b| a.shape == b.shape) {
        tuning.dense(layer)?;
    }
    for layer in router_cases.chunk_by(|a, b| a.shape == b.shape) {
        tuning.routers(layer)?;
    }
    tuning.bar.finish_and_clear();
    let table = Table::new(tuning.rows);
    output::write(&args.out, &table.to_string())?;
    writeln!(
        stdout().lock(),
        "{} measurements → {out}; plans follow them where {TABLE_VARIABLE}={out}",
        table.rows().len(),
        out = args.out.display()
    )?;
    Ok(())
}

/// Layers of one shape stand together.
fn asked_for(args: &Tune) -> Result<(Vec<Case>, Vec<RouterCase>)> {
    let (mut cases, mut router_cases) = (Vec::new(), Vec::new());
    let mut suites: Vec<Suite> = args.suite.iter().map(|&name| name.into()).collect();
    if suites.is_empty() && args.shape.is_empty() {
        suites.push(Suite::Muse);
    }
    for suite in suites {
        cases.extend(suite.cases()?);
        router_cases.extend(suite.router_cases()?);
    }
    for &[n, k, m] in &args.shape {
        let shape = Shape::new(n, k)?;
        cases.push(Case {
            layer: "shape",
            shape,
            m,
        });
    }
    let key = |case: &Case| (case.shape.n(), case.shape.k(), case.m);
    cases.sort_by_key(key);
    cases.dedup_by_key(|case| key(case));
    Ok((cases, router_cases))
}

/// Fails where weights, x and y in BF16 are more than a device of so many bytes holds: the host, which makes them, may
/// hold less.
fn fits(case: &Case, memory: usize) -> Result<()> {
    let Case { shape, m, .. } = *case;
    let most = memory / size_of::<bf16>();
    for (what, rows, cols) in [
        ("the weights", shape.n(), shape.k()),
        ("x", m, shape.k()),
        ("y", m, shape.n()),
    ] {
        if rows.checked_mul(cols).is_none_or(|values| values > most) {
            return Err(hopper_proj::Error::TooLarge { what, rows, cols }.into());
        }
    }
    Ok(())
}

struct Tuning<'a> {
    engine: &'a Engine,
    stream: Stream,
    date: String,
    inputs: Inputs,
    bar: ProgressBar,
    rows: Vec<Measurement>,
}

impl Tuning<'_> {
    fn dense(&mut self, layer: &[Case]) -> Result<()> {
        let Some(Case { shape, .. }) = layer.first() else {
            return Ok(());
        };
        let engine = self.engine;
        let weights = self.inputs.weights(shape.n() * shape.k(), DEVIATION);
        for kept in KEPT.iter() {
            let m = tokens(layer.iter().map(|case| case.m));
            let copies = prepared(engine, &weights, *shape, kept, m, copies)?;
            for case in layer {
                let x = engine.upload(&self.inputs.x(case.m * shape.k()))?;
                let mut y = engine.upload(&vec![bf16::NAN; case.m * shape.n()])?;
                let kernels = engine.choices(&copies[0], &x, case.m)?;
                let request = engine.request(&copies[0], &x, case.m);
                self.measure(&request, kernels, copies.len(), |kernel, stream| {
                    let plan = engine.plan_by(kernel, &copies[0], &x, case.m)?;
                    copies.iter().try_for_each(|copy| {
                        engine.project_as(plan.as_ref(), copy, &x, case.m, &mut y, stream, OVERLAP)
                    })
                })?;
            }
        }
        Ok(())
    }

    fn routers(&mut self, layer: &[RouterCase]) -> Result<()> {
        let Some(RouterCase { shape, config, .. }) = layer.first() else {
            return Ok(());
        };
        let engine = self.engine;
        let weights = self.inputs.fp32_weights(shape.n() * shape.k());
        let most = layer.iter().map(|case| case.m).max().unwrap_or(1);
        let options = RouterOptions::default().max_tokens(most);
        let prepare = || Router::prepare(engine, RouterWeights::Fp32(&weights), *shape, config, options);
        let copies = copied(prepare, |router| copies(router.unit_bytes()))?;
        for case in layer {
            let x = engine.upload(&self.inputs.x(case.m * shape.k()))?;
            let mut logits = self.engine.upload(&vec![f32::NAN; case.m * shape.n()])?;
            let tokens = Tokens::new(&x, case.m);
            let kernels = copies[0].kernels(tokens)?;
            let request = copies[0].request(tokens)?;
            self.measure(&request, kernels, copies.len(), |kernel, stream| {
                let mut each = copies.iter();
                each.try_for_each(|copy| copy.logits_by(Some(kernel), tokens, &mut logits, stream, OVERLAP))
            })?;
        }
        Ok(())
    }

    /// Measures each kernel on `calls` calls that `queue` queues, and shows the fastest.
    fn measure(
        &mut self,
        request: &Request,
        kernels: Vec<Kernel>,
        calls: usize,
        mut queue: impl FnMut(&Kernel, &Stream) -> hopper_proj::Result<()>,
    ) -> Result<()> {
        let Request {
            op, format, shape, m, ..
        } = *request;
        let mut best: Option<(f64, Kernel)> = None;
        for kernel in kernels.into_iter().take(MOST_KERNELS) {
            let us = per_call(self.engine, &self.stream, calls, |stream| queue(&kernel, stream))?;
            if best.is_none_or(|(least, _)| us < least) {
                best = Some((us, kernel));
            }
            self.rows.push(Measurement {
                gpu: self.engine.device().name.clone(),
                date: self.date.clone(),
                source: concat!("hopper-proj tune ", env!("CARGO_PKG_VERSION")).to_owned(),
                op,
                format,
                shape,
                m,
                kernel,
                us: Some(us),
            });
        }
        self.bar.inc(1);
        if let Some((us, kernel)) = best {
            let line = format!("{} {shape} {} m={m}: {us:.2} µs by {kernel}", op.name(), format.name(),);
            self.bar.suspend(|| writeln!(stdout().lock(), "{line}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_device_holds_is_refused_before_it_is_made() {
        let case = |n, k, m| Case {
            layer: "shape",
            shape: Shape::new(n, k).unwrap(),
            m,
        };
        let memory = 1 << 37;
        fits(&case(8192, 4096, 8192), memory).unwrap();
        for (case, words) in [
            (case(1 << 31, 1 << 31, 1), "the weights of 2147483648"),
            (case(1, 1 << 20, 1 << 20), "x of 1048576"),
            (case(1 << 30, 1, 1 << 30), "y of 1073741824"),
        ] {
            let message = fits(&case, memory).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
