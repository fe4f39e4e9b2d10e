//! A router's gate: logits → scores → the best experts → their weights, for tokens whose sums lie in global memory.
//!
//! Experts wait in shared memory, a logit and a key each, so that the same code serves up to 1024 of them and one to
//! many tokens:
//!
//! ```text
//!  every thread takes some experts of some tokens        a warp takes a token
//!  sums ─► logits ─► scores with bias ─► keys  ─ CTA ─►  drop groups ─► best of each lane ─► the k-th best of these
//!  [`experts`]                                           [`groups`]     [`select`]           is a bound: k experts
//!                                                                       reach it, and few more ─► each of them
//!                                                                       counts those that beat it: its rank
//!                                                                       ─► weights, [`weigh`]
//! ```
//!
//! What looks at one expert alone is so spread over the whole CTA, however few tokens there are, and no step waits for
//! the choice before: the time hardly depends on k. A key and an id together are one number, larger for the better
//! expert, in which no two experts are equal: ties go to the lowest id without further ado. No value depends on which
//! thread computes it.

mod experts;
mod group_key;
mod groups;
mod score;
mod select;
mod weigh;

use crate::args::{BIAS_ON_LOGITS, GateArgs, Score};
use crate::instances::{GATE_TILE, gate_bytes};
use crate::split_k::Sums;
use cuda_std::shared::{self, SharedAddr};
use cuda_std::warp::{self, WARP_SIZE};
use cuda_std::{bits, global, thread};
use score::Scores;

/// Experts of a tile that a lane of a token's warp looks at.
const SLOTS: usize = GATE_TILE / WARP_SIZE as usize;
/// Experts of a tile.
const TILE: u32 = GATE_TILE as u32;
/// Bytes of a logit, a key, a weight or an id.
const WORD: u32 = 4;
/// Bytes of a key with an id.
const PAIR: u32 = 8;

/// The key of an expert that is out of the running, because its group is or because there is no such expert.
const OUT: u32 = 0;
/// The key of an expert whose logit is NaN; every other key is larger.
const NAN: u32 = 1;

/// What the tokens of a launch have in common.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'a> {
    /// Where their sums are.
    pub(crate) sums: Sums,
    /// Where their logits go, as FP32; 0 where nobody asks for them.
    pub(crate) logits: u64,
    /// How many experts there are.
    pub(crate) experts: u32,
    /// What is done with the logits.
    pub(crate) gate: &'a GateArgs,
}

impl Tokens<'_> {
    /// Whether the bias belongs to the scores.
    #[inline(always)]
    fn biases_scores(&self) -> bool {
        self.gate.bias != 0 && self.gate.flags & BIAS_ON_LOGITS == 0
    }

    #[inline(always)]
    fn is_softmax(&self) -> bool {
        self.gate.score == Score::Softmax as u32
    }
}

/// Asks for what a gate reads beside the sums, well ahead, so that no memory is waited for when the sums are there.
#[inline(always)]
pub(crate) fn prepare(gate: &GateArgs, experts: u32) {
    /// FP32 values of a sector of the L2 cache.
    const SECTOR: u32 = 8;
    let first = thread::thread_idx_x() * SECTOR;
    if gate.top_k != 0 && gate.bias != 0 && first < experts {
        global::prefetch_l2(gate.bias + u64::from(first * WORD));
    }
}

/// Tokens `[first, first + count)` that a CTA works on together, in its shared memory.
#[derive(Clone, Copy)]
struct Batch {
    first: u32,
    count: u32,
    /// Binary logarithm of the experts that a token has room for: a power of two, and at least a tile.
    shift: u32,
    scratch: SharedAddr,
}

impl Batch {
    /// The part of its token `at`.
    #[inline(always)]
    fn scratch(&self, at: u32) -> Scratch {
        Scratch {
            shift: self.shift,
            base: self.scratch + at * bytes(self.shift),
        }
    }
}

