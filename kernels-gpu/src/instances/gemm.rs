//! The table of the matrix products for many tokens, dense and of routers.

use super::{Counts, ELECTION_COUNTS, Entry, Format, GATE_COUNTS, WARP};
use crate::layout::{TOKEN_BLOCK, UNIT_ROWS};

/// What becomes of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// They are stored: `gemm`.
    Product,
    /// They may go through a router's gate: `route`.
    Route,
}

/// How the operands come into shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loads {
    /// By tensor copies, for `wgmma`. x and weights have tensor maps: the first two parameters, before
    /// [`GemmArgs`](super::GemmArgs). Their rows are a multiple of 16 bytes apart and start at one.
    Tensor,
    /// By plain loads, for `mma.sync`, from any address and at any stride. The one parameter is
    /// [`PlainGemmArgs`](super::PlainGemmArgs).
    Plain,
    /// x by tensor copies, the packed units of this format by bulk copies, through registers, for `wgmma`. x has a tensor map, the first
    /// parameter, before [`UnitGemmArgs`](super::UnitGemmArgs).
    Units(Format),
}

impl Loads {
    /// Whether the weights are row-major ones.
    pub const fn reads_rows(self) -> bool {
        matches!(self, Loads::Tensor | Loads::Plain)
    }

    /// Whether x comes by tensor copies.
    pub const fn has_map_of_x(self) -> bool {
        !matches!(self, Loads::Plain)
    }
}

/// One compiled matrix product: `y = x · Wᵀ`, a CTA per [`Gemm::rows`] weight rows, [`Gemm::tokens`] tokens and part of K.
///
/// The name spells the parameters in the order of the fields, a letter each; one CTA that shares x with none is not spelled. The CTAs of a
/// cluster split K, and the grid's slices split it further, as the launch says; where CTAs share x, each part of K has a group of them. A
/// cluster has 1, 2, 4 or 8 CTAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    /// The entry's name in the PTX.
    pub name: &'static str,
    /// What becomes of the sums.
    pub purpose: Purpose,
    /// BF16 terms of a weight, 1 to 3: `bf16`, `bf16x2`, `bf16x3`.
    pub terms: usize,
    /// How the operands come into shared memory.
    pub loads: Loads,
    /// `w`: warps that multiply, 16 weight rows each. One more warp sends for the tensor copies.
    pub warps: usize,
    /// `s`: stages of the CTA's ring.
    pub stages: usize,
    /// `g`: K groups (64 columns) per stage.
    pub groups: usize,
    /// `n`: blocks of 8 tokens per CTA.
    pub token_blocks: usize,
    /// `h`: CTAs of a cluster that share x, on neighbouring tiles of rows, each of which brings its part of the tokens into the shared memory of
    /// all: 1, 2, 4 or 8.
    pub sharing: usize,
    /// CTAs that must fit on an SM (`.minnctapersm`).
    pub min_ctas: usize,
    /// Registers per thread that the machine code may use.
    pub max_registers: usize,
}

/// Lists the instances to the macro `$each`: name; purpose and terms; then warps, stages, groups, token blocks, and CTAs that share x if some
/// do; then CTAs per SM and registers per thread.
///
/// The ring of a CTA takes about half an SM's shared memory, or all of it, since bytes in flight are what counts. Wide blocks of rows read x
/// less often, many tokens read the weights less often. x is shared where its tile is as large as the weights' or larger, by as many CTAs as it takes
/// until L2 is not the limit. Twelve warps divide 2304 rows so that clusters of eight keep 96 of 132 multiprocessors busy, where eight
/// warps in clusters of four keep 72.
macro_rules! for_each_gemm {
    ($each:ident) => {
        $each! {
            gemm_bf16_sm90_w4s6g1n8: Product 1, 4 6 1 8, 2 168;
            gemm_bf16_sm90_w4s4g1n16: Product 1, 4 4 1 16, 2 168;
            gemm_bf16_sm90_w8s4g1n8: Product 1, 8 4 1 8, 2 96;
            gemm_bf16_sm90_w8s6g1n16: Product 1, 8 6 1 16, 1 168;
            gemm_bf16_sm90_w8s4g1n32: Product 1, 8 4 1 32, 1 168;
            gemm_bf16_sm90_w12s5g1n16: Product 1, 12 5 1 16, 1 128;
            gemm_bf16_sm90_w16s4g1n16: Product 1, 16 4 1 16, 1 96;
            gemm_bf16_sm90_w8s6g1n16h2: Product 1, 8 6 1 16 2, 1 168;
            gemm_bf16_sm90_w8s4g1n32h2: Product 1, 8 4 1 32 2, 1 168;
            route_bf16_sm90_w4s6g1n8: Route 1, 4 6 1 8, 2 168;
            route_bf16_sm90_w4s4g1n16: Route 1, 4 4 1 16, 2 168;
            route_bf16x2_sm90_w4s4g1n8: Route 2, 4 4 1 8, 2 168;
            route_bf16x2_sm90_w4s4g1n16: Route 2, 4 4 1 16, 1 248;
            route_bf16x3_sm90_w4s3g1n8: Route 3, 4 3 1 8, 2 168;
            route_bf16x3_sm90_w4s4g1n16: Route 3, 4 4 1 16, 1 248;
        }
    };
}

