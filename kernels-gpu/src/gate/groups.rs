//! Groups of experts: the best of them stay in the running.

use super::score;
use super::weigh::score_all;
use super::{NAN, OUT, Scratch, Tokens, WORD};
use cuda_std::warp::{self, WARP_SIZE};
use cuda_std::{bits, shared};

/// Members of a group that a lane looks at together.
const AT_ONCE: usize = 4;
/// Groups that a lane compares with its own together.
const RANKED: usize = 4;

/// Takes all groups but the best out of the running. A group is as good as its two best experts together.
///
/// Each group has `32 / groups` lanes, rounded down to a power of two. There are groups to drop: with two, where lanes
/// stand for more of them than there are, nothing but the first place counts.
///
/// # Safety
///
/// Every expert's key is in the token's part of shared memory, and what softmax needs, before a barrier that the caller
/// has met. The whole warp calls it, and the groups are as the host has checked them.
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
    // Halves, whose sum stays finite: only a group without experts that are numbers has -∞.
    let mut sum = f32::NEG_INFINITY;
    let mut keys = best;
    for _ in 0..bits::opaque(2) {
        let value = score::from_key(keys.0);
        let value = if tokens.biases_scores() {
            value
        } else {
            // SAFETY: softmax has left its numbers before a barrier of the CTA.
            let [score] = score_all(gate, [value], |_| unsafe { scratch.load_scores() });
            score
        };
        if keys.0 > NAN {
            sum = 0.5 * value + if sum == f32::NEG_INFINITY { 0.0 } else { sum };
        }
        keys = (keys.1, keys.0);
    }
    // Lane g takes the key of group g, and counts the groups that beat it: those with a larger key, and of equal ones
    // the first. Where there is no group, there is no key.
    let key = if group < gate.groups { score::key(sum) } else { 0 };
    let of_group = |g: u32| warp::warp_shuffle_idx(u32::MAX, key, g << (5 - bits));
    let mine = of_group(lane);
    let mut rank = 0;
    let mut from = 0;
    while from < gate.groups {
        let keys: [u32; RANKED] = core::array::from_fn(|i| of_group(from + i as u32));
        for (i, &key) in keys.iter().enumerate() {
            let is_before = from + (i as u32) < lane;
            rank += u32::from(key > mine.wrapping_sub(u32::from(is_before)));
        }
        from += RANKED as u32;
    }
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
