//! Times of whole parts of an entry, with loops as often as a call goes round them.
//!
//! The emulator counts how often the busiest warp issues each line of the PTX text ([`Counts`]), and the machine code
//! says which line each of its instructions comes from. A part then takes its longest way among the blocks that are
//! gone through at all, and each loop a round in steady state for every round beyond the first.

use super::listing::MachineEntry;
use super::timeline::Clock;
use std::collections::{BTreeMap, HashMap};

/// How often the busiest warp issues the instructions of each line of the PTX text.
pub type Counts = BTreeMap<u32, u64>;

/// `griddepcontrol.wait`.
pub(super) const WAIT: &[&str] = &["ACQBULK"];
/// Atomic operations with an answer: a split-K reduction counts its CTAs by one.
const ATOMICS: &[&str] = &["ATOMG", "ATOM"];

impl MachineEntry {
    /// Cycles from `griddepcontrol.wait` to the end.
    pub fn cycles_behind_wait(&self, counts: &Counts) -> Option<u32> {
        self.cycles_from(WAIT, counts)
    }

    /// Cycles from the last atomic operation that answers to the end: what the CTA does that finds itself to be the
    /// last one.
    pub fn cycles_behind_election(&self, counts: &Counts) -> Option<u32> {
        self.cycles_from(ATOMICS, counts)
    }

    /// Cycles from the end of the last main loop that is gone through to the end: the epilogue.
    pub fn cycles_behind_main_loop(&self, counts: &Counts) -> Option<u32> {
        let executed = self.executed(counts);
        let loops = self.main_loops();
        let ends = loops.iter().flat_map(|members| {
            let inside = (0..members.len()).filter(|&at| members[at] && executed[at]);
            let exits = inside.flat_map(|at| self.successors(at));
            exits.filter(|&to| !members[to] && executed[to]).collect::<Vec<_>>()
        });
        let last = self.reverse_postorder();
        let rank = |at: usize| last.iter().position(|&other| other == at);
        let from = ends.max_by_key(|&at| rank(at))?;
        self.cycles_behind(from, &executed, counts)
    }

    /// Cycles from the last of these instructions that is executed.
    fn cycles_from(&self, mnemonics: &[&str], counts: &Counts) -> Option<u32> {
        let executed = self.executed(counts);
        let order = self.reverse_postorder();
        let from = order
            .into_iter()
            .rfind(|&at| executed[at] && self.is_any(at, mnemonics))?;
        self.cycles_behind(from, &executed, counts)
    }

    /// Cycles from an instruction to the end.
    fn cycles_behind(&self, from: usize, executed: &[bool], counts: &Counts) -> Option<u32> {
        let inside = |at: usize| executed[at];
        let (issued, _) = self.walk(from, inside, Clock::START);
        let straight = issued.iter().flatten().max().copied()?;
        let further: u64 = self.rounds(counts, executed, |at| issued[at].is_some()).sum();
        Some(straight.saturating_add(u32::try_from(further).unwrap_or(u32::MAX)))
    }

    /// Which instructions a call goes through: those of blocks of which a quarter of the lines is counted, and of
    /// blocks that have no line.
    fn executed(&self, counts: &Counts) -> Vec<bool> {
        let mut starts = vec![false; self.instructions.len()];
        for at in 0..self.instructions.len() {
            let next: Vec<usize> = self.successors(at).collect();
            if next != [at + 1] {
                next.into_iter().chain([at + 1]).for_each(|to| {
                    if let Some(start) = starts.get_mut(to) {
                        *start = true;
                    }
                });
            }
        }
        let mut executed = Vec::with_capacity(starts.len());
        let mut at = 0;
        while at < starts.len() {
            let end = (at + 1..starts.len()).find(|&to| starts[to]).unwrap_or(starts.len());
            let lines = self.instructions[at..end]
                .iter()
                .filter_map(|instruction| instruction.line);
            // The assembler moves instructions from block to block: a few strangers do not speak for a block.
            let (counted, all) = lines.fold((0, 0), |(counted, all), line| {
                (counted + usize::from(counts.contains_key(&line)), all + 1)
            });
            executed.resize(end, 4 * counted >= all);
            at = end;
        }
        executed
    }

