//! The gate alone: a router for few tokens, of which any FP32 logits come out exactly, as its weights have three terms
//! and its x is of ones and zeros.

use crate::driver::{Module, OwnContext};
use crate::route::{Call, RawRouter, Routed};
use crate::shipped;
use hopper_cuda_driver::{Choice, emulated, select};
use hopper_proj::instances::{Format, Gemv};
use hopper_proj::{RouterConfig, bf16};

/// Columns of the router, and the most tokens whose logits can be chosen one by one.
pub const K: usize = 8;

/// The kernel's module in a context of its own.
#[derive(Debug)]
pub struct GateKernel {
    module: Module,
    _context: OwnContext,
}

impl GateKernel {
    /// On the emulator.
    pub fn load() -> Self {
        select(Choice::Emulated).expect("nothing else has chosen a driver in this process");
        emulated::set_seed(None);
        let _context = OwnContext::new();
        let module = Module::load(&shipped(&[instance().name]));
        GateKernel { module, _context }
    }

    /// Routes tokens with these logits, `[m, experts]`.
    pub fn route(&self, logits: &[f32], experts: usize, config: &RouterConfig) -> Routed {
        let m = logits.len() / experts;
        assert!(m <= K);
        let mut weights = vec![0f32; experts * K];
        let mut x = vec![bf16::ZERO; m * K];
        for (token, logits) in logits.chunks_exact(experts).enumerate() {
            x[token * K + token] = bf16::ONE;
            for (expert, &logit) in logits.iter().enumerate() {
                weights[expert * K + token] = logit;
            }
        }
        let router = RawRouter::with_module(self.module, instance(), &weights, (experts, K), m);
        let call = Call {
            config: Some(config),
            logits: true,
            ..Call::default()
        };
        router.run(&x, m, call)
    }
}

fn instance() -> &'static Gemv {
    &Format::Bf16x3.routes()[0]
}
