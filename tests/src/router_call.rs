//! Calls of a router that stay queued: each has buffers of its own, so that several can be under way.

use crate::{Device, Values, here, there};
use hopper_proj::reference::{self, LOGITS_GOAL, gate};
use hopper_proj::{Buffer, Choices, Result, Router, Stream, Tokens, bf16};

/// A call, and where its results go.
#[derive(Debug)]
pub struct Call {
    m: usize,
    x: Buffer<bf16>,
    ids: Buffer<i32>,
    weights: Buffer<f32>,
    logits: Buffer<f32>,
}

impl Call {
    /// A call for `m` random tokens; its results are unwritten.
    pub fn new(router: &Router, values: &mut Values, m: usize) -> Self {
        let (shape, top_k) = (router.shape(), router.gate().top_k());
        Call {
            m,
            x: there(&values.bf16(m * shape.k())),
            ids: there(&vec![-9; m * top_k]),
            weights: there(&vec![f32::NAN; m * top_k]),
            logits: there(&vec![f32::NAN; m * shape.n()]),
        }
    }

    /// Queues it.
    pub fn queue(&mut self, router: &Router, stream: &Stream) -> Result<()> {
        let choices = Choices::new(&mut self.ids, &mut self.weights).logits(&mut self.logits);
        router.route(Tokens::new(&self.x, self.m), choices, stream)
    }

    /// Whether it has not run since it was checked.
    pub fn is_unwritten(&self) -> bool {
        here(&self.logits).iter().all(|logit| logit.is_nan())
    }

    /// Holds its results against FP64. They are unwritten again after, in the same memory.
    pub fn check(&mut self, router: &Router, weights: &[f32]) -> std::result::Result<(), String> {
        let logits = here(&self.logits);
        let exact =
            reference::logits(&here(&self.x), weights, router.shape(), self.m).map_err(|err| err.to_string())?;
        let error = reference::relative_error_fp32(&logits, &exact);
        let gate = gate::check(&here(&self.ids), &here(&self.weights), &logits, router.gate(), None);
        let Device { engine, stream } = Device::of_the_run();
        let unwritten = vec![f32::NAN; logits.len()];
        engine
            .write(&mut self.logits, &unwritten, &stream)
            .map_err(|err| err.to_string())?;
        // Not less where it is NaN.
        if error < LOGITS_GOAL {
            gate.map(|_| ())
        } else {
            Err(format!("m = {}: the logits' relative error is {error:e}", self.m))
        }
    }
}
