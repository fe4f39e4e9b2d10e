//! How a tile of a matrix product is finished: the parts of K that the CTAs of a cluster have multiplied are added through
//! distributed shared memory, those of the grid's slices through global memory.
//!
//! ```text
//!   CTA 0  CTA 1  …    partial sums of the tile, [token][row], in each CTA's shared memory
//!     └──┬───┴──┘
//!   CTA i adds, in rank order, what the cluster has of the i-th share of the tile's tokens
//!        │
//!        ├── one slice, no gate: to y
//!        └── else: to the sums in global memory (atomically, or to a place of the slice's own); whoever comes last there finishes them
//! ```

use crate::instances::{Gemm, GemmArgs, JoinArgs, Purpose};
use crate::join;
use crate::layout::{TOKEN_BLOCK, UNIT_ROWS};
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{cluster, convert, global, thread, warp};

/// A compiled matrix product.
pub(crate) trait Instance {
    /// Its row of the table.
    const GEMM: Gemm;
}

/// The slice `[first, last)` of `chunks` that falls to worker `index` of `workers`.
#[inline(always)]
pub(crate) fn slice(chunks: u32, index: u32, workers: u32) -> (u32, u32) {
    let bound = |i: u32| (u64::from(chunks) * u64::from(i) / u64::from(workers.max(1))) as u32;
    (bound(index), bound(index + 1))
}

/// Values of a 128-bit access.
const QUAD: u32 = 4;
/// CTAs of a cluster, at most.
const MAX_CLUSTER: usize = 8;
/// Bytes of an FP32 value.
const FP32: u64 = 4;
/// Bytes of a BF16 value.
const BF16: u64 = 2;

/// The part of the output that a CTA works at, and who else does.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a> {
    /// The CTA's dynamic shared memory.
    base: SharedAddr,
    /// Rank in the cluster, and CTAs of the cluster.
    rank: u32,
    ctas: u32,
    row_tile: u32,
    token_tile: u32,
    args: &'a GemmArgs,
    /// The first weight row.
    pub(crate) first_row: u32,
    /// The first token.
    pub(crate) first_token: u32,
}

impl<'a> Tile<'a> {
    /// The tile of this CTA.
    #[inline(always)]
    pub(crate) fn of_cta<I: Instance>(args: &'a GemmArgs) -> Self {
        // At least 1, which spares divisions their check for zero.
        let ctas = cluster::cta_count().max(1);
        let (row_tile, token_tile) = (thread::block_idx_x() / ctas, thread::block_idx_z());
        Tile {
            base: shared::dynamic_base(),
            rank: cluster::cta_rank(),
            ctas,
            row_tile,
            token_tile,
            args,
            first_row: row_tile * const { I::GEMM.rows() as u32 },
            first_token: token_tile * const { I::GEMM.tokens() as u32 },
        }
    }

    /// Chunks `[first, last)` of `chunks` along K that fall to this CTA.
    #[inline(always)]
    pub(crate) fn slice(&self, chunks: u32) -> (u32, u32) {
        let worker = thread::block_idx_y() * self.ctas + self.rank;
        slice(chunks, worker, self.args.join.slices * self.ctas)
    }

    /// The tokens `[first, last)` of the tile that this CTA finishes, of those that there are.
    #[inline(always)]
    fn share<I: Instance>(&self) -> (u32, u32) {
        let live = (self.args.m - self.first_token).min(const { I::GEMM.tokens() as u32 });
        let share = live.div_ceil(self.ctas);
        let bound = |rank: u32| (rank * share).min(live);
        (bound(self.rank), bound(self.rank + 1))
    }

