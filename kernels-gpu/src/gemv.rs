//! `gemv_<format>` and `route_<format>`: `y = x · Wᵀ` for few tokens, bound by the stream of the weights.
//!
//! Weight rows are the M side of the tensor-core instruction and tokens its N side. A cluster serves `r` blocks of 16 rows
//! for `n` blocks of 8 tokens; its warps split K into contiguous slices, `w` in each of `c` CTAs:
//!
//! ```text
//!            K →
//!  rows      [ CTA 0: warp 0 | warp 1 | … | warp w-1 ][ CTA 1: warp 0 | … ] …      every warp: its own ring of bulk copies
//!  16·r      └──────── partial sums, shared memory ───┘└──────────┘
//!            └────────── CTA i adds the cluster's sums for its share of the tokens, in rank order ───────┘
//! ```
//!
//! * Each warp streams its slice through a ring of its own, so no barrier of the CTA stands in the loop.
//! * A warp loads its x fragments once per chunk, ahead of the weights' arrival, and uses them for all `r` row blocks.
//! * The order of every sum is fixed by the instance alone, so equal calls give equal bits.
//! * The weights are asked for before `griddepcontrol.wait`: they stream in while the kernel before ends. They must
//!   therefore not be written by that kernel; x and y may be.
//! * What becomes of the sums is a parameter: they are y, or logits, which the last CTA of a token's takes through the gate.

use crate::format::{Bf16, Weights, Window12};
use crate::gate::{self, Tokens};
use crate::instances::{
    GEMV_BF16, GEMV_WINDOW12, Gemv, GemvArgs, JoinArgs, ROUTE_BF16, ROUTE_BF16X2, ROUTE_BF16X3, RouteArgs,
    Window12Args, for_each_gemv_bf16, for_each_gemv_window12, for_each_route_bf16, for_each_route_bf16x2,
    for_each_route_bf16x3,
};
use crate::join::{Output, Sums, is_last};
use crate::layout::{TOKEN_BLOCK, UNIT_K, UNIT_ROWS, UNIT_STEPS, units};
use crate::ring::Ring;
use cuda_std::shared::SharedAddr;
use cuda_std::{cluster, global, mma, pdl, shared, thread, warp};

const fn find(table: &[Gemv], name: &str) -> Gemv {
    let mut at = 0;
    while !crate::instances::same(table[at].name, name) {
        at += 1;
    }
    table[at]
}

trait Instance {
    type Weights: Weights;
    const GEMV: Gemv;
}

/// Bytes of a BF16 value.
const BF16: u64 = 2;
/// Bytes of an FP32 value.
const FP32: u64 = 4;
/// Consecutive x values of a lane: its B fragments of two steps.
const LANE_K: u32 = 8;
/// Columns between a lane's two groups of consecutive x values.
const HALF_UNIT: u32 = UNIT_K as u32 / 2;

/// The B fragments of a lane for one unit and one token block: a pair of registers per step.
type XFragments = [u32; 2 * UNIT_STEPS];

/// One token's x values for this lane: where they start, and how many columns may be read (0 for a token beyond m).
#[derive(Clone, Copy)]
struct XRow {
    address: u64,
    columns: u32,
}

impl XRow {
    /// Loads the lane's values of the unit in which its first column is `k`; columns from the limit on are zeros and are
    /// not read.
    #[inline(always)]
    unsafe fn load<const X: usize>(&self, k: u32) -> XFragments {
        // SAFETY: as the caller promises.
        let ([a, b, c, d], [e, f, g, h]) = unsafe { (self.load_half::<X>(k), self.load_half::<X>(k + HALF_UNIT)) };
        [a, b, c, d, e, f, g, h]
    }

    /// Loads eight consecutive values from column `k` on.
    #[inline(always)]
    unsafe fn load_half<const X: usize>(&self, k: u32) -> [u32; 4] {
        let at = self.address + u64::from(k) * BF16;
        if X == 8 {
            // SAFETY: predicated on the limit; rows are 16-byte aligned and columns a multiple of 8, so the eight values
            // are either all inside or all outside.
            unsafe { global::load_v4_or_zero(at, k < self.columns) }
        } else {
            // SAFETY: predicated on the limit, value by value.
            let value = |c: u32| unsafe { global::load_u16_or_zero(at + u64::from(c) * BF16, k + c < self.columns) };
            let pair = |p: u32| value(2 * p) | value(2 * p + 1) << 16;
            [pair(0), pair(1), pair(2), pair(3)]
        }
    }
}

/// The slice `[first, last)` of `chunks` that falls to worker `index` of `workers`.
#[inline(always)]
fn slice(chunks: u32, index: u32, workers: u32) -> (u32, u32) {
    let bound = |i: u32| (u64::from(chunks) * u64::from(i) / u64::from(workers)) as u32;
    (bound(index), bound(index + 1))
}

