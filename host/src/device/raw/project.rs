//! Launches of projections.

use super::launch::{Config, Parameter, Queue};
use super::operands::{Operands, Output};
use super::{CUdeviceptr, CUfunction, Kernels, tensor};
use crate::device::Result;
use crate::formats::DeviceWeights;
use crate::plan::{Division, Kernel, Op, Plan, Reason};
use crate::{Error, Shape};
use kernels_gpu::instances::{FallbackGemmArgs, GateArgs, GemmArgs, GemvArgs, Loads, SplitKArgs};

/// A kernel that is about to be launched: its function, its shape and where it goes.
pub(super) struct Launch<'a> {
    pub(super) function: CUfunction,
    pub(super) plan: &'a Plan,
    pub(super) queue: Queue,
}

fn does_not_suit(name: &str, reason: Reason) -> Error {
    Error::NoInstance {
        request: "these operands".to_owned(),
        reason: format!("{name} {reason}"),
    }
}

impl Kernels {
    /// Plans and launches `y = x · Wᵀ`, for contiguous rows of x. `m = 0` launches nothing. The kernels must have been
    /// loaded for it by [`Kernels::prepare`].
    ///
    /// # Safety
    ///
    /// 1. The kernels' context is current, and the queue's stream is a stream of it, or null.
    /// 2. `x` holds `[m, K]` BF16 values in that context, `y` has room for `[m, N]` of its type, and `weights` hold
    ///    `[N, K]` values; they do not overlap, and stay allocated until the launch has ended.
    /// 3. With [`Overlap::Programmatic`](super::Overlap::Programmatic), no launch of the stream since the last one that
    ///    did not overlap, that one included, writes `weights`.
    pub unsafe fn project(
        &self,
        x: CUdeviceptr,
        weights: DeviceWeights,
        y: Output,
        shape: Shape,
        m: usize,
        queue: Queue,
    ) -> Result<()> {
        let operands = Operands {
            x,
            x_stride: shape.k(),
            m,
            shape,
            weights,
            row_major: None,
            y,
        };
        match self.plan(&operands.request())? {
            // SAFETY: the contract of this function is that of `launch` for contiguous rows; the plan is for these
            // operands.
            Some(plan) => unsafe { self.launch(&plan, &operands, queue) },
            None => Ok(()),
        }
    }

    /// Launches `y = x · Wᵀ` as a plan says.
    ///
    /// # Errors
    ///
    /// Operands that the plan's kernel cannot take, and a kernel whose family is not loaded: [`Kernels::prepare`] loads
    /// it.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::project`], where rows of x may be further apart; further, `plan` was made for
    /// [`Operands::request`].
    pub unsafe fn launch(&self, plan: &Plan, operands: &Operands<'_>, queue: Queue) -> Result<()> {
        let function = self.function(&plan.kernel)?;
        // SAFETY: the contract of this function; the function is that of the plan's kernel.
        unsafe { project(Launch { function, plan, queue }, operands) }
    }
}

/// Launches a projection by a given function.
///
/// # Safety
///
/// As for [`Kernels::launch`]; the function is that of the plan's kernel.
pub(super) unsafe fn project(launch: Launch<'_>, operands: &Operands<'_>) -> Result<()> {
    let plan = launch.plan;
    operands.check()?;
    if operands.weights.format() != plan.kernel.format() {
        return Err(does_not_suit(plan.name(), Reason::Format));
    }
    if plan.kernel.op() != Op::Project {
        return Err(does_not_suit(plan.name(), Reason::Op));
    }
    match &plan.kernel {
        Kernel::Gemv(_) => {
            let mut parameter = operands.weights.operands().gemv(gemv_args(operands));
            // SAFETY: the one by-value parameter of the GEMVs for this format; the operands are as the caller's
            // contract says.
            unsafe { Config::of(plan).launch(launch.function, [parameter.pointer()], launch.queue) }
        }
        Kernel::Gemm(division) if division.slices != 1 => Err(does_not_suit(plan.name(), Reason::NoWorkspace)),
        // SAFETY: the caller's contract; the division is the plan's, and one slice of K needs no workspace.
        Kernel::Gemm(division) => unsafe { gemm(launch, division, operands, NO_SPLIT_K) },
    }
}

