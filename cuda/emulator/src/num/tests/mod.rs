//! The arithmetic against references that are computed in another way.

mod bits;
mod convert;
mod float;
mod mma;

use super::Rounding;

const ROUNDINGS: [Rounding; 5] = [
    Rounding::Nearest,
    Rounding::NearestAway,
    Rounding::Zero,
    Rounding::Down,
    Rounding::Up,
];

/// What a correct rounding of an exact value may be, given its neighbours in the format (equal where it is exact) and
/// on which side of their middle it lies.
fn expected<T: Copy>(
    rounding: Rounding,
    [down, up]: [T; 2],
    negative: bool,
    past_middle: std::cmp::Ordering,
    odd_down: bool,
) -> T {
    use std::cmp::Ordering::*;
    let upper = match (rounding, past_middle) {
        (Rounding::Up, _) | (Rounding::Nearest | Rounding::NearestAway, Greater) => true,
        (Rounding::Down, _) | (Rounding::Nearest | Rounding::NearestAway, Less) => false,
        (Rounding::Zero, _) => negative,
        (Rounding::NearestAway, Equal) => !negative,
        (Rounding::Nearest, Equal) => odd_down,
    };
    if upper { up } else { down }
}
