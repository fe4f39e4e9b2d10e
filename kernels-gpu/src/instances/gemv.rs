//! GEMVs: what the rows of their tables say.

use super::{BARRIER_BYTES, Counts, Entry, Family, Format, GATE_COUNTS, Op, RING_ALIGN, WARP};
use crate::layout::{TOKEN_BLOCK, UNIT_ROWS, UNIT_STEPS};

/// One compiled GEMV: `y = x · Wᵀ` for weights in one format, a cluster of CTAs per [`Gemv::rows`] weight rows.
///
/// The name spells the parameters in the order of the fields, a letter each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemv {
    /// The entry's name in the PTX.
    pub name: &'static str,
    /// The family that it belongs to.
    pub family: Family,
    /// Its place among the entries of its family.
    pub index: usize,
    /// What it computes.
    pub op: Op,
    /// The weights' format.
    pub format: Format,
    /// `w`: warps per CTA; they split K.
    pub warps: usize,
    /// `c`: CTAs per cluster; they split K too.
    pub cluster: usize,
    /// `s`: stages of each warp's ring.
    pub stages: usize,
    /// `g`: K groups (64 columns) per chunk.
    pub groups: usize,
    /// `n`: blocks of 8 tokens per CTA.
    pub token_blocks: usize,
    /// `r`: blocks of 16 rows per CTA, which share the x fragments that a warp has loaded.
    pub row_blocks: usize,
    /// `x`: x values per load: 8 where every row of x is 16-byte aligned, 1 anywhere.
    pub x_values: usize,
    /// CTAs that must fit on an SM (`.minnctapersm`).
    pub min_ctas: usize,
    /// Registers per thread that the machine code may use.
    pub max_registers: usize,
}

/// The name of a GEMV: what it begins with, then the parameters, a letter each.
macro_rules! gemv_name {
    ($prefix:literal $w:literal $c:literal $s:literal $g:literal $n:literal $r:literal $x:literal) => {
        concat!(
            $prefix, "_sm90_w", $w, "c", $c, "s", $s, "g", $g, "n", $n, "r", $r, "x", $x
        )
    };
}

/// The GEMV of a row, before its table has numbered it.
macro_rules! gemv_row {
    (
        $prefix:literal $op:ident $format:ident $family:ident;
        $w:literal $c:literal $s:literal $g:literal $n:literal $r:literal $x:literal, $ctas:literal $regs:literal
    ) => {
        $crate::instances::Gemv {
            name: $crate::instances::gemv_name!($prefix $w $c $s $g $n $r $x),
            family: $crate::instances::Family::$family,
            index: 0,
            op: $crate::instances::Op::$op,
            format: $crate::instances::Format::$format,
            warps: $w,
            cluster: $c,
            stages: $s,
            groups: $g,
            token_blocks: $n,
            row_blocks: $r,
            x_values: $x,
            min_ctas: $ctas,
            max_registers: $regs,
        }
    };
}

/// The table of a list's rows.
macro_rules! gemv_table {
    (
        $prefix:literal $op:ident $format:ident $family:ident;
        $($w:literal $c:literal $s:literal $g:literal $n:literal $r:literal $x:literal, $ctas:literal $regs:literal;)*
    ) => {
        &$crate::instances::Gemv::numbered([$(
            $crate::instances::gemv_row!($prefix $op $format $family; $w $c $s $g $n $r $x, $ctas $regs)
        ),*])
    };
}
pub(crate) use {gemv_name, gemv_row, gemv_table};

impl Gemv {
    /// The rows of a family, each with its place.
    pub(crate) const fn numbered<const N: usize>(mut rows: [Gemv; N]) -> [Gemv; N] {
        let mut at = 0;
        while at < N {
            rows[at].index = at;
            at += 1;
        }
        rows
    }

    /// Threads per CTA.
    pub const fn threads(&self) -> usize {
        self.warps * WARP
    }

    /// Weight rows per cluster.
    pub const fn rows(&self) -> usize {
        self.row_blocks * UNIT_ROWS
    }

    /// Tokens per CTA; more tokens are further CTAs along the grid's y.
    pub const fn tokens(&self) -> usize {
        self.token_blocks * TOKEN_BLOCK
    }

    /// Warps of a cluster: into so many slices K is split.
    pub const fn k_slices(&self) -> usize {
        self.warps * self.cluster
    }

