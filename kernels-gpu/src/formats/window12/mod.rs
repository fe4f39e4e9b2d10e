//! `window12`: 12 bits per weight, lossless with the exceptions apart.
//!
//! A weight's low byte is stored as it is; its high byte is a sign and an index into a palette of eight. A weight whose
//! high byte the palette lacks is an exception: it lies in a list of its own, and its place in the unit decodes to +0.

use super::{Decoding, Facts};
use crate::args::GemvArgs;
use crate::instances::Counts;
use crate::layout::UNIT_STEPS;

mod instances;
mod unit;

pub use instances::{GEMV_WINDOW12, WINDOW12_PACKED_GEMM};
pub use unit::*;

#[cfg(target_arch = "nvptx64")]
mod decode;
#[cfg(target_arch = "nvptx64")]
mod device;
#[cfg(target_arch = "nvptx64")]
mod exceptions;

/// What a `gemv_window12` kernel is given, as its one by-value parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window12Args {
    /// As for BF16 weights; `weights` are `window12` units.
    pub gemv: GemvArgs,
    /// Where each row block's exceptions start, counted in exceptions: a `u64` per row block, then the end,
    /// [`STARTS_AFTER`] times, since a CTA looks at all its row blocks even where there are fewer.
    pub starts: u64,
    /// The exceptions, [`Exception`] each, row block by row block.
    pub exceptions: u64,
    /// The palette's high bytes, entry i in byte i.
    pub palette: [u32; 2],
}

/// How often the end of the exceptions stands behind the starts on the device: as many row blocks as a CTA serves at
/// most.
pub const STARTS_AFTER: usize = 4;

/// Exceptions of its rows that a quad of lanes takes at once, at most.
pub(crate) const TAKEN: usize = 4;

/// The same with so many token blocks: more of them leave registers for fewer.
pub(crate) const fn taken(token_blocks: usize) -> usize {
    if token_blocks == 1 { TAKEN } else { TAKEN - 1 }
}

/// A weight whose high exponent bits the palette lacks; its place in the unit decodes to +0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The weight, a BF16 bit pattern.
    pub value: u16,
    /// Its row in the row block, below 16.
    pub row: u16,
    /// Its column.
    pub column: u32,
}

/// Permutations of bytes that decode a unit: six for eight weights of a lane.
const PERMUTATIONS: (&str, usize) = ("PRMT", 6 * UNIT_STEPS);

pub(super) const FACTS: Facts = Facts {
    name: "window12",
    terms: 1,
    unit_bytes: WINDOW12_UNIT_BYTES,
    few_token_counts: |token_blocks| Counts {
        // The weights and the columns of those that a quad takes at once, of the first ones and the next.
        shfl_sync: 4 * taken(token_blocks),
        // Which lanes hold exceptions, and three bits of their rows, for the first ones and the next; whether any are
        // left.
        vote_sync: 9,
        ..Counts::NONE
    },
    packed_counts: Counts {
        // The low bytes of halves of units are loaded as matrices.
        ldmatrix: 2,
        // Where exceptions start: in the list, and among 32.
        vote_sync: 2,
        // Each of them: its weight, and the next one's column.
        shfl_sync: 5,
        ..Counts::NONE
    },
    few_token_decoding: Decoding {
        at_least: &[PERMUTATIONS],
        integers: Some((16 * UNIT_STEPS, 0)),
    },
    packed_decoding: Decoding {
        at_least: &[("LDSM", UNIT_STEPS / 2), PERMUTATIONS],
        // Beside the units: the ways that exceptions take.
        integers: Some((40 * UNIT_STEPS, 104)),
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cta_looks_beyond_the_starts_of_exceptions() {
        assert!(GEMV_WINDOW12.iter().all(|i| i.row_blocks <= STARTS_AFTER));
    }
}
