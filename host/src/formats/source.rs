//! Weights as they lie in a file, read as BF16.

use crate::{Dtype, bf16};
use half::f16;
use rayon::prelude::*;

/// Elements that are read at once where all are wanted.
const PIECE: usize = 1 << 16;
/// Elements of the buffer that they go through.
const BUFFER: usize = 1 << 10;

/// Little-endian elements, not necessarily aligned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    dtype: Dtype,
    bytes: &'a [u8],
}

/// What a cast to BF16 has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loss {
    /// Values that had no exact counterpart, NaNs aside.
    pub rounded: u64,
    /// Of those, finite ones that became infinite.
    pub overflowed: u64,
}

impl<'a> Source<'a> {
    pub(crate) fn new(dtype: Dtype, bytes: &'a [u8]) -> Self {
        Source { dtype, bytes }
    }

    /// Files are little-endian, as every target of CUDA is.
    pub(crate) fn bf16(weights: &'a [bf16]) -> Self {
        Source::new(Dtype::Bf16, bytemuck::cast_slice(weights))
    }

    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.dtype.bytes()
    }

    /// Reads the elements from `first` on, rounded to nearest even where they are not BF16.
    #[inline]
    pub(crate) fn read(&self, first: usize, out: &mut [u16]) {
        let size = self.dtype.bytes();
        let bytes = &self.bytes[first * size..(first + out.len()) * size];
        match self.dtype {
            Dtype::Bf16 => bytemuck::cast_slice_mut(out).copy_from_slice(bytes),
            Dtype::F16 => out
                .iter_mut()
                .zip(bytes.as_chunks().0)
                .for_each(|(out, &v)| *out = bf16::from_f32(f16::from_le_bytes(v).to_f32()).to_bits()),
            Dtype::F32 => out
                .iter_mut()
                .zip(bytes.as_chunks().0)
                .for_each(|(out, &v)| *out = bf16::from_f32(f32::from_le_bytes(v)).to_bits()),
        }
    }

    /// Folds over all elements, in parallel: `each` sees up to a thousand of them at a time and where they start.
    pub(crate) fn fold<T: Send>(
        &self,
        empty: impl Fn() -> T + Sync + Send,
        each: impl Fn(&mut T, usize, &[u16]) + Sync,
        join: impl Fn(T, T) -> T + Sync + Send,
    ) -> T {
        (0..self.len().div_ceil(PIECE))
            .into_par_iter()
            .map(|piece| {
                let mut folded = empty();
                let mut buffer = [0; BUFFER];
                let end = self.len().min((piece + 1) * PIECE);
                for first in (piece * PIECE..end).step_by(BUFFER) {
                    let values = &mut buffer[..BUFFER.min(end - first)];
                    self.read(first, values);
                    each(&mut folded, first, values);
                }
                folded
            })
            .reduce(&empty, join)
    }

    /// What reading the elements as BF16 loses.
    pub(crate) fn loss(&self) -> Loss {
        let exact = |at: usize| match self.dtype {
            Dtype::Bf16 => None,
            Dtype::F16 => self
                .bytes
                .as_chunks()
                .0
                .get(at)
                .map(|&v| f16::from_le_bytes(v).to_f32()),
            Dtype::F32 => self.bytes.as_chunks().0.get(at).map(|&v| f32::from_le_bytes(v)),
        };
        let each = |loss: &mut Loss, first: usize, values: &[u16]| {
            for (i, &bits) in values.iter().enumerate() {
                let (Some(before), after) = (exact(first + i), bf16::from_bits(bits).to_f32()) else {
                    continue;
                };
                loss.rounded += u64::from(before != after && !before.is_nan());
                loss.overflowed += u64::from(before.is_finite() && after.is_infinite());
            }
        };
        let join = |a: Loss, b: Loss| Loss {
            rounded: a.rounded + b.rounded,
            overflowed: a.overflowed + b.overflowed,
        };
        match self.dtype {
            Dtype::Bf16 => Loss::default(),
            _ => self.fold(Loss::default, each, join),
        }
    }
}
