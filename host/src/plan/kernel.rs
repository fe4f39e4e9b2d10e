//! Kernels, and launches of them.

use super::{Reason, Request};
use kernels_gpu::instances::{Family, Format, Gemm, Gemv, Loads, gemms, gemvs, routes};
use std::fmt;

pub use kernels_gpu::instances::Op;

/// Every format of weights.
pub const FORMATS: [Format; 4] = [Format::Bf16, Format::Bf16x2, Format::Bf16x3, Format::Window12];

/// One way to split a matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// The kernel.
    pub instance: &'static Gemm,
    /// CTAs per cluster: those that share x, for each part into which the cluster splits K.
    pub cluster: usize,
    /// Slices of K.
    pub slices: usize,
}

impl Division {
    /// One CTA for all of K of a tile.
    pub const fn whole(instance: &'static Gemm) -> Self {
        Division {
            instance,
            cluster: instance.multicast,
            slices: 1,
        }
    }
}

/// A kernel, and how the work is divided where its name does not say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kernel {
    /// For few tokens: more of them are walked.
    Gemv(&'static Gemv),
    /// A matrix product.
    Gemm(Division),
}

impl Kernel {
    /// The kernel's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Kernel::Gemv(instance) => instance.name,
            Kernel::Gemm(division) => division.instance.name,
        }
    }

    /// What it computes.
    pub const fn op(&self) -> Op {
        match self {
            Kernel::Gemv(instance) => instance.op,
            Kernel::Gemm(division) => division.instance.op,
        }
    }

    /// The family that it belongs to.
    pub const fn family(&self) -> Family {
        match self {
            Kernel::Gemv(instance) => instance.family,
            Kernel::Gemm(division) => division.instance.family,
        }
    }

    /// Its place among the entries of its family.
    pub const fn index(&self) -> usize {
        match self {
            Kernel::Gemv(instance) => instance.index,
            Kernel::Gemm(division) => division.instance.index,
        }
    }

    /// The format of the weights that it reads.
    pub const fn format(&self) -> Format {
        match self {
            Kernel::Gemv(instance) => instance.format,
            Kernel::Gemm(division) => match (division.instance.loads, division.instance.terms) {
                (Loads::Packed(format), _) => format,
                (_, 1) => Format::Bf16,
                (_, 2) => Format::Bf16x2,
                (_, _) => Format::Bf16x3,
            },
        }
    }

    /// Whether it reads row-major weights.
    pub const fn reads_rows(&self) -> bool {
        match self {
            Kernel::Gemv(_) => false,
            Kernel::Gemm(division) => division.instance.loads.reads_rows(),
        }
    }

    /// Whether this build has it.
    pub fn is_compiled(&self) -> bool {
        match self {
            Kernel::Gemv(instance) => gemvs().chain(routes()).any(|compiled| compiled == *instance),
            Kernel::Gemm(division) => gemms().any(|compiled| compiled == division.instance),
        }
    }

    /// Slices of K over the grid.
    pub const fn slices(&self) -> usize {
        match self {
            Kernel::Gemv(_) => 1,
            Kernel::Gemm(division) => division.slices,
        }
    }

    /// CTAs per cluster.
    pub const fn cluster(&self) -> usize {
        match self {
            Kernel::Gemv(instance) => instance.cluster,
            Kernel::Gemm(division) => division.cluster,
        }
    }

    /// CTAs that a multiprocessor holds at once.
    pub const fn min_ctas(&self) -> usize {
        match self {
            Kernel::Gemv(instance) => instance.min_ctas,
            Kernel::Gemm(division) => division.instance.min_ctas,
        }
    }

    /// The grid for `m` tokens of `n` rows, where CUDA's limits allow it.
    pub(super) const fn grid(&self, m: usize, n: usize) -> Option<[u32; 3]> {
        match self {
            Kernel::Gemv(instance) => instance.grid(m, n),
            Kernel::Gemm(division) => division.instance.grid(m, n, division.cluster, division.slices),
        }
    }
}

impl fmt::Display for Kernel {
    /// The name, and the division where the name does not say it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let Kernel::Gemm(Division { cluster, slices, .. }) = *self else {
            return Ok(());
        };
        if cluster > 1 {
            write!(f, ", clusters of {cluster}")?;
        }
        if slices > 1 {
            write!(f, ", {slices} slices of K")?;
        }
        Ok(())
    }
}

/// One launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The kernel.
    pub kernel: Kernel,
    /// CTAs. Along x, tiles of rows times CTAs per cluster; then tiles of tokens, of a matrix product along z, after
    /// slices of K along y.
    pub grid: [u32; 3],
    /// Threads per CTA.
    pub block: [u32; 3],
    /// CTAs per cluster.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
}

impl Plan {
    /// The launch of a kernel that fits.
    pub(super) fn of(kernel: Kernel, request: &Request) -> Result<Self, Reason> {
        let grid = kernel.grid(request.m, request.shape.n()).ok_or(Reason::Grid)?;
        let (threads, shared_bytes) = match kernel {
            Kernel::Gemv(instance) => (instance.threads(), instance.shared_bytes()),
            Kernel::Gemm(division) => (division.instance.threads(), division.instance.shared_bytes()),
        };
        Ok(Plan {
            kernel,
            grid,
            block: [threads as u32, 1, 1],
            cluster: [kernel.cluster() as u32, 1, 1],
            shared_bytes: shared_bytes as u32,
        })
    }

    /// The kernel's name.
    pub const fn name(&self) -> &'static str {
        self.kernel.name()
    }

    /// Whether slices of K have sums of their own, added in their order. Else they share zeroed ones, to which they add
    /// as they come; several slices always do that, as it is faster.
    pub const fn serial(&self) -> bool {
        self.kernel.slices() == 1
    }
}
