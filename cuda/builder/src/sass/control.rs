//! What the assembler tells the scheduler with each instruction: bits 105 to 125 of its 128.
//!
//! NVIDIA does not document them. The layout is the one that public studies of Volta and later found (Jia et al.,
//! "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking", 2018, §2.1), and holds for sm_90: every stall
//! and scoreboard in this project's listings reads as one that an assembler would write.

/// Scoreboards of a warp.
pub(super) const SCOREBOARDS: usize = 6;
/// The number that stands for no scoreboard.
const NONE: u64 = 7;

/// An instruction's scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Cycles from its issue to that of the next instruction of the warp, at least.
    pub stall: u8,
    /// The scoreboard that its result releases.
    pub write: Option<u8>,
    /// The scoreboard that is released once it has read its operands.
    pub read: Option<u8>,
    /// The scoreboards that it waits for, a bit each.
    pub wait: u8,
}

impl Control {
    /// From the upper half of the instruction's 128 bits.
    pub(super) fn of(high: u64) -> Self {
        let scoreboard = |shift: u32| {
            let number = high >> shift & 7;
            (number != NONE).then_some(number as u8)
        };
        Control {
            stall: (high >> 41 & 15) as u8,
            write: scoreboard(46),
            read: scoreboard(49),
            wait: (high >> 52 & 63) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_where_the_assembler_puts_them() {
        // LDC R1, c[0x0][0x28]
        let plain = Control {
            stall: 1,
            write: None,
            read: None,
            wait: 0,
        };
        assert_eq!(Control::of(0x000f_e200_0000_0800), plain);
        // S2R R40, SR_TID.X
        let read = Control {
            stall: 7,
            write: Some(0),
            ..plain
        };
        assert_eq!(Control::of(0x000e_2e00_0000_2100), read);
        // MEMBAR.ALL.CTA
        let fence = Control {
            stall: 6,
            read: Some(2),
            wait: 0b100,
            ..plain
        };
        assert_eq!(Control::of(0x0045_ec00_0000_8000), fence);
    }
}
