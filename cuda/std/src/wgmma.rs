//! Matrix multiply-accumulate of a warpgroup, asynchronous (PTX ISA §9.7.15 `wgmma`, sm_90a).
//!
//! The order of use: [`fence`] once the accumulators' registers have been written by anything else; any number of
//! [`Accumulator::multiply`]; [`commit`]; [`Accumulator::wait`] before the sums are read. [`wait_for_all_but_one`]
//! tells in between when the group before the last has let go of its shared memory.
//!
//! `wgmma.mma_async` has no convergent intrinsic. A kernel calls it in straight-line, warp-uniform code, and the lint
//! counts it in the finished PTX.

use crate::shared::SharedAddr;
use core::arch::asm;

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.wgmma.fence.sync.aligned"]
    fn wgmma_fence();
    #[link_name = "llvm.nvvm.wgmma.commit_group.sync.aligned"]
    fn wgmma_commit_group();
}

/// Rows of the first operand, and of the sums.
pub const ROWS: u32 = 64;

/// Warps of a warpgroup.
pub const WARPGROUP_WARPS: u32 = 4;

/// Columns (of 2-byte elements) of a tile row that [`tile_descriptor`] describes: the 128 bytes of a swizzle.
pub const TILE_COLUMNS: u32 = 64;

/// What [`Descriptor`]s of two neighbouring steps of 16 columns differ by: 32 bytes.
pub const STEP: Descriptor = 2;

/// A matrix in shared memory, as the tensor cores find it (PTX ISA §9.7.15.5.1 "Matrix Descriptor Format").
pub type Descriptor = u64;

/// The descriptor of a K-major tile of 64 columns of 2 bytes, swizzled over 128 bytes, as TMA lays it down: 8 rows,
/// then the next 8 after 1024 bytes. `address` is a multiple of 1024.
#[inline(always)]
pub fn tile_descriptor(address: SharedAddr) -> Descriptor {
    const SWIZZLE_128: u64 = 1 << 62;
    // Both offsets count 16 bytes. The leading one has no meaning in this layout.
    const EIGHT_ROWS: u64 = (1024 / 16) << 32;
    const LEADING: u64 = 1 << 16;
    u64::from((address & 0x3_ffff) >> 4) | LEADING | EIGHT_ROWS | SWIZZLE_128
}

/// `wgmma.fence.sync.aligned`: orders the registers and shared memory that were written before with the `wgmma`s behind
/// it.
#[inline(always)]
pub fn fence() {
    // SAFETY: convergent; every warp of the warpgroup calls it.
    unsafe { wgmma_fence() }
}

/// `wgmma.commit_group.sync.aligned`: makes a group of the `wgmma`s since the last one.
#[inline(always)]
pub fn commit() {
    // SAFETY: convergent; every warp of the warpgroup calls it.
    unsafe { wgmma_commit_group() }
}

/// `wgmma.wait_group.sync.aligned 1`: waits until at most the last group is under way. The accumulators stay out of
/// reach.
#[inline(always)]
pub fn wait_for_all_but_one() {
    // SAFETY: every warp of the warpgroup calls it in straight line.
    unsafe { asm!("wgmma.wait_group.sync.aligned 1;", options(nostack)) };
}

/// The sums of 64 rows by so many columns that a warpgroup's threads hold.
///
/// With w the warp in its group, g = lane / 4 and t = lane % 4, a lane's values 4·j.. are (row 16·w + g, columns 8·j +
/// 2·t and the next), then the same of row 16·w + g + 8.
pub trait Accumulator: Copy {
    /// Columns.
    const COLUMNS: usize;

    /// Zeros, set here and nowhere else: a constant would be put into registers again on each way to a loop of
    /// `wgmma`s, and ptxas serialises these where it cannot tell who owns their registers.
    fn zeros() -> Self;

    /// `wgmma.mma_async.sync.aligned.m64n<COLUMNS>k16.f32.bf16.bf16`: starts `self += a · bᵀ` for 64 rows of `a`,
    /// [`Accumulator::COLUMNS`] rows of `b` and 16 columns of both.
    ///
    /// # Safety
    /// Every warp of the warpgroup calls it together, after a [`fence`]. The tiles stay as they are until the group has
    /// been waited for.
    unsafe fn multiply(&mut self, a: Descriptor, b: Descriptor);

