//! Matrix products for many tokens, dense and of routers: what the rows of their tables say.

use super::{Counts, ELECTION_COUNTS, Entry, Family, Format, GATE_COUNTS, Op, WARP};
use crate::args::KSlices;
use crate::layout::{TOKEN_BLOCK, UNIT_K, UNIT_ROWS};

/// How the operands come into shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loads {
    /// x and row-major weights by TMA tile loads, for `wgmma`. Both have tensor maps: the first two parameters, before
    /// [`GemmArgs`](super::GemmArgs). Rows are 16-byte aligned.
    Tma,
    /// x and row-major weights by masked loads, for `mma.sync`, from any address and at any stride. The one parameter
    /// is [`FallbackGemmArgs`](super::FallbackGemmArgs).
    Masked,
    /// x by TMA tile loads, the packed units of this format by bulk copies; the weights go through registers to
    /// `wgmma`. x has a tensor map, the first parameter, before [`PackedGemmArgs`](super::PackedGemmArgs).
    Packed(Format),
}

impl Loads {
    /// Whether the weights are row-major ones.
    pub const fn reads_rows(self) -> bool {
        matches!(self, Loads::Tma | Loads::Masked)
    }

    /// Whether x comes by TMA tile loads.
    pub const fn has_map_of_x(self) -> bool {
        !matches!(self, Loads::Masked)
    }
}

/// One compiled matrix product: `y = x · Wᵀ`, a CTA per [`Gemm::rows`] weight rows, [`Gemm::tokens`] tokens and part of
/// K.
///
/// The name spells the parameters in the order of the fields, a letter each; one CTA that shares x with none is not
/// spelled. The CTAs of a cluster split K, and the grid's slices split it further, as the launch says; where CTAs share
/// x, each part of K has a group of them. A cluster has 1, 2, 4 or 8 CTAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gemm {
    /// The entry's name in the PTX.
    pub name: &'static str,
    /// The family that it belongs to.
    pub family: Family,
    /// Its place among the entries of its family.
    pub index: usize,
    /// Its number among all matrix products, below 64: a bit of a set in a `u64`.
    pub number: usize,
    /// What it computes.
    pub op: Op,
    /// BF16 terms of a weight, 1 to 3: `bf16`, `bf16x2`, `bf16x3`.
    pub terms: usize,
    /// How the operands come into shared memory.
    pub loads: Loads,
    /// `w`: warps that multiply, 16 weight rows each. Where x comes by TMA, one more warp starts the loads.
    pub warps: usize,
    /// `s`: stages of the CTA's ring.
    pub stages: usize,
    /// `g`: K groups (64 columns) per stage.
    pub groups: usize,
    /// `n`: blocks of 8 tokens per CTA.
    pub token_blocks: usize,
    /// `h`: CTAs of a cluster that share x, on neighbouring row tiles: each loads its share of the token tile and
    /// multicasts it into the shared memory of all. 1, 2, 4 or 8.
    pub multicast: usize,
    /// CTAs that must fit on an SM (`.minnctapersm`).
    pub min_ctas: usize,
    /// Registers per thread that the machine code may use.
    pub max_registers: usize,
}

/// The name of a matrix product: what it begins with, then the parameters, a letter each.
macro_rules! gemm_name {
    ($prefix:literal $w:literal $s:literal $g:literal $n:literal $($h:literal)?) => {
        concat!($prefix, "_sm90_w", $w, "s", $s, "g", $g, "n", $n $(, "h", $h)?)
    };
}

/// The matrix product of a row, before its table has numbered it.
macro_rules! gemm_row {
    (
        $prefix:literal $op:ident $terms:literal $family:ident $loads:expr;
        $w:literal $s:literal $g:literal $n:literal $($h:literal)?, $ctas:literal $regs:literal
    ) => {
        $crate::instances::Gemm {
            name: $crate::instances::gemm_name!($prefix $w $s $g $n $($h)?),
            family: $crate::instances::Family::$family,
            index: 0,
            number: 0,
            op: $crate::instances::Op::$op,
            terms: $terms,
            loads: $loads,
            warps: $w,
            stages: $s,
            groups: $g,
            token_blocks: $n,
            multicast: 1 $(* $h)?,
            min_ctas: $ctas,
            max_registers: $regs,
        }
    };
}

/// The table of a list's rows over row-major weights, behind the tables `$earlier`.
macro_rules! row_table {
    ($loads:ident [$($earlier:ident),*] $($prefix:literal $op:ident $terms:literal $family:ident {
        $($w:literal $s:literal $g:literal $n:literal $($h:literal)?, $ctas:literal $regs:literal;)*
    })*) => {
        &$crate::instances::Gemm::numbered(
            [$($($crate::instances::gemm_row!(
                $prefix $op $terms $family $crate::instances::Loads::$loads; $w $s $g $n $($h)?, $ctas $regs
            ),)*)*],
            &[$($earlier),*],
        )
    };
}

