//! The epilogue of the matrix products: the slices of K that the CTAs of a cluster have multiplied are added by a DSMEM
//! reduction, those of the grid by a split-K reduction through global memory.
//!
//! ```text
//!   CTA 0  CTA 1  …    partial sums of the tile, [token][row], in each CTA's shared memory
//!     └──┬───┴──┘
//!   CTA i adds, in the order of K, what the cluster has of the i-th share of the tile's tokens
//!        │
//!        ├── one slice, no gate: to y
//!        └── else: to the sums in global memory, atomically or to a place of the slice's own; the CTA that comes last
//!            there finishes them
//! ```
//!
//! Where x is multicast, a cluster has several row tiles, and each is finished by its own CTAs alone. Tiles beyond the
//! last row have nothing to store.
//!
//! PTX ISA: §9.7.13.3 `barrier.cluster`, §9.7.9.22 `mapa`, loads from `.shared::cluster`.

use crate::args::GemmArgs;
use crate::gate;
use crate::instances::{Gemm, Loads, Op};
use crate::layout::{TOKEN_BLOCK, UNIT_ROWS};
use crate::split_k::{self, Output, QUAD, Sums};
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{cluster, global, thread, warp};

/// A compiled matrix product.
pub(crate) trait Instance {
    /// Its row of the table.
    const GEMM: Gemm;
}

/// CTAs of a cluster, at most.
const MAX_CLUSTER: usize = 8;
/// Bytes of an FP32 value.
const FP32: u64 = 4;
/// Tokens that go through a gate together, at most.
const AT_ONCE: u32 = 16;

