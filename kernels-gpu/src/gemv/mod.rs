//! `gemv_<format>` and `route_<format>`: `y = x · Wᵀ` for few tokens, bound by the stream of the weights.
//!
//! Weight rows are the M side of the tensor-core instruction and tokens its N side. A cluster serves `r` blocks of 16
//! rows for `n` blocks of 8 tokens; its warps split K into contiguous slices, `w` in each of `c` CTAs:
//!
//! ```text
//!            K →
//!  rows      [ CTA 0: warp 0 | warp 1 | … | warp w-1 ][ CTA 1: warp 0 | … ] …   each warp: a ring of bulk copies
//!  16·r      └──────── partial sums, shared memory ───┘└──────────┘
//!            └────────── CTA i adds the cluster's sums for its share of the tokens, in rank order ───────┘
//! ```
//!
//! * Each warp streams its slice through a ring of its own, so no barrier of the CTA stands in the loop.
//! * A warp loads its x fragments once per chunk, ahead of the weights' arrival, and uses them for all `r` row blocks.
//! * The order of every sum is fixed by the instance alone, so equal calls give equal bits.
//! * The bulk copies of the weights start before `griddepcontrol.wait`: they stream in while the preceding kernel ends
//!   (PTX ISA §9.7.13.13). No launch since the last one that did not overlap may therefore write
//!   them; x and y may be written.
//! * What becomes of the sums is a parameter: they are y, or logits, which the last CTA of a token's takes through the
//!   gate.

use crate::args::GemvArgs;
use crate::formats::fragments::Weights;
use crate::instances::{Gemv, Op};
use crate::split_k::QUAD;
use cuda_std::shared::{self, SharedAddr};
use cuda_std::{cluster, pdl, thread, warp};
use load::Stream;

mod compute;
mod epilogue;
mod load;

pub(crate) use epilogue::{Epilogue, Route, Store};

/// A compiled GEMV.
pub(crate) trait Instance {
    /// The weights' format.
    type Weights: Weights;
    /// Its row of the table.
    const GEMV: Gemv;
}

/// Where a thread stands: its CTA in the grid and the cluster, itself in the CTA.
#[derive(Clone, Copy)]
struct Place {
    lane: u32,
    warp: u32,
    /// The CTA's rank in the cluster.
    rank: u32,
    row_tile: u32,
    first_token: u32,
    /// The CTA's dynamic shared memory.
    base: SharedAddr,
}

impl Place {
    #[inline(always)]
    fn of_thread<I: Instance>() -> Self {
        let ctas = const { I::GEMV.cluster as u32 };
        let (lane, warp) = (warp::lane_id(), warp::uniform_warp_id());
        let rank = if ctas > 1 { cluster::cta_rank() } else { 0 };
        Place {
            lane,
            warp,
            rank,
            row_tile: thread::block_idx_x() / ctas,
            first_token: thread::block_idx_y() * const { I::GEMV.tokens() as u32 },
            base: shared::dynamic_base(),
        }
    }

    /// Where the warp's ring starts; its partial sums take the ring's place.
    #[inline(always)]
    fn own_ring<I: Instance>(&self) -> SharedAddr {
        self.base + const { I::GEMV.ring_offset() as u32 } + self.warp * const { I::GEMV.ring_bytes() as u32 }
    }

    /// The mbarrier that counts the sums of the cluster's CTAs for this one.
    #[inline(always)]
    fn sums_barrier<I: Instance>(&self) -> SharedAddr {
        self.base + const { I::GEMV.sums_barrier_offset() as u32 }
    }

    /// Which of the cluster's warps this one is, and of how many: into so many slices K is split.
    #[inline(always)]
    fn worker<I: Instance>(&self) -> (u32, u32) {
        let (warps, ctas) = const { (I::GEMV.warps as u32, I::GEMV.cluster as u32) };
        (self.rank * warps + self.warp, warps * ctas)
    }
}

