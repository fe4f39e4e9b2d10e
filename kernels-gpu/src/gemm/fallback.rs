//! `gemm_<format>_plain` and `route_<format>_plain`: `y = x · Wᵀ` for many tokens where TMA cannot address x or the
//! weights: pointers and strides that are not 16-byte aligned.
//!
//! All warps of the CTA load tiles of 64 columns into registers, 16 bytes at a time where these lie aligned and value
//! by value elsewhere, while the tensor cores work at the tiles before; then store them to the ring's other stage.
//! Beyond the edges of x and W nothing is read and zeros are taken. Rows of a tile are 144 bytes apart, so that
//! `ldmatrix` reads eight of them from 32 banks.
//!
//! A warp multiplies 16 weight rows by all tokens, with the same fragments of sums as a `wgmma` leaves, and hands them
//! to [`super::epilogue`] as that does.
//!
//! PTX ISA: §9.7.14.5 `mma.sync`, §9.7.14.5.15 `ldmatrix`.

use super::epilogue::{Instance, Tile};
use crate::args::FallbackGemmArgs;
use crate::instances::{Gemm, Loads, for_each_fallback_gemm, gemm_name, gemm_row};
use crate::layout::{TOKEN_BLOCK, UNIT_ROWS};
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{bits, global, matrix, mma, pdl, thread, warp};

/// Columns of a tile.
const COLUMNS: u32 = 64;
/// Values of a piece, which one thread loads and stores at once.
const PIECE: u32 = 8;
/// Pieces of a tile's row.
const PIECES: u32 = COLUMNS / PIECE;
/// Bytes of a piece.
const PIECE_BYTES: u32 = 16;
/// Bytes of a BF16 value.
const BF16: u64 = 2;
/// Steps of the tensor cores in a tile.
const STEPS: u32 = COLUMNS / 16;

/// Rows of 16-bit values in global memory, at any stride.
#[derive(Clone, Copy)]
struct Rows {
    address: u64,
    stride: u64,
    rows: u32,
    columns: u32,
}

impl Rows {
    /// Eight values of a row from `column` on; zeros where there are none.
    ///
    /// # Safety
    ///
    /// The address is of rows that hold as many values as they say, 2-byte aligned, and what the preceding kernel wrote
    /// to them is visible.
    #[inline(always)]
    unsafe fn load(self, row: u32, column: u32) -> [u32; 4] {
        let at = self.address + (u64::from(row) * self.stride + u64::from(column)) * BF16;
        let live = if row < self.rows { self.columns } else { 0 };
        if at % u64::from(PIECE_BYTES) == 0 && column + PIECE <= live {
            // SAFETY: eight values inside the row, at a multiple of 16 bytes.
            return unsafe { global::load_v4_or_zero(at, true) };
        }
        // SAFETY: predicated on the row's end, value by value.
        let value = |i: u32| unsafe { global::load_u16_or_zero(at + u64::from(i) * BF16, column + i < live) };
        [
            value(0) | value(1) << 16,
            value(2) | value(3) << 16,
            value(4) | value(5) << 16,
            value(6) | value(7) << 16,
        ]
    }
}

/// A compiled matrix product by masked loads. `TILES` are the weights' tiles of a stage and that of x; `PIECES` the
/// pieces that a thread loads of each, `BLOCKS` the blocks of eight tokens.
struct Stage<I: Instance> {
    instance: core::marker::PhantomData<I>,
}

impl<I: Instance> Stage<I> {
    const ROW_BYTES: u32 = I::GEMM.row_bytes() as u32;
    const THREADS: u32 = I::GEMM.threads() as u32;
    const TERMS: u32 = I::GEMM.terms as u32;

    /// The piece that this thread takes as its `i`-th of a tile: row and column.
    #[inline(always)]
    fn piece(i: usize) -> (u32, u32) {
        let piece = thread::thread_idx_x() + i as u32 * Self::THREADS;
        (piece / PIECES, piece % PIECES * PIECE)
    }

    /// Loads this thread's pieces of the tile that starts at this row and the columns of this chunk.
    ///
    /// # Safety
    ///
    /// The rows hold as many values as they say, and what the preceding kernel wrote to them is visible.
    #[inline(always)]
    unsafe fn load<const N: usize>(rows: Rows, first_row: u32, chunk: u32) -> [[u32; 4]; N] {
        let mut pieces = [[0; 4]; N];
        for i in 0..N {
            let (row, column) = Self::piece(i);
            // SAFETY: a piece reads nothing beyond the rows and columns that there are.
            pieces[i] = unsafe { rows.load(first_row + row, chunk * COLUMNS + column) };
        }
        pieces
    }

