//! BF16 weights, row-major `[N, K]` ⇄ the order in which the kernels stream them (see `kernels_gpu::layout`): units of
//! 16 rows × 64 columns, edges padded with zeros. Nothing is lost: packing and unpacking copy bits.

#[cfg(feature = "cuda")]
mod device;

#[cfg(feature = "cuda")]
pub use device::OnDevice;
#[cfg(feature = "cuda")]
pub(crate) use device::store;

use crate::{Result, Shape};
use half::bf16;
use kernels_gpu::instances::Format;
use kernels_gpu::layout::{UNIT_K, UNIT_ROWS, UNIT_WEIGHTS, units, weight_at};
use rayon::prelude::*;

/// Microseconds that a multiprocessor of an H200 takes to permute a unit to K order: the instructions of the machine
/// code, counted, not timed.
pub(crate) const PERMUTE_UNIT_US: f64 = 0.015;

/// Where each weight of a unit lies in it: `(row, column)` by place.
static PLACES: [(u8, u8); UNIT_WEIGHTS] = {
    let mut places = [(0, 0); UNIT_WEIGHTS];
    let mut at = 0;
    while at < UNIT_WEIGHTS {
        let (row, k) = weight_at(at);
        places[at] = (row as u8, k as u8);
        at += 1;
    }
    places
};

/// The format of weights of so many BF16 terms: 1 to 3.
pub(crate) const fn format_of(terms: usize) -> Format {
    match terms {
        0 | 1 => Format::Bf16,
        2 => Format::Bf16x2,
        _ => Format::Bf16x3,
    }
}

/// Weights that the packed form of a shape holds, padding included.
pub fn packed_len(shape: Shape) -> Result<usize> {
    let (row_blocks, groups) = units(shape.n(), shape.k());
    Shape::area("the packed weights", row_blocks * UNIT_ROWS, groups * UNIT_K)
}

/// Packs row-major `[N, K]` weights.
pub fn pack(weights: &[bf16], shape: Shape) -> Result<Vec<bf16>> {
    let (n, k) = (shape.n(), shape.k());
    Shape::check_len("the weights", weights.len(), n, k)?;
    let (row_blocks, groups) = units(n, k);
    let mut packed = Shape::filled(
        "the packed weights",
        row_blocks * UNIT_ROWS,
        groups * UNIT_K,
        bf16::ZERO,
    )?;
    packed
        .par_chunks_exact_mut(groups * UNIT_WEIGHTS)
        .zip(weights.par_chunks(UNIT_ROWS * k))
        .for_each(|(block, rows)| {
            for (group, unit) in block.chunks_exact_mut(UNIT_WEIGHTS).enumerate() {
                let (first, live_rows) = (group * UNIT_K, rows.len() / k);
                let live_columns = UNIT_K.min(k - first);
                for (weight, &(row, column)) in unit.iter_mut().zip(&PLACES) {
                    let (row, column) = (usize::from(row), usize::from(column));
                    if row < live_rows && column < live_columns {
                        *weight = rows[row * k + first + column];
                    }
                }
            }
        });
    Ok(packed)
}

/// Restores the row-major `[N, K]` weights from their packed form; padding is dropped unread.
pub fn unpack(packed: &[bf16], shape: Shape) -> Result<Vec<bf16>> {
    let (n, k) = (shape.n(), shape.k());
    let (row_blocks, groups) = units(n, k);
    Shape::check_len(
        "the packed weights",
        packed.len(),
        row_blocks * UNIT_ROWS,
        groups * UNIT_K,
    )?;
    let mut weights = vec![bf16::ZERO; Shape::area("the weights", n, k)?];
    weights
        .par_chunks_mut(UNIT_ROWS * k)
        .zip(packed.par_chunks_exact(groups * UNIT_WEIGHTS))
        .for_each(|(rows, block)| {
            for (group, unit) in block.chunks_exact(UNIT_WEIGHTS).enumerate() {
                let (first, live_rows) = (group * UNIT_K, rows.len() / k);
                let live_columns = UNIT_K.min(k - first);
                for (&weight, &(row, column)) in unit.iter().zip(&PLACES) {
                    let (row, column) = (usize::from(row), usize::from(column));
                    if row < live_rows && column < live_columns {
                        rows[row * k + first + column] = weight;
                    }
                }
            }
        });
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels_gpu::layout::place_in_unit;
    use proptest::prelude::*;

    /// Every element tells where it came from, up to 65536 of them.
    fn numbered(shape: Shape) -> Vec<bf16> {
        (0..shape.n() * shape.k()).map(|i| bf16::from_bits(i as u16)).collect()
    }

    #[test]
    fn an_element_lies_where_the_layout_says() {
        let shape = Shape::new(37, 200).unwrap();
        let weights = numbered(shape);
        let packed = pack(&weights, shape).unwrap();
        assert_eq!(packed.len(), 3 * 16 * 4 * 64);
        for row in 0..37 {
            for k in 0..200 {
                let unit = row / 16 * 4 + k / 64;
                let at = unit * UNIT_WEIGHTS + place_in_unit(row % 16, k % 64);
                assert_eq!(packed[at].to_bits(), weights[row * 200 + k].to_bits());
            }
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let shape = Shape::new(3, 5).unwrap();
        assert!(pack(&[bf16::ONE; 14], shape).is_err());
        assert!(unpack(&[bf16::ONE; 15], shape).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn packing_and_unpacking_are_inverse(n in 1usize..150, k in 1usize..300, seed in any::<u16>()) {
            let shape = Shape::new(n, k).unwrap();
            let weights: Vec<bf16> = (0..n * k).map(|i| bf16::from_bits((i as u16).wrapping_mul(40_503).wrapping_add(seed))).collect();
            let packed = pack(&weights, shape).unwrap();
            prop_assert_eq!(packed.len(), packed_len(shape).unwrap());
            let back = unpack(&packed, shape).unwrap();
            prop_assert!(back.iter().map(|v| v.to_bits()).eq(weights.iter().map(|v| v.to_bits())));
        }

        #[test]
        fn padding_is_zero(n in 1usize..40, k in 1usize..140) {
            let shape = Shape::new(n, k).unwrap();
            let packed = pack(&vec![bf16::ONE; n * k], shape).unwrap();
            prop_assert_eq!(packed.iter().filter(|v| v.to_bits() != 0).count(), n * k);
        }
    }
}
