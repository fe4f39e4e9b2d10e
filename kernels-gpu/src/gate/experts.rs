//! What a gate does with each expert alone: sums become logits and keys. Every thread of the CTA takes its part of the
//! batch.

use super::score;
use super::weigh::score_all;
use super::{Batch, NAN, OUT, Scratch, Tokens, WORD};
use crate::args::BIAS_ON_LOGITS;
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{global, thread};

/// Experts that a thread scores at once.
const AT_ONCE: usize = 2;

/// One expert's place in a batch.
#[derive(Clone, Copy)]
struct Place {
    /// The token in the batch.
    at: u32,
    id: u32,
    scratch: Scratch,
}

impl Place {
    #[inline(always)]
    fn logit(self) -> SharedAddr {
        self.scratch.logits() + self.id * WORD
    }

    #[inline(always)]
    fn key(self) -> SharedAddr {
        self.logit() + self.scratch.keys() - self.scratch.logits()
    }
}

/// The places that a thread works on together, from the `from`-th of the batch on. Where there are fewer, the first
/// comes again.
#[inline(always)]
fn places<const COUNT: usize>(batch: Batch, from: u32, threads: u32) -> [Place; COUNT] {
    core::array::from_fn(|i| {
        let place = from + i as u32 * threads;
        let is_inside = place < batch.count << batch.shift;
        let place = if is_inside { place } else { from };
        let at = place >> batch.shift;
        Place {
            at,
            id: place & ((1 << batch.shift) - 1),
            scratch: batch.scratch(at),
        }
    })
}

/// Calls `one` where a single place is left for the thread, else `several` for up to `count` of them, until none is
/// left.
#[inline(always)]
fn each(batch: Batch, threads: u32, one: impl Fn(u32), (count, several): (usize, impl Fn(u32))) {
    let end = batch.count << batch.shift;
    let mut from = thread::thread_idx_x();
    while from < end {
        if from + threads >= end {
            one(from);
            return;
        }
        several(from);
        from += count as u32 * threads;
    }
}

/// Takes the sums of the batch, stores logits where they are asked for, and leaves what the rest works on in shared
/// memory.
///
/// # Safety
///
/// This CTA is the elected one of these tokens, and all its `threads` call it. The batch has its part of shared memory
/// to itself.
#[inline(always)]
pub(super) unsafe fn load<const COUNT: usize>(tokens: &Tokens<'_>, batch: Batch, threads: u32) {
    let (gate, thread) = (tokens.gate, thread::thread_idx_x());
    // SAFETY: the host gives a byte per token, or no mask.
    let live = unsafe {
        if thread < batch.count && gate.token_mask != 0 {
            global::load_u8(gate.token_mask + u64::from(batch.first + thread))
        } else {
            1
        }
    };
    // SAFETY: a place belongs to one thread, and the sums of the batch are there.
    unsafe {
        each(
            batch,
            threads,
            |from| load_places::<1>(tokens, batch, places(batch, from, threads)),
            (COUNT, |from| {
                load_places::<COUNT>(tokens, batch, places(batch, from, threads))
            }),
        );
        if thread < batch.count {
            shared::store_u32(batch.scratch(thread).live(), live);
        }
    }
}

/// Takes the sums of some places.
///
/// # Safety
///
/// This CTA is the elected one of these tokens, and the calling thread alone works on these places.
#[inline(always)]
unsafe fn load_places<const COUNT: usize>(tokens: &Tokens<'_>, batch: Batch, places: [Place; COUNT]) {
    let gate = tokens.gate;
    let live: [bool; COUNT] = core::array::from_fn(|i| places[i].id < tokens.experts);
    // Where there is no expert, the last one is read and not used.
    let ids: [u64; COUNT] = core::array::from_fn(|i| u64::from(places[i].id.min(tokens.experts - 1)));
    let index: [u64; COUNT] =
        core::array::from_fn(|i| u64::from(batch.first + places[i].at) * u64::from(tokens.experts) + ids[i]);
    let mut biases = [0.0; COUNT];
    if gate.bias != 0 {
        // SAFETY: the host gives a value per expert, or no bias.
        biases = ids.map(|id| unsafe { global::load_f32(gate.bias + id * u64::from(WORD)) });
    }
    // SAFETY: this CTA is the last one, and this thread has these sums to itself.
    let sums: [f32; COUNT] = unsafe { tokens.sums.take(|i| index[i], |i| live[i]) };
    if tokens.logits != 0 {
        for (i, sum) in sums.iter().enumerate() {
            // SAFETY: the host gives room for every logit.
            unsafe { global::store_u32_if(tokens.logits + index[i] * u64::from(WORD), sum.to_bits(), live[i]) };
        }
    }
    let (on_logits, biased) = (gate.flags & BIAS_ON_LOGITS != 0, tokens.biases_scores());
    for i in 0..COUNT {
        // Adding +0 makes one zero of the two.
        let logit = score::finite(sums[i] + if on_logits { biases[i] } else { 0.0 } + 0.0);
        let logit = if live[i] { logit } else { f32::NAN };
        let word = if biased {
            biases[i].to_bits()
        } else {
            key(logit, logit, live[i])
        };
        // SAFETY: an expert's place belongs to one thread.
        unsafe {
            shared::store_f32(places[i].logit(), logit);
            shared::store_u32(places[i].key(), word);
        }
    }
}

/// The key of an expert with this logit that is ordered by `value`.
#[inline(always)]
fn key(logit: f32, value: f32, live: bool) -> u32 {
    let none = if live { NAN } else { OUT };
    if logit.is_nan() { none } else { score::key(value) }
}

/// Makes keys of scores and biases. What softmax needs is there.
///
/// # Safety
///
/// [`load`] has filled the batch, and what softmax needs is there, before a barrier that the caller has met. All
/// `threads` of the CTA call it.
#[inline(always)]
pub(super) unsafe fn add_biases(tokens: &Tokens<'_>, batch: Batch, threads: u32) {
    // SAFETY: a place belongs to one thread, the one that has filled it.
    unsafe {
        each(
            batch,
            threads,
            |from| add_to_places::<1>(tokens, places(batch, from, threads)),
            (AT_ONCE, |from| {
                add_to_places::<AT_ONCE>(tokens, places(batch, from, threads))
            }),
        );
    }
}

/// Makes keys of the scores and biases of some places.
///
/// # Safety
///
/// The calling thread has filled these places, and what softmax needs is there, before a barrier that it has met.
#[inline(always)]
unsafe fn add_to_places<const COUNT: usize>(tokens: &Tokens<'_>, places: [Place; COUNT]) {
    // SAFETY: this thread has stored them.
    let (logits, biases): ([f32; COUNT], [f32; COUNT]) = unsafe {
        (
            places.map(|place| shared::load_f32(place.logit())),
            places.map(|place| shared::load_f32(place.key())),
        )
    };
    // SAFETY: softmax has left its numbers before the CTA's last barrier.
    let scores = score_all(tokens.gate, logits, |i| unsafe { places[i].scratch.load_scores() });
    for i in 0..COUNT {
        let value = score::finite(scores[i] + biases[i]);
        // SAFETY: this thread's own place, whose bias it has read.
        unsafe { shared::store_u32(places[i].key(), key(logits[i], value, places[i].id < tokens.experts)) };
    }
}
