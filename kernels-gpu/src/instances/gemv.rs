//! The table of the GEMVs, and what they are given.

use super::{BARRIER_BYTES, Counts, Entry, GATE_COUNTS, RING_ALIGN, ROUTE_BF16, ROUTE_BF16X2, ROUTE_BF16X3, WARP};
use crate::layout::{BF16_UNIT_BYTES, TOKEN_BLOCK, UNIT_ROWS, UNIT_STEPS, WINDOW12_UNIT_BYTES};

/// What a `gemv` kernel is given, as its one by-value parameter. Addresses are device addresses in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemvArgs {
    /// Activations, BF16: `m` tokens of `k` values.
    pub x: u64,
    /// Elements between two tokens of x.
    pub x_stride: u64,
    /// Weights in the order of [`crate::layout`], 16-byte aligned.
    pub weights: u64,
    /// Output, row-major `[m, n]`, BF16 or FP32.
    pub y: u64,
    /// Tokens.
    pub m: u32,
    /// Weight rows.
    pub n: u32,
    /// Weight columns.
    pub k: u32,
    /// Not zero: the output is FP32, the sums as they are.
    pub y_fp32: u32,
}

/// What a `gemv_window12` kernel is given, as its one by-value parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window12Args {
    /// As for BF16 weights; `weights` are `window12` units.
    pub gemv: GemvArgs,
    /// Where each row block's exceptions start, counted in exceptions: a `u64` per row block, then the end, [`STARTS_AFTER`]
    /// times, since a CTA looks at all its row blocks even where there are fewer.
    pub starts: u64,
    /// The exceptions, [`Exception`] each, row block by row block.
    pub exceptions: u64,
    /// The palette's high bytes, entry i in byte i.
    pub palette: [u32; 2],
}

/// How often the end of the exceptions stands behind the starts on the device: as many row blocks as a CTA serves at most.
pub const STARTS_AFTER: usize = 4;

/// A weight whose high exponent bits the palette lacks; its place in the unit decodes to +0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The weight, a BF16 bit pattern.
    pub value: u16,
    /// Its row in the row block, below 16.
    pub row: u16,
    /// Its column.
    pub column: u32,
}

/// How weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// BF16 as it is.
    Bf16,
    /// FP32 as a sum of two BF16 terms, in rows that a power of two scales.
    Bf16x2,
    /// FP32 as a sum of three BF16 terms: all 24 bits.
    Bf16x3,
    /// 12 bits per weight, lossless with the exceptions apart.
    Window12,
}

impl Format {
    /// Bytes of a unit.
    pub const fn unit_bytes(self) -> usize {
        match self {
            Format::Bf16 | Format::Bf16x2 | Format::Bf16x3 => self.terms() * BF16_UNIT_BYTES,
            Format::Window12 => WINDOW12_UNIT_BYTES,
        }
    }

    /// Terms that add up to a weight; a unit holds one after the other.
    pub const fn terms(self) -> usize {
        match self {
            Format::Bf16 | Format::Window12 => 1,
            Format::Bf16x2 => 2,
            Format::Bf16x3 => 3,
        }
    }

    /// Every compiled projection over weights of this format.
    pub const fn gemvs(self) -> &'static [Gemv] {
        match self {
            Format::Bf16 => GEMV_BF16,
            Format::Bf16x2 | Format::Bf16x3 => &[],
            Format::Window12 => GEMV_WINDOW12,
        }
    }

    /// Every compiled router for few tokens over weights of this format.
    pub const fn routes(self) -> &'static [Gemv] {
        match self {
            Format::Bf16 => ROUTE_BF16,
            Format::Bf16x2 => ROUTE_BF16X2,
            Format::Bf16x3 => ROUTE_BF16X3,
            Format::Window12 => &[],
        }
    }

    /// The format's name.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Bf16 => "bf16",
            Format::Bf16x2 => "bf16x2",
            Format::Bf16x3 => "bf16x3",
            Format::Window12 => "window12",
        }
    }

    /// 128-bit loads of a lane per unit.
    pub const fn wide_loads(self) -> usize {
        self.unit_bytes() / (WARP * 16)
    }
}

/// What a kernel does with its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `gemv`: they are the result.
    Store,
    /// `route`: they are logits, which go through a gate.
    Route,
}

impl Ending {
    /// The name's beginning.
    pub const fn name(self) -> &'static str {
        match self {
            Ending::Store => "gemv",
            Ending::Route => "route",
        }
    }
}

/// One compiled GEMV: `y = x · Wᵀ` for weights in one format, a cluster of CTAs per [`Gemv::rows`] weight rows.
///
/// The name spells the parameters in the order of the fields, a letter each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemv {
    /// The entry's name in the PTX.
    pub name: &'static str,
    /// What becomes of the sums.
    pub ending: Ending,
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