/// The table of a list's rows over packed units, behind the tables `$earlier`.
macro_rules! packed_table {
    ([$($earlier:ident),*] $prefix:literal $format:ident $($family:ident {
        $($w:literal $s:literal $g:literal $n:literal $($h:literal)?, $ctas:literal $regs:literal;)*
    })*) => {
        &$crate::instances::Gemm::numbered(
            [$($($crate::instances::packed_row!(
                $prefix $format $family; $w $s $g $n $($h)?, $ctas $regs
            ),)*)*],
            &[$($earlier),*],
        )
    };
}

/// The matrix product of a row over packed units: [`gemm_row`] for a projection over weights of one term.
macro_rules! packed_row {
    ($prefix:literal $format:ident $family:ident; $($row:tt)*) => {
        $crate::instances::gemm_row!(
            $prefix Project 1 $family $crate::instances::Loads::Packed($crate::instances::Format::$format); $($row)*
        )
    };
}
pub(crate) use {gemm_name, gemm_row, packed_row, packed_table, row_table};

/// Columns of a group: a row of a tile in shared memory.
const GROUP_COLUMNS: usize = 64;
/// Bytes of a tile's row, which are also the bytes of the swizzle of both tensor maps.
const TILE_ROW_BYTES: usize = GROUP_COLUMNS * 2;
/// Bytes between two rows of a tile that masked loads have filled: 16 more, so that `ldmatrix` reads eight rows from 32
/// banks.
const MASKED_ROW_BYTES: usize = TILE_ROW_BYTES + 16;
/// Where the tiles start; barriers lie before. Swizzled tiles want a multiple of 1024.
const TILE_OFFSET: usize = 1024;
/// Steps of 16 columns, of every term, whose products a router's kernel adds in one accumulator of the tensor cores.
/// These cut bits off where they should round, always towards zero, which would add up; longer sums are put together
/// from such parts.
const STEPS_PER_PART: usize = 32;
/// Steps of 16 columns in a group.
const GROUP_STEPS: usize = GROUP_COLUMNS / 16;

/// How many of the rows belong to the family.
const fn count(rows: &[Gemm], family: Family) -> usize {
    let (mut at, mut found) = (0, 0);
    while at < rows.len() {
        found += (rows[at].family as usize == family as usize) as usize;
        at += 1;
    }
    found
}

impl Gemm {
    /// The rows of a table that stands behind `earlier` ones, each with its place and number.
    pub(crate) const fn numbered<const N: usize>(mut rows: [Gemm; N], earlier: &[&[Gemm]]) -> [Gemm; N] {
        let mut at = 0;
        while at < N {
            let family = rows[at].family;
            let mut index = family.few_token_kernels() + count(rows.split_at(at).0, family);
            let mut number = at;
            let mut table = 0;
            while table < earlier.len() {
                index += count(earlier[table], family);
                number += earlier[table].len();
                table += 1;
            }
            assert!(number < u64::BITS as usize);
            (rows[at].index, rows[at].number) = (index, number);
            at += 1;
        }
        rows
    }

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

    /// Tokens that a CTA loads: its share of the token tile.
    pub const fn tokens_loaded(&self) -> usize {
        self.tokens() / self.multicast
    }

    /// What the CTA of this rank does in its cluster: which of those it is that share x, and so which tile of rows of
    /// theirs it has; and which part of K it has.
    pub const fn place(&self, rank: u32) -> (u32, u32) {
        (
            rank & (self.multicast as u32 - 1),
            rank >> self.multicast.trailing_zeros(),
        )
    }

    /// The rank of the CTA that is this one of those that share x, for this part of K: [`Gemm::place`] backwards.
    pub const fn rank(&self, member: u32, part: u32) -> u32 {
        part * self.multicast as u32 + member
    }

    /// Parts into which a cluster of so many CTAs splits K.
    pub const fn parts(&self, cluster: usize) -> usize {
        cluster / self.multicast
    }

    /// Tiles of `n` weight rows, with those beyond the last row that CTAs have because they share x with others: they
    /// bring their part of it.
    pub const fn row_tiles(&self, n: usize) -> usize {
        n.div_ceil(self.multicast * self.rows()) * self.multicast
    }

    /// The box of x's tensor map: columns, then tokens.
    pub const fn x_box(&self) -> [usize; 2] {
        [GROUP_COLUMNS, self.tokens_loaded()]
    }

    /// The box of the weights' tensor map: columns, rows, then terms.
    pub const fn weight_box(&self) -> [usize; 3] {
        [GROUP_COLUMNS, self.rows(), 1]
    }

