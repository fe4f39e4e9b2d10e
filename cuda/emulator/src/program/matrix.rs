//! `wgmma`: what a warpgroup does with its tensor cores.

use super::{PredSource, Reg};

/// Warps of a warpgroup.
pub(crate) const WARPGROUP: usize = 4;

pub(crate) enum Wgmma {
    /// Orders accesses to registers before matrix instructions that come after it.
    Fence,
    Commit,
    Wait {
        left: u32,
    },
    Multiply(Box<Multiply>),
}

/// `wgmma.mma_async.m64nNk16` on BF16.
pub(crate) struct Multiply {
    /// The accumulators, four for each eight columns.
    pub(crate) d: Box<[Reg]>,
    pub(crate) a: Left,
    pub(crate) b: Described,
    /// Whether the accumulators are added.
    pub(crate) add: PredSource,
    /// Whether A, B count with the opposite sign.
    pub(crate) negate: [bool; 2],
}

/// Where A comes from.
pub(crate) enum Left {
    Shared(Described),
    /// A fragment of `mma.m16n8k16` in each warp.
    Registers([Reg; 4]),
}

/// A matrix in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    pub(crate) descriptor: Reg,
    /// Whether neighbours along M or N lie side by side, rather than neighbours along K.
    pub(crate) transposed: bool,
}

impl Multiply {
    pub(crate) fn columns(&self) -> usize {
        self.d.len() * 2
    }

    /// The registers that stay in use until the instruction is waited for.
    pub(crate) fn registers(&self) -> impl Iterator<Item = Reg> {
        let a: &[Reg] = match &self.a {
            Left::Shared(_) => &[],
            Left::Registers(regs) => regs,
        };
        self.d.iter().chain(a).copied()
    }
}