/// Lists the GEMV instances to the macro `$each`: name, then warps, cluster, stages, groups, token blocks, row blocks,
/// x values; then CTAs per SM and registers per thread.
///
/// Rows with x8 follow the configurations measured for 16-row blocks, at equal CTAs and equal bytes in flight: a block of
/// `r` times as many rows takes `c` times as many CTAs along K. The x1 rows serve shapes whose x rows cannot be 16-byte aligned.
macro_rules! for_each_gemv_bf16 {
    ($each:ident) => {
        $each! {
            gemv_bf16_sm90_w4c1s2g1n1r2x8: 4 1 2 1 1 2 8, 4 80;
            gemv_bf16_sm90_w4c2s2g1n1r2x8: 4 2 2 1 1 2 8, 4 80;
            gemv_bf16_sm90_w8c2s3g1n1r2x8: 8 2 3 1 1 2 8, 2 80;
            gemv_bf16_sm90_w8c4s2g1n1r2x8: 8 4 2 1 1 2 8, 3 80;
            gemv_bf16_sm90_w8c8s2g1n1r2x8: 8 8 2 1 1 2 8, 3 80;
            gemv_bf16_sm90_w16c2s2g1n1r2x8: 16 2 2 1 1 2 8, 1 80;
            gemv_bf16_sm90_w4c1s2g1n2r4x8: 4 1 2 1 2 4 8, 3 128;
            gemv_bf16_sm90_w4c2s2g1n2r4x8: 4 2 2 1 2 4 8, 3 128;
            gemv_bf16_sm90_w4c4s2g1n2r4x8: 4 4 2 1 2 4 8, 3 128;
            gemv_bf16_sm90_w4c8s2g1n2r4x8: 4 8 2 1 2 4 8, 3 128;
            gemv_bf16_sm90_w4c1s2g1n4r4x8: 4 1 2 1 4 4 8, 3 168;
            gemv_bf16_sm90_w4c2s2g1n4r4x8: 4 2 2 1 4 4 8, 3 168;
            gemv_bf16_sm90_w4c4s2g1n4r4x8: 4 4 2 1 4 4 8, 3 168;
            gemv_bf16_sm90_w4c8s2g1n4r4x8: 4 8 2 1 4 4 8, 3 168;
            gemv_bf16_sm90_w4c2s2g1n1r2x1: 4 2 2 1 1 2 1, 4 80;
            gemv_bf16_sm90_w4c2s2g1n2r4x1: 4 2 2 1 2 4 1, 3 144;
            gemv_bf16_sm90_w4c2s2g1n4r4x1: 4 2 2 1 4 4 1, 3 168;
        }
    };
}

/// Lists the instances for `window12` weights, like [`for_each_gemv_bf16`].
macro_rules! for_each_gemv_window12 {
    ($each:ident) => {
        $each! {
            gemv_window12_sm90_w4c1s3g1n1r2x8: 4 1 3 1 1 2 8, 5 88;
            gemv_window12_sm90_w4c2s3g1n1r2x8: 4 2 3 1 1 2 8, 5 88;
            gemv_window12_sm90_w8c2s3g1n1r2x8: 8 2 3 1 1 2 8, 3 80;
            gemv_window12_sm90_w8c4s3g1n1r2x8: 8 4 3 1 1 2 8, 3 80;
            gemv_window12_sm90_w8c8s2g1n1r2x8: 8 8 2 1 1 2 8, 3 80;
            gemv_window12_sm90_w4c1s2g1n2r4x8: 4 1 2 1 2 4 8, 4 128;
            gemv_window12_sm90_w4c2s2g1n2r4x8: 4 2 2 1 2 4 8, 4 128;
            gemv_window12_sm90_w4c4s2g1n2r4x8: 4 4 2 1 2 4 8, 4 128;
            gemv_window12_sm90_w4c8s2g1n2r4x8: 4 8 2 1 2 4 8, 4 128;
            gemv_window12_sm90_w4c1s2g1n4r4x8: 4 1 2 1 4 4 8, 3 168;
            gemv_window12_sm90_w4c2s2g1n4r4x8: 4 2 2 1 4 4 8, 3 168;
            gemv_window12_sm90_w4c4s2g1n4r4x8: 4 4 2 1 4 4 8, 3 168;
            gemv_window12_sm90_w4c8s2g1n4r4x8: 4 8 2 1 4 4 8, 3 168;
            gemv_window12_sm90_w4c2s3g1n1r2x1: 4 2 3 1 1 2 1, 5 96;
            gemv_window12_sm90_w4c2s2g1n2r4x1: 4 2 2 1 2 4 1, 3 144;
            gemv_window12_sm90_w4c2s2g1n4r4x1: 4 2 2 1 4 4 1, 2 216;
        }
    };
}

