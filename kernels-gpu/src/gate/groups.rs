//! Groups of experts: the best of them stay in the running.

use super::group_key::group_key;
use super::score;
use super::select::rank;
use super::{NAN, OUT, PAIR, Scratch, Tokens, WORD, pair};
use cuda_std::warp::{self, WARP_SIZE};
use cuda_std::{bits, shared};

/// Members of a group that a lane looks at together.
const AT_ONCE: usize = 4;

/// Takes all groups but the best out of the running. A group is as good as its two best experts together: see
/// [`group_key`](super::group_key).
///
/// Each group has `32 / groups` lanes, rounded down to a power of two. There are groups to drop: with two, where lanes
/// stand for more of them than there are, nothing but the first place counts.
///
/// # Safety
///
/// Every expert's key is in the token's part of shared memory, before a barrier that the caller has met. The
/// whole warp calls it, and the groups are as the host has checked them.
#[inline(always)]
pub(super) unsafe fn drop_all_but_best(tokens: &Tokens<'_>, scratch: Scratch) {
    let gate = tokens.gate;
    let lane = bits::opaque(warp::lane_id());
    let size = gate.group_size;
    let bits = WARP_SIZE - (gate.groups - 1).leading_zeros();
    let parts = WARP_SIZE >> bits;
    let (group, part) = (lane >> (5 - bits), lane & (parts - 1));
    let first = scratch.keys() + group * size * WORD;
    let last = scratch.keys() + (tokens.experts - 1) * WORD;

    // Every value grows with the key.
    let mut best = (OUT, OUT);
    let mut from = part;
    while from < size + part {
        let place = |i: usize| from + i as u32 * parts;
        // SAFETY: an expert's key; lanes beyond the last group look at the last expert again.
        let keys: [u32; AT_ONCE] =
            core::array::from_fn(|i| unsafe { shared::load_u32((first + place(i) * WORD).min(last)) });
        warp::sync_warp(u32::MAX);
        for (i, &key) in keys.iter().enumerate() {
            best = best_two(best, (if place(i) < size { key } else { OUT }, OUT));
        }
        from += parts * AT_ONCE as u32;
    }
    let mut distance = 1;
    while distance < parts {
        let of = |key: u32| warp::warp_shuffle_xor(u32::MAX, key, distance);
        best = best_two(best, (of(best.0), of(best.1)));
        distance *= 2;
    }
    let value = |key: u32| {
        if key > NAN {
            score::from_key(key)
        } else {
            f32::NEG_INFINITY
        }
    };
    let key = group_key(tokens, value(best.0), value(best.1));
    // A group without experts that are numbers comes last.
    let key = if best.0 > NAN { key } else { 0 };
    // Lane g takes the key of group g, and counts the groups that beat it: those with a larger key, and of equal ones
    // the first. Where there is no group, there is no key.
    let of_lane = |half: u32| warp::warp_shuffle_idx(u32::MAX, half, lane << (5 - bits));
    let (upper, lower) = (of_lane((key >> 32) as u32), of_lane(key as u32));
    let mine = if lane < gate.groups {
        pair(upper, lower | (WARP_SIZE - 1 - lane))
    } else {
        0
    };
    // SAFETY: the warp's own part of shared memory, where every lane stores before the barrier.
    let rank = unsafe {
        shared::store_u64(scratch.best() + lane * PAIR, mine);
        warp::sync_warp(u32::MAX);
        rank(scratch.best(), gate.groups, mine)
    };
    let kept = warp::warp_vote_ballot(u32::MAX, rank < gate.groups_kept);
    if group < gate.groups && kept >> group & 1 == 0 {
        let mut place = part;
        while place < size {
            // SAFETY: an expert's key, which no other lane touches between the warp's barriers.
            unsafe { shared::store_u32(first + place * WORD, OUT) };
            place += parts;
        }
    }
    warp::sync_warp(u32::MAX);
}

/// The two largest of two pairs, each with its larger one first.
#[inline(always)]
fn best_two(a: (u32, u32), b: (u32, u32)) -> (u32, u32) {
    (a.0.max(b.0), a.0.min(b.0).max(a.1.max(b.1)))
}
