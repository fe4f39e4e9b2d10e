//! Launches of routers.

use super::launch::{Config, Parameter, Queue};
use super::operands::{BF16, FP32, Operands, Output, bytes, check_aligned, check_apart, check_stride, x_bytes};
use super::project::{self, Launch, NO_GATE, gemv_args};
use super::tensor::RowMajor;
use super::{CUdeviceptr, Kernels};
use crate::Shape;
use crate::device::Result;
use crate::formats::DeviceWeights;
use crate::gate::{BiasOn, ConfigError, Gate};
use crate::plan::{Kernel, Op, Plan, Request};
use kernels_gpu::instances::{BIAS_ON_LOGITS, GateArgs, RENORMALIZE, RouteArgs, SOFTMAX_OVER_TOPK, SplitKArgs};

/// Where a router's launches reduce their sums. Launches that share one follow each other on one stream.
///
/// [`route_workspace`](crate::plan::route_workspace) says how large each part is; a launch leaves it as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workspace {
    /// FP32, of any content.
    pub sums: CUdeviceptr,
    /// FP32, zeros; not used where there are no row-major weights.
    pub shared_sums: CUdeviceptr,
    /// `u32`, zeros.
    pub counters: CUdeviceptr,
    /// Tokens that it suffices for; more of them are several launches.
    pub max_tokens: usize,
}

/// What a router has in device memory. 0 stands for what is not there.
#[derive(Debug, Clone, Copy)]
pub struct RouterMemory<'a> {
    /// Experts × columns.
    pub shape: Shape,
    /// The weights, one to three BF16 terms each: [`Split::units`](crate::formats::split::Split::units).
    pub weights: DeviceWeights,
    /// [`Split::rows`](crate::formats::split::Split::rows); without them, every number of tokens is served by the
    /// kernels for few tokens, by which equal calls give equal bits, and so does a token whatever the others are.
    pub rows: Option<&'a RowMajor>,
    /// [`Split::factors`](crate::formats::split::Split::factors), or 0.
    pub factors: CUdeviceptr,
    /// The gate's bias, FP32, or 0.
    pub bias: CUdeviceptr,
    /// Where sums are reduced.
    pub workspace: Workspace,
}

/// One call of a router. 0 stands for what is not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteCall {
    /// Hidden states, BF16.
    pub x: CUdeviceptr,
    /// Elements between two tokens of x: K or more.
    pub x_stride: usize,
    /// Tokens.
    pub m: usize,
    /// One byte per token, 0 for padding; or 0.
    pub token_mask: CUdeviceptr,
    /// For the experts' ids, I32 `[m, top_k]`, best first; -1 for padding.
    pub ids: CUdeviceptr,
    /// For their weights, FP32 `[m, top_k]`.
    pub weights: CUdeviceptr,
    /// For the logits, FP32 `[m, experts]`; or 0.
    pub logits: CUdeviceptr,
}

impl RouteCall {
    /// The call for `m` of its tokens, from `first` on.
    fn part(&self, first: usize, m: usize, experts: usize, top_k: usize) -> Self {
        let at = |address: CUdeviceptr, columns: usize, size: u64| match address {
            0 => 0,
            address => address.saturating_add(bytes(first, columns, size)),
        };
        RouteCall {
            x: self.x.saturating_add(bytes(first, self.x_stride, BF16)),
            x_stride: self.x_stride,
            m,
            token_mask: at(self.token_mask, 1, 1),
            ids: at(self.ids, top_k, FP32),
            weights: at(self.weights, top_k, FP32),
            logits: at(self.logits, experts, FP32),
        }
    }
}

impl RouterMemory<'_> {
    /// What is planned for a call of at most [`Workspace::max_tokens`] tokens.
    pub fn request(&self, call: &RouteCall) -> Request {
        Request::new(Op::Route, self.weights.format(), self.shape, call.m)
            .x(call.x, call.x_stride)
            .row_major(self.rows.is_some())
    }

    fn check(&self, gate: Option<&Gate>, call: &RouteCall) -> Result<()> {
        let n = self.shape.n();
        check_aligned("x", call.x, BF16)?;
        self.weights.check()?;
        let workspace = &self.workspace;
        for (what, address) in [
            ("the rows' factors", self.factors),
            ("the bias", self.bias),
            ("the sums", workspace.sums),
            ("the shared sums", workspace.shared_sums),
            ("the counters", workspace.counters),
            ("ids", call.ids),
            ("weights", call.weights),
            ("logits", call.logits),
        ] {
            check_aligned(what, address, FP32)?;
        }
        check_stride(call.x_stride, self.shape)?;
        let missing = |what: &'static str, allowed: &str| {
            Err(ConfigError::Value {
                what,
                given: "0".to_owned(),
                allowed: allowed.to_owned(),
            }
            .into())
        };
        let terms = self.weights.format().terms();
        if let Some(rows) = self.rows
            && (rows.shape(), rows.terms()) != (self.shape, terms)
        {
            return Err(ConfigError::Value {
                what: "the row-major weights' shape",
                given: format!("{} of {} terms", rows.shape(), rows.terms()),
                allowed: format!("the router's is {} of {terms} terms", self.shape),
            }
            .into());
        }
        if workspace.max_tokens == 0 {
            return missing("max_tokens of the workspace", "a workspace serves at least one token");
        }
        let top_k = gate.map_or(0, Gate::top_k);
        if let Some(gate) = gate {
            if gate.experts() != n {
                return Err(ConfigError::Value {
                    what: "the number of experts",
                    given: gate.experts().to_string(),
                    allowed: format!("the weights have {n} rows: check the configuration for that number"),
                }
                .into());
            }
            if gate.bias.is_some() && self.bias == 0 {
                return missing(
                    "the bias's address",
                    "the gate has a bias, which must be in device memory",
                );
            }
            if call.ids == 0 || call.weights == 0 {
                return missing("the address of ids or weights", "a gate needs room for both");
            }
        } else if call.logits == 0 {
            return missing("the logits' address", "without a gate, they are what is computed");
        }
        let chosen = bytes(call.m, top_k, FP32);
        let results = [
            ("ids", call.ids, chosen),
            ("weights", call.weights, chosen),
            (
                "logits",
                call.logits,
                if call.logits == 0 { 0 } else { bytes(call.m, n, FP32) },
            ),
        ];
        check_apart(call.x, x_bytes(call.m, call.x_stride, self.shape), &results)
    }
}