    /// Stores this thread's pieces to the tile at `tile`.
    ///
    /// # Safety
    ///
    /// The tile has room for the pieces of all threads, and every warp has left it.
    #[inline(always)]
    unsafe fn store<const N: usize>(tile: SharedAddr, pieces: [[u32; 4]; N]) {
        for i in 0..N {
            let (row, column) = Self::piece(i);
            // SAFETY: inside the tile.
            unsafe { shared::store_v4(tile + row * Self::ROW_BYTES + column * BF16 as u32, pieces[i]) };
        }
    }

    /// Where a tile of a stage lies; x's stands where the term after the last would.
    #[inline(always)]
    fn tile(base: SharedAddr, stage: u32, term: u32) -> SharedAddr {
        let tiles = base + const { I::GEMM.tile_offset() as u32 };
        let (stage_bytes, weight_bytes) = const { (I::GEMM.stage_bytes() as u32, I::GEMM.weight_tile_bytes() as u32) };
        tiles + stage * stage_bytes + term * weight_bytes
    }

    /// Adds this warp's products of a stage to its sums.
    ///
    /// # Safety
    ///
    /// The stage's tiles are stored, before a barrier that the caller has met. The whole warp calls it.
    #[inline(always)]
    unsafe fn multiply<const BLOCKS: usize>(
        base: SharedAddr,
        stage: u32,
        mut sums: [[f32; 4]; BLOCKS],
    ) -> [[f32; 4]; BLOCKS] {
        let (lane, warp) = (warp::lane_id(), warp::warp_id());
        // Of the weights, matrices 0 and 1 are rows 0..8 and 8..16 of the first eight columns, 2 and 3 of the next. Of
        // x, 0 and 1 are a block of tokens at both eights of columns, 2 and 3 the next block.
        let weights = (warp * UNIT_ROWS as u32 + lane % 16) * Self::ROW_BYTES + lane / 16 * PIECE_BYTES;
        let tokens = (lane / 16 * TOKEN_BLOCK as u32 + lane % 8) * Self::ROW_BYTES + lane / 8 % 2 * PIECE_BYTES;
        let x = Self::tile(base, stage, Self::TERMS) + tokens;
        for step in 0..STEPS {
            let column = step * 2 * PIECE_BYTES;
            let mut blocks = [[0; 2]; BLOCKS];
            for block in 0..BLOCKS / 2 {
                let row = (2 * block * TOKEN_BLOCK) as u32 * Self::ROW_BYTES;
                // SAFETY: inside the tile of x, in straight line.
                let [a, b, c, d] = unsafe { matrix::load_x4(x + row + column) };
                (blocks[2 * block], blocks[2 * block + 1]) = ([a, b], [c, d]);
            }
            for term in 0..Self::TERMS {
                // SAFETY: inside the term's tile, in straight line.
                let a = unsafe { matrix::load_x4(Self::tile(base, stage, term) + weights + column) };
                for block in 0..BLOCKS {
                    // SAFETY: uniform over the warp.
                    unsafe { mma::m16n8k16_bf16(&mut sums[block], a, blocks[block]) };
                }
            }
        }
        sums
    }
}