/// A warp's sums: for each row block and token block a C fragment.
type WarpSums<const R: usize, const N: usize> = [[[f32; 4]; N]; R];

/// One CTA: load, compute, epilogue. `G`, `R`, `N` and `X` repeat the instance's parameters of these letters, as array
/// lengths want them.
///
/// # Safety
///
/// The kernel is launched with the grid, block, cluster and shared memory of its row, and with arguments that the host
/// has checked: operands, outputs and what format and epilogue take besides have the sizes and alignments that
/// [`crate::args`] states, and no launch that may still run writes the weights.
#[inline(always)]
pub(crate) unsafe fn gemv<I: Instance, const G: usize, const R: usize, const N: usize, const X: usize>(
    args: GemvArgs,
    format: I::Weights,
    epilogue: impl Epilogue,
) {
    const { assert!(I::GEMV.groups == G && I::GEMV.row_blocks == R && I::GEMV.token_blocks == N && I::GEMV.x_values == X) };
    pdl::launch_dependents();
    let place = Place::of_thread::<I>();
    // SAFETY: the host gives the exceptions that the packer made.
    let exceptions = unsafe { format.find::<R>(place.row_tile * R as u32) };
    let stream = Stream::<I, G, R>::of_warp(place, &args);
    // SAFETY: the first use of the ring, by the whole warp.
    unsafe { stream.start(place) };
    // SAFETY: of the same row blocks.
    let share = unsafe { format.share(exceptions, place.worker::<I>()) };
    pdl::wait();
    // A thread puts together sums of the same four rows.
    const { assert!(matches!(I::GEMV.op, Op::Project) || QUAD as usize * I::GEMV.threads() % I::GEMV.rows() == 0) };
    let rows = const { I::GEMV.rows() as u32 };
    // SAFETY: the host gives the epilogue's arguments.
    let of_rows = unsafe { epilogue.ahead(&args, place.row_tile * rows + thread::thread_idx_x() * QUAD % rows) };
    // SAFETY: the stream has been started, the share is this warp's, and the preceding kernel's writes are visible.
    let acc = unsafe { compute::multiply::<I, G, R, N, X>(&stream, place, &args, format, share) };
    // SAFETY: the stream has ended: every copy has landed and been read.
    unsafe { epilogue::store_partials::<I, R, N>(place, &acc) };
    thread::sync_threads();
    // SAFETY: every warp's partial sums are there, and this CTA has arrived at the cluster's barrier.
    unsafe { epilogue::reduce::<I, _>(place, &args, epilogue, of_rows) };
}

/// Defines the entries of a list of GEMVs: what they are given, the weights' format, and how the kernel's arguments are
/// made of that.
macro_rules! gemv_entries {
    (|$args:ident: $type:ty| $weights:ty, ($gemv:expr, $decoder:expr, $epilogue:expr);
        $prefix:literal $op:ident $format:ident $family:ident;
        $($w:literal $c:literal $s:literal $g:literal $n:literal $r:literal $x:literal, $ctas:literal $regs:literal;)*
    ) => { $(
        const _: () = {
            enum Row {}
            impl $crate::gemv::Instance for Row {
                type Weights = $weights;
                const GEMV: $crate::instances::Gemv = $crate::instances::gemv_row!(
                    $prefix $op $format $family; $w $c $s $g $n $r $x, $ctas $regs
                );
            }
            /// # Safety
            ///
            /// The launch is what the row and [`crate::args`] say; the host checks it.
            #[unsafe(export_name = $crate::instances::gemv_name!($prefix $w $c $s $g $n $r $x))]
            unsafe extern "ptx-kernel" fn entry($args: $type) {
                // SAFETY: the host checks what it launches.
                unsafe { $crate::gemv::gemv::<Row, $g, $r, $n, $x>($gemv, $decoder, $epilogue) }
            }
        };
    )* };
}
pub(crate) use gemv_entries;
