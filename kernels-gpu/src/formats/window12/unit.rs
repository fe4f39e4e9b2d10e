//! Where a weight lies in a `window12` unit.

use crate::layout::{UNIT_WEIGHTS, place_in_unit};

/// Bytes of a `window12` unit: 12 bits per weight.
pub const WINDOW12_UNIT_BYTES: usize = UNIT_WEIGHTS * 12 / 8;
/// Bytes of a plane of a `window12` unit: 16 per lane.
pub const WINDOW12_PLANE_BYTES: usize = 512;
/// Entries of a `window12` palette.
pub const PALETTE: usize = 8;
/// Where a weight lies in a `window12` unit, which holds three planes of [`WINDOW12_PLANE_BYTES`], 16 bytes per lane
/// each: the low bytes of steps 0 and 1, those of steps 2 and 3, and one little-endian code word per step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window12Place {
    /// The byte, from the unit's start, that holds the weight's low byte: the exponent's lowest bit and the mantissa.
    pub low: usize,
    /// The byte from which the code word starts, from the unit's start.
    pub code: usize,
    /// The bit of the code word from which the three bits of the palette index start.
    pub index: u32,
    /// The bit of the code word that holds the sign.
    pub sign: u32,
}

/// Where the weight at `row` < 16, `k` < 64 of a `window12` unit lies.
///
/// The code word gives weight i of a step (in the order of the A fragment) the bits 4·i..4·i + 3 for its palette index:
/// as they stand they select bytes for `prmt`, four weights at a time. The signs take the bits left over so that one
/// mask, or one shift by four and the same mask, brings them to the top of four bytes: bit 8·i + 7 for i < 4, bit 8·(i
/// - 4) + 3 beyond.
pub const fn place_in_window12(row: usize, k: usize) -> Window12Place {
    let place = place_in_unit(row, k);
    let (step, lane, i) = (place / 256, place / 8 % 32, place % 8);
    Window12Place {
        low: step / 2 * WINDOW12_PLANE_BYTES + lane * 16 + step % 2 * 8 + i,
        code: 2 * WINDOW12_PLANE_BYTES + lane * 16 + step * 4,
        index: 4 * i as u32,
        sign: if i < 4 {
            8 * i as u32 + 7
        } else {
            8 * (i as u32 - 4) + 3
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::weight_at;

    #[test]
    fn a_window12_unit_gives_every_weight_twelve_bits_of_its_own() {
        let mut taken = [0u8; WINDOW12_UNIT_BYTES];
        let mut take = |bit: usize| {
            assert_eq!(taken[bit / 8] & 1 << (bit % 8), 0);
            taken[bit / 8] |= 1 << (bit % 8);
        };
        for place in 0..UNIT_WEIGHTS {
            let (row, k) = weight_at(place);
            let at = place_in_window12(row, k);
            (0..8).for_each(|bit| take(8 * at.low + bit));
            (0..3).for_each(|bit| take(8 * at.code + at.index as usize + bit));
            take(8 * at.code + at.sign as usize);
        }
        assert!(taken.iter().all(|&byte| byte == 0xff));
    }
}
