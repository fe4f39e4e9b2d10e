//! Launches of projections, and of matrix products of either purpose.

use super::launch::Config;
use super::tensor::{self, RowMajor};
use super::{
    BF16, CUdeviceptr, CUstream, ENTRY, FP32, Kernels, Output, Overlap, PACKED, Weights, aligned, check_apart,
};
use crate::device::Result;
use crate::plan::{Division, Kernel, Op, Plan, Reason, Request};
use crate::{Error, Shape};
use kernels_gpu::instances::{
    Ending, GateArgs, GemmArgs, Gemv, GemvArgs, JoinArgs, Loads, PlainGemmArgs, UnitGemmArgs, Window12Args,
};

/// The operands of a projection.
#[derive(Debug, Clone, Copy)]
pub struct Product<'a> {
    /// Activations, BF16.
    pub x: CUdeviceptr,
    /// Elements between two tokens of x: K or more.
    pub x_stride: usize,
    /// Tokens.
    pub m: usize,
    /// The weights' shape.
    pub shape: Shape,
    /// The weights.
    pub weights: Weights,
    /// The same weights row-major, if such a copy is kept.
    pub row_major: Option<&'a RowMajor>,
    /// Where the result goes.
    pub y: Output,
}

impl Product<'_> {
    /// What is planned for them.
    pub fn request(&self) -> Request {
        Request::new(Op::Project, self.weights.format(), self.shape, self.m)
            .x(self.x, self.x_stride)
            .row_major(self.row_major.is_some())
    }
}

/// The operands of a matrix product, as both purposes have them.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) x: CUdeviceptr,
    pub(super) x_stride: usize,
    pub(super) m: usize,
    pub(super) shape: Shape,
    /// Those of kernels that read units.
    pub(super) units: Option<Weights>,
    /// Those of all others.
    pub(super) row_major: Option<&'a RowMajor>,
    pub(super) y: CUdeviceptr,
    pub(super) y_fp32: bool,
    /// What it refers to suits the plan.
    pub(super) join: JoinArgs,
}

fn does_not_suit(name: &str, reason: Reason) -> Error {
    Error::NoInstance {
        request: "these operands".to_owned(),
        reason: format!("{name} {reason}"),
    }
}

impl Kernels {
    /// Launches `y = x · Wᵀ` as a plan says.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::project`], where rows of x may be further apart; further, `plan` was made for [`Product::request`].
    pub unsafe fn launch(&self, plan: &Plan, product: &Product<'_>, stream: CUstream, overlap: Overlap) -> Result<()> {
        let Product {
            x,
            x_stride,
            m,
            shape,
            weights,
            row_major,
            y,
        } = *product;
        let (y_at, y_size) = y.parts();
        aligned("x", x, BF16)?;
        aligned("y", y_at, y_size)?;
        aligned("the packed weights", weights.units(), PACKED)?;
        if let Weights::Window12 { starts, exceptions, .. } = weights {
            aligned("the starts of the exceptions", starts, ENTRY)?;
            aligned("the exceptions", exceptions, ENTRY)?;
        }
        check_stride(x_stride, shape)?;
        let x_range = (x, x_bytes(m, x_stride, shape));
        check_apart(x_range, &[("y", y_at, bytes(m, shape.n(), y_size))])?;
        if weights.format() != plan.kernel.format() {
            return Err(does_not_suit(plan.name(), Reason::Format));
        }
        match &plan.kernel {
            Kernel::Gemv(Gemv {
                ending: Ending::Route, ..
            }) => Err(does_not_suit(plan.name(), Reason::Op)),
            // SAFETY: as the caller promises.
            Kernel::Gemv(_) => unsafe { self.few(plan, product, (stream, overlap)) },
            Kernel::Gemm(division) if division.slices != 1 => Err(does_not_suit(plan.name(), Reason::NoWorkspace)),
            Kernel::Gemm(division) => {
                let operands = Operands {
                    x,
                    x_stride,
                    m,
                    shape,
                    units: Some(weights),
                    row_major,
                    y: y_at,
                    y_fp32: y_size == FP32,
                    join: NO_JOIN,
                };
                // SAFETY: as the caller promises.
                unsafe { self.many(plan, division, &operands, (stream, overlap)) }
            }
        }
    }