/// A CTA's share of a tile's sums: those of all the tile's rows for some of its tokens.
struct Share {
    /// The tile's number along the tokens, and this CTA's rank in the cluster.
    tile: (u32, u32),
    /// The first token of the share, and the first behind it.
    tokens: (u32, u32),
    /// Shared memory that nobody uses any more, and its bytes.
    free: (SharedAddr, u32),
}

/// What becomes of the sums.
trait Ending: Copy {
    /// What is read ahead of the sums: see [`Ending::ahead`].
    type Ahead: Copy;

    /// Reads what the sums of a weight row need, and asks for what is needed later. Nothing of it may come from the kernel ahead.
    unsafe fn ahead(self, args: &GemvArgs, row: u32) -> Self::Ahead;

    /// Takes the finished sum of a token and a weight row.
    unsafe fn store(self, args: &GemvArgs, ahead: Self::Ahead, token: u32, row: u32, sum: f32);

    /// Comes when the CTA has stored its share.
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
struct Store;

impl Ending for Store {
    type Ahead = ();

    #[inline(always)]
    unsafe fn ahead(self, _: &GemvArgs, _: u32) {}

    #[inline(always)]
    unsafe fn store(self, args: &GemvArgs, _: (), token: u32, row: u32, sum: f32) {
        // SAFETY: as the caller promises.
        unsafe { output(args).store(index(args, token, row), sum) };
    }

    #[inline(always)]
    unsafe fn finish<I: Instance>(self, _: &GemvArgs, _: Share) {}
}

/// The sums are logits, which go through a gate: CTAs join them in global memory, and the last of those that share tokens finishes
/// these.
#[derive(Clone, Copy)]
struct Route {
    join: JoinArgs,
}

impl Ending for Route {
    /// The row's factor.
    type Ahead = f32;

    #[inline(always)]
    unsafe fn ahead(self, args: &GemvArgs, row: u32) -> f32 {
        gate::prepare(&self.join.gate, args.n);
        if self.join.scales != 0 && row < args.n {
            // SAFETY: the host gives n factors, or none.
            unsafe { global::load_f32(self.join.scales + u64::from(row) * FP32) }
        } else {
            1.0
        }
    }

    #[inline(always)]
    unsafe fn store(self, args: &GemvArgs, factor: f32, token: u32, row: u32, sum: f32) {
        let (index, sum) = (index(args, token, row), sum * factor);
        // SAFETY: as the caller promises.
        unsafe {
            if self.join.gate.top_k != 0 {
                Sums::of_one_slice(&self.join).give(0, index, sum);
            } else {
                output(args).store(index, sum);
            }
        }
    }