/// [`gate_bytes`] of 2^`shift` experts.
#[inline(always)]
fn bytes(shift: u32) -> u32 {
    const { assert!(gate_bytes(GATE_TILE) == GATE_TILE * 16 + 272 && gate_bytes(4 * GATE_TILE) == 4 * GATE_TILE * 16 + 272) };
    (16 << shift) + 272
}

/// A token's part of shared memory.
#[derive(Clone, Copy)]
struct Scratch {
    shift: u32,
    base: SharedAddr,
}

impl Scratch {
    /// Tiles of experts.
    #[inline(always)]
    fn tiles(self) -> u32 {
        (1 << self.shift) / TILE
    }

    /// A logit per expert: FP32, NaN where there is no expert.
    #[inline(always)]
    fn logits(self) -> SharedAddr {
        self.base
    }

    /// A key per expert; before, its bias where that belongs to the scores.
    #[inline(always)]
    fn keys(self) -> SharedAddr {
        self.base + (WORD << self.shift)
    }

    /// Room for a pair per expert: those that may be among the best.
    #[inline(always)]
    fn candidates(self) -> SharedAddr {
        self.base + ((2 * WORD) << self.shift)
    }

    /// A pair per lane: the best of each; then the chosen experts' ids.
    #[inline(always)]
    fn best(self) -> SharedAddr {
        self.candidates() + (PAIR << self.shift)
    }

    /// What softmax needs to score a logit.
    #[inline(always)]
    fn scores(self) -> SharedAddr {
        self.best() + WARP_SIZE * PAIR
    }

    /// Not zero for a token, zero for padding.
    #[inline(always)]
    fn live(self) -> SharedAddr {
        self.scores() + PAIR
    }

    /// What softmax has left of a token.
    ///
    /// # Safety
    ///
    /// Softmax has left its numbers for this token, before a barrier that the caller has met.
    #[inline(always)]
    unsafe fn load_scores(self) -> Scores {
        // SAFETY: stored before the barrier that the caller has met.
        let [largest, inverse] = unsafe { shared::load_v2(self.scores()) }.map(f32::from_bits);
        Scores { largest, inverse }
    }

    /// The lane's words of a tile of a table: the experts [`slot`]. Keeps the loads together: without the barrier ptxas
    /// moves each down to its use, and every one of them is waited for alone. The warp is together.
    ///
    /// # Safety
    ///
    /// Every expert's place of the table has been written, before a barrier that the caller has met. The whole warp
    /// calls it.
    #[inline(always)]
    unsafe fn tile(self, table: SharedAddr, tile: u32) -> [u32; SLOTS] {
        // SAFETY: every expert's place has been written, by threads that the caller has met at a barrier.
        let [[a, b, c, d], [e, f, g, h]] = unsafe {
            [
                shared::load_v4(quad(table, tile, 0)),
                shared::load_v4(quad(table, tile, 1)),
            ]
        };
        warp::sync_warp(u32::MAX);
        [a, b, c, d, e, f, g, h]
    }
}

/// Where a lane's four words of half a tile lie.
#[inline(always)]
fn quad(table: SharedAddr, tile: u32, half: u32) -> SharedAddr {
    table + (tile * TILE + (half * WARP_SIZE + warp::lane_id()) * 4) * WORD
}

/// The i-th expert of a tile that a lane looks at: four neighbours, then the four at the same place of the tile's other
/// half.
#[inline(always)]
fn slot(tile: u32, i: usize) -> u32 {
    let (half, at) = (i as u32 / 4, i as u32 % 4);
    tile * TILE + (half * WARP_SIZE + warp::lane_id()) * 4 + at
}

