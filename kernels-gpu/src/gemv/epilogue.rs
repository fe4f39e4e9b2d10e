//! The epilogue part: the sums of a CTA's warps and of a cluster's CTAs become results (PTX ISA §9.7.13.3
//! `barrier.cluster`, §9.7.9.22 `mapa`, §9.7.9.12 `st.async`).

use super::{Instance, Place, WarpSums};
use crate::args::{GemvArgs, SplitKArgs};
use crate::gate::{self, Tokens};
use crate::layout::{TOKEN_BLOCK, UNIT_ROWS};
use crate::split_k::{Output, QUAD, Sums, is_last};
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{cluster, global, mbarrier, thread, warp};

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

    /// Reads what the sums of four weight rows from `row` on need, and asks for what is needed later. Nothing of it may
    /// come from the preceding kernel.
    ///
    /// # Safety
    ///
    /// The epilogue's arguments are what the host has checked.
    unsafe fn ahead(self, args: &GemvArgs, row: u32) -> Self::Ahead;

    /// Takes the finished sums of a token and the first `count` of four weight rows from `row` on.
    ///
    /// # Safety
    ///
    /// Token and rows lie inside `[m, n]`, `ahead` is of the same rows, and one thread of the grid calls it for them.
    unsafe fn store(self, args: &GemvArgs, ahead: Self::Ahead, token: u32, row: u32, sums: [f32; 4], count: u32);

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
    unsafe fn store(self, args: &GemvArgs, _: (), token: u32, row: u32, sums: [f32; 4], count: u32) {
        // SAFETY: token and rows lie inside `[m, n]`, and this thread alone stores them.
        unsafe { output(args).store_quad(index(args, token, row), sums, count) };
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
    /// The rows' factors.
    type Ahead = [f32; 4];

    #[inline(always)]
    unsafe fn ahead(self, args: &GemvArgs, row: u32) -> [f32; 4] {
        gate::prepare(&self.split_k.gate, args.n);
        let factor = |row: u32| {
            if self.split_k.scales != 0 && row < args.n {
                // SAFETY: the host gives n factors, or none.
                unsafe { global::load_f32(self.split_k.scales + u64::from(row) * FP32) }
            } else {
                1.0
            }
        };
        [factor(row), factor(row + 1), factor(row + 2), factor(row + 3)]
    }

    #[inline(always)]
    unsafe fn store(self, args: &GemvArgs, factors: [f32; 4], token: u32, row: u32, sums: [f32; 4], count: u32) {
        let index = index(args, token, row);
        let sums = core::array::from_fn(|i| sums[i] * factors[i]);
        // SAFETY: the outputs are this thread's alone, of y or of the one slice of sums.
        unsafe {
            if self.split_k.gate.top_k != 0 {
                Sums::of_one_slice(&self.split_k).give_quad(0, index, sums, count);
            } else {
                output(args).store_quad(index, sums, count);
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

/// Which outputs `[first, last)` of a tile of `live` a CTA of the cluster finishes: those of its share of the tokens.
#[inline(always)]
fn share_of<I: Instance>(rank: u32, live: u32) -> (u32, u32) {
    let share = const { (I::GEMV.share_tokens() * I::GEMV.rows()) as u32 };
    ((rank * share).min(live), ((rank + 1) * share).min(live))
}

/// Outputs of the CTA's tile, of the tokens that there are.
#[inline(always)]
fn live_outputs<I: Instance>(place: Place, args: &GemvArgs) -> u32 {
    let tokens = (args.m - place.first_token).min(const { I::GEMV.tokens() as u32 });
    tokens * const { I::GEMV.rows() as u32 }
}

/// Adds the partial sums of the CTA's warps, then by a DSMEM reduction those of the cluster's CTAs, in rank order, and
/// hands each finished sum to the epilogue.
///
/// A CTA sends its sums to the CTA that finishes them by asynchronous stores (PTX ISA §9.7.9.12 `st.async`), which that
/// one's mbarrier counts. So none needs a fence, and no barrier has to keep the cluster together to the end: a CTA
/// exits once all its own bytes have come, none come later, and what it has sent itself is in the memory of a CTA that
/// waits for it.
///
/// # Safety
///
/// The whole CTA calls it, once all warps have left their partial sums and met at a barrier. A CTA of a cluster has
/// arrived at the cluster's barrier, with the mbarrier of its sums initialised. `of_rows` is of the epilogue for the
/// rows of this thread's sums, and `args` are what the host has checked.
#[inline(always)]
pub(super) unsafe fn reduce<I: Instance, E: Epilogue>(place: Place, args: &GemvArgs, epilogue: E, of_rows: E::Ahead) {
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
    let live = live_outputs::<I>(place, args);
    let partials = base + const { I::GEMV.ring_offset() as u32 };
    let at = |output: u32| partials + (output / rows * stride + output % rows) * 4;
    // Rows of a token lie together, so four of them are of one token, and go to one CTA.
    let add = |sums: [f32; 4], from: SharedAddr| -> [f32; 4] {
        // SAFETY: written before a barrier that this thread has met; rows and strides are multiples of four.
        let more = unsafe { shared::load_v4(from) }.map(f32::from_bits);
        core::array::from_fn(|i| sums[i] + more[i])
    };
    let cta_sums = |output: u32| (0..warps).fold([0f32; 4], |sums, warp| add(sums, at(output) + warp * ring_bytes));
    let store = |output: u32, sums: [f32; 4]| {
        let (token, row) = (first_token + output / rows, row_tile * rows + output % rows);
        if row < args.n {
            // SAFETY: inside `[m, n]`, and by this thread alone.
            unsafe { epilogue.store(args, of_rows, token, row, sums, (args.n - row).min(QUAD)) };
        }
    };
    if ctas == 1 {
        let mut output = thread * QUAD;
        while output < live {
            store(output, cta_sums(output));
            output += threads * QUAD;
        }
    } else {
        // Rank i finishes the i-th share of the tokens; a share is a constant, since divisions take time.
        let share = const { (I::GEMV.share_tokens() * I::GEMV.rows()) as u32 };
        let arriving = base + const { I::GEMV.reduction_offset() as u32 };
        let slot = |source: u32, index: u32| -> SharedAddr { arriving + (source * share + index) * 4 };
        let barrier = place.sums_barrier::<I>();
        let (first, last) = share_of::<I>(rank, live);
        if place.warp == 0 && warp::elect(u32::MAX) {
            // Bytes may come before they are announced: the phase does not end without this arrival.
            // SAFETY: initialised before the CTA's barrier, and one thread arrives.
            unsafe { mbarrier::arrive_expect_tx(barrier, (last - first) * ctas * FP32 as u32) };
        }
        cluster::wait();
        let mut output = thread * QUAD;
        while output < live {
            let owner = output / share;
            let sums = cta_sums(output);
            let to = cluster::map_shared(slot(rank, output - owner * share), owner);
            // SAFETY: every CTA of the cluster has started with its mbarrier initialised, and does not exit before it
            // has all its bytes.
            unsafe { cluster::store_async_v4_f32(to, sums, cluster::map_shared(barrier, owner)) };
            output += threads * QUAD;
        }
        if first < last {
            // SAFETY: initialised before the cluster's barrier.
            unsafe { mbarrier::wait_cluster(barrier, 0) };
        }
        let mut index = thread * QUAD;
        while first + index < last {
            let sums = (0..ctas).fold([0f32; 4], |sums, source| add(sums, slot(source, index)));
            store(first + index, sums);
            index += threads * QUAD;
        }
    }
    let tokens = |output: u32| first_token + output / rows;
    let (first, last) = share_of::<I>(rank, live);
    let share = Share {
        tile: (thread::block_idx_y(), rank),
        tokens: (tokens(first), tokens(last)),
        free: (partials, warps * ring_bytes),
    };
    // SAFETY: the share's sums are stored; nobody reads the partial sums any more.
    unsafe { epilogue.finish::<I>(args, share) };
}