    /// [`Accumulator::multiply`] with the lane's fragment of `a`: with g and t as above, the pairs of columns 2·t and
    /// the next of rows 16·w + g and 16·w + g + 8, then those of columns 2·t + 8 and the next.
    ///
    /// # Safety
    /// Every warp of the warpgroup calls it together, after a [`fence`]. The tile of `b` stays as it is, and the values
    /// of `a` lie in registers that nothing else uses, until the group has been waited for.
    unsafe fn multiply_fragment(&mut self, a: [u32; 4], b: Descriptor);

    /// `wgmma.wait_group.sync.aligned 0`: waits for all groups, after which the sums may be read.
    fn wait(&mut self);

    /// Adds the sums of `other`.
    fn add(&mut self, other: &Self);

    /// The values of this thread.
    fn values(&self) -> &[f32];
}

macro_rules! accumulators {
    ($($columns:literal $shape:literal $count:literal: $($i:literal)*;)*) => { $(
        impl Accumulator for [f32; $count] {
            const COLUMNS: usize = $columns;

            #[inline(always)]
            fn zeros() -> Self {
                let mut sums = [0.0; $count];
                // SAFETY: writes registers.
                unsafe {
                    asm!(concat!("mov.f32 {0}, 0f00000000;" $(, " mov.f32 {", $i, "}, 0f00000000;")*),
                        out(reg32) sums[0], $(out(reg32) sums[$i],)* options(nomem, nostack))
                };
                sums
            }

            #[inline(always)]
            unsafe fn multiply(&mut self, a: Descriptor, b: Descriptor) {
                // SAFETY: the warpgroup executes it together and after a fence, so the sums' registers are its own;
                // both tiles stay until the wait.
                unsafe {
                    asm!(concat!("{{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.", $shape,
                        ".f32.bf16.bf16 {{{0}" $(, ", {", $i, "}")*, "}}, {a}, {b}, p, 1, 1, 0, 0; }}"),
                        inout(reg32) self[0], $(inout(reg32) self[$i],)* a = in(reg64) a, b = in(reg64) b, options(nostack))
                };
            }

            #[inline(always)]
            unsafe fn multiply_fragment(&mut self, a: [u32; 4], b: Descriptor) {
                let [a0, a1, a2, a3] = a;
                // SAFETY: the warpgroup executes it together and after a fence; the registers of `a` and of the sums,
                // and the tile of `b`, stay until the wait.
                unsafe {
                    asm!(concat!("{{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.", $shape,
                        ".f32.bf16.bf16 {{{0}" $(, ", {", $i, "}")*, "}}, {{{a0}, {a1}, {a2}, {a3}}}, {b}, p, 1, 1, 0; }}"),
                        inout(reg32) self[0], $(inout(reg32) self[$i],)* a0 = in(reg32) a0, a1 = in(reg32) a1, a2 = in(reg32) a2,
                        a3 = in(reg32) a3, b = in(reg64) b, options(nostack))
                };
            }

            #[inline(always)]
            fn wait(&mut self) {
                // The sums pass through the statement, so that no use of them can be moved before it.
                // SAFETY: every warp of the warpgroup calls it in straight line.
                unsafe {
                    asm!(concat!("wgmma.wait_group.sync.aligned 0; // {0}" $(, "{", $i, "}")*),
                        inout(reg32) self[0], $(inout(reg32) self[$i],)* options(nostack))
                };
            }

            #[inline(always)]
            fn add(&mut self, other: &Self) {
                for (sum, value) in self.iter_mut().zip(other) {
                    *sum += value;
                }
            }

            #[inline(always)]
            fn values(&self) -> &[f32] {
                self
            }
        }
    )* };
}

accumulators! {
    64 "m64n64k16" 32: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31;
    128 "m64n128k16" 64: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63;
    256 "m64n256k16" 128: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
        64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
        96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123
        124 125 126 127;
}
