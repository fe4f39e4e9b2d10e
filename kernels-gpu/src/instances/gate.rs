//! What a router's gate takes of an instance.

use super::{Counts, WARP};

/// Experts that a gate can choose from, at most.
pub const MAX_EXPERTS: usize = 1024;
/// Experts that a gate can choose, at most.
pub const MAX_TOP_K: usize = 32;
/// Groups of experts, at most.
pub const MAX_GROUPS: usize = 32;

/// Experts that a warp works on at once.
pub const GATE_TILE: usize = 256;

/// Bytes of shared memory that a token takes: for every expert that a power of two has room for, and at least a tile of
/// them, a logit, a key and a pair of words; a pair per lane; and four words.
pub const fn gate_bytes(experts: usize) -> usize {
    let room = experts.next_power_of_two();
    (if room > GATE_TILE { room } else { GATE_TILE }) * 16 + WARP * 8 + 16
}

/// What the election of the last CTA adds to an entry.
pub(super) const ELECTION_COUNTS: Counts = Counts {
    bar_red: 1,
    atom: 1,
    ..Counts::NONE
};

/// What the election of the last CTA and a gate add to an entry.
pub(super) const GATE_COUNTS: Counts = Counts {
    // Between what is done with experts and with tokens, three for scores that need one another; and between batches of
    // tokens.
    bar_sync: 4,
    // Half of them keep loads together.
    bar_warp_sync: 15,
    // For softmax five to add up, two to put together a group, two to hand on its key, and one over the chosen.
    shfl_sync: 10,
    // Groups that stay, a bound, and a place for each slot of a tile.
    vote_sync: 10,
    redux_sync: 2,
    ..ELECTION_COUNTS
};