/// The part of the output that a CTA works at, and who else does.
#[derive(Clone, Copy)]
pub(crate) struct Tile<'a> {
    /// The CTA's dynamic shared memory.
    base: SharedAddr,
    /// Which part of the cluster's K, and of how many.
    part: u32,
    parts: u32,
    /// Which of the CTAs that share x.
    member: u32,
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
        let (group, token_tile) = (cluster::index_x(), thread::block_idx_z());
        let base = shared::dynamic_base();
        let (member, part) = I::GEMM.place(cluster::cta_rank());
        let multicast = const { I::GEMM.multicast as u32 };
        let row_tile = group * multicast + member;
        Tile {
            base,
            part,
            parts: (ctas / multicast).max(1),
            member,
            row_tile,
            token_tile,
            args,
            first_row: row_tile * const { I::GEMM.rows() as u32 },
            first_token: token_tile * const { I::GEMM.tokens() as u32 },
        }
    }

    /// Asks for what a router's gate will read.
    #[inline(always)]
    pub(crate) fn prepare<I: Instance>(&self) {
        if matches!(I::GEMM.op, Op::Route) {
            gate::prepare(&self.args.split_k.gate, self.args.n);
        }
    }

    /// Chunks `[first, last)` of K that fall to this CTA.
    #[inline(always)]
    pub(crate) fn slice(&self) -> (u32, u32) {
        self.args.k_slices.of(thread::block_idx_y() * self.parts + self.part)
    }

    /// The tokens `[first, last)` of the tile that this CTA finishes, of those that there are.
    #[inline(always)]
    fn share<I: Instance>(&self) -> (u32, u32) {
        let live = (self.args.m - self.first_token).min(const { I::GEMM.tokens() as u32 });
        let share = live.div_ceil(self.parts);
        let bound = |part: u32| (part * share).min(live);
        (bound(self.part), bound(self.part + 1))
    }

    /// Puts the parts together. `sums` are the values of this thread, as [`cuda_std::wgmma::Accumulator`] has them;
    /// warps that have multiplied nothing give none that count.
    ///
    /// # Safety
    ///
    /// The whole CTA calls it, once all of its loads have landed and been multiplied, with arguments that the host has
    /// checked. What the preceding kernel wrote is visible behind the CTA's next barrier.
    #[inline(always)]
    pub(crate) unsafe fn finish<I: Instance>(&self, sums: &[f32]) {
        let threads = const { I::GEMM.threads() as u32 };
        let quads = const { I::GEMM.rows() as u32 / QUAD };
        let stride = const { I::GEMM.partial_stride() as u32 };
        let partial = self.base + const { I::GEMM.tile_offset() as u32 };
        let gate = matches!(I::GEMM.op, Op::Route) && self.args.split_k.gate.top_k != 0;
        let is_partial = gate || self.args.split_k.slices > 1;
        // A thread has the same rows for every token, if they are to be scaled.
        let row = thread::thread_idx_x() % quads * QUAD;
        const {
            assert!(!matches!(I::GEMM.op, Op::Route) || I::GEMM.threads() as u32 % (I::GEMM.rows() as u32 / QUAD) == 0);
        }
        let factors = match const { I::GEMM.op } {
            Op::Project => None,
            // SAFETY: the host gives n factors, or none.
            Op::Route => Some(unsafe { self.factors(row) }),
        };

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
            // All loads start before the first has come. CTAs that there are not add zeros.
            let parts: [[f32; 4]; MAX_CLUSTER] = core::array::from_fn(|part| {
                if part >= const { I::GEMM.parts(MAX_CLUSTER) } {
                    return [0.0; 4];
                }
                let there = cluster::map_shared(address, I::GEMM.rank(self.member, part as u32));
                // SAFETY: every CTA has stored its sums before the barrier above, and none exits before the one below.
                unsafe { cluster::load_v4_f32_or_zero(there, (part as u32) < self.parts) }
            });
            let sum = parts[..const { I::GEMM.parts(MAX_CLUSTER) }]
                .iter()
                .fold([0f32; 4], |sum, part| core::array::from_fn(|i| sum[i] + part[i]));
            let sum = match factors {
                Some(factors) => core::array::from_fn(|i| sum[i] * factors[i]),
                None => sum,
            };
            // SAFETY: the host gives sums and y of these sizes.
            unsafe {
                if is_partial {
                    self.sums()
                        .give_quad(thread::block_idx_y(), self.index(token, row), sum, self.rows_at(row));
                } else {
                    self.store(token, row, sum);
                }
            }
            at += threads;
        }
        cluster::arrive();
        cluster::wait();
        if is_partial {
            // SAFETY: this share has been given.
            unsafe { self.reduce_slices::<I>(gate, (first, last)) };
        }
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

    #[inline(always)]
    fn sums(&self) -> Sums {
        Sums::new(&self.args.split_k, u64::from(self.args.m) * u64::from(self.args.n))
    }

    #[inline(always)]
    fn output(&self) -> Output {
        Output {
            y: self.args.y,
            fp32: self.args.y_fp32 != 0,
        }
    }

    /// What sums of four rows of a router's weights are multiplied by.
    ///
    /// # Safety
    ///
    /// The host gives a factor for each weight row, or none.
    #[inline(always)]
    unsafe fn factors(&self, row: u32) -> [f32; 4] {
        let (rows, scales) = (self.rows_at(row), self.args.split_k.scales);
        core::array::from_fn(|i| {
            if scales != 0 && (i as u32) < rows {
                // SAFETY: the weights have this row, and so it has a factor.
                unsafe { global::load_f32(scales + (u64::from(self.first_row + row) + i as u64) * FP32) }
            } else {
                1.0
            }
        })
    }

    /// Stores four finished rows of a token to y.
    ///
    /// # Safety
    ///
    /// The token is one of the tile's, and one thread stores these rows of it.
    #[inline(always)]
    unsafe fn store(&self, token: u32, row: u32, sums: [f32; 4]) {
        // SAFETY: inside `[m, n]`, and by this thread alone.
        unsafe {
            self.output()
                .store_quad(self.index(token, row), sums, self.rows_at(row));
        }
    }

    /// Counts this CTA's contribution to a share of tokens; whoever is last finishes them.
    ///
    /// # Safety
    ///
    /// The whole CTA calls it, once it has given its sums of these tokens and met the cluster.
    #[inline(always)]
    unsafe fn reduce_slices<I: Instance>(&self, gate: bool, (first, last): (u32, u32)) {
        let split_k = &self.args.split_k;
        let row_tiles = cluster::count_x() * const { I::GEMM.multicast as u32 };
        // A gate wants all rows of its tokens.
        let (tile, arrivals) = if gate {
            (self.token_tile, split_k.slices * row_tiles)
        } else {
            (self.token_tile * row_tiles + self.row_tile, split_k.slices)
        };
        // SAFETY: the host gives a counter for each share of a tile; the whole CTA comes here, behind the cluster's
        // barrier.
        if unsafe { !split_k::is_last(split_k, tile * self.parts + self.part, arrivals) } {
            return;
        }
        if gate {
            let tokens = gate::Tokens {
                sums: self.sums(),
                logits: self.args.y,
                experts: self.args.n,
                gate: &split_k.gate,
            };
            let share = (self.first_token + first, self.first_token + last, AT_ONCE);
            let threads = const { I::GEMM.threads() as u32 };
            let free = const {
                (
                    I::GEMM.tile_offset() as u32,
                    (I::GEMM.shared_bytes() - I::GEMM.tile_offset()) as u32,
                )
            };
            // SAFETY: the host gives the gate's arguments; the tiles' part of shared memory has been left by the
            // cluster.
            unsafe {
                match const { I::GEMM.loads } {
                    Loads::Masked => gate::finish::<4>(tokens, share, threads, (self.base + free.0, free.1)),
                    _ => gate::finish::<8>(tokens, share, threads, (self.base + free.0, free.1)),
                }
            };
            return;
        }
        let quads = const { I::GEMM.rows() as u32 / QUAD };
        let mut at = thread::thread_idx_x();
        while at < (last - first) * quads {
            let (token, row) = (first + at / quads, at % quads * QUAD);
            // SAFETY: every slice's sums are there, and nobody else works at them any more.
            unsafe {
                let sums = self.sums().take_quad(self.index(token, row), self.rows_at(row));
                self.store(token, row, sums);
            }
            at += const { I::GEMM.threads() as u32 };
        }
    }
}