/// Lists the instances with plain loads, like [`for_each_gemm`].
macro_rules! for_each_plain_gemm {
    ($each:ident) => {
        $each! {
            gemm_bf16_plain_sm90_w4s2g1n8: Product 1, 4 2 1 8, 2 224;
            route_bf16_plain_sm90_w4s2g1n8: Route 1, 4 2 1 8, 2 248;
            route_bf16x2_plain_sm90_w4s2g1n8: Route 2, 4 2 1 8, 2 248;
            route_bf16x3_plain_sm90_w4s2g1n8: Route 3, 4 2 1 8, 2 248;
        }
    };
}

/// Lists the instances over BF16 units: name; then warps, stages, groups, token blocks; then CTAs per SM and registers per thread.
macro_rules! for_each_bf16_unit_gemm {
    ($each:ident) => {
        $each! {
            gemm_bf16_units_sm90_w4s4g1n16: 4 4 1 16, 2 168;
            gemm_bf16_units_sm90_w4s5g1n32: 4 5 1 32, 1 248;
            gemm_bf16_units_sm90_w8s4g1n8: 8 4 1 8, 2 96;
            gemm_bf16_units_sm90_w8s6g1n16: 8 6 1 16, 1 168;
            gemm_bf16_units_sm90_w12s5g1n16: 12 5 1 16, 1 128;
            gemm_bf16_units_sm90_w16s5g1n8: 16 5 1 8, 1 96;
            gemm_bf16_units_sm90_w8s6g1n16h2: 8 6 1 16 2, 1 168;
            gemm_bf16_units_sm90_w4s5g1n32h4: 4 5 1 32 4, 1 248;
        }
    };
}

/// Lists the instances over `window12` units, like [`for_each_bf16_unit_gemm`]: the same ones, with stages for as much shared memory.
macro_rules! for_each_window12_gemm {
    ($each:ident) => {
        $each! {
            gemm_window12_sm90_w4s4g1n16: 4 4 1 16, 2 168;
            gemm_window12_sm90_w4s5g1n32: 4 5 1 32, 1 248;
            gemm_window12_sm90_w8s5g1n8: 8 5 1 8, 2 96;
            gemm_window12_sm90_w8s7g1n16: 8 7 1 16, 1 168;
            gemm_window12_sm90_w12s6g1n16: 12 6 1 16, 1 128;
            gemm_window12_sm90_w16s6g1n8: 16 6 1 8, 1 96;
            gemm_window12_sm90_w8s7g1n16h2: 8 7 1 16 2, 1 168;
            gemm_window12_sm90_w4s5g1n32h4: 4 5 1 32 4, 1 248;
        }
    };
}

#[cfg(target_arch = "nvptx64")]
pub(crate) use {for_each_bf16_unit_gemm, for_each_gemm, for_each_plain_gemm, for_each_window12_gemm};

macro_rules! or_one {
    () => {
        1
    };
    ($count:literal) => {
        $count
    };
}
macro_rules! gemm_rows {
    ($loads:expr; $($name:ident: $purpose:ident $terms:literal, $w:literal $s:literal $g:literal $n:literal $($h:literal)?, $ctas:literal $regs:literal;)*) => {
        &[$(Gemm {
            name: stringify!($name), purpose: Purpose::$purpose, terms: $terms, loads: $loads, warps: $w,
            stages: $s, groups: $g, token_blocks: $n, sharing: or_one!($($h)?), min_ctas: $ctas, max_registers: $regs,
        }),*]
    };
}
macro_rules! tensor_rows {
    ($($rows:tt)*) => {
        /// Every compiled matrix product that loads by tensor copies.
        pub const GEMM: &[Gemm] = gemm_rows!(Loads::Tensor; $($rows)*);
    };
}
for_each_gemm!(tensor_rows);
macro_rules! plain_rows {
    ($($rows:tt)*) => {
        /// Every compiled matrix product that loads from any address.
        pub const PLAIN_GEMM: &[Gemm] = gemm_rows!(Loads::Plain; $($rows)*);
    };
}
for_each_plain_gemm!(plain_rows);