#[cfg(target_arch = "nvptx64")]
pub(crate) use {for_each_gemv_bf16, for_each_gemv_window12};

macro_rules! gemv_rows {
    ($ending:ident $format:ident; $($name:ident: $w:literal $c:literal $s:literal $g:literal $n:literal $r:literal $x:literal, $ctas:literal $regs:literal;)*) => {
        &[$($crate::instances::Gemv {
            name: stringify!($name), ending: Ending::$ending, format: Format::$format, warps: $w, cluster: $c, stages: $s, groups: $g,
            token_blocks: $n, row_blocks: $r, x_values: $x, min_ctas: $ctas, max_registers: $regs,
        }),*]
    };
}
pub(super) use gemv_rows;

macro_rules! bf16_rows {
    ($($rows:tt)*) => {
        /// Every compiled GEMV over BF16 weights.
        pub const GEMV_BF16: &[Gemv] = gemv_rows!(Store Bf16; $($rows)*);
    };
}
for_each_gemv_bf16!(bf16_rows);
macro_rules! window12_rows {
    ($($rows:tt)*) => {
        /// Every compiled GEMV over `window12` weights.
        pub const GEMV_WINDOW12: &[Gemv] = gemv_rows!(Store Window12; $($rows)*);
    };
}
for_each_gemv_window12!(window12_rows);

impl Gemv {
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

    /// Where the warps' rings start in dynamic shared memory; their mbarriers lie before.
    pub const fn ring_offset(&self) -> usize {
        (self.warps * self.stages * BARRIER_BYTES).next_multiple_of(RING_ALIGN)
    }

    /// Bytes of one warp's ring. Its partial sums take the ring's place once the stream has ended.
    pub const fn ring_bytes(&self) -> usize {
        self.stages * self.chunk_bytes()
    }

    /// FP32 values between two tokens of a warp's partial sums: four more than the rows, so that the lanes of a fragment
    /// store to 32 different banks.
    pub const fn partial_stride(&self) -> usize {
        self.rows() + 4
    }

    /// Tokens that a CTA finishes, at most: its share of the cluster's.
    pub const fn share_tokens(&self) -> usize {
        self.tokens().div_ceil(self.cluster)
    }

    /// Where the cluster's partial sums for this CTA arrive.
    pub const fn mail_offset(&self) -> usize {
        self.ring_offset() + self.warps * self.ring_bytes()
    }

    /// Dynamic shared memory of a CTA, in bytes.
    pub const fn shared_bytes(&self) -> usize {
        let share = self.share_tokens() * self.rows();
        self.mail_offset() + if self.cluster > 1 { self.cluster * share * 4 } else { 0 }
    }

    /// The grid for `m` tokens and `n` weight rows: CTAs along x, token tiles along y. `None` where it exceeds CUDA's limits.
    pub const fn grid(&self, m: usize, n: usize) -> Option<[u32; 3]> {
        let x = n.div_ceil(self.rows()).checked_mul(self.cluster);
        let y = m.div_ceil(self.tokens());
        match x {
            Some(x) if x <= i32::MAX as usize && y <= 65_535 => Some([x as u32, y as u32, 1]),
            _ => None,
        }
    }

    pub(super) const fn entry(&self) -> Entry {
        let tensor_ops = UNIT_STEPS * self.format.terms() * self.groups * self.row_blocks * self.token_blocks;
        let gate = match self.ending {
            Ending::Store => Counts::NONE,
            Ending::Route => GATE_COUNTS,
        };
        let cluster_barriers = if self.cluster > 1 { 2 } else { 0 };
        Entry {
            name: self.name,
            threads: self.threads(),
            min_ctas: self.min_ctas,
            max_registers: self.max_registers,
            shared_bytes: self.shared_bytes(),
            cluster: self.cluster,
            tensor_maps: 0,
            counts: Counts {
                bar_sync: gate.bar_sync
                    + match self.ending {
                        Ending::Store => 1,
                        Ending::Route => 2,
                    },
                bar_warp_sync: 2 + gate.bar_warp_sync,
                cluster_arrive: cluster_barriers,
                cluster_wait: cluster_barriers,
                mma_sync: tensor_ops,
                shfl_sync: gate.shfl_sync + if matches!(self.format, Format::Window12) { 2 } else { 0 },
                ..gate
            },
            tensor_cores: true,
        }
    }
}