    /// Puts the parts together. `sums` are the values of this thread, as [`cuda_std::wgmma::Accumulator`] has them; warps that
    /// have multiplied nothing give none that count.
    ///
    /// The whole CTA calls it, once all tiles that were sent for have landed.
    #[inline(always)]
    pub(crate) unsafe fn finish<I: Instance>(&self, sums: &[f32]) {
        let threads = const { I::GEMM.threads() as u32 };
        let quads = const { I::GEMM.rows() as u32 / QUAD };
        let stride = const { I::GEMM.partial_stride() as u32 };
        let partial = self.base + const { I::GEMM.tile_offset() as u32 };
        let gate = matches!(I::GEMM.purpose, Purpose::Route) && self.args.join.gate.top_k != 0;
        let joined = gate || self.args.join.slices > 1;

        // No warp reads a tile any more: the sums take the tiles' place.
        thread::sync_threads();
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        if warp < const { I::GEMM.warps as u32 } {
            let (g, t) = (lane / 4, lane % 4);
            for (at, value) in sums.iter().enumerate() {
                let token = (TOKEN_BLOCK * (at / 4) + at % 2) as u32 + 2 * t;
                let row = warp * UNIT_ROWS as u32 + (8 * (at % 4 / 2)) as u32 + g;
                // SAFETY: inside the tiles' part of shared memory, as the table's test shows.
                unsafe { shared::store_f32(partial + (token * stride + row) * 4, *value) };
            }
        }
        cluster::arrive();
        cluster::wait();

        let (first, last) = self.share::<I>();
        let mut at = thread::thread_idx_x();
        while at < (last - first) * quads {
            let (token, row) = (first + at / quads, at % quads * QUAD);
            let address = partial + (token * stride + row) * 4;
            // All ranks are asked before the first has answered. Those that there are not add zeros.
            let parts: [[f32; 4]; MAX_CLUSTER] = core::array::from_fn(|rank| {
                let rank = rank as u32;
                // SAFETY: every CTA has stored its sums before the barrier above, and none exits before the one below.
                unsafe { cluster::load_v4_f32_or_zero(cluster::map_shared(address, rank), rank < self.ctas) }
            });
            let sum = parts
                .iter()
                .fold([0f32; 4], |sum, part| core::array::from_fn(|i| sum[i] + part[i]));
            // SAFETY: the host gives sums and y of these sizes.
            unsafe {
                if joined {
                    self.contribute(token, row, sum);
                } else {
                    self.store(token, row, sum);
                }
            }
            at += threads;
        }
        cluster::arrive();
        if joined {
            // SAFETY: as above, and a counter for each share of a tile.
            unsafe { self.join::<I>(gate, (first, last)) };
        }
        cluster::wait();
    }

    /// Of four rows from `row` of the tile on, how many the weights have.
    #[inline(always)]
    fn rows_at(&self, row: u32) -> u32 {
        self.args.n.saturating_sub(self.first_row + row).min(QUAD)
    }

    /// Where a value of `[m, n]` lies, counted in values.
    #[inline(always)]
    fn index(&self, token: u32, row: u32) -> u64 {
        u64::from(self.first_token + token) * u64::from(self.args.n) + u64::from(self.first_row + row)
    }

    /// Values of a slice's own sums, `[m, n]`; none where the slices share them.
    #[inline(always)]
    fn slice_len(&self) -> u64 {
        if self.args.join.serial == 0 {
            0
        } else {
            u64::from(self.args.m) * u64::from(self.args.n)
        }
    }

    /// Adds four rows of a token to the sums in global memory.
    #[inline(always)]
    unsafe fn contribute(&self, token: u32, row: u32, sum: [f32; 4]) {
        let JoinArgs { sums, serial, .. } = self.args.join;
        let slice = u64::from(thread::block_idx_y());
        let at = sums + (slice * self.slice_len() + self.index(token, row)) * FP32;
        let rows = self.rows_at(row);
        // SAFETY: as the caller promises. Serial sums have one writer each.
        unsafe {
            if serial == 0 {
                for (i, value) in sum.iter().enumerate() {
                    global::add_f32_if(at + i as u64 * FP32, *value, (i as u32) < rows);
                }
            } else {
                store_quad(at, sum, rows);
            }
        }
    }