macro_rules! unit_rows {
    ($table:ident $format:ident; $($name:ident: $w:literal $s:literal $g:literal $n:literal $($h:literal)?, $ctas:literal $regs:literal;)*) => {
        /// Every compiled matrix product over packed units of this format.
        pub const $table: &[Gemm] =
            gemm_rows!(Loads::Units(Format::$format); $($name: Product 1, $w $s $g $n $($h)?, $ctas $regs;)*);
    };
}
macro_rules! bf16_unit_rows {
    ($($rows:tt)*) => { unit_rows!(BF16_UNIT_GEMM Bf16; $($rows)*); };
}
for_each_bf16_unit_gemm!(bf16_unit_rows);
macro_rules! window12_rows {
    ($($rows:tt)*) => { unit_rows!(WINDOW12_GEMM Window12; $($rows)*); };
}
for_each_window12_gemm!(window12_rows);

/// Columns of a group: a row of a tile in shared memory.
const GROUP_COLUMNS: usize = 64;
/// Bytes of a tile's row, which are also the bytes of the swizzle of both tensor maps.
const TILE_ROW_BYTES: usize = GROUP_COLUMNS * 2;
/// Bytes between two rows of a tile that plain loads have filled: 16 more, so that `ldmatrix` reads eight rows from 32 banks.
const PLAIN_ROW_BYTES: usize = TILE_ROW_BYTES + 16;
/// Where the tiles start; barriers lie before. Swizzled tiles want a multiple of 1024.
const TILE_OFFSET: usize = 1024;
/// Steps of 16 columns, of every term, whose products a router's kernel adds in one accumulator of the tensor cores. These cut bits off
/// where they should round, always towards zero, which would add up; longer sums are put together from such parts.
const STEPS_PER_PART: usize = 32;
/// Steps of 16 columns in a group.
const GROUP_STEPS: usize = GROUP_COLUMNS / 16;

impl Purpose {
    /// The operation, as a kernel's name spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Product => "gemm",
            Purpose::Route => "route",
        }
    }
}

impl Gemm {
    /// Threads per CTA.
    pub const fn threads(&self) -> usize {
        (self.warps + self.loads.has_map_of_x() as usize) * WARP
    }

    /// Weight rows per CTA.
    pub const fn rows(&self) -> usize {
        self.warps * UNIT_ROWS
    }

    /// Tokens per CTA.
    pub const fn tokens(&self) -> usize {
        self.token_blocks * TOKEN_BLOCK
    }

    /// Tokens that a CTA sends for: its part of those that it shares.
    pub const fn tokens_sent_for(&self) -> usize {
        self.tokens() / self.sharing
    }

    /// What the CTA of this rank does in its cluster: which of those it is that share x, and so which tile of rows of theirs it has; and which
    /// part of K it has.
    pub const fn place(&self, rank: u32) -> (u32, u32) {
        (rank & (self.sharing as u32 - 1), rank >> self.sharing.trailing_zeros())
    }

    /// The rank of the CTA that is this one of those that share x, for this part of K: [`Gemm::place`] backwards.
    pub const fn rank(&self, member: u32, part: u32) -> u32 {
        part * self.sharing as u32 + member
    }

    /// Parts into which a cluster of so many CTAs splits K.
    pub const fn parts(&self, cluster: usize) -> usize {
        cluster / self.sharing
    }

    /// Tiles of `n` weight rows, with those beyond the last row that CTAs have because they share x with others: they bring their part of it.
    pub const fn row_tiles(&self, n: usize) -> usize {
        n.div_ceil(self.sharing * self.rows()) * self.sharing
    }

    /// The box of x's tensor map: columns, then tokens.
    pub const fn x_box(&self) -> [usize; 2] {
        [GROUP_COLUMNS, self.tokens_sent_for()]
    }

    /// The box of the weights' tensor map: columns, rows, then terms.
    pub const fn weight_box(&self) -> [usize; 3] {
        [GROUP_COLUMNS, self.rows(), 1]
    }

    /// Bytes of the weights' tile of a group and term, or of a group's units.
    pub const fn weight_tile_bytes(&self) -> usize {
        match self.loads {
            Loads::Tensor | Loads::Plain => self.rows() * self.row_bytes(),
            Loads::Units(format) => self.warps * format.unit_bytes(),
        }
    }

    /// Bytes of the tile of x of a group.
    pub const fn x_tile_bytes(&self) -> usize {
        self.tokens() * self.row_bytes()
    }

