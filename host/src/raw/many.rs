//! Launches of matrix products for many tokens.

use super::launch::Config;
use super::tensor::{self, RowMajor};
use super::{
    BF16, CUdeviceptr, CUstream, ENTRY, FP32, Kernels, Output, Overlap, PACKED, Weights, aligned, check_apart, unknown,
};
use crate::device::Result;
use crate::plan::GemmPlan;
use crate::{Error, Shape};
use kernels_gpu::instances::{GateArgs, GemmArgs, JoinArgs, Loads, PlainGemmArgs, UnitGemmArgs, gemms};

/// The weights of a matrix product, as its kernels take them.
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a> {
    /// Row-major.
    Rows(&'a RowMajor),
    /// Packed, as the kernels for few tokens take them.
    Units(Weights, Shape),
}

impl Matrix<'_> {
    /// Their shape.
    pub fn shape(&self) -> Shape {
        match self {
            Matrix::Rows(rows) => rows.shape(),
            Matrix::Units(_, shape) => *shape,
        }
    }

    /// BF16 terms per weight.
    fn terms(&self) -> usize {
        match self {
            Matrix::Rows(rows) => rows.terms(),
            Matrix::Units(weights, _) => weights.format().terms(),
        }
    }
}

/// The operands of a matrix product.
#[derive(Debug, Clone, Copy)]
pub struct Product<'a> {
    /// Activations, BF16.
    pub x: CUdeviceptr,
    /// Elements between two tokens of x.
    pub x_stride: usize,
    /// Tokens.
    pub m: usize,
    /// The weights.
    pub weights: Matrix<'a>,
    /// Where the result goes.
    pub y: Output,
}

impl Kernels {
    /// Launches `y = x · Wᵀ` as a plan for one slice of K says.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::project`]; further, `plan` was made for these weights and this `m`, and for tensor copies of x only where x and its
    /// stride are multiples of 16 bytes.
    pub unsafe fn product(
        &self,
        plan: &GemmPlan,
        product: &Product<'_>,
        stream: CUstream,
        overlap: Overlap,
    ) -> Result<()> {
        let Product {
            x,
            x_stride,
            m,
            weights,
            y,
        } = *product;
        if plan.slices != 1 {
            return Err(Error::NoInstance {
                request: format!("{} slices of K", plan.slices),
                reason: "a product without a workspace has one".to_owned(),
            });
        }
        let (y_at, y_size) = y.parts();
        aligned("x", x, BF16)?;
        aligned("y", y_at, y_size)?;
        let extent = x_bytes(m, x_stride, weights.shape());
        check_apart((x, extent), &[("y", y_at, bytes(m, weights.shape().n(), y_size))])?;
        let join = JoinArgs {
            sums: 0,
            counters: 0,
            scales: 0,
            slices: 1,
            serial: 1,
            gate: NO_GATE,
        };
        // SAFETY: as the caller promises.
        unsafe {
            self.many(
                plan,
                (x, x_stride),
                m,
                weights,
                (y_at, y_size == FP32),
                join,
                (stream, overlap),
            )
        }
    }

    /// Launches a matrix product of either purpose.
    ///
    /// # Safety
    ///
    /// As for [`Kernels::product`]; what `join` refers to suits the plan.
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe fn many(
        &self,
        plan: &GemmPlan,
        (x, x_stride): (CUdeviceptr, usize),
        m: usize,
        weights: Matrix<'_>,
        (y, y_fp32): (CUdeviceptr, bool),
        join: JoinArgs,
        (stream, overlap): (CUstream, Overlap),
    ) -> Result<()> {
        let shape = weights.shape();
        let instance = plan.instance;
        if instance.terms != weights.terms() {
            return Err(Error::NoInstance {
                request: format!("weights of {} BF16 terms", weights.terms()),
                reason: format!("{} reads weights of {}", instance.name, instance.terms),
            });
        }
        let mut args = GemmArgs {
            y,
            m: m as u32,
            n: shape.n() as u32,
            k: shape.k() as u32,
            y_fp32: u32::from(y_fp32),
            join,
        };
        let config = Config {
            grid: plan.grid,
            block: plan.block,
            cluster: plan.cluster,
            shared_bytes: plan.shared_bytes,
        };
        let function = (gemms().position(|i| i == instance))
            .and_then(|at| self.gemm.get(at))
            .ok_or_else(|| unknown(instance.name))?;
        let x_map = || tensor::of_x((x, x_stride), (m, shape.k()), instance);
        match (instance.loads, weights) {
            (Loads::Tensor, Matrix::Rows(rows)) => {
                let (mut x, mut weights) = (x_map()?, rows.map(instance)?);
                let parameters = [(&raw mut x).cast(), (&raw mut weights).cast(), (&raw mut args).cast()];
                // SAFETY: the three parameters of such an entry.
                unsafe { config.launch(*function, parameters, stream, overlap) }
            }
            (Loads::Plain, Matrix::Rows(rows)) => {
                let mut args = PlainGemmArgs {
                    x,
                    x_stride: x_stride as u64,
                    weights: rows.address(),
                    weight_stride: rows.stride(),
                    term_stride: rows.stride() * shape.n() as u64,
                    gemm: args,
                };
                // SAFETY: the one parameter of such an entry.
                unsafe { config.launch(*function, [(&raw mut args).cast()], stream, overlap) }
            }
            (Loads::Units(format), Matrix::Units(weights, _)) if format == weights.format() => {
                aligned("the packed weights", weights.units(), PACKED)?;
                let (starts, exceptions, palette) = match weights {
                    Weights::Bf16 { .. } => (0, 0, [0; 2]),
                    Weights::Window12 {
                        starts,
                        exceptions,
                        palette,
                        ..
                    } => (starts, exceptions, palette),
                };
                aligned("the starts of the exceptions", starts, ENTRY)?;
                aligned("the exceptions", exceptions, ENTRY)?;
                let mut x = x_map()?;
                let mut args = UnitGemmArgs {
                    weights: weights.units(),
                    starts,
                    exceptions,
                    palette,
                    gemm: args,
                };
                // SAFETY: the two parameters of such an entry.
                unsafe {
                    config.launch(
                        *function,
                        [(&raw mut x).cast(), (&raw mut args).cast()],
                        stream,
                        overlap,
                    )
                }
            }
            _ => Err(Error::NoInstance {
                request: "a product".to_owned(),
                reason: format!("{} reads weights that are kept in another way", instance.name),
            }),
        }
    }
}

/// What a kernel is given that needs no gate.
pub(super) const NO_GATE: GateArgs = GateArgs {
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
