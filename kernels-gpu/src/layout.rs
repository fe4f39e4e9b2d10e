//! Where a weight lies once it is packed for the tensor cores.
//!
//! Weights `[N, K]` are cut into *units* of [`UNIT_ROWS`] rows × [`UNIT_K`] columns, stored row block by row block and,
//! inside one, along K. A unit holds four *steps*, one `mma.m16n8k16` A operand each; a step holds for every lane, in
//! lane order, the 16 bytes of its A fragment, so a warp reads a step with one conflict-free 128-bit load per lane.
//!
//! The order inside a unit is `[step 4][g 8][t 4][j 2][h 2][e 2]` with row = 8·h + g and k = 32·(step / 2) + 8·t +
//! 4·(step % 2) + 2·j + e, where lane = 4·g + t. K is permuted inside the unit so that the B fragments of lane t, for
//! two steps, are eight consecutive x values: one 16-byte load, with which the four lanes of a token cover two whole
//! 32-byte sectors. A sum does not care about the order of its terms as long as A and B agree on it.
//!
//! ```text
//!            k →   0..7   8..15  16..23  24..31   32..39  40..47  48..55  56..63
//!  row 0..7   h=0 [t = 0][t = 1][t = 2][t = 3]   [t = 0][t = 1][t = 2][t = 3]
//!  row 8..15  h=1 [t = 0][t = 1][t = 2][t = 3]   [t = 0][t = 1][t = 2][t = 3]
//!                  └── steps 0 and 1 ──────────┘  └── steps 2 and 3 ──────────┘
//!            inside a t: four values of the even step, then four of the odd; inside a step: j = 0: two, j = 1: two
//! ```

/// Rows of a unit: the M of the tensor-core instruction.
pub const UNIT_ROWS: usize = 16;
/// Columns of a unit: four steps of the instruction's K = 16.
pub const UNIT_K: usize = 64;
/// Tensor-core steps in a unit.
pub const UNIT_STEPS: usize = 4;
/// Weights in a unit.
pub const UNIT_WEIGHTS: usize = UNIT_ROWS * UNIT_K;
/// Tokens of a token block: the N of the tensor-core instruction.
pub const TOKEN_BLOCK: usize = 8;

/// Where the weight at `row` < 16, `k` < 64 of a unit lies, counted in weights from the unit's start.
pub const fn place_in_unit(row: usize, k: usize) -> usize {
    let (h, g) = (row / 8, row % 8);
    let (t, step, j, e) = (k % 32 / 8, k / 32 * 2 + k % 8 / 4, k % 4 / 2, k % 2);
    ((((step * 8 + g) * 4 + t) * 2 + j) * 2 + h) * 2 + e
}

/// The `(row, k)` of the weight at `place` < 1024 of a unit; the inverse of [`place_in_unit`].
pub const fn weight_at(place: usize) -> (usize, usize) {
    let (e, h, j) = (place % 2, place / 2 % 2, place / 4 % 2);
    let (t, g, step) = (place / 8 % 4, place / 32 % 8, place / 256);
    (8 * h + g, 32 * (step / 2) + 8 * t + 4 * (step % 2) + 2 * j + e)
}

/// Units along N (row blocks) and along K (K groups) of a weight matrix `[n, k]`; edges are padded with zeros.
pub const fn units(n: usize, k: usize) -> (usize, usize) {
    (n.div_ceil(UNIT_ROWS), k.div_ceil(UNIT_K))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_map_and_its_inverse_cover_a_unit() {
        for place in 0..UNIT_WEIGHTS {
            let (row, k) = weight_at(place);
            assert!(row < UNIT_ROWS && k < UNIT_K);
            assert_eq!(place_in_unit(row, k), place);
        }
    }

    /// The A fragment of `mma.m16n8k16` (PTX ISA, matrix fragments): register i of lane 4g + t holds a pair of row
    /// g + 8·(i % 2), and it meets B's register i / 2, the pair of x values that the same lane t holds.
    #[test]
    fn a_lane_finds_its_fragment_in_sixteen_consecutive_bytes() {
        for step in 0..UNIT_STEPS {
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4);
                for register in 0..4 {
                    for e in 0..2 {
                        let place = step * 256 + lane * 8 + register * 2 + e;
                        let x_load = 32 * (step / 2) + 8 * t;
                        let in_load = 4 * (step % 2) + 2 * (register / 2) + e;
                        assert_eq!(weight_at(place), (g + 8 * (register % 2), x_load + in_load));
                    }
                }
            }
        }
    }

    #[test]
    fn edges_round_up() {
        assert_eq!(units(1, 1), (1, 1));
        assert_eq!(units(16, 64), (1, 1));
        assert_eq!(units(17, 65), (2, 2));
    }
}