    /// Launches a GEMV.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::launch`], which has checked the operands.
    unsafe fn few(&self, plan: &Plan, product: &Product<'_>, (stream, overlap): (CUstream, Overlap)) -> Result<()> {
        let (y, y_size) = product.y.parts();
        let mut gemv = GemvArgs {
            x: product.x,
            x_stride: product.x_stride as u64,
            weights: product.weights.units(),
            y,
            m: product.m as u32,
            n: product.shape.n() as u32,
            k: product.shape.k() as u32,
            y_fp32: u32::from(y_size == FP32),
        };
        let (config, function) = (Config::of(plan), self.function(&plan.kernel)?);
        match product.weights {
            // SAFETY: the one by-value parameter of the entries for this format.
            Weights::Bf16 { .. } => unsafe { config.launch(function, [(&raw mut gemv).cast()], stream, overlap) },
            Weights::Window12 {
                starts,
                exceptions,
                palette,
                ..
            } => {
                let mut args = Window12Args {
                    gemv,
                    starts,
                    exceptions,
                    palette,
                };
                // SAFETY: as above.
                unsafe { config.launch(function, [(&raw mut args).cast()], stream, overlap) }
            }
        }
    }

    /// Launches a matrix product of either purpose.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::launch`]; `plan` is one of `division`.
    pub(super) unsafe fn many(
        &self,
        plan: &Plan,
        division: &Division,
        operands: &Operands<'_>,
        (stream, overlap): (CUstream, Overlap),
    ) -> Result<()> {
        let Operands {
            x,
            x_stride,
            m,
            shape,
            units,
            row_major,
            ..
        } = *operands;
        let instance = division.instance;
        let mut args = GemmArgs {
            y: operands.y,
            m: m as u32,
            n: shape.n() as u32,
            k: shape.k() as u32,
            y_fp32: u32::from(operands.y_fp32),
            join: operands.join,
        };
        let (config, function) = (Config::of(plan), self.function(&plan.kernel)?);
        let x_map = || tensor::of_x((x, x_stride), (m, shape.k()), instance);
        match (instance.loads, row_major, units) {
            (Loads::Tensor | Loads::Plain, Some(rows), _)
                if (instance.terms, shape) != (rows.terms(), rows.shape()) =>
            {
                Err(does_not_suit(instance.name, Reason::Format))
            }
            (Loads::Tensor, Some(rows), _) => {
                let (mut x, mut weights) = (x_map()?, rows.map(instance)?);
                let parameters = [(&raw mut x).cast(), (&raw mut weights).cast(), (&raw mut args).cast()];
                // SAFETY: the three parameters of such an entry.
                unsafe { config.launch(function, parameters, stream, overlap) }
            }
            (Loads::Plain, Some(rows), _) => {
                let mut args = PlainGemmArgs {
                    x,
                    x_stride: x_stride as u64,
                    weights: rows.address(),
                    weight_stride: rows.stride(),
                    term_stride: rows.stride() * shape.n() as u64,
                    gemm: args,
                };
                // SAFETY: the one parameter of such an entry.
                unsafe { config.launch(function, [(&raw mut args).cast()], stream, overlap) }
            }
            (Loads::Units(format), _, Some(weights)) if format == weights.format() => {
                let (starts, exceptions, palette) = match weights {
                    Weights::Bf16 { .. } => (0, 0, [0; 2]),
                    Weights::Window12 {
                        starts,
                        exceptions,
                        palette,
                        ..
                    } => (starts, exceptions, palette),
                };
                let mut x = x_map()?;
                let mut args = UnitGemmArgs {
                    weights: weights.units(),
                    starts,
                    exceptions,
                    palette,
                    gemm: args,
                };
                let parameters = [(&raw mut x).cast(), (&raw mut args).cast()];
                // SAFETY: the two parameters of such an entry.
                unsafe { config.launch(function, parameters, stream, overlap) }
            }
            _ => Err(does_not_suit(instance.name, Reason::NotKept)),
        }
    }
}

/// Fails where rows of x would overlap.
pub(super) fn check_stride(given: usize, shape: Shape) -> Result<()> {
    if given < shape.k() {
        let columns = shape.k();
        return Err(Error::Stride { given, columns });
    }
    Ok(())
}

/// What a kernel is given that joins nothing.
const NO_JOIN: JoinArgs = JoinArgs {
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

/// Bytes from the first value of x to its last, for `m` tokens.
pub(super) fn x_bytes(m: usize, stride: usize, shape: Shape) -> u64 {
    match m {
        0 => 0,
        m => bytes(m - 1, stride, BF16).saturating_add(shape.k() as u64 * BF16),
    }
}

/// Bytes of `[rows, columns]`.
pub(super) fn bytes(rows: usize, columns: usize, size: u64) -> u64 {
    (rows as u64).saturating_mul(columns as u64).saturating_mul(size)
}
