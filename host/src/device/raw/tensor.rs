//! Tensor maps: how TMA finds the tiles of the operands of matrix products.

use super::{CUdeviceptr, check_aligned};
use crate::device::{Result, check};
use crate::formats::split::row_columns;
use crate::plan::ROW_ALIGN;
use crate::{Error, Shape};
use hopper_cuda_driver::ffi::{self, CUtensorMap};
use kernels_gpu::instances::{GEMM, Gemm};
use std::ffi::c_void;

/// Row-major weights in device memory, for matrix products: the terms of
/// [`Split::rows`](crate::formats::split::Split::rows).
#[derive(Debug, Clone)]
pub struct RowMajor {
    address: CUdeviceptr,
    shape: Shape,
    terms: usize,
    /// A map for each number of rows that a tile of some instance has.
    maps: Vec<(usize, CUtensorMap)>,
}

impl RowMajor {
    /// Describes `[terms, n, columns]` BF16 values at a device address, a multiple of 16; the columns are K rounded up
    /// to a multiple of 8. The driver must be initialised; nothing is read.
    pub fn new(address: CUdeviceptr, shape: Shape, terms: usize) -> Result<Self> {
        check_aligned("the row-major weights", address, ROW_ALIGN)?;
        let (columns, rows) = (shape.k() as u64, shape.n() as u64);
        let row_bytes = row_columns(shape) as u64 * 2;
        let mut maps: Vec<(usize, CUtensorMap)> = Vec::new();
        for instance in GEMM.iter().filter(|i| i.terms == terms) {
            if maps.iter().all(|&(rows, _)| rows != instance.rows()) {
                let dimensions = [columns, rows, terms as u64];
                let map = encode(
                    address,
                    dimensions,
                    [row_bytes, row_bytes.saturating_mul(rows)],
                    instance.weight_box(),
                )?;
                maps.push((instance.rows(), map));
            }
        }
        Ok(RowMajor {
            address,
            shape,
            terms,
            maps,
        })
    }

    /// The weights' address.
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// Bytes of the weights, all terms and the rows' padding included.
    pub fn bytes(&self) -> usize {
        self.terms * self.shape.n() * row_columns(self.shape) * size_of::<u16>()
    }

    /// The weights' shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// BF16 terms per weight.
    pub fn terms(&self) -> usize {
        self.terms
    }

    /// Elements between two rows.
    pub(super) fn stride(&self) -> u64 {
        row_columns(self.shape) as u64
    }

    /// The map for an instance's tiles.
    pub(super) fn map(&self, instance: &Gemm) -> Result<CUtensorMap> {
        let found = self.maps.iter().find(|&&(rows, _)| rows == instance.rows());
        found.map(|&(_, map)| map).ok_or_else(|| Error::NoInstance {
            request: format!("weights of {} BF16 terms", self.terms),
            reason: format!("{} reads weights of {}", instance.name, instance.terms),
        })
    }
}

/// The map of `m` tokens for an instance's tiles. Made on the host, for each call: x is not known before.
pub(super) fn of_x(x: CUdeviceptr, stride: usize, m: usize, k: usize, instance: &Gemm) -> Result<CUtensorMap> {
    let bytes = (stride as u64).saturating_mul(2);
    encode(x, [k as u64, m as u64], [bytes], instance.x_box())
}

/// `strides` are those of all dimensions but the first, in bytes.
fn encode<const RANK: usize, const STRIDES: usize>(
    address: CUdeviceptr,
    dimensions: [u64; RANK],
    strides: [u64; STRIDES],
    box_dimensions: [usize; RANK],
) -> Result<CUtensorMap> {
    const { assert!(STRIDES + 1 == RANK) };
    let box_dimensions = box_dimensions.map(|side| side as u32);
    let mut map = CUtensorMap::default();
    // SAFETY: writes one map; the arrays have the lengths that the rank says. The address is looked at, not followed.
    let code = unsafe {
        ffi::cuTensorMapEncodeTiled(
            &raw mut map,
            ffi::tensor_map_data_type::BFLOAT16,
            RANK as u32,
            std::ptr::without_provenance_mut::<c_void>(address as usize),
            dimensions.as_ptr(),
            strides.as_ptr(),
            box_dimensions.as_ptr(),
            [1; RANK].as_ptr(),
            ffi::tensor_map_interleave::NONE,
            ffi::tensor_map_swizzle::BYTES_128,
            ffi::tensor_map_l2_promotion::BYTES_256,
            ffi::tensor_map_fill::ZERO,
        )
    };
    check("describe a tensor", code)?;
    Ok(map)
}