    /// Bytes between two rows of a tile.
    pub const fn row_bytes(&self) -> usize {
        match self.loads {
            Loads::Tensor | Loads::Units(_) => TILE_ROW_BYTES,
            Loads::Plain => PLAIN_ROW_BYTES,
        }
    }

    /// Bytes of a stage: for each group, the weights' tiles of its terms, then the tile of x; of units, the tile of x comes first.
    pub const fn stage_bytes(&self) -> usize {
        self.groups * (self.terms * self.weight_tile_bytes() + self.x_tile_bytes())
    }

    /// Where the tiles start in dynamic shared memory.
    pub const fn tile_offset(&self) -> usize {
        TILE_OFFSET
    }

    /// Stages whose products go into one accumulator of the tensor cores; `usize::MAX` for all. A product for BF16's eight
    /// bits takes what comes.
    pub const fn stages_per_part(&self) -> usize {
        let steps = GROUP_STEPS * self.groups * self.terms;
        match self.purpose {
            Purpose::Product => usize::MAX,
            Purpose::Route if steps >= STEPS_PER_PART => 1,
            Purpose::Route => STEPS_PER_PART / steps,
        }
    }

    /// FP32 values between two tokens of the CTA's partial sums, `[token][row]`: four more than the rows, so that the lanes of a
    /// fragment store to 32 different banks.
    pub const fn partial_stride(&self) -> usize {
        self.rows() + 4
    }

    /// Bytes of the CTA's partial sums. They take the tiles' place once everything has been multiplied.
    pub const fn partial_bytes(&self) -> usize {
        self.tokens() * self.partial_stride() * 4
    }

    /// Dynamic shared memory of a CTA, in bytes.
    pub const fn shared_bytes(&self) -> usize {
        TILE_OFFSET + self.stages * self.stage_bytes()
    }

    /// The grid for `m` tokens and `n` weight rows: row tiles times parts of K in a cluster along x, slices of K along y, token tiles along
    /// z. `None` where it exceeds CUDA's limits.
    pub const fn grid(&self, m: usize, n: usize, cluster: usize, slices: usize) -> Option<[u32; 3]> {
        let x = self.row_tiles(n).checked_mul(self.parts(cluster));
        let z = m.div_ceil(self.tokens());
        match x {
            Some(x) if x <= i32::MAX as usize && slices <= 65_535 && z <= 65_535 => {
                Some([x as u32, slices as u32, z as u32])
            }
            _ => None,
        }
    }

    /// Counters that a launch over this grid needs: one for each share of a tile. A gate makes do with fewer.
    pub const fn counters(grid: [u32; 3]) -> u64 {
        grid[0] as u64 * grid[2] as u64
    }

    pub(super) const fn entry(&self) -> Entry {
        let products = GROUP_STEPS * self.groups * self.terms;
        // Halves of units have registers, and so groups of `wgmma`s, of their own.
        let (tensor, plain, parts) = match self.loads {
            Loads::Tensor => (1, 0, 1),
            Loads::Plain => (0, 1, 0),
            Loads::Units(_) => (1, 0, 2),
        };
        let window12 = matches!(self.loads, Loads::Units(Format::Window12)) as usize;
        // At the start, the CTA meets, or the cluster where it shares x; before and after sums are added, the cluster.
        let shares = (self.sharing > 1) as usize;
        let own = Counts {
            bar_sync: 2 - shares,
            bar_warp_sync: tensor,
            cluster_arrive: 2 + shares,
            cluster_wait: 2 + shares,
            mma_sync: plain * products * self.token_blocks,
            // The low bytes of halves of units are loaded as matrices.
            ldmatrix: plain * GROUP_STEPS * self.groups * (self.terms + self.token_blocks / 2) + 2 * window12,
            wgmma: tensor * products,
            wgmma_fence: parts,
            wgmma_commit: parts,
            wgmma_wait: parts + tensor,
            // Where exceptions start: in the list, and among 32. Each of them: its weight, and the next one's column.
            vote_sync: 2 * window12,
            shfl_sync: 5 * window12,
            // Four sums of a thread at a time.
            red: 4,
            ..Counts::NONE
        };
        let ending = match self.purpose {
            Purpose::Product => ELECTION_COUNTS,
            Purpose::Route => GATE_COUNTS,
        };
        Entry {
            name: self.name,
            threads: self.threads(),
            min_ctas: self.min_ctas,
            max_registers: self.max_registers,
            shared_bytes: self.shared_bytes(),
            cluster: 1,
            tensor_maps: match self.loads {
                Loads::Tensor => 2,
                Loads::Plain => 0,
                Loads::Units(_) => 1,
            },
            counts: own.plus(ending),
            tensor_cores: true,
        }
    }
}