    /// Stores four finished rows of a token to y.
    #[inline(always)]
    unsafe fn store(&self, token: u32, row: u32, sum: [f32; 4]) {
        let rows = self.rows_at(row);
        let (y, scales) = (self.args.y, self.args.join.scales);
        let mut sum = sum;
        if scales != 0 {
            for (i, value) in sum.iter_mut().enumerate() {
                let at = scales + (u64::from(self.first_row + row) + i as u64) * FP32;
                // SAFETY: the host gives n factors.
                *value *= unsafe { global::load_f32_or_zero(at, (i as u32) < rows) };
            }
        }
        let index = self.index(token, row);
        // SAFETY: the host gives m rows of n values; each is written by one thread of the grid.
        unsafe {
            if self.args.y_fp32 != 0 {
                store_quad(y + index * FP32, sum, rows);
                return;
            }
            let values = sum.map(convert::f32_to_bf16);
            let at = y + index * BF16;
            if rows == QUAD && at % 8 == 0 {
                let pair = |i: usize| u32::from(values[i]) | u32::from(values[i + 1]) << 16;
                global::store_v2(at, [pair(0), pair(2)]);
                return;
            }
            for (i, value) in values.iter().enumerate() {
                global::store_u16_if(at + i as u64 * BF16, *value, (i as u32) < rows);
            }
        }
    }

    /// Counts this CTA's contribution to a share of tokens; whoever is last finishes them.
    #[inline(always)]
    unsafe fn join<I: Instance>(&self, gate: bool, (first, last): (u32, u32)) {
        let JoinArgs { counters, slices, .. } = self.args.join;
        let row_tiles = thread::grid_dim_x() / self.ctas;
        // A gate wants all rows of its tokens.
        let (tile, arrivals) = if gate {
            (self.token_tile, slices * row_tiles)
        } else {
            (self.token_tile * row_tiles + self.row_tile, slices)
        };
        let counter = counters + u64::from(tile * self.ctas + self.rank) * 4;
        let flag = self.base + const { I::GEMM.flag_offset() as u32 };
        // SAFETY: as the caller promises; the whole CTA comes here.
        if unsafe { !join::last(counter, arrivals, flag) } {
            return;
        }
        if gate {
            return;
        }
        let quads = const { I::GEMM.rows() as u32 / QUAD };
        let mut at = thread::thread_idx_x();
        while at < (last - first) * quads {
            let (token, row) = (first + at / quads, at % quads * QUAD);
            // SAFETY: every slice's sums are there, and nobody else works at them any more.
            unsafe {
                let sum = self.joined_sum(token, row);
                self.store(token, row, sum);
            }
            at += const { I::GEMM.threads() as u32 };
        }
    }

    /// What the slices have put together for four rows of a token. Sums that they share are zeros again after.
    #[inline(always)]
    unsafe fn joined_sum(&self, token: u32, row: u32) -> [f32; 4] {
        let JoinArgs {
            sums, slices, serial, ..
        } = self.args.join;
        let at = sums + self.index(token, row) * FP32;
        let rows = self.rows_at(row);
        // SAFETY: as the caller promises.
        unsafe {
            if serial == 0 {
                let sum = load_quad(at, rows);
                store_quad(at, [0.0; 4], rows);
                return sum;
            }
            let mut sum = [0f32; 4];
            for slice in 0..slices {
                let part = load_quad(at + u64::from(slice) * self.slice_len() * FP32, rows);
                sum = core::array::from_fn(|i| sum[i] + part[i]);
            }
            sum
        }
    }
}

/// Stores the first `count` of four values, at once where they lie together.
#[inline(always)]
unsafe fn store_quad(at: u64, values: [f32; 4], count: u32) {
    // SAFETY: as the caller promises.
    unsafe {
        if count == QUAD && at % 16 == 0 {
            global::store_v4(at, values.map(f32::to_bits));
            return;
        }
        for (i, value) in values.iter().enumerate() {
            global::store_u32_if(at + i as u64 * FP32, value.to_bits(), (i as u32) < count);
        }
    }
}

/// Loads the first `count` of four values past the L1 cache, zeros for the rest.
#[inline(always)]
unsafe fn load_quad(at: u64, count: u32) -> [f32; 4] {
    // SAFETY: as the caller promises.
    unsafe {
        if count == QUAD && at % 16 == 0 {
            return global::load_relaxed_v4(at).map(f32::from_bits);
        }
        core::array::from_fn(|i| global::load_relaxed_f32_or_zero(at + i as u64 * FP32, (i as u32) < count))
    }
}