    /// Bytes of one row block's part of a chunk: one bulk copy.
    pub const fn copy_bytes(&self) -> usize {
        self.groups * self.format.unit_bytes()
    }

    /// Bytes of a chunk: one stage of a warp's ring.
    pub const fn chunk_bytes(&self) -> usize {
        self.row_blocks * self.copy_bytes()
    }

    /// mbarriers of a warp: one for each stage of its ring and, where CTAs add up their sums, one behind them. Of these
    /// the first warp's counts the sums; that every warp has one spares the start a condition.
    pub const fn barriers(&self) -> usize {
        self.stages + (self.cluster > 1) as usize
    }

    /// Where the mbarrier lies in dynamic shared memory that counts the sums of the cluster's CTAs.
    pub const fn sums_barrier_offset(&self) -> usize {
        self.stages * BARRIER_BYTES
    }

    /// Where the warps' rings start in dynamic shared memory; the mbarriers lie before.
    pub const fn ring_offset(&self) -> usize {
        (self.warps * self.barriers() * BARRIER_BYTES).next_multiple_of(RING_ALIGN)
    }

    /// Bytes of one warp's ring. Its partial sums take the ring's place once the stream has ended.
    pub const fn ring_bytes(&self) -> usize {
        self.stages * self.chunk_bytes()
    }

    /// FP32 values between two tokens of a warp's partial sums: four more than the rows, so that the lanes of a
    /// fragment store to 32 different banks.
    pub const fn partial_stride(&self) -> usize {
        self.rows() + 4
    }

    /// Tokens that a CTA finishes, at most: its share of the cluster's.
    pub const fn share_tokens(&self) -> usize {
        self.tokens().div_ceil(self.cluster)
    }

    /// Where the cluster's partial sums for this CTA arrive.
    pub const fn reduction_offset(&self) -> usize {
        self.ring_offset() + self.warps * self.ring_bytes()
    }

    /// Dynamic shared memory of a CTA, in bytes.
    pub const fn shared_bytes(&self) -> usize {
        let share = self.share_tokens() * self.rows();
        self.reduction_offset() + if self.cluster > 1 { self.cluster * share * 4 } else { 0 }
    }

    /// The grid for `m` tokens and `n` weight rows: CTAs along x, token tiles along y. `None` where it exceeds CUDA's
    /// limits.
    pub const fn grid(&self, m: usize, n: usize) -> Option<[u32; 3]> {
        let x = n.div_ceil(self.rows()).checked_mul(self.cluster);
        let y = m.div_ceil(self.tokens());
        match x {
            Some(x) if x <= i32::MAX as usize && y <= 65_535 => Some([x as u32, y as u32, 1]),
            _ => None,
        }
    }

    /// Counters of a router that finishes `m` tokens.
    pub const fn counters(&self, m: usize) -> usize {
        m.div_ceil(self.tokens()) * self.cluster
    }

    pub(super) fn entry(&self) -> Entry {
        let tensor_ops = UNIT_STEPS * self.format.terms() * self.groups * self.row_blocks * self.token_blocks;
        let gate = match self.op {
            Op::Project => Counts::NONE,
            Op::Route => GATE_COUNTS,
        };
        // At the start alone.
        let cluster_barriers = if self.cluster > 1 { 1 } else { 0 };
        Entry {
            name: self.name,
            family: self.family,
            index: self.index,
            threads: self.threads(),
            min_ctas: self.min_ctas,
            max_registers: self.max_registers,
            shared_bytes: self.shared_bytes(),
            cluster: self.cluster,
            tensor_maps: 0,
            counts: Counts {
                bar_sync: gate.bar_sync
                    + match self.op {
                        Op::Project => 1,
                        Op::Route => 2,
                    },
                bar_warp_sync: 2 + gate.bar_warp_sync,
                cluster_arrive: cluster_barriers,
                cluster_wait: cluster_barriers,
                mma_sync: tensor_ops,
                // The warp's number.
                shfl_sync: 1 + gate.shfl_sync,
                // At the start, in the loop, and where a cluster's sums are announced.
                elect_sync: 2 + cluster_barriers,
                ..gate
            }
            .plus((self.format.facts().few_token_counts)(self.token_blocks)),
            tensor_cores: true,
        }
    }
}
