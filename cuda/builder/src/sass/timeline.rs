//! How long a warp takes from place to place in an entry, read from the machine code.
//!
//! Each instruction says how many cycles the next one comes after it, and which results it waits for; the results'
//! latencies are assumed ([`super::latency`]). A warp that never waits for another one, for memory that is far away or
//! for its turn goes through the code in that time. Branches take the longer way, and loops go round once, except that
//! a loop's own time is that of a round in steady state.

use super::control::SCOREBOARDS;
use super::latency;
use super::listing::MachineEntry;
use super::rounds::WAIT;

/// What an entry's instructions take, in cycles. None where there is no such place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// From the start to the first bulk copy or TMA load.
    pub first_copy: Option<u32>,
    /// From the start to `griddepcontrol.wait`, by the longest way.
    pub wait: Option<u32>,
    /// A round of the longest loop that multiplies matrices.
    pub chunk: Option<u32>,
    /// A round of the longest loop that starts copies and multiplies nothing.
    pub refill: Option<u32>,
    /// Fences that all of the GPU sees, and invalidations of the first-level cache: ahead of the wait, in loops that
    /// multiply or copy, and elsewhere.
    pub fences: [u32; 3],
}

/// Instructions that start copies into shared memory.
const COPIES: &[&str] = &["UBLKCP", "UTMALDG", "UBLKPF"];
/// What orders memory for the whole GPU.
const FENCES: &[&str] = &["MEMBAR.GPU", "MEMBAR.SYS", "CCTL.IVALL"];

/// A warp's clock: the cycle of the next issue, and when each scoreboard is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    now: u32,
    released: [u32; SCOREBOARDS],
}

impl Clock {
    pub(super) const START: Self = Clock {
        now: 0,
        released: [0; SCOREBOARDS],
    };

    /// Two ways come together: the later one counts.
    fn or(self, other: Self) -> Self {
        Clock {
            now: self.now.max(other.now),
            released: std::array::from_fn(|at| self.released[at].max(other.released[at])),
        }
    }

    /// The same state seen from so many cycles later.
    fn since(self, start: u32) -> Self {
        Clock {
            now: self.now.saturating_sub(start),
            released: self.released.map(|at| at.saturating_sub(start)),
        }
    }
}

impl MachineEntry {
    /// The cycle at which an instruction is issued, and the clock behind it.
    fn issue(&self, at: usize, mut clock: Clock) -> (u32, Clock) {
        let instruction = &self.instructions[at];
        let Some(control) = instruction.control else {
            return (clock.now, clock);
        };
        for (scoreboard, released) in clock.released.iter().enumerate() {
            if control.wait >> scoreboard & 1 == 1 {
                clock.now = clock.now.max(*released);
            }
        }
        let issued = clock.now;
        let mut holds = |scoreboard: Option<u8>, cycles: u32| {
            if let Some(released) = scoreboard.and_then(|at| clock.released.get_mut(usize::from(at))) {
                *released = (*released).max(issued + cycles);
            }
        };
        holds(control.write, latency::result(instruction));
        holds(control.read, latency::OPERANDS);
        clock.now = issued + u32::from(control.stall).max(1) + latency::blocks(instruction);
        (issued, clock)
    }

    /// When each of some instructions is issued, by the longest way from `from`, which starts at `clock`; jumps back
    /// are not taken. And the clock of each jump back to `from`.
    pub(super) fn walk(
        &self,
        from: usize,
        inside: impl Fn(usize) -> bool,
        clock: Clock,
    ) -> (Vec<Option<u32>>, Option<Clock>) {
        let count = self.instructions.len();
        let order = self.reverse_postorder();
        let mut place = vec![usize::MAX; count];
        for (at, instruction) in order.iter().enumerate() {
            place[*instruction] = at;
        }
        let mut arrived: Vec<Option<Clock>> = vec![None; count];
        let mut issued = vec![None; count];
        let mut back: Option<Clock> = None;
        arrived[from] = Some(clock);
        for &at in order.iter().skip_while(|&&at| at != from) {
            let Some(clock) = arrived[at] else { continue };
            let (cycle, clock) = self.issue(at, clock);
            issued[at] = Some(cycle);
            for to in self.successors(at) {
                if to == from {
                    back = Some(back.map_or(clock, |other| other.or(clock)));
                } else if place[to] > place[at] && inside(to) {
                    arrived[to] = Some(arrived[to].map_or(clock, |other| other.or(clock)));
                }
            }
        }
        (issued, back)
    }

    /// A round of a loop in steady state.
    pub(super) fn round(&self, members: &[bool]) -> Option<u32> {
        let inside = |at: usize| members[at];
        // The head stands first of its members in the order of the code's ways.
        let head = self.reverse_postorder().into_iter().find(|&at| members[at])?;
        let (_, first) = self.walk(head, inside, Clock::START);
        let first = first?;
        let (_, second) = self.walk(head, inside, first.since(first.now));
        second.map(|clock| clock.now)
    }

    pub(super) fn is_any(&self, at: usize, mnemonics: &[&str]) -> bool {
        mnemonics.iter().any(|mnemonic| self.instructions[at].is(mnemonic))
    }

    /// The entry's timeline.
    pub fn timeline(&self) -> Timeline {
        if self.instructions.is_empty() {
            return Timeline::default();
        }
        let all = 0..self.instructions.len();
        let (issued, _) = self.walk(0, |_| true, Clock::START);
        let when = |mnemonics: &[&str]| {
            let places = all.clone().filter(|&at| self.is_any(at, mnemonics));
            places.filter_map(|at| issued[at]).collect::<Vec<u32>>()
        };
        let wait = when(WAIT).into_iter().max();
        let loops = self.loops();
        let holds = |members: &[bool], mnemonics: &[&str]| {
            let mut inside = all.clone().filter(|&at| members[at]);
            inside.any(|at| self.is_any(at, mnemonics))
        };
        let main = self.main_loops();
        let innermost = |members: &&Vec<bool>| {
            let within = |inner: &Vec<bool>| inner != *members && inner.iter().zip(*members).all(|(a, b)| *b || !*a);
            !loops.iter().any(|inner| within(inner) && holds(inner, COPIES))
        };
        let multiplies = |members: &[bool]| {
            main.iter()
                .any(|inner| inner.iter().zip(members).all(|(a, b)| *b || !*a))
        };
        let refills: Vec<&Vec<bool>> = loops
            .iter()
            .filter(|members| holds(members, COPIES) && !multiplies(members))
            .filter(innermost)
            .collect();
        let mut fences = [0; 3];
        for at in all.clone().filter(|&at| self.is_any(at, FENCES)) {
            let in_loop = main.iter().chain(refills.iter().copied()).any(|members| members[at]);
            let ahead = wait.is_some() && issued[at] < wait;
            fences[if in_loop { 1 } else { 2 - 2 * usize::from(ahead) }] += 1;
        }
        Timeline {
            first_copy: when(COPIES).into_iter().min(),
            wait,
            chunk: main.iter().filter_map(|members| self.round(members)).max(),
            refill: refills.into_iter().filter_map(|members| self.round(members)).max(),
            fences,
        }
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
