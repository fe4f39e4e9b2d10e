//! Where the elements of fragments are.

/// A register: 32 bits, or 64 of F64.
pub(super) fn width(bits: usize) -> usize {
    bits.max(32)
}

/// Where element `i` of a lane is in A, row and column: the tables of the ISA's fragments. All of them are one pattern,
/// in which a register holds as many neighbours of a row as fit, registers first go eight rows down, then four
/// registers to the right.
pub(super) fn place_in_a(rows: usize, bits: usize, lane: usize, i: usize) -> (usize, usize) {
    let per = width(bits) / bits;
    let (register, part) = (i / per, i % per);
    let below = register % (rows / 8);
    (
        lane / 4 + 8 * below,
        lane % 4 * per + part + register / (rows / 8) * 4 * per,
    )
}

pub(super) fn place_in_b(bits: usize, lane: usize, i: usize) -> (usize, usize) {
    let per = width(bits) / bits;
    (lane % 4 * per + i % per + i / per * 4 * per, lane / 4)
}

pub(super) fn place_in_c(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2)
}

/// How a fragment's elements lie, stated in another way: of four neighbouring lanes and of each four lanes one place
/// further, then of a lane's elements from the fastest index on (how many, how far apart). Places count along the
/// columns of A and of C, and along the rows of B.
type Strides = ([usize; 2], &'static [(usize, usize)]);

/// As CUTLASS 3 states them for the instructions of 8.0, 8.9 and 9.0 in F64 and FP8 (`MMA_Traits`): rows, depth, bits
/// of an element, then A, B and C.
const STATED: &[(usize, usize, usize, [Strides; 3])] = &[
    (8, 4, 64, [([8, 1], &[]), ([8, 1], &[]), ([16, 1], &[(2, 8)])]),
    (
        16,
        4,
        64,
        [([16, 1], &[(2, 8)]), ([8, 1], &[]), ([32, 1], &[(2, 16), (2, 8)])],
    ),
    (
        16,
        8,
        64,
        [
            ([16, 1], &[(2, 8), (2, 64)]),
            ([8, 1], &[(2, 32)]),
            ([32, 1], &[(2, 16), (2, 8)]),
        ],
    ),
    (
        16,
        16,
        64,
        [
            ([16, 1], &[(2, 8), (4, 64)]),
            ([8, 1], &[(4, 32)]),
            ([32, 1], &[(2, 16), (2, 8)]),
        ],
    ),
    (
        16,
        32,
        8,
        [
            ([64, 1], &[(4, 16), (2, 8), (2, 256)]),
            ([32, 1], &[(4, 8), (2, 128)]),
            ([32, 1], &[(2, 16), (2, 8)]),
        ],
    ),
];

#[test]
fn fragments_lie_as_others_state_it() {
    for &(rows, depth, bits, stated) in STATED {
        let counts = [rows * depth / 32, depth * 8 / 32, rows * 8 / 32];
        for (matrix, (([fast, slow], strides), count)) in stated.into_iter().zip(counts).enumerate() {
            for (lane, i) in (0..32).flat_map(|lane| (0..count).map(move |i| (lane, i))) {
                let (mut place, mut left) = (lane % 4 * fast + lane / 4 * slow, i);
                for (size, stride) in strides {
                    place += left % size * stride;
                    left /= size;
                }
                assert_eq!(left, 0);
                let ours = match matrix {
                    0 => place_in_a(rows, bits, lane, i),
                    1 => place_in_b(bits, lane, i),
                    _ => place_in_c(lane, i),
                };
                let (row, column) = ours;
                let counted = if matrix == 1 {
                    column + row * 8
                } else {
                    row + column * rows
                };
                assert_eq!(
                    counted, place,
                    "matrix {matrix} of {rows} rows and depth {depth}, element {i} of lane {lane}"
                );
            }
        }
    }
}