    /// Cycles of each loop's rounds beyond those that the straight way has.
    fn rounds(
        &self,
        counts: &Counts,
        executed: &[bool],
        is_reached: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = u64> {
        let mut copies: HashMap<(u32, &str), u64> = HashMap::new();
        for instruction in &self.instructions {
            if let Some(line) = instruction.line {
                *copies.entry((line, &instruction.opcode)).or_default() += 1;
            }
        }
        let loops: Vec<Vec<bool>> = self.loops();
        let is_within =
            |inner: &[bool], outer: &[bool]| inner != outer && inner.iter().zip(outer).all(|(a, b)| *b || !*a);
        // An unrolled loop has several copies of a line, each of which takes its part of the rounds. What the assembler
        // has moved there from elsewhere counts otherwise, so the middle one of all speaks for the loop.
        let rounds_of = |members: &Vec<bool>| -> u64 {
            let inner: Vec<&Vec<bool>> = loops.iter().filter(|inner| is_within(inner, members)).collect();
            let own = (0..members.len()).filter(|&at| members[at] && !inner.iter().any(|inner| inner[at]));
            let mut found: Vec<u64> = own
                .filter_map(|at| {
                    let instruction = &self.instructions[at];
                    let line = instruction.line?;
                    let count = counts.get(&line).copied().unwrap_or(0);
                    let copies = copies.get(&(line, &*instruction.opcode)).copied().unwrap_or(1);
                    Some(count.div_ceil(copies))
                })
                .collect();
            found.sort_unstable();
            found.get(found.len() / 2).copied().unwrap_or(0)
        };
        let further = |members: &Vec<bool>| {
            if !(0..members.len()).any(|at| members[at] && is_reached(at)) {
                return 0;
            }
            let around = loops.iter().filter(|outer| is_within(members, outer));
            let entered = around.map(rounds_of).filter(|&rounds| rounds > 0).max().unwrap_or(1);
            let gone_through: Vec<bool> = members.iter().zip(executed).map(|(a, b)| *a && *b).collect();
            let round = self.round(&gone_through).unwrap_or(0);
            rounds_of(members).saturating_sub(entered) * u64::from(round)
        };
        loops.iter().map(further).collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::Listing;

    /// Instructions with the PTX line that each comes from, and its stall.
    fn entry(code: &[(u32, &str, u64)]) -> MachineEntry {
        let mut text = ".text.k:\n".to_owned();
        for (at, (line, code, stall)) in code.iter().enumerate() {
            text += &match code.strip_suffix(':') {
                Some(label) => format!("{label}:\n"),
                None => format!(
                    "//## File \"k.ptx\", line {line}\n/*{:04x}*/ {code} ; /* 0x0 */\n /* 0x{:016x} */\n",
                    16 * at,
                    stall << 41 | 7 << 46 | 7 << 49
                ),
            };
        }
        Listing::parse(&text).entries.remove(0)
    }

    fn counts(lines: &[(u32, u64)]) -> Counts {
        lines.iter().copied().collect()
    }

    #[test]
    fn loops_count_as_often_as_they_are_gone_round() {
        let code = entry(&[
            (1, "ACQBULK", 2),
            (0, ".L_outer:", 0),
            (2, "IADD3 R0, R1, R2, R3", 3),
            (0, ".L_inner:", 0),
            (3, "IADD3 R0, R1, R2, R3", 4),
            (4, "@P0 BRA `(.L_inner)", 5),
            (5, "@P1 BRA `(.L_outer)", 6),
            (6, "EXIT", 1),
        ]);
        let straight = 2 + 3 + 4 + 5 + 6;
        let once = counts(&[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1)]);
        assert_eq!(code.cycles_behind_wait(&once), Some(straight));
        // Nothing multiplies here.
        assert_eq!(code.cycles_behind_main_loop(&once), None);
        // Three rounds, of which each goes round the inner loop four times.
        let often = counts(&[(1, 1), (2, 3), (3, 12), (4, 12), (5, 3), (6, 1)]);
        assert_eq!(
            code.cycles_behind_wait(&often),
            Some(straight + 2 * (3 + 4 + 5 + 6) + 9 * (4 + 5))
        );
    }

    #[test]
    fn the_epilogue_begins_where_the_main_loop_ends() {
        let code = entry(&[
            (1, "ACQBULK", 2),
            (0, ".L_main:", 0),
            (2, "HMMA.16816.F32.BF16 R0, R4, R8, R0", 3),
            (3, "@P0 BRA `(.L_main)", 5),
            (4, "STS [R1], R0", 7),
            (5, "EXIT", 1),
        ]);
        let counts = counts(&[(1, 1), (2, 9), (3, 9), (4, 1), (5, 1)]);
        assert_eq!(code.cycles_behind_main_loop(&counts), Some(7));
    }

    #[test]
    fn copies_of_an_unrolled_loop_share_its_rounds() {
        let code = entry(&[
            (1, "ACQBULK", 1),
            (0, ".L_by_two:", 0),
            (2, "FADD R0, R1, R2", 4),
            (2, "FADD R0, R1, R2", 4),
            (3, "@P0 BRA `(.L_by_two)", 2),
            (4, "EXIT", 1),
        ]);
        let rounds = counts(&[(1, 1), (2, 10), (3, 5), (4, 1)]);
        assert_eq!(code.cycles_behind_wait(&rounds), Some(1 + 10 + 4 * 10));
    }

    #[test]
    fn what_a_call_leaves_out_takes_no_time() {
        let code = entry(&[
            (1, "ATOMG.E.ADD R0, [R2], R3", 2),
            (2, "@P0 BRA `(.L_end)", 3),
            (3, "MEMBAR.ALL.GPU", 7),
            (0, ".L_end:", 0),
            (4, "EXIT", 1),
        ]);
        assert_eq!(code.cycles_behind_election(&counts(&[(1, 1), (2, 1), (4, 1)])), Some(5));
        assert!(code.cycles_behind_election(&counts(&[(1, 1), (2, 1), (3, 1), (4, 1)])) > Some(500));
        assert_eq!(code.cycles_behind_election(&counts(&[(4, 1)])), None);
        assert_eq!(code.cycles_behind_wait(&counts(&[(1, 1)])), None);
    }
}
