//! The choice of a token's best experts, by one warp.

use super::{NAN, OUT, PAIR, Scratch, WORD, candidate, pair, slot};
use cuda_std::shared::{self, SharedAddr};
use cuda_std::warp::{self, WARP_SIZE};

/// Pairs that a lane reads at once where it counts.
const COUNTED: u32 = 16;

/// How many of the `count` numbers at `list` are larger than `mine`. Zeros follow them up to a multiple of [`COUNTED`].
/// The warp is together, and has read the list when it comes back.
///
/// # Safety
///
/// The list is written, zeros behind it included, before a barrier that the warp has met. The whole warp calls it.
#[inline(always)]
pub(super) unsafe fn rank(list: SharedAddr, count: u32, mine: u64) -> u32 {
    let mut rank = 0;
    let mut at = 0;
    while at < count {
        // SAFETY: the list and the zeros behind it lie in the token's part of shared memory.
        let pairs = unsafe { shared::load_16_u64(list + at * PAIR) };
        // Keeps the loads together: see `Scratch::tile`.
        warp::sync_warp(u32::MAX);
        for &pair in &pairs {
            rank += u32::from(pair > mine);
        }
        at += COUNTED;
    }
    rank
}

/// The id of the lane's choice: lane i gets the i-th best expert, and lanes from `top_k` on get the last one too.
///
/// # Safety
///
/// Every expert's key is in the token's part of shared memory, before a barrier that the caller has met. The whole warp
/// calls it, and `top_k` is 1 to 32.
#[inline(always)]
pub(super) unsafe fn select(top_k: u32, scratch: Scratch) -> u32 {
    let (lane, tiles) = (warp::lane_id(), scratch.tiles());
    // SAFETY: the warp's own part of shared memory; barriers of the warp stand between one lane's writes and another's
    // reads.
    unsafe {
        let (mut key, mut id) = (OUT, lane);
        for tile in 0..tiles {
            let keys = scratch.tile(scratch.keys(), tile);
            for (i, &of_slot) in keys.iter().enumerate() {
                // Ids grow, so the first of equal keys stays.
                if of_slot > key {
                    (key, id) = (of_slot, slot(tile, i));
                }
            }
        }
        let mine = candidate(key, id);
        shared::store_u64(scratch.best() + lane * PAIR, mine);
        warp::sync_warp(u32::MAX);
        // Lanes without an expert have the least candidates.
        let is_bound = rank(scratch.best(), WARP_SIZE, mine) == top_k - 1;
        let bound_lane = warp::warp_vote_ballot(u32::MAX, is_bound).trailing_zeros();
        // Where there are fewer experts than lanes, it may be none.
        let bound = shared::load_u64(scratch.best() + bound_lane * PAIR).max(pair(NAN, 0));

        // Those that reach the bound move together, as candidates.
        let before_me = (1 << lane) - 1;
        let mut count = 0;
        for tile in 0..tiles {
            let keys = scratch.tile(scratch.keys(), tile);
            for (i, &key) in keys.iter().enumerate() {
                let candidate = candidate(key, slot(tile, i));
                let reaches = candidate >= bound;
                let lanes = warp::warp_vote_ballot(u32::MAX, reaches);
                let place = count + (lanes & before_me).count_ones();
                shared::store_u64_if(scratch.candidates() + place * PAIR, candidate, reaches);
                count += lanes.count_ones();
            }
        }
        let is_behind = count + lane < count.next_multiple_of(COUNTED);
        shared::store_u64_if(scratch.candidates() + (count + lane) * PAIR, 0, is_behind);
        warp::sync_warp(u32::MAX);

        let mut at = 0;
        while at < count {
            // Lanes without a candidate look at the last one again, and do what its own lane does.
            let mine = shared::load_u64(scratch.candidates() + (at + lane).min(count - 1) * PAIR);
            let rank = rank(scratch.candidates(), count, mine);
            if rank < top_k {
                shared::store_u32(scratch.best() + rank * WORD, !(mine as u32));
            }
            at += WARP_SIZE;
        }
        warp::sync_warp(u32::MAX);
        shared::load_u32(scratch.best() + lane.min(top_k - 1) * WORD)
    }
}