impl Kernels {
    /// Launches a router: logits through a gate; or, without one, the logits themselves. More tokens than the workspace
    /// is for are several launches, one after the other. `m = 0` launches nothing. The kernels must have been loaded
    /// for it by [`Kernels::prepare`].
    ///
    /// # Safety
    ///
    /// 1. The kernels' context is current, and the queue's stream is a stream of it, or null.
    /// 2. `memory` and `call` refer to memory of that context, of the sizes that they say; results do not overlap
    ///    anything else, and all stays allocated until the launch has ended.
    /// 3. Nothing else uses the workspace at the same time: all launches with it are on one stream.
    /// 4. With [`Overlap::Programmatic`](super::Overlap::Programmatic), no launch of the stream since the last one that
    ///    did not overlap, that one included, writes the weights or what belongs to them.
    pub unsafe fn route(
        &self,
        memory: &RouterMemory<'_>,
        gate: Option<&Gate>,
        call: &RouteCall,
        queue: Queue,
    ) -> Result<()> {
        // SAFETY: the contract of this function is that of the one below.
        unsafe { self.route_by(None, memory, gate, call, queue) }
    }

    /// [`Kernels::route`] with a kernel of choice, if one is given, whose family is loaded.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::route`].
    pub unsafe fn route_by(
        &self,
        kernel: Option<&Kernel>,
        memory: &RouterMemory<'_>,
        gate: Option<&Gate>,
        call: &RouteCall,
        queue: Queue,
    ) -> Result<()> {
        if call.m == 0 {
            return Ok(());
        }
        memory.check(gate, call)?;
        let top_k = gate.map_or(0, Gate::top_k);
        let mut first = 0;
        while first < call.m {
            let m = memory.workspace.max_tokens.min(call.m - first);
            let part = call.part(first, m, memory.shape.n(), top_k);
            let gate = gate.map_or(NO_GATE, |gate| gate_args(gate, memory, &part));
            let request = memory.request(&part);
            let plan = match kernel {
                Some(kernel) => self.plan_with(kernel, &request),
                None => self.plan(&request),
            };
            if let Some(plan) = plan? {
                // SAFETY: the contract of this function holds for each part of the call; the plan is for the part.
                unsafe { self.route_part(&plan, memory, gate, &part, queue)? };
            }
            first += m;
        }
        Ok(())
    }

    /// One launch.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::route`]; `plan` is for `call`, which the workspace suffices for.
    unsafe fn route_part(
        &self,
        plan: &Plan,
        memory: &RouterMemory<'_>,
        gate: GateArgs,
        call: &RouteCall,
        queue: Queue,
    ) -> Result<()> {
        let workspace = &memory.workspace;
        let split_k = SplitKArgs {
            sums: if plan.serial() {
                workspace.sums
            } else {
                workspace.shared_sums
            },
            counters: workspace.counters,
            scales: memory.factors,
            slices: plan.kernel.slices() as u32,
            serial: u32::from(plan.serial()),
            gate,
        };
        let operands = Operands {
            x: call.x,
            x_stride: call.x_stride,
            m: call.m,
            shape: memory.shape,
            weights: memory.weights,
            row_major: memory.rows,
            y: Output::Fp32(call.logits),
        };
        let function = self.function(&plan.kernel)?;
        match &plan.kernel {
            Kernel::Gemv(_) => {
                let gemv = gemv_args(&operands);
                let mut args = Parameter::new(RouteArgs { gemv, split_k });
                // SAFETY: the one by-value parameter of these entries; the rest is the contract of this function.
                unsafe { Config::of(plan).launch(function, [args.pointer()], queue) }
            }
            Kernel::Gemm(division) => {
                // SAFETY: the contract of this function; the division is the plan's.
                unsafe { project::gemm(Launch { function, plan, queue }, division, &operands, split_k) }
            }
        }
    }
}

fn gate_args(gate: &Gate, memory: &RouterMemory<'_>, call: &RouteCall) -> GateArgs {
    let flag = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    GateArgs {
        bias: if gate.bias.is_some() { memory.bias } else { 0 },
        token_mask: call.token_mask,
        ids: call.ids,
        weights: call.weights,
        top_k: gate.top_k as u32,
        score: gate.score as u32,
        flags: flag(gate.bias_on == BiasOn::Logits, BIAS_ON_LOGITS)
            | flag(gate.renormalize, RENORMALIZE)
            | flag(gate.softmax_over_topk, SOFTMAX_OVER_TOPK),
        groups: gate.groups as u32,
        group_size: (memory.shape.n() / gate.groups.max(1)) as u32,
        groups_kept: gate.groups_kept as u32,
        scale: gate.scale,
    }
}
