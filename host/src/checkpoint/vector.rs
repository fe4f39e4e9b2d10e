//! Tensors of one dimension: a router's bias, a token mask.

use super::Checkpoint;
use crate::{Error, Result};
use half::{bf16, f16};
use safetensors::Dtype;
use std::path::Path;

/// A tensor of one dimension.
#[derive(Debug, Clone)]
pub struct Vector<'a> {
    path: &'a Path,
    name: String,
    dtype: Dtype,
    data: &'a [u8],
}

impl Checkpoint {
    /// The one-dimensional tensor of that name; without a name, the only one of the file.
    pub fn vector(&self, name: Option<&str>) -> Result<Vector<'_>> {
        let (name, info) = self.find(name, 1, "vector")?;
        if info.shape.len() != 1 {
            return Err(Error::NotVector {
                path: self.path.clone(),
                name,
                shape: info.shape.clone(),
            });
        }
        // Types of less than a byte are not read, so that rounding down here refuses nothing that is.
        let data = self.bytes(&name, info, info.dtype.bitsize() / 8)?;
        Ok(Vector {
            path: &self.path,
            name,
            dtype: info.dtype,
            data,
        })
    }
}

impl Vector<'_> {
    /// The values of an F32 tensor as they are, those of a BF16 or F16 one widened, which is exact.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let pairs = || self.data.as_chunks().0.iter();
        Ok(match self.dtype {
            Dtype::F32 => self
                .data
                .as_chunks()
                .0
                .iter()
                .map(|&word| f32::from_le_bytes(word))
                .collect(),
            Dtype::BF16 => pairs().map(|&pair| bf16::from_le_bytes(pair).to_f32()).collect(),
            Dtype::F16 => pairs().map(|&pair| f16::from_le_bytes(pair).to_f32()).collect(),
            _ => return Err(self.refused("F32, or BF16 or F16, which FP32 holds exactly")),
        })
    }

    /// The bytes of a U8 or BOOL tensor.
    pub fn to_mask(&self) -> Result<Vec<u8>> {
        match self.dtype {
            Dtype::U8 | Dtype::BOOL => Ok(self.data.to_vec()),
            _ => Err(self.refused("U8 or BOOL, not zero for a token, zero for padding")),
        }
    }

    fn refused(&self, allowed: &'static str) -> Error {
        Error::VectorDtype {
            path: self.path.to_owned(),
            name: self.name.clone(),
            given: format!("{:?}", self.dtype),
            allowed,
        }
    }
}
