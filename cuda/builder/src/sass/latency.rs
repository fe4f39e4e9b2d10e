//! How long instructions take whose end only a scoreboard or the instruction itself tells, in cycles.
//!
//! No GPU is asked: the figures are assumptions, each with its basis. They serve to compare two versions of a kernel.

use super::listing::MachineInstruction;

/// A kind of instruction.
pub(super) struct Latency {
    /// The mnemonic, as [`MachineInstruction::is`] takes it. The first row that fits counts.
    mnemonic: &'static str,
    /// Cycles from issue to the release of the scoreboard for its result.
    result: u32,
    /// Cycles by which the instruction itself holds up the warp, beyond its stall count.
    blocks: u32,
    /// What the figures are based on.
    basis: &'static str,
}

/// Cycles from issue to the release of the scoreboard for operands.
pub(super) const OPERANDS: u32 = 12;

const STUDY: &str = "microbenchmarks of sm_80 and sm_90 in the literature";
const NEAR: &str = "taken for as long as its nearest relative";
const GUESS: &str = "a guess: nobody has measured it here";

const fn row(mnemonic: &'static str, result: u32, blocks: u32, basis: &'static str) -> Latency {
    Latency {
        mnemonic,
        result,
        blocks,
        basis,
    }
}

/// The table.
pub(super) const TABLE: &[Latency] = &[
    row("LDG", 290, 0, "a load that hits in L2; DRAM is not modelled"),
    row("LD", 290, 0, NEAR),
    row("ATOMG", 290, 0, NEAR),
    row("ATOM", 290, 0, NEAR),
    row("LDS", 31, 0, STUDY),
    row("LDSM", 33, 0, STUDY),
    row("LDC", 30, 0, STUDY),
    row("LDCU", 30, 0, NEAR),
    row("ULDC", 12, 0, STUDY),
    row("S2R", 24, 0, STUDY),
    row("S2UR", 24, 0, NEAR),
    row("R2UR", 12, 0, STUDY),
    row("SHFL", 25, 0, STUDY),
    row("REDUX", 25, 0, NEAR),
    row("CREDUX", 25, 0, NEAR),
    row("VOTE", 12, 0, NEAR),
    row("MUFU", 20, 0, STUDY),
    row("POPC", 16, 0, STUDY),
    row("FLO", 16, 0, NEAR),
    row("BREV", 16, 0, NEAR),
    row("I2F", 16, 0, NEAR),
    row("F2I", 16, 0, NEAR),
    row("SYNCS", 24, 0, "an access to shared memory"),
    row("FENCE", 12, 0, GUESS),
    row(
        "MEMBAR.GPU",
        0,
        500,
        "a trip to L2 and back, with the stores before it on their way: the least that it can be is 290",
    ),
    row("MEMBAR.SYS", 0, 500, NEAR),
    row("MEMBAR", 0, 15, GUESS),
    row("CCTL", 0, 20, GUESS),
    row("ERRBAR", 0, 10, GUESS),
    row("CGAERRBAR", 0, 10, GUESS),
    row("BAR", 0, 20, "everybody is there already"),
    row(
        "UCGABAR_WAIT",
        0,
        180,
        "everybody is there already; a trip through the cluster's network",
    ),
    row("WARPSYNC", 0, 2, GUESS),
];

/// Of anything else that releases a scoreboard.
const OTHER: u32 = 20;

fn of(instruction: &MachineInstruction) -> Option<&'static Latency> {
    TABLE.iter().find(|row| instruction.is(row.mnemonic))
}

/// Cycles until the result is there.
pub(super) fn result(instruction: &MachineInstruction) -> u32 {
    of(instruction).map_or(OTHER, |row| row.result)
}

/// Cycles that the instruction holds up the warp.
pub(super) fn blocks(instruction: &MachineInstruction) -> u32 {
    of(instruction).map_or(0, |row| row.blocks)
}

/// The table for a reader.
pub fn latencies() -> impl Iterator<Item = (&'static str, u32, &'static str)> {
    let rows = TABLE
        .iter()
        .map(|row| (row.mnemonic, row.result.max(row.blocks), row.basis));
    rows.chain([("anything else", OTHER, GUESS)])
}
