//! Raw launches of the routers for few tokens, with everything around their results held against what must not change.

use crate::driver::{self, Function, Launch, Module};
use crate::{UNWRITTEN, shape, shipped};
use hopper_cuda_driver::emulated;
use hopper_proj::bf16;
use hopper_proj::formats::split::Split;
use hopper_proj::instances::{
    BIAS_ON_LOGITS, GateArgs, Gemv, GemvArgs, RENORMALIZE, RouteArgs, SOFTMAX_OVER_TOPK, SplitKArgs,
};
use hopper_proj::raw::NO_GATE;
use hopper_proj::{Bias, BiasOn, RouterConfig};

/// A router in the current context.
#[derive(Clone, Copy, Debug)]
pub struct RawRouter {
    instance: &'static Gemv,
    function: Function,
    experts: usize,
    k: usize,
    units: u64,
    factors: u64,
    sums: u64,
    counters: u64,
    most_tokens: usize,
}

/// What a call has left.
#[derive(Clone, Debug, PartialEq)]
pub struct Routed {
    /// `[m, experts]`; empty where not asked for.
    pub logits: Vec<f32>,
    /// `[m, top_k]`.
    pub ids: Vec<i32>,
    /// `[m, top_k]`.
    pub weights: Vec<f32>,
}

impl Routed {
    /// Every bit of it.
    pub fn bits(&self) -> (Vec<u32>, &[i32], Vec<u32>) {
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect();
        (bits(&self.logits), &self.ids, bits(&self.weights))
    }

    /// The part of one token of `m`.
    pub fn token(&self, token: usize, m: usize) -> Routed {
        fn part<T: Copy>(values: &[T], token: usize, m: usize) -> Vec<T> {
            let each = values.len() / m;
            values[token * each..][..each].to_vec()
        }
        Routed {
            logits: part(&self.logits, token, m),
            ids: part(&self.ids, token, m),
            weights: part(&self.weights, token, m),
        }
    }
}

/// What a call computes beside the choice of experts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call<'a> {
    /// The gate; without one, logits alone.
    pub config: Option<&'a RouterConfig>,
    /// A byte per token, 0 for padding.
    pub mask: Option<&'a [u8]>,
    /// Whether a gate's logits are wanted too.
    pub logits: bool,
}

