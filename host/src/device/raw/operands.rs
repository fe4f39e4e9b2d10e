//! What a product works on, and what must hold of it.

use super::{CUdeviceptr, RowMajor};
use crate::device::Result;
use crate::formats::DeviceWeights;
use crate::plan::{Op, Request};
use crate::{Error, Shape};

/// Where the result goes, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// BF16 values, rounded to nearest even.
    Bf16(CUdeviceptr),
    /// FP32 values: the sums as they are.
    Fp32(CUdeviceptr),
}

impl Output {
    /// The address.
    pub(super) fn address(self) -> CUdeviceptr {
        match self {
            Output::Bf16(y) | Output::Fp32(y) => y,
        }
    }

    /// Bytes of a value.
    pub(super) fn value_bytes(self) -> u64 {
        match self {
            Output::Bf16(_) => BF16,
            Output::Fp32(_) => FP32,
        }
    }

    /// The flag of the kernels' arguments.
    pub(super) fn fp32_flag(self) -> u32 {
        u32::from(matches!(self, Output::Fp32(_)))
    }
}

/// The operands of `y = x · Wᵀ`.
#[derive(Debug, Clone, Copy)]
pub struct Operands<'a> {
    /// Activations, BF16.
    pub x: CUdeviceptr,
    /// Elements between two tokens of x: K or more.
    pub x_stride: usize,
    /// Tokens.
    pub m: usize,
    /// The weights' shape.
    pub shape: Shape,
    /// The weights.
    pub weights: DeviceWeights,
    /// The same weights row-major, if such a copy is kept.
    pub row_major: Option<&'a RowMajor>,
    /// Where the result goes.
    pub y: Output,
}

impl Operands<'_> {
    /// What is planned for them, as the operands of a projection.
    pub fn request(&self) -> Request {
        Request::new(Op::Project, self.weights.format(), self.shape, self.m)
            .x(self.x, self.x_stride)
            .row_major(self.row_major.is_some())
    }

    /// Fails unless the kernels of a projection can take them.
    pub(super) fn check(&self) -> Result<()> {
        let y_bytes = self.y.value_bytes();
        check_aligned("x", self.x, BF16)?;
        check_aligned("y", self.y.address(), y_bytes)?;
        self.weights.check()?;
        check_stride(self.x_stride, self.shape)?;
        let result = ("y", self.y.address(), bytes(self.m, self.shape.n(), y_bytes));
        check_apart(self.x, x_bytes(self.m, self.x_stride, self.shape), &[result])
    }
}

/// Where BF16 data may start.
pub(super) const BF16: u64 = 2;
/// Where FP32 data may start.
pub(super) const FP32: u64 = 4;
/// Where packed weights may start: bulk copies are 16-byte aligned.
pub(crate) const PACKED: u64 = 16;

/// Fails unless an address or a size is a multiple of `to`.
pub(crate) fn check_aligned(what: &'static str, value: u64, to: u64) -> Result<()> {
    if value.is_multiple_of(to) {
        Ok(())
    } else {
        Err(Error::Alignment { what, value, to })
    }
}

/// Fails where a result, given by its name, address and bytes, shares a byte with x.
pub(super) fn check_apart(x: CUdeviceptr, x_bytes: u64, results: &[(&'static str, CUdeviceptr, u64)]) -> Result<()> {
    for &(what, y, y_bytes) in results {
        if x < y.saturating_add(y_bytes) && y < x.saturating_add(x_bytes) {
            return Err(Error::Overlapping { what, x, y });
        }
    }
    Ok(())
}

/// Fails where rows of x would overlap.
pub(super) fn check_stride(given: usize, shape: Shape) -> Result<()> {
    if given < shape.k() {
        let columns = shape.k();
        return Err(Error::Stride { given, columns });
    }
    Ok(())
}

/// Bytes from the first value of x to its last, for `m` tokens.
pub(super) fn x_bytes(m: usize, stride: usize, shape: Shape) -> u64 {
    match m {
        0 => 0,
        m => bytes(m - 1, stride, BF16).saturating_add(shape.k() as u64 * BF16),
    }
}

/// Bytes of `[rows, columns]` values of `size` bytes.
pub(super) fn bytes(rows: usize, columns: usize, size: u64) -> u64 {
    (rows as u64).saturating_mul(columns as u64).saturating_mul(size)
}
