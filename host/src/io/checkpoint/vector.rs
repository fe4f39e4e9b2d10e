//! Tensors of one dimension: a router's bias, a token mask.

use super::Checkpoint;
use crate::io::FileError;
use crate::io::container::Tensor;
use crate::{Dtype, Error, Result};
use half::{bf16, f16};
use std::fmt;

/// Types whose elements are bytes, of which a mask may be.
const BYTES: [&str; 2] = ["U8", "BOOL"];

/// A tensor of one dimension.
#[derive(Clone)]
pub struct Vector<'a> {
    file: &'a Checkpoint,
    tensor: &'a Tensor,
}

impl Checkpoint {
    /// The one-dimensional tensor of that name; without a name, the only one of the file.
    pub fn vector(&self, name: Option<&str>) -> Result<Vector<'_>> {
        let tensor = self.find(name, 1, "vector")?;
        if tensor.shape.len() == 1 {
            Ok(Vector { file: self, tensor })
        } else {
            Err(FileError::NotVector {
                path: self.path.clone(),
                name: tensor.name.clone(),
                shape: tensor.shape.clone(),
            }
            .into())
        }
    }
}

impl Vector<'_> {
    /// The values of an F32 tensor as they are, those of a BF16 or F16 one widened, which is exact.
    pub fn to_f32(&self) -> Result<Vec<f32>> {
        let Some(dtype) = Dtype::named(&self.tensor.dtype) else {
            return Err(self.refused("F32, or BF16 or F16, which FP32 holds exactly"));
        };
        let data = self.file.bytes(self.tensor, dtype.bytes())?;
        let pairs = || data.as_chunks().0.iter();
        Ok(match dtype {
            Dtype::F32 => data
                .as_chunks()
                .0
                .iter()
                .map(|&word| f32::from_le_bytes(word))
                .collect(),
            Dtype::Bf16 => pairs().map(|&pair| bf16::from_le_bytes(pair).to_f32()).collect(),
            Dtype::F16 => pairs().map(|&pair| f16::from_le_bytes(pair).to_f32()).collect(),
        })
    }

    /// The bytes of a U8 or BOOL tensor.
    pub fn to_mask(&self) -> Result<Vec<u8>> {
        if BYTES.contains(&self.tensor.dtype.as_str()) {
            Ok(self.file.bytes(self.tensor, 1)?.to_vec())
        } else {
            Err(self.refused("U8 or BOOL, not zero for a token, zero for padding"))
        }
    }

    fn refused(&self, allowed: &'static str) -> Error {
        FileError::VectorDtype {
            path: self.file.path.clone(),
            name: self.tensor.name.clone(),
            given: self.tensor.dtype.clone(),
            allowed,
        }
        .into()
    }
}

impl fmt::Debug for Vector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tensor.fmt(f)
    }
}