fn to_bytes<T: Copy, const BYTES: usize>(values: &[T], bytes: fn(T) -> [u8; BYTES]) -> Vec<u8> {
    values.iter().flat_map(|&v| bytes(v)).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

/// Unwritten bytes behind each result.
const BEHIND: usize = 64;

impl RawRouter {
    /// Takes an instance from the shipped PTX and FP32 weights `[experts, k]`, with a workspace for so many tokens.
    pub fn new(instance: &'static Gemv, weights: &[f32], (experts, k): (usize, usize), most_tokens: usize) -> Self {
        let module = Module::load(&shipped(&[instance.name]));
        Self::with_module(module, instance, weights, (experts, k), most_tokens)
    }

    /// The same with a module of the caller's.
    pub fn with_module(
        module: Module,
        instance: &'static Gemv,
        weights: &[f32],
        (experts, k): (usize, usize),
        most_tokens: usize,
    ) -> Self {
        let split = Split::new(weights, shape(experts, k), instance.format.terms()).expect("weights that can be split");
        let units = split.units().expect("units");
        RawRouter {
            instance,
            function: module.function(instance.name),
            experts,
            k,
            units: driver::memory(&to_bytes(&units, bf16::to_le_bytes)),
            factors: split
                .factors()
                .map_or(0, |factors| driver::memory(&to_bytes(factors, f32::to_le_bytes))),
            // Of any content, as the workspace may be.
            sums: driver::memory(&vec![UNWRITTEN; most_tokens * experts * 4]),
            counters: driver::memory(&vec![0; instance.counters(most_tokens) * 4]),
            most_tokens,
        }
    }

    /// Runs one call; the code and the story where it fails. x starts where its instance lets it, with a gap between
    /// tokens.
    pub fn try_run(&self, x: &[bf16], m: usize, call: Call<'_>) -> Result<Routed, (u32, String)> {
        assert!(
            m <= self.most_tokens && x.len() == m * self.k,
            "a call that fits the router"
        );
        let failed = |code| (code, emulated::last_fault().unwrap_or_default());
        let (lead, stride) = match self.instance.x_values {
            8 => (0, self.k + 8),
            _ => (1, self.k + 3),
        };
        let mut spread = vec![bf16::NAN; lead + m * stride];
        for (token, x) in x.chunks_exact(self.k).enumerate() {
            spread[lead + token * stride..][..self.k].copy_from_slice(x);
        }
        let result = |bytes: usize| driver::memory(&vec![UNWRITTEN; bytes + BEHIND]);
        let top_k = call.config.map_or(0, |config| config.top_k);
        let with_logits = call.config.is_none() || call.logits;
        let logits_bytes = if with_logits { m * self.experts * 4 } else { 0 };
        let chosen_bytes = m * top_k * 4;
        let (logits, ids, weights) = (result(logits_bytes), result(chosen_bytes), result(chosen_bytes));
        let mask = call.mask.map_or(0, driver::memory);
        let args = RouteArgs {
            gemv: GemvArgs {
                x: driver::memory(&to_bytes(&spread, bf16::to_le_bytes)) + 2 * lead as u64,
                x_stride: stride as u64,
                weights: self.units,
                y: if with_logits { logits } else { 0 },
                m: m as u32,
                n: self.experts as u32,
                k: self.k as u32,
                y_fp32: 1,
            },
            split_k: SplitKArgs {
                sums: self.sums,
                counters: self.counters,
                scales: self.factors,
                slices: 1,
                serial: 1,
                gate: gate_args(call.config, self.experts, mask, ids, weights),
            },
        };
        let grid = self.instance.grid(m, self.experts).expect("a grid");
        let launch = Launch {
            grid: [grid[0], grid[1]],
            threads: self.instance.threads() as u32,
            cluster: self.instance.cluster as u32,
            shared: self.instance.shared_bytes() as u32,
            overlaps: true,
        };
        // SAFETY: every router for few tokens takes `RouteArgs`.
        match unsafe { launch.run(self.function, &args) } {
            0 => {}
            code => return Err(failed(code)),
        }
        let read = |address, bytes| -> Result<Vec<u8>, (u32, String)> {
            let mut found = driver::read(address, bytes + BEHIND).map_err(failed)?;
            let behind = found.split_off(bytes);
            assert!(
                behind.iter().all(|&b| b == UNWRITTEN),
                "bytes behind a result were written"
            );
            Ok(found)
        };
        let routed = Routed {
            logits: floats(&read(logits, logits_bytes)?),
            ids: (read(ids, chosen_bytes)?.as_chunks().0.iter())
                .map(|&b| i32::from_le_bytes(b))
                .collect(),
            weights: floats(&read(weights, chosen_bytes)?),
        };
        Ok(routed)
    }

    /// Whether all counters are zero, as a call must leave them.
    pub fn counters_are_zero(&self) -> bool {
        let counters = driver::read(self.counters, self.instance.counters(self.most_tokens) * 4);
        counters.is_ok_and(|counters| counters.iter().all(|&b| b == 0))
    }

    /// Runs one call that must succeed and leave the counters as they were.
    pub fn run(&self, x: &[bf16], m: usize, call: Call<'_>) -> Routed {
        let name = self.instance.name;
        let routed = self
            .try_run(x, m, call)
            .unwrap_or_else(|(code, story)| panic!("{name}, m = {m}: {} {story}", driver::name(code)));
        assert!(self.counters_are_zero(), "{name}, m = {m}: counters are left");
        routed
    }
}

/// A gate's arguments for addresses of the mask, the ids and the weights.
pub fn gate_args(config: Option<&RouterConfig>, experts: usize, token_mask: u64, ids: u64, weights: u64) -> GateArgs {
    let Some(config) = config else {
        return NO_GATE;
    };
    let bias = match &config.bias {
        Some(Bias::Numbers(bias)) => driver::memory(&to_bytes(bias, f32::to_le_bytes)),
        _ => 0,
    };
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    GateArgs {
        bias,
        token_mask,
        ids,
        weights,
        top_k: config.top_k as u32,
        score: config.score as u32,
        flags: flag(config.bias_on == BiasOn::Logits, BIAS_ON_LOGITS)
            | flag(config.renormalize, RENORMALIZE)
            | flag(config.softmax_over_topk, SOFTMAX_OVER_TOPK),
        groups: config.groups as u32,
        group_size: (experts / config.groups) as u32,
        groups_kept: config.groups_kept.unwrap_or(config.groups) as u32,
        scale: config.scale,
    }
}
