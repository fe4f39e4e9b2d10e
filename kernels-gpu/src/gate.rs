//! A router's gate: logits → scores → the best experts → their weights, one warp per token.
//!
//! Experts are dealt out in tiles of 256: lane L holds the experts L, L + 32, … of a tile. Logits and selection keys lie in shared
//! memory, so that the same code serves up to 1024 experts, and an expert chosen at the end is found by its id.
//!
//! ```text
//!  sums ─► logits ─► keys ─► drop groups ─► best of each lane ─► the k-th best of these is a bound:
//!          all experts at once                                     k experts reach it, and few more
//!                                           the experts above the bound ─► each counts those that beat it: its rank
//! ```
//!
//! No step waits for the choice before, so the time hardly depends on k. A key and an id together are one number, larger for the
//! better expert, in which no two experts are equal: ties go to the lowest id without further ado.

use crate::instances::{
    BIAS_ON_LOGITS, GATE_TILE, GateArgs, JoinArgs, RENORMALIZE, SOFTMAX_OVER_TOPK, Score, gate_bytes,
};
use crate::join::{Output, Sums};
use crate::score::{self, Scores};
use cuda_std::shared::SharedAddr;
use cuda_std::warp::{self, WARP_SIZE};
use cuda_std::{global, math, shared};

/// Experts of a tile that a lane holds.
const SLOTS: usize = GATE_TILE / WARP_SIZE as usize;
/// Experts of a tile.
const TILE: u32 = GATE_TILE as u32;
/// Bytes of a logit, a weight or an id.
const WORD: u32 = 4;
/// Bytes of a key with what belongs to it.
const PAIR: u32 = 8;
/// Pairs that a lane reads at once where it counts.
const COUNTED: u32 = 16;

/// The key of an expert that is out of the running, because its group is or because there is no such expert.
const OUT: u32 = 0;
/// The key of an expert whose logit is NaN; every other key is larger.
const NAN: u32 = 1;

/// What the tokens of a launch have in common.
#[derive(Clone, Copy)]
pub(crate) struct Tokens {
    /// Where their sums are.
    pub(crate) sums: Sums,
    /// Where their logits go.
    pub(crate) logits: Output,
    /// How many experts there are.
    pub(crate) experts: u32,
}

/// Finishes the tokens from `first` on, before `end`, a warp each, with `bytes` of shared memory from `scratch` on, 16-byte aligned:
/// enough for one warp at least ([`gate_bytes`]).
///
/// For the CTA that [`is_last`](crate::join::is_last) has elected; `(warp, warps)` is the calling warp and how many call.
#[inline(always)]
pub(crate) unsafe fn finish(
    tokens: Tokens,
    join: &JoinArgs,
    (first, end): (u32, u32),
    (warp, warps): (u32, u32),
    (scratch, bytes): (SharedAddr, u32),
) {
    let each = gate_bytes(tokens.experts as usize) as u32;
    // As many warps as have room; a division would take longer.
    let mut warps = warps;
    while warps > 1 && warps * each > bytes {
        warps /= 2;
    }
    let scratch = Scratch::new(scratch + warp * each, tokens.experts);
    if warp >= warps {
        return;
    }
    let mut token = first + warp;
    while token < end {
        // SAFETY: the warp has this part of shared memory to itself, and the token too.
        unsafe { one_token(tokens, join, token, scratch) };
        token += warps;
    }
}

/// A warp's part of shared memory.
#[derive(Clone, Copy)]
struct Scratch {
    tiles: u32,
    /// A logit per expert: FP32, NaN where there is no expert.
    logits: SharedAddr,
    /// A pair per expert: the key in the upper word, in the lower one the expert's bias, then its score with the bias.
    pairs: SharedAddr,
    /// A pair per lane: the best of each; then the chosen experts' ids.
    best: SharedAddr,
}

impl Scratch {
    #[inline(always)]
    fn new(at: SharedAddr, experts: u32) -> Self {
        let tiles = experts.div_ceil(TILE);
        let pairs = at + tiles * TILE * WORD;
        Scratch {
            tiles,
            logits: at,
            pairs,
            best: pairs + tiles * TILE * PAIR,
        }
    }