    /// Bytes of the weights' tile of a group and term, or of a group's units.
    pub const fn weight_tile_bytes(&self) -> usize {
        match self.loads {
            Loads::Tma | Loads::Masked => self.rows() * self.row_bytes(),
            Loads::Packed(format) => self.warps * format.unit_bytes(),
        }
    }

    /// Bytes of the tile of x of a group.
    pub const fn x_tile_bytes(&self) -> usize {
        self.tokens() * self.row_bytes()
    }

    /// Bytes between two rows of a tile.
    pub const fn row_bytes(&self) -> usize {
        match self.loads {
            Loads::Tma | Loads::Packed(_) => TILE_ROW_BYTES,
            Loads::Masked => MASKED_ROW_BYTES,
        }
    }

    /// Bytes of a stage: for each group, the weights' tiles of its terms, then the tile of x; of units, the tile of x
    /// comes first.
    pub const fn stage_bytes(&self) -> usize {
        self.groups * (self.terms * self.weight_tile_bytes() + self.x_tile_bytes())
    }

    /// Where the tiles start in dynamic shared memory.
    pub const fn tile_offset(&self) -> usize {
        TILE_OFFSET
    }

    /// Stages whose products go into one accumulator of the tensor cores; `usize::MAX` for all. A product for BF16's
    /// eight bits takes what comes.
    pub const fn stages_per_part(&self) -> usize {
        let steps = GROUP_STEPS * self.groups * self.terms;
        match self.op {
            Op::Project => usize::MAX,
            Op::Route if steps >= STEPS_PER_PART => 1,
            Op::Route => STEPS_PER_PART / steps,
        }
    }

    /// FP32 values between two tokens of the CTA's partial sums, `[token][row]`: four more than the rows, so that the
    /// lanes of a fragment store to 32 different banks.
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

    /// The grid for `m` tokens and `n` weight rows: row tiles times parts of K in a cluster along x, slices of K along
    /// y, token tiles along z. `None` where it exceeds CUDA's limits.
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

    /// How a launch in clusters of `ctas` CTAs, with so many slices of K over the grid, deals out `k` columns.
    pub const fn k_slices(&self, k: usize, ctas: usize, slices: usize) -> KSlices {
        let chunks = k.div_ceil(UNIT_K * self.groups);
        KSlices::new(chunks as u32, (self.parts(ctas) * slices) as u32)
    }

    /// Counters that a launch over this grid needs: one for each share of a tile. A gate makes do with fewer.
    pub const fn counters(grid: [u32; 3]) -> u64 {
        grid[0] as u64 * grid[2] as u64
    }

    pub(super) const fn entry(&self) -> Entry {
        let products = GROUP_STEPS * self.groups * self.terms;
        // Halves of units have registers, and so groups of `wgmma`s, of their own.
        let (tensor, plain, parts) = match self.loads {
            Loads::Tma => (1, 0, 1),
            Loads::Masked => (0, 1, 0),
            Loads::Packed(_) => (1, 0, 2),
        };
        let format = match self.loads {
            Loads::Tma | Loads::Masked => Counts::NONE,
            Loads::Packed(format) => format.facts().packed_counts,
        };
        // At the start, the CTA meets, or the cluster where it shares x; before and after sums are added, the cluster.
        let shares = (self.multicast > 1) as usize;
        // At the start, by the producer, and, where CTAs do not share x, by whoever leaves a stage: in the loop, and
        // behind a part of it.
        let is_in_parts = self.stages_per_part() != usize::MAX;
        let leaves = (1 - shares) * (1 + is_in_parts as usize);
        let own = Counts {
            bar_sync: 2 - shares,
            bar_warp_sync: tensor,
            cluster_arrive: 2 + shares,
            cluster_wait: 2 + shares,
            mma_sync: plain * products * self.token_blocks,
            ldmatrix: plain * GROUP_STEPS * self.groups * (self.terms + self.token_blocks / 2),
            wgmma: tensor * products,
            wgmma_fence: parts,
            wgmma_commit: parts,
            wgmma_wait: parts + tensor,
            // The warp's number.
            shfl_sync: tensor,
            elect_sync: tensor * (2 + leaves),
            // Four sums of a thread at a time.
            red: 4,
            ..Counts::NONE
        };
        let epilogue = match self.op {
            Op::Project => ELECTION_COUNTS,
            Op::Route => GATE_COUNTS,
        };
        Entry {
            name: self.name,
            family: self.family,
            index: self.index,
            threads: self.threads(),
            min_ctas: self.min_ctas,
            max_registers: self.max_registers,
            shared_bytes: self.shared_bytes(),
            cluster: 1,
            tensor_maps: match self.loads {
                Loads::Tma => 2,
                Loads::Masked => 0,
                Loads::Packed(_) => 1,
            },
            counts: own.plus(format).plus(epilogue),
            tensor_cores: true,
        }
    }
}
