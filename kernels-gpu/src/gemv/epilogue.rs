//! The epilogue part: the sums of a CTA's warps and of a cluster's CTAs become results (PTX ISA §9.7.13.3
//! `barrier.cluster`, §9.7.9.22 `mapa`).

use super::{Instance, Place, WarpSums};
use crate::args::{GemvArgs, SplitKArgs};
use crate::gate::{self, Tokens};
use crate::layout::{TOKEN_BLOCK, UNIT_ROWS};
use crate::split_k::{Output, Sums, is_last};
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{cluster, global, thread, warp};

/// Bytes of an FP32 value.
const FP32: u64 = 4;

/// A CTA's share of a tile's sums: those of all the tile's rows for some of its tokens.
pub(crate) struct Share {
    /// The tile's number along the tokens, and this CTA's rank in the cluster.
    tile: (u32, u32),
    /// The first token of the share, and the first behind it.
    tokens: (u32, u32),
    /// Shared memory that nobody uses any more, and its bytes.
    free: (SharedAddr, u32),
}

/// What becomes of the sums.
pub(crate) trait Epilogue: Copy {
    /// What is read ahead of the sums: see [`Epilogue::ahead`].
    type Ahead: Copy;

    /// Reads what the sums of a weight row need, and asks for what is needed later. Nothing of it may come from the
    /// preceding kernel.
    ///
    /// # Safety
    ///
    /// The epilogue's arguments are what the host has checked.
    unsafe fn ahead(self, args: &GemvArgs, row: u32) -> Self::Ahead;

    /// Takes the finished sum of a token and a weight row.
    ///
    /// # Safety
    ///
    /// Token and row lie inside `[m, n]`, `ahead` is of the same row, and one thread of the grid calls it for them.
    unsafe fn store(self, args: &GemvArgs, ahead: Self::Ahead, token: u32, row: u32, sum: f32);

    /// Comes when the CTA has stored its share.
    ///
    /// # Safety
    ///
    /// The whole CTA calls it, each thread behind its own stores of the share; nobody uses the share's free memory any
    /// more.
    unsafe fn finish<I: Instance>(self, args: &GemvArgs, share: Share);
}

#[inline(always)]
fn index(args: &GemvArgs, token: u32, row: u32) -> u64 {
    u64::from(token) * u64::from(args.n) + u64::from(row)
}

#[inline(always)]
fn output(args: &GemvArgs) -> Output {
    Output {
        y: args.y,
        fp32: args.y_fp32 != 0,
    }
}

/// The sums are the result.
#[derive(Clone, Copy)]
pub(crate) struct Store;

impl Epilogue for Store {
    type Ahead = ();

    #[inline(always)]
    unsafe fn ahead(self, _: &GemvArgs, _: u32) {}

    #[inline(always)]
    unsafe fn store(self, args: &GemvArgs, _: (), token: u32, row: u32, sum: f32) {
        // SAFETY: token and row lie inside `[m, n]`, and this thread alone stores them.
        unsafe { output(args).store(index(args, token, row), sum) };
    }

    #[inline(always)]
    unsafe fn finish<I: Instance>(self, _: &GemvArgs, _: Share) {}
}

/// The sums are logits, which go through a gate: CTAs leave them in global memory, and the last of those that share
/// tokens finishes these.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    /// Where the logits are added up, and the gate.
    pub(crate) split_k: SplitKArgs,
}

impl Epilogue for Route {
    /// The row's factor.
    type Ahead = f32;

    #[inline(always)]
    unsafe fn ahead(self, args: &GemvArgs, row: u32) -> f32 {
        gate::prepare(&self.split_k.gate, args.n);
        if self.split_k.scales != 0 && row < args.n {
            // SAFETY: the host gives n factors, or none.
            unsafe { global::load_f32(self.split_k.scales + u64::from(row) * FP32) }
        } else {
            1.0
        }
    }

    #[inline(always)]
    unsafe fn store(self, args: &GemvArgs, factor: f32, token: u32, row: u32, sum: f32) {
        let (index, sum) = (index(args, token, row), sum * factor);
        // SAFETY: the output is this thread's alone, of y or of the one slice of sums.
        unsafe {
            if self.split_k.gate.top_k != 0 {
                Sums::of_one_slice(&self.split_k).give(0, index, sum);
            } else {
                output(args).store(index, sum);
            }
        }
    }

    #[inline(always)]
    unsafe fn finish<I: Instance>(self, args: &GemvArgs, share: Share) {
        let (tile, rank) = share.tile;
        if self.split_k.gate.top_k == 0 || share.tokens.0 >= share.tokens.1 {
            return;
        }
        let counter = tile * const { I::GEMV.cluster as u32 } + rank;
        let row_tiles = args.n.div_ceil(const { I::GEMV.rows() as u32 });
        let tokens = Tokens {
            sums: Sums::of_one_slice(&self.split_k),
            logits: args.y,
            experts: args.n,
            gate: &self.split_k.gate,
        };
        let (threads, at_once) = const { (I::GEMV.threads() as u32, I::GEMV.share_tokens() as u32) };
        thread::sync_threads();
        // SAFETY: the host gives the counters and the gate's arguments; the whole CTA is here.
        unsafe {
            if is_last(&self.split_k, counter, row_tiles) {
                gate::finish::<4>(tokens, (share.tokens.0, share.tokens.1, at_once), threads, share.free);
            }
        }
    }
}

