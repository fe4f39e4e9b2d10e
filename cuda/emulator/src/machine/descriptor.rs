//! Matrices in shared memory, as `wgmma` descriptors tell of them (PTX ISA 9.7.15.5, "Asynchronous Warpgroup Level
//! Matrix Shared Memory Layout").
//!
//! A matrix consists of blocks of 8 × 16 bytes. Without a swizzle a block's eight rows of 16 bytes lie one behind the
//! other. With one, rows of 32, 64 or 128 bytes do, and the 16-byte pieces of a row change places according to the bits
//! of the address that number the rows: the pattern repeats every eight rows.

use crate::error::FaultKind;
use crate::tensor_map::swizzled;

/// What is wrong with a descriptor.
pub(super) type Flaw = (FaultKind, String);

/// Bytes that lie side by side whatever the layout.
pub(super) const PIECE: u32 = 16;
/// BF16 elements of a piece.
const PIECE_ELEMENTS: u32 = 8;
/// Bytes of the elements along K that one instruction takes.
const STEP: u32 = 32;
/// Elements along K that one instruction takes.
const STEP_ELEMENTS: u32 = 16;

/// A BF16 matrix, 16 elements along K and any number along M or N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matrix {
    /// The first element's address.
    start: u32,
    /// Bytes between neighbouring blocks: the "leading" and the "stride" offset.
    leading: u32,
    stride: u32,
    /// Bytes of a row; 16 without a swizzle.
    row: u32,
    /// Whether neighbours along M or N lie side by side, rather than neighbours along K.
    transposed: bool,
}

impl Matrix {
    /// Reads a descriptor of a matrix that has so many elements along M or N.
    pub(super) fn new(bits: u64, transposed: bool, length: u32) -> Result<Matrix, Flaw> {
        let field = |from: u32, count: u32| (bits >> from) as u32 & ((1 << count) - 1);
        let bad = |detail: String| {
            let detail = format!("the matrix descriptor {bits:#018x} {detail}");
            (FaultKind::BadInstruction, detail)
        };
        const UNUSED: u64 = 0x3ff1_c000_c000_c000;
        if bits & UNUSED != 0 {
            let unused = bits & UNUSED;
            return Err(bad(format!(
                "has bits set that mean nothing, {unused:#x}: has a field run over?"
            )));
        }
        if field(49, 3) != 0 {
            return Err(bad(format!(
                "has the base offset {}: only 0 is supported, for swizzle patterns that start at multiples of their size",
                field(49, 3)
            )));
        }
        let row = [16, 128, 64, 32][field(62, 2) as usize];
        let matrix = Matrix {
            start: field(0, 14) * PIECE,
            leading: field(16, 14) * PIECE,
            stride: field(32, 14) * PIECE,
            row,
            transposed,
        };
        matrix.check(length).map_err(|why| {
            let detail = format!("the matrix descriptor {bits:#018x} {why}");
            (FaultKind::Misaligned, detail)
        })?;
        Ok(matrix)
    }

    /// What of it does not fit the swizzle.
    fn check(&self, length: u32) -> Result<(), String> {
        if self.row == PIECE {
            return Ok(());
        }
        let (row, pattern) = (self.row, 8 * self.row);
        let within = self.start % pattern;
        let start = self.start;
        if self.transposed && within != 0 {
            return Err(format!(
                "starts at {start:#x}, which is no multiple of the {pattern} bytes of its swizzle"
            ));
        }
        if within + STEP > row {
            return Err(format!(
                "starts at {start:#x}, {within} bytes behind a multiple of the {pattern} bytes of its swizzle: {STEP} bytes from \
                 there must lie in the first row of {row} bytes"
            ));
        }
        let strides: &[(&str, u32)] = match (self.transposed, length > PIECE_ELEMENTS, length > row / 2) {
            (true, _, true) => &[("stride", self.stride), ("leading", self.leading)],
            (true, _, false) | (false, true, _) => &[("stride", self.stride)],
            (false, false, _) => &[],
        };
        match strides.iter().find(|(_, stride)| stride % pattern != 0) {
            Some((name, stride)) => Err(format!(
                "has a {name} byte offset of {stride}, no multiple of the {pattern} bytes of its swizzle"
            )),
            None => Ok(()),
        }
    }

    /// The address of element `k` along K of row or column `mn`.
    #[inline]
    pub(super) fn at(&self, mn: u32, k: u32) -> u32 {
        let linear = match (self.transposed, self.row == PIECE) {
            (false, true) => {
                self.start
                    + mn / 8 * self.stride
                    + mn % 8 * PIECE
                    + k / PIECE_ELEMENTS * self.leading
                    + k % PIECE_ELEMENTS * 2
            }
            (false, false) => self.start + mn / 8 * self.stride + mn % 8 * self.row + k * 2,
            (true, true) => {
                self.start
                    + mn / PIECE_ELEMENTS * self.stride
                    + mn % PIECE_ELEMENTS * 2
                    + k % 8 * PIECE
                    + k / 8 * self.leading
            }
            (true, false) => {
                let across = self.row / 2;
                self.start + mn / across * self.leading + mn % across * 2 + k % 8 * self.row + k / 8 * self.stride
            }
        };
        swizzled(linear.into(), self.row.into()) as u32
    }

    /// The addresses of the 16-byte pieces that hold `length` rows or columns from `first` on.
    pub(super) fn pieces(&self, first: u32, length: u32) -> Vec<u32> {
        let (along_mn, along_k) = if self.transposed {
            (PIECE_ELEMENTS, 1)
        } else {
            (1, PIECE_ELEMENTS)
        };
        let (rows, columns) = (length / along_mn, STEP_ELEMENTS / along_k);
        let mut pieces = Vec::with_capacity((rows * columns) as usize);
        for row in 0..rows {
            pieces.extend((0..columns).map(|column| self.at(first + row * along_mn, column * along_k)));
        }
        pieces
    }

    /// Row or column `mn`. Shared memory's first byte has the address `base`, and all pieces must lie inside.
    #[inline]
    pub(super) fn row(&self, shared: &[u8], base: u32, mn: u32) -> [u16; 16] {
        let mut row = [0; 16];
        let run = if self.transposed { 1 } else { PIECE_ELEMENTS as usize };
        for (i, elements) in row.chunks_exact_mut(run).enumerate() {
            let at = (self.at(mn, (i * run) as u32) - base) as usize;
            for (element, bytes) in elements.iter_mut().zip(shared[at..at + 2 * run].chunks_exact(2)) {
                *element = u16::from_le_bytes([bytes[0], bytes[1]]);
            }
        }
        row
    }
}
