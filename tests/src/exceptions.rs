//! Weights of which a share of choice are exceptions of the `window12` format.

use crate::Values;
use hopper_proj::bf16;

/// Exponents that fill the palette: those of values from 2⁻¹³ to 2.
const COMMON: std::ops::Range<u16> = 114..128;
/// Exponents that it lacks, as none of them is as frequent as a common one, or 0.
const RARE: std::ops::Range<u16> = 60..110;

/// Weights of which about this share is rare: there are 14 common exponents in 7 pairs, and rare ones in 25 pairs, so
/// with all weights rare the palette still holds 7 of the 25.
pub fn weights(values: &mut Values, len: usize, rate: f64) -> Vec<bf16> {
    let words = values.words(2 * len);
    let (dice, bits) = words.split_at(len);
    dice.iter()
        .zip(bits)
        .map(|(&dice, &bits)| {
            let rare = f64::from(dice) < rate * 2f64.powi(32);
            let exponents = if rare { RARE } else { COMMON };
            let exponent = exponents.start + (bits >> 16) as u16 % exponents.len() as u16;
            bf16::from_bits((bits as u16 & 0x807f) | exponent << 7)
        })
        .collect()
}
