//! Why a kernel is not taken.

use super::FEW_TOKENS;
use std::fmt;

/// Why a kernel cannot, or should not, serve a request: those that should not come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// It would compute for tokens that are not there.
    EmptyBlocks,
    /// It takes less tokens at a time than another.
    SmallBlocks,
    /// It is for many tokens.
    FewTokens,
    /// It multicasts x, of which few tokens have little.
    LittleToShare,
    /// A router's sums for few tokens are added in one order.
    FixedOrder,
    /// It is for few tokens.
    Walks,
    /// It can do without an alignment that is there.
    NarrowLoads,
    /// It brings packed weights into an order in which they are kept.
    RowMajorKept,
    /// K is too short for its division.
    ShortK,
    /// It needs an alignment that is not there.
    Unaligned,
    /// It reads weights that are not kept.
    NotKept,
    /// Sums of several slices need a workspace.
    NoWorkspace,
    /// Its self-test failed on the device.
    Miscompiled,
    /// There are too many tokens for it.
    Grid,
    /// The division is none that launches have.
    Division,
    /// Its weights are of another format.
    Format,
    /// It does something else.
    Op,
    /// There is no such kernel.
    Unknown,
}

impl Reason {
    /// Whether the kernel could serve the request nevertheless.
    pub fn is_advice(self) -> bool {
        self < Reason::Unaligned
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::EmptyBlocks => "computes token blocks that would stay empty",
            Reason::SmallBlocks => {
                "reads the weights once for every few tokens, where a larger instance reads them less often"
            }
            Reason::FewTokens => return write!(f, "loads values one by one, to which up to {FEW_TOKENS} tokens give little work"),
            Reason::LittleToShare => {
                return write!(f, "multicasts x, of which up to {FEW_TOKENS} tokens have little to share");
            }
            Reason::FixedOrder => {
                return write!(
                    f,
                    "adds logits in an order of its own, and those of up to {FEW_TOKENS} tokens have the same bits in every batch"
                );
            }
            Reason::Walks => {
                return write!(
                    f,
                    "reads the weights once for every {FEW_TOKENS} tokens, where a matrix product can serve all"
                );
            }
            Reason::NarrowLoads => {
                "loads values one by one, and these rows of x are aligned for wide loads and tensor copies"
            }
            Reason::RowMajorKept => "brings packed weights into order, where a row-major copy is kept",
            Reason::ShortK => "splits K into more parts than it has",
            Reason::Unaligned => "loads 16 bytes of x at a time, and these rows of x are not aligned to that or no multiple of it long",
            Reason::NotKept => "reads row-major weights, of which no copy is kept",
            Reason::NoWorkspace => "splits K over slices, and a projection has no workspace to join them in",
            Reason::Miscompiled => "failed its self-test on this device, whose compiler gets it wrong",
            Reason::Grid => "would take more CTAs than a launch may have",
            Reason::Division => {
                "splits K over clusters of 1, 2, 4 or 8 CTAs, a multiple of those that share x, and over 1 to 16 slices"
            }
            Reason::Format => "reads weights of another format",
            Reason::Op => "is for another operation",
            Reason::Unknown => "is no kernel of this build",
        })
    }
}
