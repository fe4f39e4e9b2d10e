//! Which weights a matrix holds, the palette that suits them, and whether packing pays.

use super::{Packed, decode_rows, packed_bytes};
use crate::formats::source::Source;
use crate::{Result, Shape, bf16};
use kernels_gpu::formats::window12::PALETTE;
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, units};
use rayon::prelude::*;
use std::fmt;

/// High bytes without the sign.
const HIGHS: usize = 128;
/// `auto` packs a matrix with at most one exception in so many weights: each costs a kernel two reads of memory, one
/// after the other.
pub const WEIGHTS_PER_EXCEPTION: u64 = 1000;
/// `auto` packs a matrix of at most so many bits per weight, padding, starts and exceptions included: BF16 takes 16,
/// and less gain than this is not worth a second form of the weights.
pub const MOST_BITS: f64 = 13.0;

/// How many weights have each exponent, 0..256, of either sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; 256],
}

impl Histogram {
    /// Counts the weights.
    pub fn of(weights: &[bf16]) -> Self {
        Self::count(&Source::bf16(weights))
    }

    pub(crate) fn count(source: &Source<'_>) -> Self {
        // Four counters per exponent, since equal exponents follow each other often.
        let counters = source.fold(
            || [[0u64; 256]; 4],
            |counters, _, values| {
                for (i, bits) in values.iter().enumerate() {
                    counters[i % 4][usize::from(bits >> 7 & 0xff)] += 1;
                }
            },
            |mut a, b| {
                a.as_flattened_mut()
                    .iter_mut()
                    .zip(b.as_flattened())
                    .for_each(|(a, b)| *a += b);
                a
            },
        );
        Histogram {
            counts: std::array::from_fn(|e| counters.iter().map(|c| c[e]).sum()),
        }
    }

    /// Counts the weights of a packed matrix.
    pub fn of_packed(packed: &Packed<'_>) -> Self {
        /// K groups that are decoded at a time.
        const GROUPS: usize = 64;
        let (n, k) = (packed.shape().n(), packed.shape().k());
        let (row_blocks, groups) = units(n, k);
        let of_block = |row_block: usize| {
            let rows = UNIT_ROWS.min(n - row_block * UNIT_ROWS);
            let mut counts = [0u64; 256];
            let mut buffer = Vec::new();
            for first in (0..groups).step_by(GROUPS) {
                let some = first..groups.min(first + GROUPS);
                buffer.resize(rows * (k.min(some.end * UNIT_K) - first * UNIT_K), 0);
                decode_rows(packed, row_block, some, &mut buffer);
                buffer
                    .iter()
                    .for_each(|bits| counts[usize::from(bits >> 7 & 0xff)] += 1);
            }
            counts
        };
        let add = |mut a: [u64; 256], b: [u64; 256]| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        Histogram {
            counts: (0..row_blocks).into_par_iter().map(of_block).reduce(|| [0; 256], add),
        }
    }

    /// Weights of each exponent.
    pub fn counts(&self) -> &[u64; 256] {
        &self.counts
    }

    /// All weights.
    pub fn weights(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Weights by the high byte without the sign: the upper seven bits of the exponent.
    fn highs(&self) -> [u64; HIGHS] {
        std::array::from_fn(|high| self.counts[2 * high] + self.counts[2 * high + 1])
    }

    /// The palette that leaves the fewest exceptions: 0 and the seven most frequent high bytes, ascending. Of equally
    /// frequent ones the lower come first, so that equal weights have equal palettes.
    pub fn palette(&self) -> [u8; PALETTE] {
        let highs = self.highs();
        let mut order: Vec<usize> = (1..HIGHS).collect();
        order.sort_by_key(|&high| std::cmp::Reverse(highs[high]));
        let mut palette = [0; PALETTE];
        for (entry, &high) in palette.iter_mut().skip(1).zip(&order) {
            *entry = high as u8;
        }
        palette.sort_unstable();
        palette
    }

    /// Weights that the palette lacks.
    pub fn exceptions(&self, palette: &[u8; PALETTE]) -> u64 {
        let highs = self.highs();
        let found: u64 = palette.iter().filter_map(|&entry| highs.get(usize::from(entry))).sum();
        self.weights().saturating_sub(found)
    }

    /// What packing a matrix of this histogram and this shape gives.
    pub fn estimate(&self, shape: Shape) -> Result<Estimate> {
        let palette = self.palette();
        let exceptions = self.exceptions(&palette);
        Ok(Estimate {
            palette,
            exceptions,
            weights: self.weights(),
            bytes: packed_bytes(shape, exceptions)?,
        })
    }
}

/// What packing a matrix gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Estimate {
    palette: [u8; PALETTE],
    exceptions: u64,
    weights: u64,
    bytes: u64,
}

impl Estimate {
    /// The palette chosen.
    pub fn palette(&self) -> [u8; PALETTE] {
        self.palette
    }

    /// Weights that it lacks.
    pub fn exceptions(&self) -> u64 {
        self.exceptions
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bits of all parts per weight.
    pub fn bits_per_weight(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.weights as f64
    }

    /// Whether `auto` packs the matrix, and if not, why.
    pub fn pays(&self) -> Result<(), Leave> {
        if self.exceptions > self.weights / WEIGHTS_PER_EXCEPTION {
            Err(Leave::Exceptions {
                exceptions: self.exceptions,
                weights: self.weights,
            })
        } else if self.bits_per_weight() > MOST_BITS {
            Err(Leave::Bits {
                bits: self.bits_per_weight(),
            })
        } else {
            Ok(())
        }
    }
}

/// Why `auto` leaves a matrix in BF16.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Leave {
    /// Too many weights fall outside the palette.
    Exceptions {
        /// How many do.
        exceptions: u64,
        /// Of how many.
        weights: u64,
    },
    /// The packed form is hardly smaller, because of the padding of a small or narrow matrix.
    Bits {
        /// Bits per weight that it takes.
        bits: f64,
    },
}

impl fmt::Display for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Leave::Exceptions { exceptions, weights } => write!(
                f,
                "{exceptions} of {weights} weights are exceptions ({:.2} %), more than 1 in {WEIGHTS_PER_EXCEPTION}",
                100.0 * exceptions as f64 / weights as f64
            ),
            Leave::Bits { bits } => write!(
                f,
                "it takes {bits:.2} bits per weight with padding, more than {MOST_BITS}"
            ),
        }
    }
}