/// Leaves the warp's sums in the place of its ring, `[token][row]`.
///
/// # Safety
///
/// The whole warp calls it. Every copy into its ring has landed and been read.
#[inline(always)]
pub(super) unsafe fn store_partials<I: Instance, const R: usize, const N: usize>(place: Place, acc: &WarpSums<R, N>) {
    let (g, t) = (place.lane / 4, place.lane % 4);
    let (own, stride) = (place.own_ring::<I>(), const { I::GEMV.partial_stride() as u32 });
    for (r, acc) in acc.iter().enumerate() {
        for (q, acc) in acc.iter().enumerate() {
            for (j, value) in acc.iter().enumerate() {
                let token = (TOKEN_BLOCK * q) as u32 + 2 * t + (j % 2) as u32;
                let row = (UNIT_ROWS * r + 8 * (j / 2)) as u32 + g;
                // SAFETY: the warp's own ring, which the table's test shows to be large enough.
                unsafe { shared::store_f32(own + (token * stride + row) * 4, *value) };
            }
        }
    }
}

/// Adds the partial sums of the CTA's warps, then by a DSMEM reduction those of the cluster's CTAs, in rank order, and
/// hands each finished sum to the epilogue.
///
/// # Safety
///
/// The whole CTA calls it, once all warps have left their partial sums and met at a barrier, and of a cluster once this
/// CTA has arrived at the cluster's barrier. `of_row` is of the epilogue for the row of this thread's sums, and `args`
/// are what the host has checked.
#[inline(always)]
pub(super) unsafe fn reduce<I: Instance, E: Epilogue>(place: Place, args: &GemvArgs, epilogue: E, of_row: E::Ahead) {
    let (warps, ctas) = const { (I::GEMV.warps as u32, I::GEMV.cluster as u32) };
    let (rows, stride) = const { (I::GEMV.rows() as u32, I::GEMV.partial_stride() as u32) };
    let ring_bytes = const { I::GEMV.ring_bytes() as u32 };
    let Place {
        rank,
        row_tile,
        first_token,
        base,
        ..
    } = place;
    let thread = thread::thread_idx_x();
    let threads = warps * warp::WARP_SIZE;
    let live_tokens = (args.m - first_token).min(const { I::GEMV.tokens() as u32 });
    let live = live_tokens * rows;
    let partials = base + const { I::GEMV.ring_offset() as u32 };
    let cta_sum = |output: u32| {
        let at = partials + (output / rows * stride + output % rows) * 4;
        (0..warps).fold(0f32, |sum, warp| {
            // SAFETY: written by every warp before the CTA's barrier.
            sum + unsafe { shared::load_f32(at + warp * ring_bytes) }
        })
    };
    let store = |output: u32, sum: f32| {
        let (token, row) = (first_token + output / rows, row_tile * rows + output % rows);
        if row < args.n {
            // SAFETY: inside `[m, n]`, and by this thread alone.
            unsafe { epilogue.store(args, of_row, token, row, sum) };
        }
    };
    // Rank i finishes the i-th share of the tokens; a share is a constant, since divisions take time.
    let share_tokens = const { I::GEMV.share_tokens() as u32 };
    let share = share_tokens * rows;
    if ctas == 1 {
        let mut output = thread;
        while output < live {
            store(output, cta_sum(output));
            output += threads;
        }
    } else {
        // Each CTA stores its sums into the shared memory of the CTA that finishes them.
        let arriving = base + const { I::GEMV.reduction_offset() as u32 };
        let slot = |source: u32, index: u32| -> SharedAddr { arriving + (source * share + index) * 4 };
        cluster::wait();
        let mut output = thread;
        while output < live {
            let owner = output / share;
            let to = cluster::map_shared(slot(rank, output - owner * share), owner);
            // SAFETY: every CTA of the cluster has started, and none exits before the barrier below.
            unsafe { cluster::store_f32(to, cta_sum(output)) };
            output += threads;
        }
        cluster::arrive();
        cluster::wait();
        let mut index = thread;
        while index < share && rank * share + index < live {
            let sum = (0..ctas).fold(0f32, |sum, source| {
                // SAFETY: every CTA has stored its sums before the barrier above.
                sum + unsafe { shared::load_f32(slot(source, index)) }
            });
            store(rank * share + index, sum);
            index += threads;
        }
    }
    let bound = |rank: u32| first_token + (rank * share_tokens).min(live_tokens);
    let share = Share {
        tile: (thread::block_idx_y(), rank),
        tokens: (bound(rank), bound(rank + 1)),
        free: (partials, warps * ring_bytes),
    };
    // SAFETY: the share's sums are stored; nobody reads the partial sums any more.
    unsafe { epilogue.finish::<I>(args, share) };
}