/// One CTA. `T`, `W`, `X` and `N` are the instance's terms, the pieces of a weights' tile and of x's that a thread
/// loads, and the blocks of tokens.
///
/// # Safety
///
/// The kernel is launched with the grid, block, cluster and shared memory of its row; the arguments are what the host
/// has checked, and no launch that may still run writes the weights.
#[inline(always)]
unsafe fn gemm<I: Instance, const T: usize, const W: usize, const X: usize, const N: usize>(args: FallbackGemmArgs) {
    const {
        let pieces = I::GEMM.threads() * PIECE as usize;
        assert!(
            I::GEMM.terms == T && I::GEMM.token_blocks == N && I::GEMM.stages == 2 && I::GEMM.groups == 1 && N % 2 == 0
        );
        assert!(I::GEMM.rows() * COLUMNS as usize == W * pieces && I::GEMM.tokens() * COLUMNS as usize == X * pieces);
    };
    pdl::launch_dependents();
    let base = shared::dynamic_base();
    let tile = Tile::of_cta::<I>(&args.gemm);
    tile.prepare::<I>();
    let (first, last) = tile.slice();
    let weights = Rows {
        address: args.weights,
        stride: args.weight_stride,
        rows: args.gemm.n,
        columns: args.gemm.k,
    };
    let x = Rows {
        address: args.x,
        stride: args.x_stride,
        rows: args.gemm.m,
        columns: args.gemm.k,
    };

    let most = const {
        if I::GEMM.stages_per_part() > u32::MAX as usize {
            u32::MAX
        } else {
            I::GEMM.stages_per_part() as u32
        }
    };
    let mut sums = [[0f32; 4]; N];
    let mut part = [[0f32; 4]; N];
    let (mut stage, mut in_part) = (0, 0);
    // Each round asks for a chunk, multiplies the one before meanwhile, and stores what has come; the last one's chunk
    // is not used.
    for chunk in first..last + 1 {
        // SAFETY: the host gives operands of these sizes; edges are not read beyond.
        let next_weights: [[[u32; 4]; W]; T] =
            unsafe { load_terms::<I, T, W>(weights, args.term_stride, tile.first_row, chunk) };
        if bits::opaque(chunk) == first {
            // Weights are loaded while the preceding kernel ends; x comes after.
            pdl::wait();
        }
        // SAFETY: the host gives x of this size, and the preceding kernel's writes are visible; edges are not read
        // beyond.
        let next_x: [[u32; 4]; X] = unsafe { Stage::<I>::load(x, tile.first_token, chunk) };
        if bits::opaque(chunk) > first {
            // SAFETY: the tiles were stored before the last barrier, and the condition is uniform over the CTA.
            part = unsafe { Stage::<I>::multiply(base, stage ^ 1, part) };
            in_part += 1;
            if in_part == most {
                sums = added(sums, part);
                part = [[0f32; 4]; N];
                in_part = 0;
            }
        }
        if bits::opaque(chunk) < last {
            // SAFETY: every warp has left this stage, a barrier ago.
            unsafe {
                for term in 0..T {
                    Stage::<I>::store(Stage::<I>::tile(base, stage, term as u32), next_weights[term]);
                }
                Stage::<I>::store(Stage::<I>::tile(base, stage, T as u32), next_x);
            }
            thread::sync_threads();
        }
        stage ^= 1;
    }
    sums = added(sums, part);
    // SAFETY: the whole CTA comes here.
    unsafe { tile.finish::<I>(sums.as_flattened()) };
}

#[inline(always)]
fn added<const N: usize>(mut sums: [[f32; 4]; N], part: [[f32; 4]; N]) -> [[f32; 4]; N] {
    for block in 0..N {
        for i in 0..4 {
            sums[block][i] += part[block][i];
        }
    }
    sums
}

/// Loads this thread's pieces of the weights' tiles of a chunk, term by term.
///
/// # Safety
///
/// The weights hold as many terms, rows and columns as they say.
#[inline(always)]
unsafe fn load_terms<I: Instance, const T: usize, const W: usize>(
    weights: Rows,
    term_stride: u64,
    first_row: u32,
    chunk: u32,
) -> [[[u32; 4]; W]; T] {
    let mut terms = [[[0; 4]; W]; T];
    for term in 0..T {
        let address = weights.address + term as u64 * term_stride * BF16;
        // SAFETY: each term holds as many rows and columns, and no launch that may still run writes the weights.
        terms[term] = unsafe { Stage::<I>::load(Rows { address, ..weights }, first_row, chunk) };
    }
    terms
}

macro_rules! entries {
    ($($prefix:literal $op:ident $terms:literal $family:ident {
        $($w:literal $s:literal $g:literal $n:literal, $ctas:literal $regs:literal;)*
    })*) => { $($(
        const _: () = {
            enum Row {}
            impl Instance for Row {
                const GEMM: Gemm = gemm_row!($prefix $op $terms $family Loads::Masked; $w $s $g $n, $ctas $regs);
            }
            /// # Safety
            ///
            /// The launch is what the row and [`crate::args`] say; the host checks it.
            #[unsafe(export_name = gemm_name!($prefix $w $s $g $n))]
            unsafe extern "ptx-kernel" fn entry(args: FallbackGemmArgs) {
                // A thread's pieces of a tile: 16 rows per warp, 8 tokens per block; 4 rows of 8 pieces per warp and
                // load.
                // SAFETY: the host checks what it launches.
                unsafe { gemm::<Row, $terms, 4, { 2 * $n / $w }, $n>(args) }
            }
        };
    )*)* };
}
for_each_fallback_gemm!(entries);
