//! What the tests of routers share: runs between guard words, and how results are held against FP64.

use crate::{Device, GUARD, here, there};
use hopper_proj::reference::gate::{self, Seen};
use hopper_proj::{Buffer, Element, Result, SliceMut, bf16};
use hopper_proj::{Choices, Gate, Router, RouterConfig, RouterOptions, RouterWeights, Tokens};

/// Unwritten words of results: a NaN that no kernel makes, and no id, as -1 is one.
const UNWRITTEN_WORD: u32 = 0xffde_adff;

/// What a router gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Routed {
    /// `[m, top_k]`.
    pub ids: Vec<i32>,
    /// `[m, top_k]`.
    pub weights: Vec<f32>,
    /// `[m, experts]`.
    pub logits: Vec<f32>,
}

impl Routed {
    /// All results as their bits, for exact comparisons.
    pub fn bits(&self) -> Vec<u32> {
        let floats = self.weights.iter().chain(&self.logits).map(|v| v.to_bits());
        self.ids.iter().map(|&id| id as u32).chain(floats).collect()
    }
}

/// A result between guards.
struct Fenced<T> {
    whole: Buffer<T>,
    len: usize,
}

impl<T: Element> Fenced<T> {
    fn new(len: usize) -> Self {
        let whole = vec![UNWRITTEN_WORD; len + 2 * GUARD];
        let whole = there(bytemuck::cast_slice(&whole));
        Fenced { whole, len }
    }

    fn slice(&mut self) -> SliceMut<'_, T> {
        self.whole.slice_mut(GUARD..GUARD + self.len).expect("a range within")
    }

    fn read(&self) -> Vec<T> {
        let values = here(&self.whole);
        let words: &[u32] = bytemuck::cast_slice(&values);
        let (before, rest) = words.split_at(GUARD);
        let (result, after) = rest.split_at(self.len);
        assert!(
            before.iter().chain(after).all(|&word| word == UNWRITTEN_WORD),
            "values around a result were written"
        );
        assert!(
            result.iter().all(|&word| word != UNWRITTEN_WORD),
            "a value of a result was not written"
        );
        values[GUARD..GUARD + self.len].to_vec()
    }
}

/// Hidden states, and how they lie.
#[derive(Debug, Clone, Copy)]
pub struct Hidden<'a> {
    /// `[m, K]`.
    pub x: &'a [bf16],
    /// Tokens.
    pub m: usize,
    /// NaNs before them.
    pub lead: usize,
    /// NaNs between two of them.
    pub gap: usize,
    /// Which tokens are there.
    pub mask: Option<&'a [u8]>,
}

impl<'a> Hidden<'a> {
    /// Tokens one after the other, 16-byte aligned where K is a multiple of 8.
    pub fn new(x: &'a [bf16], m: usize) -> Self {
        Hidden {
            x,
            m,
            lead: 8,
            gap: 0,
            mask: None,
        }
    }

    /// With a mask.
    pub fn masked(self, mask: &'a [u8]) -> Self {
        Hidden {
            mask: Some(mask),
            ..self
        }
    }

    /// With NaNs before the tokens and between them.
    pub fn apart(self, lead: usize, gap: usize) -> Self {
        Hidden { lead, gap, ..self }
    }
}

impl Device {
    /// A router on the device.
    pub fn router(
        &self,
        weights: RouterWeights<'_>,
        experts: usize,
        config: &RouterConfig,
        options: RouterOptions,
    ) -> Router {
        let len = match weights {
            RouterWeights::Fp32(weights) => weights.len(),
            RouterWeights::Bf16(weights) => weights.len(),
        };
        let shape = crate::shape(experts, len / experts);
        Router::prepare(&self.engine, weights, shape, config, options).expect("a router goes to the device")
    }

    /// A router of FP32 weights, prepared as routers are unless more is asked for.
    pub fn fp32_router(&self, weights: &[f32], experts: usize, config: &RouterConfig) -> Router {
        self.router(RouterWeights::Fp32(weights), experts, config, RouterOptions::default())
    }