    /// The lane's logits of a tile. The warp is together.
    #[inline(always)]
    unsafe fn tile_logits(self, first: u32) -> [f32; SLOTS] {
        // SAFETY: stored by this warp.
        at_once(core::array::from_fn(|i| unsafe {
            shared::load_f32(self.logits + expert(first, i) * WORD)
        }))
    }

    /// The lane's pairs of a tile. The warp is together.
    #[inline(always)]
    unsafe fn tile_pairs(self, first: u32) -> [u64; SLOTS] {
        // SAFETY: stored by this warp.
        at_once(core::array::from_fn(|i| unsafe {
            shared::load_u64(self.pairs + expert(first, i) * PAIR)
        }))
    }
}

/// Keeps the loads of these values together: without a barrier ptxas moves each load down to its use, into one register after
/// another, and every one of them is waited for alone.
#[inline(always)]
fn at_once<T>(loaded: T) -> T {
    warp::sync_warp(u32::MAX);
    loaded
}

/// The lane's i-th expert of the tile in which its first is `first`.
#[inline(always)]
fn expert(first: u32, i: usize) -> u32 {
    first + i as u32 * WARP_SIZE
}

#[inline(always)]
fn pair(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

#[inline(always)]
fn upper(pair: u64) -> u32 {
    (pair >> 32) as u32
}

/// Key and id as one number: of equal keys the lower id is the larger one.
#[inline(always)]
fn candidate(key: u32, id: u32) -> u64 {
    pair(key, !id)
}

#[inline(always)]
unsafe fn one_token(tokens: Tokens, join: &JoinArgs, token: u32, scratch: Scratch) {
    let gate = &join.gate;
    let lane = warp::lane_id();
    // SAFETY: the host gives a byte per token, or none.
    let live = gate.token_mask == 0 || unsafe { global::load_u8(gate.token_mask + u64::from(token)) } != 0;
    // SAFETY: as the caller promises.
    let largest = unsafe { load_logits(tokens, join, token, scratch) };
    let out = u64::from(token) * u64::from(gate.top_k) + u64::from(lane);
    let store = |id: u32, weight: f32| {
        if lane < gate.top_k {
            // SAFETY: the host gives room for top_k ids and weights per token.
            unsafe {
                global::store_u32(gate.ids + out * u64::from(WORD), id);
                global::store_u32(gate.weights + out * u64::from(WORD), weight.to_bits());
            }
        }
    };
    if !live {
        store(u32::MAX, 0.0);
        return;
    }
    // SAFETY: the logits and biases are stored, and the warp is together: every branch so far is the whole warp's.
    unsafe {
        warp::sync_warp(u32::MAX);
        let scores = if gate.score == Score::Softmax as u32 {
            softmax(
                scratch,
                score::from_key(warp::warp_reduce_max(u32::MAX, score::key(largest))),
            )
        } else {
            Scores::NONE
        };
        fill_keys(tokens.experts, gate, scratch, scores);
        warp::sync_warp(u32::MAX);
        if gate.groups > 1 {
            drop_groups(tokens.experts, gate, scratch);
        }
        let id = select(tokens.experts, gate.top_k, scratch);
        let logit = shared::load_f32(scratch.logits + id * WORD);
        store(id, weigh(gate, scores, logit));
        warp::sync_warp(u32::MAX);
    }
}

/// Takes the token's sums, stores its logits where asked for, and leaves what the gate works on in shared memory. Returns the
/// lane's largest logit, -∞ where it has none.
#[inline(always)]
unsafe fn load_logits(tokens: Tokens, join: &JoinArgs, token: u32, scratch: Scratch) -> f32 {
    let gate = &join.gate;
    let mut largest = f32::NEG_INFINITY;
    for tile in 0..scratch.tiles {
        let first = tile * TILE + warp::lane_id();
        let live = |i: usize| expert(first, i) < tokens.experts;
        // Where there is no expert, the last one is read and not used.
        let ids: [u32; SLOTS] = core::array::from_fn(|i| expert(first, i).min(tokens.experts - 1));
        let load = |table: u64, or: f32| -> [f32; SLOTS] {
            if table == 0 {
                return [or; SLOTS];
            }
            // SAFETY: the host gives a value per expert, or no table.
            ids.map(|id| unsafe { global::load_f32(table + u64::from(id * WORD)) })
        };
        let (biases, scales) = (load(gate.bias, 0.0), load(join.scales, 1.0));
        let index = |i: usize| u64::from(token) * u64::from(tokens.experts) + u64::from(ids[i]);
        // SAFETY: this CTA is the last one, and this warp has the token to itself.
        let sums: [f32; SLOTS] = unsafe { tokens.sums.take(index, live) };
        let raw: [f32; SLOTS] = core::array::from_fn(|i| sums[i] * scales[i]);
        if tokens.logits.y != 0 {
            for (i, &raw) in raw.iter().enumerate() {
                if live(i) {
                    // SAFETY: as above.
                    unsafe { tokens.logits.store(index(i), raw) };
                }
            }
        }
        let on_logits = gate.flags & BIAS_ON_LOGITS != 0;
        for i in 0..SLOTS {
            // Adding +0 makes one zero of the two.
            let logit = score::finite(raw[i] + if on_logits { biases[i] } else { 0.0 } + 0.0);
            let logit = if live(i) { logit } else { f32::NAN };
            // The larger of a number and NaN is the number.
            largest = largest.max(logit);
            let (id, late) = (expert(first, i), if on_logits { 0.0 } else { biases[i] });
            // SAFETY: the warp's own part of shared memory.
            unsafe {
                shared::store_f32(scratch.logits + id * WORD, logit);
                shared::store_u64(scratch.pairs + id * PAIR, pair(OUT, late.to_bits()));
            }
        }
    }
    largest
}

/// What softmax needs to score one logit: the largest and the sum of all.
#[inline(always)]
unsafe fn softmax(scratch: Scratch, largest: f32) -> Scores {
    let mut sum = 0.0;
    for tile in 0..scratch.tiles {
        // SAFETY: as the caller promises.
        let logits = unsafe { scratch.tile_logits(tile * TILE + warp::lane_id()) };
        // NaN adds nothing.
        sum += logits.iter().map(|l| score::exp(l - largest)).sum::<f32>();
    }
    Scores {
        largest,
        inverse: math::rcp(sum_over(sum, WARP_SIZE)),
    }
}

/// The sum over the first `lanes` lanes, rounded up to a power of two, in a fixed order.
#[inline(always)]
fn sum_over(mut value: f32, lanes: u32) -> f32 {
    let mut distance = 1;
    while distance < lanes {
        value += f32::from_bits(warp::warp_shuffle_xor(u32::MAX, value.to_bits(), distance));
        distance *= 2;
    }
    value
}

/// Gives every expert its key: of its score with the bias, or of its logit.
#[inline(always)]
unsafe fn fill_keys(experts: u32, gate: &GateArgs, scratch: Scratch, scores: Scores) {
    let biased = gate.bias != 0 && gate.flags & BIAS_ON_LOGITS == 0;
    for tile in 0..scratch.tiles {
        let first = tile * TILE + warp::lane_id();
        // SAFETY: as the caller promises.
        let (logits, biases) = unsafe { (scratch.tile_logits(first), scratch.tile_pairs(first)) };
        let values = if biased || gate.groups > 1 {
            score_all(gate, scores, logits)
        } else {
            logits
        };
        for i in 0..SLOTS {
            let value = score::finite(values[i] + f32::from_bits(biases[i] as u32));
            let id = expert(first, i);
            // Every score grows with the logit, and logits tie less often.
            let key = score::key(if biased { value } else { logits[i] });
            let none = if id < experts { NAN } else { OUT };
            let key = if logits[i].is_nan() { none } else { key };
            // SAFETY: the lane's own pair.
            unsafe { shared::store_u64(scratch.pairs + id * PAIR, pair(key, value.to_bits())) };
        }
    }
}

/// The scores of logits, whose kind is the same for the whole launch.
#[inline(always)]
fn score_all<const COUNT: usize>(gate: &GateArgs, scores: Scores, logits: [f32; COUNT]) -> [f32; COUNT] {
    if gate.score == Score::Softmax as u32 {
        logits.map(|l| scores.softmax(l))
    } else if gate.score == Score::Sigmoid as u32 {
        logits.map(score::sigmoid)
    } else if gate.score == Score::SqrtSoftplus as u32 {
        logits.map(score::sqrt_softplus)
    } else {
        logits
    }
}

/// Takes all groups but the best out of the running. A group is as good as its two best experts together.
///
/// Each group has `32 / groups` lanes, rounded down to a power of two.
#[inline(always)]
unsafe fn drop_groups(experts: u32, gate: &GateArgs, scratch: Scratch) {
    let lane = warp::lane_id();
    let size = experts / gate.groups.max(1);
    let bits = WARP_SIZE - (gate.groups - 1).leading_zeros();
    let parts = WARP_SIZE >> bits;
    let (group, part) = (lane >> (5 - bits), lane & (parts - 1));
    let is_group = group < gate.groups;
    let address = |place: u32| scratch.pairs + (group * size + place) * PAIR;
    let last = scratch.pairs + (experts - 1) * PAIR;

    let mut best = (f32::NEG_INFINITY, f32::NEG_INFINITY);
    let mut from = part;
    while from < size + part {
        let place = |i: usize| from + i as u32 * parts;
        // SAFETY: an expert's pair; lanes beyond the last group look at the last expert again.
        let pairs: [u64; SLOTS] = at_once(core::array::from_fn(|i| unsafe {
            shared::load_u64(address(place(i)).min(last))
        }));
        for (i, &pair) in pairs.iter().enumerate() {
            let score = if place(i) < size && upper(pair) > NAN {
                f32::from_bits(pair as u32)
            } else {
                f32::NEG_INFINITY
            };
            best = best_two(best, (score, f32::NEG_INFINITY));
        }
        from += parts * SLOTS as u32;
    }
    let mut distance = 1;
    while distance < parts {
        let of = |value: f32| f32::from_bits(warp::warp_shuffle_xor(u32::MAX, value.to_bits(), distance));
        best = best_two(best, (of(best.0), of(best.1)));
        distance *= 2;
    }
    // Halves, whose sum stays finite: only a group without experts that are numbers has -∞.
    let (first, second) = (0.5 * best.0, 0.5 * best.1);
    let score = if second == f32::NEG_INFINITY {
        first
    } else {
        first + second
    };
    let mine = candidate(score::key(score), group);
    // SAFETY: the warp's own part of shared memory.
    unsafe {
        if lane >= gate.groups {
            shared::store_u64(scratch.best + lane * PAIR, 0);
        }
        if is_group && part == 0 {
            shared::store_u64(scratch.best + group * PAIR, mine);
        }
        warp::sync_warp(u32::MAX);
        if rank(scratch.best, gate.groups, mine) >= gate.groups_kept && is_group {
            let mut place = part;
            while place < size {
                shared::store_u64(address(place), pair(OUT, 0));
                place += parts;
            }
        }
        warp::sync_warp(u32::MAX);
    }
}

/// The two largest of two pairs, each with its larger one first.
#[inline(always)]
fn best_two(a: (f32, f32), b: (f32, f32)) -> (f32, f32) {
    (a.0.max(b.0), a.0.min(b.0).max(a.1.max(b.1)))
}

/// How many of the `count` numbers at `list` are larger than `mine`. Zeros follow them up to a multiple of [`COUNTED`]. The warp is
/// together.
#[inline(always)]
unsafe fn rank(list: SharedAddr, count: u32, mine: u64) -> u32 {
    let mut rank = 0;
    let mut at = 0;
    while at < count {
        let pairs: [[u64; 2]; COUNTED as usize / 2] = at_once(core::array::from_fn(|i| {
            // SAFETY: as the caller promises.
            unsafe { shared::load_v2_u64(list + (at + 2 * i as u32) * PAIR) }
        }));
        for &[a, b] in &pairs {
            rank += u32::from(a > mine) + u32::from(b > mine);
        }
        at += COUNTED;
    }
    rank
}

/// The id of the lane's choice: lane i gets the i-th best expert, and lanes from `top_k` on get the last one too. What the pairs held is lost.
#[inline(always)]
unsafe fn select(experts: u32, top_k: u32, scratch: Scratch) -> u32 {
    let lane = warp::lane_id();
    // SAFETY: the warp's own part of shared memory; barriers of the warp stand between one lane's writes and another's reads.
    unsafe {
        let (mut key, mut id) = (OUT, lane);
        for tile in 0..scratch.tiles {
            let first = tile * TILE + lane;
            for (i, &pair) in scratch.tile_pairs(first).iter().enumerate() {
                // Ids grow, so the first of equal keys stays.
                if upper(pair) > key {
                    (key, id) = (upper(pair), expert(first, i));
                }
            }
        }
        let mine = candidate(key, id);
        shared::store_u64(scratch.best + lane * PAIR, mine);
        warp::sync_warp(u32::MAX);
        // Lanes without an expert have the least candidates.
        let is_bound = rank(scratch.best, experts.min(WARP_SIZE), mine) == top_k - 1;
        let bound_lane = warp::warp_vote_ballot(u32::MAX, is_bound).trailing_zeros();
        let bound = shared::load_u64(scratch.best + bound_lane * PAIR);

        // Those that reach the bound move to the front, as candidates. They are never more than have been read.
        let before_me = (1 << lane) - 1;
        let mut count = 0;
        for tile in 0..scratch.tiles {
            let first = tile * TILE + lane;
            // The barrier behind the loads also keeps what is not read yet from being written over.
            let pairs = scratch.tile_pairs(first);
            for (i, &pair) in pairs.iter().enumerate() {
                let candidate = candidate(upper(pair), expert(first, i));
                let reaches = candidate >= bound;
                let lanes = warp::warp_vote_ballot(u32::MAX, reaches);
                if reaches {
                    let place = count + (lanes & before_me).count_ones();
                    shared::store_u64(scratch.pairs + place * PAIR, candidate);
                }
                count += lanes.count_ones();
            }
        }
        if count + lane < count.next_multiple_of(COUNTED) {
            shared::store_u64(scratch.pairs + (count + lane) * PAIR, 0);
        }
        warp::sync_warp(u32::MAX);

        let mut at = 0;
        while at < count {
            // Lanes without a candidate look at the last one again, and do what its own lane does.
            let mine = shared::load_u64(scratch.pairs + (at + lane).min(count - 1) * PAIR);
            let rank = rank(scratch.pairs, count, mine);
            if rank < top_k {
                shared::store_u32(scratch.best + rank * WORD, !(mine as u32));
            }
            at += WARP_SIZE;
        }
        warp::sync_warp(u32::MAX);
        shared::load_u32(scratch.best + lane.min(top_k - 1) * WORD)
    }
}

/// The weight of the expert that this lane has chosen, by its logit.
#[inline(always)]
fn weigh(gate: &GateArgs, scores: Scores, logit: f32) -> f32 {
    /// A sum of weights nearer to zero than this counts as this.
    const LEAST_SUM: f32 = 1e-20;
    /// Keeps a sum of 32 of the largest values finite; a power of two.
    const SHRINK: f32 = 1.0 / 64.0;
    /// Below it, a sum is finite without.
    const ORDINARY: f32 = 1.0;
    let [score] = score_all(gate, scores, [logit]);
    // NaN has no weight, and lanes beyond the last choice have none either.
    let has_weight = !logit.is_nan() && warp::lane_id() < gate.top_k;
    let mut weight = if has_weight { score } else { 0.0 };
    if gate.flags & (RENORMALIZE | SOFTMAX_OVER_TOPK) != 0 {
        if gate.flags & SOFTMAX_OVER_TOPK != 0 {
            // -∞ where no expert has a weight; then every exponential is 0.
            let own = if has_weight { score } else { f32::NEG_INFINITY };
            let largest = score::from_key(warp::warp_reduce_max(u32::MAX, score::key(own)));
            weight = score::exp(own - largest);
        }
        let part = weight * SHRINK;
        let sum = sum_over(part, gate.top_k);
        let sum = if sum.abs() < LEAST_SUM * SHRINK {
            LEAST_SUM * SHRINK
        } else {
            sum
        };
        // The least weights would lose bits by shrinking.
        let (part, sum) = if sum.abs() < ORDINARY {
            (weight, sum / SHRINK)
        } else {
            (part, sum)
        };
        weight = part * math::rcp(sum);
    }
    weight * gate.scale
}
