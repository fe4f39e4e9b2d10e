//! One unit of weights ⇄ its 1,536 bytes, eight weights at a time in a register. Tests hold it against the index map of
//! `kernels_gpu::layout`, which is the specification.

use kernels_gpu::formats::window12::{PALETTE, WINDOW12_PLANE_BYTES, WINDOW12_UNIT_BYTES};
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS};

/// A unit's weights as BF16 bit patterns, row by row.
pub(super) type Tile = [[u16; UNIT_K]; UNIT_ROWS];
/// A unit's bytes.
pub(super) type Unit = [u8; WINDOW12_UNIT_BYTES];
/// A bit per weight of a unit.
pub(super) type Bits = [u64; UNIT_ROWS];

pub(super) const EMPTY: Tile = [[0; UNIT_K]; UNIT_ROWS];

const SIGN: u8 = 0x80;
const SIGNS: u64 = u64::from_ne_bytes([SIGN; 8]);
/// The low byte of every weight of a row.
const LOW_BYTES: u64 = 0x00ff_00ff_00ff_00ff;
/// The bytes of the first row where those of two rows alternate in pairs.
const PAIRS: u64 = 0x0000_ffff_0000_ffff;
/// The indices in a byte of a code word; the bits between are signs.
const TWO_INDICES: usize = 0x77;

/// Where the eight weights lie that a step of a lane has: four of row `g`, from `column` on, and four of row `g + 8`.
struct Step {
    g: usize,
    column: usize,
    /// Its eight low bytes in a unit.
    low: usize,
    /// Its code word in a unit.
    code: usize,
}

#[inline(always)]
fn each_step(mut call: impl FnMut(Step)) {
    for g in 0..UNIT_ROWS / 2 {
        for eight in 0..UNIT_K / 8 {
            let (t, half) = (eight % 4, eight / 4);
            let lane = 16 * (4 * g + t);
            for odd in 0..2 {
                call(Step {
                    g,
                    column: 8 * eight + 4 * odd,
                    low: half * WINDOW12_PLANE_BYTES + lane + 8 * odd,
                    code: 2 * WINDOW12_PLANE_BYTES + lane + 4 * (2 * half + odd),
                });
            }
        }
    }
}

/// Four weights of a row.
#[inline(always)]
fn four(row: &[u16; UNIT_K], column: usize) -> u64 {
    let [a, b, c, d] = row.as_chunks().0[column / 4].map(u64::from);
    a | b << 16 | c << 32 | d << 48
}

/// A byte of each of four weights of two rows, in the order of the A fragments: two of one row, two of the other, and
/// again.
#[inline(always)]
fn interleave(a: u64, b: u64) -> u64 {
    let pairs = |bytes: u64| (bytes | bytes >> 8) & PAIRS;
    pairs(a & LOW_BYTES) | pairs(b & LOW_BYTES) << 16
}

/// The inverse of [`interleave`].
#[inline(always)]
fn separate(bytes: u64) -> [u64; 2] {
    let spread = |pairs: u64| (pairs | pairs << 8) & LOW_BYTES;
    [spread(bytes & PAIRS), spread(bytes >> 16 & PAIRS)]
}

/// How a palette encodes, by pairs of high bytes without their signs.
pub(super) struct EncodeTable {
    /// The byte of the code word without its signs.
    codes: Box<[u8; 1 << 15]>,
    /// Whether the palette lacks one of the two.
    lacking: Box<[u8; 1 << 15]>,
    /// A mask of ones where the palette has a high byte, with its sign or without.
    present: [u8; 256],
}

impl EncodeTable {
    pub(super) fn new(palette: [u8; PALETTE]) -> Self {
        let index = |high: u8| palette.iter().position(|&entry| entry == high & !SIGN);
        let mut table = EncodeTable {
            codes: Box::new([0; 1 << 15]),
            lacking: Box::new([0; 1 << 15]),
            present: std::array::from_fn(|high| if index(high as u8).is_some() { 0xff } else { 0 }),
        };
        for pair in 0..1 << 15 {
            let [first, second] = [pair as u8, (pair >> 8) as u8].map(index);
            table.codes[pair] = (first.unwrap_or(0) | second.unwrap_or(0) << 4) as u8;
            table.lacking[pair] = u8::from(first.is_none() || second.is_none());
        }
        table
    }

    /// Writes a unit. The places of weights that the palette lacks become +0; the answer is which ones these are.
    pub(super) fn encode(&self, tile: &Tile, unit: &mut Unit) -> Option<Bits> {
        let mut missing = None;
        each_step(|at| {
            let (a, b) = (four(&tile[at.g], at.column), four(&tile[at.g + 8], at.column));
            let (mut low, mut high) = (interleave(a, b), interleave(a >> 8, b >> 8));
            let (mut indices, mut lacking) = (0, 0);
            for pair in 0..4 {
                let highs = (high >> (16 * pair)) as usize & 0x7f7f;
                indices |= u32::from(self.codes[highs]) << (8 * pair);
                lacking |= self.lacking[highs];
            }
            if lacking != 0 {
                let present = self.take_out(high, &at, missing.get_or_insert([0; UNIT_ROWS]));
                low &= present;
                high &= present;
            }
            let signs = high & SIGNS;
            unit[at.low..at.low + 8].copy_from_slice(&low.to_le_bytes());
            unit[at.code..at.code + 4].copy_from_slice(&(indices | signs as u32 | (signs >> 36) as u32).to_le_bytes());
        });
        missing
    }