    /// Runs a router and returns everything that it gives, having made sure that nothing around it was written.
    pub fn route(&self, router: &Router, hidden: Hidden<'_>) -> Result<Routed> {
        let (m, shape, top_k) = (hidden.m, router.shape(), router.gate().top_k());
        let (mut ids, mut weights) = (Fenced::<i32>::new(m * top_k), Fenced::<f32>::new(m * top_k));
        let mut logits = Fenced::<f32>::new(m * shape.n());
        let (x, stride) = self.lay_out(hidden, shape.k());
        let x = x.slice(hidden.lead..)?;
        let mask = hidden.mask.map(there);
        let mut tokens = Tokens::new(x, m).stride(stride);
        if let Some(mask) = &mask {
            tokens = tokens.mask(mask);
        }
        let choices = Choices::new(ids.slice(), weights.slice()).logits(logits.slice());
        router.route(tokens, choices, &self.stream)?;
        self.engine.synchronize(&self.stream)?;
        Ok(Routed {
            ids: ids.read(),
            weights: weights.read(),
            logits: logits.read(),
        })
    }

    /// The logits alone.
    pub fn logits(&self, router: &Router, hidden: Hidden<'_>) -> Result<Vec<f32>> {
        let shape = router.shape();
        let mut logits = Fenced::<f32>::new(hidden.m * shape.n());
        let (x, stride) = self.lay_out(hidden, shape.k());
        let x = x.slice(hidden.lead..)?;
        let tokens = Tokens::new(x, hidden.m).stride(stride);
        router.logits(tokens, logits.slice(), &self.stream)?;
        self.engine.synchronize(&self.stream)?;
        Ok(logits.read())
    }

    /// Tokens on the device as `hidden` wants them, and their stride. NaNs lie before, between and behind them.
    fn lay_out(&self, hidden: Hidden<'_>, k: usize) -> (Buffer<bf16>, usize) {
        let stride = k + hidden.gap;
        let mut all = vec![bf16::NAN; hidden.lead + hidden.m * stride + GUARD];
        for (token, x) in hidden.x.chunks_exact(k).enumerate() {
            let at = hidden.lead + token * stride;
            all[at..at + k].copy_from_slice(x);
        }
        (self.engine.upload(&all).expect("an upload"), stride)
    }
}

/// A router whose logits are given: expert e of token t gets `logits[t][e]`, exactly. Its weights are the logits, and
/// each token asks for one column of them. A token of which all logits are NaN is a token of NaNs.
#[derive(Debug)]
pub struct Given {
    experts: usize,
    m: usize,
    /// Weights, FP32 `[experts, K]`.
    pub weights: Vec<f32>,
    /// Tokens, BF16 `[m, K]`.
    pub x: Vec<bf16>,
}

impl Given {
    /// Weights and tokens for the logits `[m][experts]`.
    pub fn new(logits: &[Vec<f32>]) -> Self {
        let (m, experts) = (logits.len(), logits.first().map_or(0, Vec::len));
        let k = m.next_multiple_of(8).max(8);
        let mut given = Given {
            experts,
            m,
            weights: vec![0.0; experts * k],
            x: vec![bf16::ZERO; m * k],
        };
        for (t, logits) in logits.iter().enumerate() {
            if logits.iter().all(|l| l.is_nan()) {
                given.x[t * k..(t + 1) * k].fill(bf16::NAN);
                continue;
            }
            given.x[t * k + t] = bf16::ONE;
            for (e, &logit) in logits.iter().enumerate() {
                given.weights[e * k + t] = logit;
            }
        }
        given
    }

    /// Runs them: three terms keep every bit of a logit.
    pub fn route(&self, device: &Device, config: &RouterConfig, mask: Option<&[u8]>) -> Routed {
        let weights = RouterWeights::Fp32(&self.weights);
        let router = device.router(weights, self.experts, config, RouterOptions::default().terms(3));
        let hidden = Hidden {
            mask,
            ..Hidden::new(&self.x, self.m)
        };
        device.route(&router, hidden).expect("a router runs")
    }
}

/// [`gate::check`] of a router's results.
pub fn check_gate(routed: &Routed, gate: &Gate, mask: Option<&[u8]>) -> std::result::Result<Seen, String> {
    gate::check(&routed.ids, &routed.weights, &routed.logits, gate, mask)
}