#[inline(always)]
fn pair(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

/// Key and id as one number: of equal keys the lower id is the larger one.
#[inline(always)]
fn candidate(key: u32, id: u32) -> u64 {
    pair(key, !id)
}

/// Finishes the tokens from `first` on, before `end`, up to `most` at a time, with `bytes` of shared memory from
/// `scratch` on, 16-byte aligned: enough for one token at least ([`gate_bytes`]). A thread takes up to `COUNT` sums at
/// once.
///
/// For the CTA that [`is_last`](crate::split_k::is_last) has elected: all its `threads` call, and none uses that memory
/// any more.
///
/// # Safety
///
/// The tokens' sums, logits, ids and weights have the sizes that the host has checked, and the shared memory is 16-byte
/// aligned with room for a token. The whole elected CTA calls it, in uniform control flow.
#[inline(always)]
pub(crate) unsafe fn finish<const COUNT: usize>(
    tokens: Tokens<'_>,
    (first, end, mut most): (u32, u32, u32),
    threads: u32,
    (scratch, bytes): (SharedAddr, u32),
) {
    let shift = if tokens.experts <= TILE {
        TILE.trailing_zeros()
    } else {
        WARP_SIZE - (tokens.experts - 1).leading_zeros()
    };
    // As many as have room; a division would take longer.
    while most > 1 && most * self::bytes(shift) > bytes {
        most /= 2;
    }
    let (warp, warps) = (warp::warp_id(), threads / WARP_SIZE);
    let mut batch = Batch {
        first,
        count: 0,
        shift,
        scratch,
    };
    while batch.first < end {
        batch.count = (end - batch.first).min(most);
        // Keeps what is computed from them out of the way of the first sums.
        (batch.shift, batch.scratch) = (bits::opaque(shift), bits::opaque(scratch));
        // SAFETY: the batch's sums are there, and every thread of the CTA is here: all conditions around barriers are
        // the launch's. A warp has a token's part of shared memory to itself from the last barrier on.
        unsafe {
            experts::load::<COUNT>(&tokens, batch, threads);
            if tokens.is_softmax() {
                thread::sync_threads();
                let mut at = warp;
                while at < batch.count {
                    weigh::softmax(batch.scratch(at));
                    at += warps;
                }
            }
            if tokens.biases_scores() {
                if tokens.is_softmax() {
                    thread::sync_threads();
                }
                experts::add_biases(&tokens, batch, threads);
            }
            if tokens.biases_scores() || !tokens.is_softmax() {
                thread::sync_threads();
            }
            let mut at = warp;
            while at < batch.count {
                one_token(&tokens, batch.first + at, batch.scratch(at));
                at += warps;
            }
            batch.first += batch.count;
            if batch.first < end {
                thread::sync_threads();
            }
        }
    }
}

/// Chooses a token's experts, and stores their ids and weights.
///
/// # Safety
///
/// Every expert's logit and key are in the token's part of shared memory, before a barrier that the caller has met. The
/// whole warp calls it and has that part to itself.
#[inline(always)]
unsafe fn one_token(tokens: &Tokens<'_>, token: u32, scratch: Scratch) {
    let gate = tokens.gate;
    let lane = warp::lane_id();
    warp::sync_warp(u32::MAX);
    let (mut id, mut weight) = (u32::MAX, 0.0);
    // SAFETY: every expert's logit and key are stored, and the warp is together: the token is the whole warp's.
    unsafe {
        if shared::load_u32(scratch.live()) != 0 {
            if gate.groups_kept < gate.groups {
                groups::drop_all_but_best(tokens, scratch);
            }
            id = select::select(gate.top_k, scratch);
            let logit = shared::load_f32(scratch.logits() + id * WORD);
            weight = weigh::weigh(gate, scratch, logit);
        }
        if lane < gate.top_k {
            let out = (u64::from(token) * u64::from(gate.top_k) + u64::from(lane)) * u64::from(WORD);
            // SAFETY: the host gives room for top_k ids and weights per token.
            global::store_u32(gate.ids + out, id);
            global::store_u32(gate.weights + out, weight.to_bits());
        }
    }
}