    #[inline(always)]
    unsafe fn finish<I: Instance>(self, args: &GemvArgs, share: Share) {
        let (tile, rank) = share.tile;
        if self.join.gate.top_k == 0 || share.tokens.0 >= share.tokens.1 {
            return;
        }
        let counter = tile * const { I::GEMV.cluster as u32 } + rank;
        let row_tiles = args.n.div_ceil(const { I::GEMV.rows() as u32 });
        let tokens = Tokens {
            sums: Sums::of_one_slice(&self.join),
            logits: args.y,
            experts: args.n,
            gate: &self.join.gate,
        };
        let (threads, at_once) = const { (I::GEMV.threads() as u32, I::GEMV.share_tokens() as u32) };
        thread::sync_threads();
        // SAFETY: the host gives the counters and the gate's arguments; the whole CTA is here.
        unsafe {
            if is_last(&self.join, counter, row_tiles) {
                gate::finish::<4>(tokens, (share.tokens.0, share.tokens.1, at_once), threads, share.free);
            }
        }
    }
}

/// One CTA. `G`, `R`, `N` and `X` repeat the instance's parameters of these letters, as array lengths want them.
#[inline(always)]
unsafe fn gemv<I: Instance, const G: usize, const R: usize, const N: usize, const X: usize>(
    args: GemvArgs,
    format: I::Weights,
    ending: impl Ending,
) {
    const { assert!(I::GEMV.groups == G && I::GEMV.row_blocks == R && I::GEMV.token_blocks == N && I::GEMV.x_values == X) };
    let warps = const { I::GEMV.warps as u32 };
    let ctas = const { I::GEMV.cluster as u32 };
    let stages = const { I::GEMV.stages as u32 };
    let chunk_bytes = const { I::GEMV.chunk_bytes() as u32 };
    let copy_bytes = const { I::GEMV.copy_bytes() as u32 };
    let ring_bytes = const { I::GEMV.ring_bytes() as u32 };
    let rows = const { I::GEMV.rows() as u32 };
    let unit_bytes = const { I::GEMV.format.unit_bytes() as u32 };

    pdl::launch_dependents();
    let (lane, warp) = (warp::lane_id(), warp::warp_id());
    let rank = if ctas > 1 { cluster::cta_rank() } else { 0 };
    let row_tile = thread::block_idx_x() / ctas;
    let first_token = thread::block_idx_y() * const { I::GEMV.tokens() as u32 };
    let base = shared::dynamic_base();
    let own_ring = base + const { I::GEMV.ring_offset() as u32 } + warp * ring_bytes;
    let mut ring = Ring::new(base + warp * (stages * 8), own_ring, chunk_bytes, stages);

    // This warp's slice of K, in chunks of G groups. Row blocks beyond the last are read as the last, and not stored.
    let (row_units, groups) = units(args.n as usize, args.k as usize);
    let chunks = groups.div_ceil(G) as u32;
    let (worker, workers) = (rank * warps + warp, warps * ctas);
    let (first, last) = slice(chunks, worker, workers);
    let row_bytes = groups as u64 * u64::from(unit_bytes);
    let sources: [u64; R] = core::array::from_fn(|r| {
        let unit = (row_tile * R as u32 + r as u32).min(row_units as u32 - 1);
        args.weights + u64::from(unit) * row_bytes
    });
    let groups_of = |chunk: u32| (groups as u32 - chunk * G as u32).min(G as u32);
    let fill = |ring: &Ring, stage: u32, chunk: u32| {
        let bytes = groups_of(chunk) * unit_bytes;
        // SAFETY: the packed weights hold all groups of every row block; the stage has been left by the whole warp.
        unsafe {
            ring.expect(stage, bytes * R as u32);
            for (r, source) in sources.iter().enumerate() {
                ring.copy(
                    stage,
                    r as u32 * copy_bytes,
                    source + u64::from(chunk) * u64::from(copy_bytes),
                    bytes,
                );
            }
        }
    };
    if lane == 0 {
        // SAFETY: the first use of this warp's barriers.
        unsafe { ring.init() };
        for stage in 0..stages {
            if first + stage < last {
                fill(&ring, stage, first + stage);
            }
        }
    }
    warp::sync_warp(u32::MAX);
    if ctas > 1 {
        cluster::arrive_relaxed();
    }
    // SAFETY: the host gives the exceptions that the packer made.
    let ahead = unsafe { format.ahead::<R>(row_tile * R as u32, (worker, workers)) };
    let thread = thread::thread_idx_x();
    // A thread puts together sums of one and the same row.
    const { assert!(matches!(I::GEMV.ending, crate::instances::Ending::Store) || I::GEMV.threads() % I::GEMV.rows() == 0) };
    // SAFETY: the host gives the ending's arguments.
    let of_row = unsafe { ending.ahead(&args, row_tile * rows + thread % rows) };
    pdl::wait();

    let (g, t) = (lane / 4, lane % 4);
    let x_rows: [XRow; N] = core::array::from_fn(|q| {
        let token = first_token + (TOKEN_BLOCK * q) as u32 + g;
        let columns = if token < args.m { args.k } else { 0 };
        XRow {
            address: args.x + u64::from(token) * args.x_stride * BF16,
            columns,
        }
    });
    let mut acc = [[[0f32; 4]; N]; R];
    // While the first weights are on their way.
    // SAFETY: x as above; the exceptions are what the packer made.
    unsafe { format.exceptions(ahead, &mut acc, first_token, &args) };
    let mut chunk = first;
    while chunk < last {
        // x comes from the L2 cache while the weights are still on their way.
        let x: [[XFragments; N]; G] = core::array::from_fn(|u| {
            let k = (chunk * G as u32 + u as u32) * UNIT_K as u32 + t * LANE_K;
            // SAFETY: the host has checked that x holds m tokens of k values, aligned as X demands.
            x_rows.map(|row| unsafe { row.load::<X>(k) })
        });
        // SAFETY: initialised before the warp barrier above.
        let data = unsafe { ring.wait() } + lane * 16;
        for (u, x) in x.iter().enumerate() {
            if G == 1 || (u as u32) < groups_of(chunk) {
                for (r, acc) in acc.iter_mut().enumerate() {
                    let unit = data + r as u32 * copy_bytes + u as u32 * unit_bytes;
                    for term in 0..I::Weights::TERMS {
                        // SAFETY: inside the chunk that has just landed.
                        let a = unsafe { format.fragments(unit, term) };
                        for (step, &a) in a.iter().enumerate() {
                            for (acc, x) in acc.iter_mut().zip(x) {
                                // SAFETY: the loop is uniform over the warp.
                                unsafe { mma::m16n8k16_bf16(acc, a, [x[2 * step], x[2 * step + 1]]) };
                            }
                        }
                    }
                }
            }
        }
        warp::sync_warp(u32::MAX);
        if lane == 0 && chunk + stages < last {
            fill(&ring, ring.stage(), chunk + stages);
        }
        ring.advance();
        chunk += 1;
    }

    // Every copy into this warp's ring has landed and been read: its partial sums go there, `[token][row]`.
    let stride = const { I::GEMV.partial_stride() as u32 };
    for (r, acc) in acc.iter().enumerate() {
        for (q, acc) in acc.iter().enumerate() {
            for (j, value) in acc.iter().enumerate() {
                let token = (TOKEN_BLOCK * q) as u32 + 2 * t + (j % 2) as u32;
                let row = (UNIT_ROWS * r + 8 * (j / 2)) as u32 + g;
                // SAFETY: the warp's own ring, which the table's test shows to be large enough.
                unsafe { shared::store_f32(own_ring + (token * stride + row) * 4, *value) };
            }
        }
    }
    thread::sync_threads();

    let threads = warps * warp::WARP_SIZE;
    let live_tokens = (args.m - first_token).min(const { I::GEMV.tokens() as u32 });
    let live = live_tokens * rows;
    let partials = base + const { I::GEMV.ring_offset() as u32 };
    let cta_sum = |output: u32| {
        let at = partials + (output / rows * stride + output % rows) * 4;
        // SAFETY: written by every warp before the barrier above.
        (0..warps).fold(0f32, |sum, warp| {
            sum + unsafe { shared::load_f32(at + warp * ring_bytes) }
        })
    };
    let store = |output: u32, sum: f32| {
        let (token, row) = (first_token + output / rows, row_tile * rows + output % rows);
        if row < args.n {
            // SAFETY: inside `[m, n]`, and by this thread alone.
            unsafe { ending.store(&args, of_row, token, row, sum) };
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
        // Each CTA mails its sums to the CTA that finishes them.
        let mail = base + const { I::GEMV.mail_offset() as u32 };
        let slot = |source: u32, index: u32| -> SharedAddr { mail + (source * share + index) * 4 };
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
            // SAFETY: every CTA has mailed its sums before the barrier above.
            let sum = (0..ctas).fold(0f32, |sum, source| {
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
    unsafe { ending.finish::<I>(&args, share) };
}

macro_rules! instance {
    (($weights:ty), $table:ident, $name:ident) => {
        #[allow(non_camel_case_types)]
        enum $name {}
        impl Instance for $name {
            type Weights = $weights;
            const GEMV: Gemv = find($table, stringify!($name));
        }
    };
}

macro_rules! bf16_entries {
    ($($name:ident: $w:literal $c:literal $s:literal $g:literal $n:literal $r:literal $x:literal, $ctas:literal $regs:literal;)*) => { $(
        instance!((Bf16<1>), GEMV_BF16, $name);
        #[unsafe(no_mangle)]
        unsafe extern "ptx-kernel" fn $name(args: GemvArgs) {
            // SAFETY: the host checks what it launches.
            unsafe { gemv::<$name, $g, $r, $n, $x>(args, Bf16, Store) }
        }
    )* };
}
for_each_gemv_bf16!(bf16_entries);

macro_rules! window12_entries {
    ($($name:ident: $w:literal $c:literal $s:literal $g:literal $n:literal $r:literal $x:literal, $ctas:literal $regs:literal;)*) => { $(
        instance!((Window12), GEMV_WINDOW12, $name);
        #[unsafe(no_mangle)]
        unsafe extern "ptx-kernel" fn $name(args: Window12Args) {
            // SAFETY: the host checks what it launches.
            unsafe { gemv::<$name, $g, $r, $n, $x>(args.gemv, Window12::new(args.palette, args.starts, args.exceptions), Store) }
        }
    )* };
}
for_each_gemv_window12!(window12_entries);

macro_rules! route_entries {
    ($terms:literal $table:ident; $($name:ident: $w:literal $c:literal $s:literal $g:literal $n:literal $r:literal $x:literal, $ctas:literal $regs:literal;)*) => { $(
        instance!((Bf16<$terms>), $table, $name);
        #[unsafe(no_mangle)]
        unsafe extern "ptx-kernel" fn $name(args: RouteArgs) {
            // SAFETY: the host checks what it launches.
            unsafe { gemv::<$name, $g, $r, $n, $x>(args.gemv, Bf16, Route { join: args.join }) }
        }
    )* };
}
macro_rules! bf16_routes {
    ($($rows:tt)*) => { route_entries!(1 ROUTE_BF16; $($rows)*); };
}
for_each_route_bf16!(bf16_routes);
macro_rules! bf16x2_routes {
    ($($rows:tt)*) => { route_entries!(2 ROUTE_BF16X2; $($rows)*); };
}
for_each_route_bf16x2!(bf16x2_routes);
macro_rules! bf16x3_routes {
    ($($rows:tt)*) => { route_entries!(3 ROUTE_BF16X3; $($rows)*); };
}
for_each_route_bf16x3!(bf16x3_routes);
