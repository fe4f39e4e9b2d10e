//! Launches of routers.

use super::launch::Config;
use super::product::{NO_GATE, Operands, bytes, check_stride, x_bytes};
use super::tensor::RowMajor;
use super::{BF16, CUdeviceptr, CUstream, FP32, Kernels, Overlap, PACKED, aligned, check_apart};
use crate::device::Result;
use crate::plan::{Kernel, Op, Plan, Request, plan_with};
use crate::router::{BiasOn, Gate};
use crate::{Error, Shape};
use kernels_gpu::instances::{
    BIAS_ON_LOGITS, Format, GateArgs, GemvArgs, JoinArgs, RENORMALIZE, RouteArgs, SOFTMAX_OVER_TOPK,
};

/// Where a router's launches put sums together. Launches that share one follow each other on one stream.
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
    /// The weights' format: one to three BF16 terms.
    pub format: Format,
    /// Experts × columns.
    pub shape: Shape,
    /// [`Split::units`](crate::weights::split::Split::units).
    pub units: CUdeviceptr,
    /// [`Split::rows`](crate::weights::split::Split::rows); without them, every number of tokens is served by the kernels for few tokens, by
    /// which equal calls give equal bits, and so does a token whatever the others are.
    pub rows: Option<&'a RowMajor>,
    /// [`Split::factors`](crate::weights::split::Split::factors), or 0.
    pub factors: CUdeviceptr,
    /// The gate's bias, FP32, or 0.
    pub bias: CUdeviceptr,
    /// Where sums are put together.
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
        Request::new(Op::Route, self.format, self.shape, call.m)
            .x(call.x, call.x_stride)
            .row_major(self.rows.is_some())
    }

    fn check(&self, gate: Option<&Gate>, call: &RouteCall) -> Result<()> {
        let n = self.shape.n();
        aligned("x", call.x, BF16)?;
        aligned("the packed weights", self.units, PACKED)?;
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
            aligned(what, address, FP32)?;
        }
        check_stride(call.x_stride, self.shape)?;
        let missing = |what: &'static str, allowed: &str| {
            Err(Error::RouterConfig {
                what,
                given: "0".to_owned(),
                allowed: allowed.to_owned(),
            })
        };
        if let Some(rows) = self.rows
            && (rows.shape(), rows.terms()) != (self.shape, self.format.terms())
        {
            return Err(Error::RouterConfig {
                what: "the row-major weights' shape",
                given: format!("{} of {} terms", rows.shape(), rows.terms()),
                allowed: format!("the router's is {} of {} terms", self.shape, self.format.terms()),
            });
        }
        if workspace.max_tokens == 0 {
            return missing("max_tokens of the workspace", "a workspace serves at least one token");
        }
        let top_k = gate.map_or(0, Gate::top_k);
        if let Some(gate) = gate {
            if gate.experts() != n {
                return Err(Error::RouterConfig {
                    what: "the number of experts",
                    given: gate.experts().to_string(),
                    allowed: format!("the weights have {n} rows: check the configuration for that number"),
                });
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
        check_apart((call.x, x_bytes(call.m, call.x_stride, self.shape)), &results)
    }
}

impl Kernels {
    /// Launches a router: logits through a gate; or, without one, the logits themselves. More tokens than the workspace is for are several
    /// launches, one after the other. `m = 0` launches nothing.
    ///
    /// # Safety
    ///
    /// 1. The kernels' context is current, and `stream` is a stream of it, or null.
    /// 2. `memory` and `call` refer to memory of that context, of the sizes that they say; results do not overlap anything else, and all stays
    ///    allocated until the launch has ended.
    /// 3. Nothing else uses the workspace at the same time: all launches with it are on one stream.
    /// 4. With [`Overlap::Programmatic`], the kernel ahead on the stream writes neither the weights nor what belongs to them.
    pub unsafe fn route(
        &self,
        memory: &RouterMemory<'_>,
        gate: Option<&Gate>,
        call: &RouteCall,
        stream: CUstream,
        overlap: Overlap,
    ) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.route_by(None, memory, gate, call, (stream, overlap)) }
    }

    /// [`Kernels::route`] with a kernel of choice, if one is given.
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
        (stream, overlap): (CUstream, Overlap),
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
                Some(kernel) => plan_with(kernel, &request, &self.device),
                None => self.plan(&request),
            };
            if let Some(plan) = plan? {
                // SAFETY: as the caller promises; the plan is for the part.
                unsafe { self.route_part(&plan, memory, gate, &part, (stream, overlap))? };
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
        (stream, overlap): (CUstream, Overlap),
    ) -> Result<()> {
        let workspace = &memory.workspace;
        let join = JoinArgs {
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
        match &plan.kernel {
            Kernel::Gemv(_) => {
                let gemv = GemvArgs {
                    x: call.x,
                    x_stride: call.x_stride as u64,
                    weights: memory.units,
                    y: call.logits,
                    m: call.m as u32,
                    n: memory.shape.n() as u32,
                    k: memory.shape.k() as u32,
                    y_fp32: 1,
                };
                let mut args = RouteArgs { gemv, join };
                let function = self.function(&plan.kernel)?;
                // SAFETY: `args` is the one by-value parameter of these entries; the rest as the caller promises.
                unsafe { Config::of(plan).launch(function, [(&raw mut args).cast()], stream, overlap) }
            }
            Kernel::Gemm(division) => {
                let operands = Operands {
                    x: call.x,
                    x_stride: call.x_stride,
                    m: call.m,
                    shape: memory.shape,
                    units: None,
                    row_major: memory.rows,
                    y: call.logits,
                    y_fp32: true,
                    join,
                };
                // SAFETY: as the caller promises.
                unsafe { self.many(plan, division, &operands, (stream, overlap)) }
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