/// The operands as GEMVs take them.
pub(super) fn gemv_args(operands: &Operands<'_>) -> GemvArgs {
    GemvArgs {
        x: operands.x,
        x_stride: operands.x_stride as u64,
        weights: operands.weights.units(),
        y: operands.y.address(),
        m: operands.m as u32,
        n: operands.shape.n() as u32,
        k: operands.shape.k() as u32,
        y_fp32: operands.y.fp32_flag(),
    }
}

/// Launches a matrix product, of a projection or of a router.
///
/// # Safety
///
/// As for [`Kernels::launch`]; `division` is the one of the launch's plan, and `split_k` refers to a workspace that
/// suffices for it.
pub(super) unsafe fn gemm(
    launch: Launch<'_>,
    division: &Division,
    operands: &Operands<'_>,
    split_k: SplitKArgs,
) -> Result<()> {
    let Operands {
        x, x_stride, m, shape, ..
    } = *operands;
    let instance = division.instance;
    let args = GemmArgs {
        y: operands.y.address(),
        m: m as u32,
        n: shape.n() as u32,
        k: shape.k() as u32,
        y_fp32: operands.y.fp32_flag(),
        k_slices: instance.k_slices(shape.k(), launch.plan.cluster[0] as usize, division.slices),
        split_k,
    };
    let (config, Launch { function, queue, .. }) = (Config::of(launch.plan), launch);
    let x_map = || tensor::of_x(x, x_stride, m, shape.k(), instance);
    let rows = || {
        let rows = operands.row_major.ok_or(Reason::NotKept);
        rows.and_then(|rows| match (rows.terms(), rows.shape()) == (instance.terms, shape) {
            true => Ok(rows),
            false => Err(Reason::Format),
        })
        .map_err(|reason| does_not_suit(instance.name, reason))
    };
    match instance.loads {
        Loads::Tma => {
            let mut args = Parameter::new(args);
            let (mut weights, mut x) = (rows()?.map(instance)?, x_map()?);
            let parameters = [(&raw mut x).cast(), (&raw mut weights).cast(), args.pointer()];
            // SAFETY: the three parameters of such an entry: the maps of x and of the weights, and the arguments.
            unsafe { config.launch(function, parameters, queue) }
        }
        Loads::Masked => {
            let rows = rows()?;
            let mut args = Parameter::new(FallbackGemmArgs {
                x,
                x_stride: x_stride as u64,
                weights: rows.address(),
                weight_stride: rows.stride(),
                term_stride: rows.stride() * shape.n() as u64,
                gemm: args,
            });
            // SAFETY: the one parameter of such an entry.
            unsafe { config.launch(function, [args.pointer()], queue) }
        }
        Loads::Packed(format) if format == operands.weights.format() => {
            let (mut x, mut args) = (x_map()?, operands.weights.operands().packed_gemm(args));
            // SAFETY: the two parameters of such an entry: the map of x, and the arguments for weights of this format.
            unsafe { config.launch(function, [(&raw mut x).cast(), args.pointer()], queue) }
        }
        Loads::Packed(_) => Err(does_not_suit(instance.name, Reason::Format)),
    }
}

/// What a kernel is given that reduces nothing through global memory.
const NO_SPLIT_K: SplitKArgs = SplitKArgs {
    sums: 0,
    counters: 0,
    scales: 0,
    slices: 1,
    serial: 1,
    gate: NO_GATE,
};

/// What a kernel is given that needs no gate.
pub const NO_GATE: GateArgs = GateArgs {
    bias: 0,
    token_mask: 0,
    ids: 0,
    weights: 0,
    top_k: 0,
    score: 0,
    flags: 0,
    groups: 1,
    group_size: 0,
    groups_kept: 1,
    scale: 1.0,
};