    /// Notes the weights of a step that the palette lacks; a mask of the bytes of the others.
    fn take_out(&self, high: u64, at: &Step, missing: &mut Bits) -> u64 {
        let present = high.to_le_bytes().map(|high| self.present[usize::from(high)]);
        for (i, mask) in present.into_iter().enumerate() {
            let (j, h, e) = (i / 4, i / 2 % 2, i % 2);
            missing[at.g + 8 * h] |= u64::from(!mask & 1) << (at.column + 2 * j + e);
        }
        u64::from_le_bytes(present)
    }
}

/// How a palette decodes, by the byte of a code word without its signs: a pair of high bytes.
pub(super) struct DecodeTable([u16; TWO_INDICES + 1]);

impl DecodeTable {
    pub(super) fn new(palette: &[u8; PALETTE]) -> Self {
        DecodeTable(std::array::from_fn(|code| {
            u16::from_le_bytes([palette[code % PALETTE], palette[code / 16 % PALETTE]])
        }))
    }

    /// Reads a unit.
    pub(super) fn decode(&self, unit: &Unit, tile: &mut Tile) {
        each_step(|at| {
            let (mut low, mut code) = ([0; 8], [0; 4]);
            low.copy_from_slice(&unit[at.low..at.low + 8]);
            code.copy_from_slice(&unit[at.code..at.code + 4]);
            let code = u64::from(u32::from_le_bytes(code));
            let mut high = (code | code << 36) & SIGNS;
            for pair in 0..4 {
                high |= u64::from(self.0[(code >> (8 * pair)) as usize & TWO_INDICES]) << (16 * pair);
            }
            let (low, high) = (separate(u64::from_le_bytes(low)), separate(high));
            for h in 0..2 {
                let weights = low[h] | high[h] << 8;
                tile[at.g + 8 * h].as_chunks_mut().0[at.column / 4] = [
                    weights as u16,
                    (weights >> 16) as u16,
                    (weights >> 32) as u16,
                    (weights >> 48) as u16,
                ];
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels_gpu::formats::window12::place_in_window12;

    /// The decoder that the specification describes, weight by weight.
    fn specified(unit: &Unit, palette: &[u8; PALETTE], row: usize, k: usize) -> u16 {
        let at = place_in_window12(row, k);
        let word = u32::from_le_bytes(unit[at.code..at.code + 4].try_into().unwrap());
        let high = palette[(word >> at.index & 7) as usize] | ((word >> at.sign & 1) << 7) as u8;
        u16::from_le_bytes([unit[at.low], high])
    }

    const PALETTE_OF_TEST: [u8; PALETTE] = [0, 0x3b, 0x3c, 0x3d, 0x3e, 0x3f, 0x40, 0x7f];

    #[test]
    fn any_bytes_decode_as_specified() {
        let mut state = 1u64;
        for _ in 0..20 {
            let unit: Unit = std::array::from_fn(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            });
            let mut tile = EMPTY;
            DecodeTable::new(&PALETTE_OF_TEST).decode(&unit, &mut tile);
            for (row, weights) in tile.iter().enumerate() {
                for (k, &weight) in weights.iter().enumerate() {
                    assert_eq!(weight, specified(&unit, &PALETTE_OF_TEST, row, k), "{row} {k}");
                }
            }
            // Every code has a weight and every weight of the palette one code, so encoding restores the bytes.
            let mut again = [0; WINDOW12_UNIT_BYTES];
            assert_eq!(EncodeTable::new(PALETTE_OF_TEST).encode(&tile, &mut again), None);
            assert_eq!(unit, again);
        }
    }

    #[test]
    fn what_the_palette_lacks_is_told_and_left_zero() {
        let table = EncodeTable::new(PALETTE_OF_TEST);
        for row in 0..UNIT_ROWS {
            for k in 0..UNIT_K {
                let mut tile = [[0x3f80; UNIT_K]; UNIT_ROWS];
                tile[row][k] = 0x8181;
                let mut unit = [0; WINDOW12_UNIT_BYTES];
                let told = std::array::from_fn(|r| u64::from(r == row) << k);
                assert_eq!(table.encode(&tile, &mut unit), Some(told), "{row} {k}");
                tile[row][k] = 0;
                let mut decoded = [[1; UNIT_K]; UNIT_ROWS];
                DecodeTable::new(&PALETTE_OF_TEST).decode(&unit, &mut decoded);
                assert_eq!(tile, decoded);
            }
        }
    }
}
