//! Warpgroups: four warps of a CTA that execute the same `wgmma` instructions, each at its own time.
//!
//! What one warp of a group executes is kept until the other three have executed it too, and compared. A matrix product
//! is over when all four have taken part, so a wait for it waits for them.

use std::collections::VecDeque;

use super::cluster::{Cluster, Next};
use super::report::{Trouble, trouble};
use super::warp::Wait;
use crate::error::FaultKind;
use crate::program::WARPGROUP;

/// A `wgmma` instruction as a warp executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) site: u32,
    /// Descriptors of A and B, and whether the accumulators are added, where it is a multiplication.
    pub(super) operands: ([u64; 2], bool),
}

/// A warpgroup's instructions.
#[derive(Debug, Default)]
pub(super) struct Warpgroup {
    /// Those that not all its warps have executed.
    steps: VecDeque<Step>,
    /// How many all have executed.
    common: u64,
    /// How many each has executed.
    executed: [u64; WARPGROUP],
    exited: [bool; WARPGROUP],
}

impl Warpgroup {
    /// Compares a warp's next step with those of the others; answers with the first other warp that it contradicts.
    fn compare(&mut self, member: usize, step: Step) -> Result<(), (usize, Option<Step>)> {
        let next = self.executed[member];
        let at = (next - self.common) as usize;
        match self.steps.get(at) {
            Some(&other) if other != step => {
                let who = (0..WARPGROUP).find(|&m| self.executed[m] > next);
                return Err((who.unwrap_or(member), Some(other)));
            }
            Some(_) => {}
            None => self.steps.push_back(step),
        }
        let gone = (0..WARPGROUP).find(|&m| self.exited[m] && self.executed[m] <= next);
        gone.map_or(Ok(()), |m| Err((m, None)))
    }

    fn advance(&mut self, member: usize) {
        self.executed[member] += 1;
        let common = self.executed.iter().copied().min().unwrap_or(0);
        self.steps.drain(..(common - self.common) as usize);
        self.common = common;
    }
}

impl Cluster<'_> {
    /// A warp's place: the index of its group in the CTA, and its index there.
    fn member(&self, w: usize) -> (usize, usize) {
        let index = self.warps[w].index as usize;
        (index / WARPGROUP, index % WARPGROUP)
    }

    /// The warps of a warp's group.
    pub(super) fn siblings(&self, w: usize) -> std::ops::Range<usize> {
        let first = w - self.member(w).1;
        first..first + WARPGROUP
    }

    /// Makes sure that a warp's step is that of its group.
    pub(super) fn join_step(&mut self, w: usize, step: Step) -> Result<(), Box<Trouble>> {
        let rank = self.warps[w].cta;
        let (group, member) = self.member(w);
        let warps = self.env.warps_per_cta();
        if (group + 1) * WARPGROUP > warps {
            let detail = format!(
                "warps {} to {} of the CTA, which would be its warpgroup, do not all exist: the CTA has {warps} warps",
                group * WARPGROUP,
                group * WARPGROUP + WARPGROUP - 1
            );
            return Err(trouble(FaultKind::AsyncMatrix, 0, detail));
        }
        let groups = &mut self.ctas[rank].warpgroups;
        if groups.is_empty() {
            groups.resize_with(warps / WARPGROUP, Warpgroup::default);
            // Whoever has exited by now will never take part.
            for other in self.warps.iter().filter(|other| other.cta == rank && other.done()) {
                let index = other.index as usize;
                if let Some(group) = groups.get_mut(index / WARPGROUP) {
                    group.exited[index % WARPGROUP] = true;
                }
            }
        }
        let Err((other, met)) = groups[group].compare(member, step) else {
            return Ok(());
        };
        let other = group * WARPGROUP + other;
        let detail = match met {
            None => format!("warp {other} of the warpgroup has exited without it: all four warps must execute it"),
            Some(met) if met.site != step.site => format!(
                "the warps of a warpgroup must execute the same instructions: warp {other} executes {} where this warp executes this",
                self.name_site(met.site)
            ),
            Some(Step {
                operands: (theirs, adds),
                ..
            }) => {
                let (mine, my_adds) = step.operands;
                format!(
                    "the warps of a warpgroup must agree: here the descriptors are {:#x} and {:#x}, scale-d is {my_adds}; in warp \
                     {other} they are {:#x} and {:#x}, scale-d is {adds}",
                    mine[0], mine[1], theirs[0], theirs[1]
                )
            }
        };
        Err(trouble(FaultKind::AsyncMatrix, 0, detail))
    }

    /// A warp has executed a step.
    pub(super) fn end_step(&mut self, w: usize) {
        let (rank, (group, member)) = (self.warps[w].cta, self.member(w));
        if let Some(group) = self.ctas[rank].warpgroups.get_mut(group) {
            group.advance(member);
        }
    }

    /// Waits until at most `left` committed groups are under way.
    pub(super) fn wait_products(&mut self, w: usize, left: u32) -> Next {
        let due = self.warps[w].products.due(left);
        let all = self.siblings(w);
        if all.clone().any(|other| self.warps[other].products.issued < due) {
            self.warps[w].group_mut().wait = Wait::Warpgroup;
            return Next::Stay;
        }
        let actor = self.multiplier(w);
        let warp = &mut self.warps[w];
        let products = &mut warp.products;
        let keep = products.committed.len().min(left as usize);
        products.committed.drain(..products.committed.len() - keep);
        products.retired = due;
        let known = warp.clock.get(actor).max(due);
        warp.clock.set(actor, known);
        Next::Advance
    }

    /// Lets the warps of a group look again whether the others have come.
    pub(super) fn rouse_siblings(&mut self, w: usize) {
        for other in self.siblings(w) {
            for group in (self.warps[other].groups.iter_mut()).filter(|g| g.wait == Wait::Warpgroup) {
                group.wait = Wait::Nothing;
            }
            if other != w {
                self.wake(other);
            }
        }
    }

    /// A warp's last lanes exit: its matrix products must be over, and its group must not be ahead of it.
    pub(super) fn leave_warpgroup(&mut self, w: usize, lane: usize) -> Result<(), Box<Trouble>> {
        let (rank, (group, member)) = (self.warps[w].cta, self.member(w));
        let products = &self.warps[w].products;
        if products.retired < products.issued {
            let detail = format!(
                "the warp exits while {} may be under way: commit its group, and wait for it with `wgmma.wait_group`",
                self.name_site(products.last)
            );
            return Err(trouble(FaultKind::AsyncMatrix, lane, detail));
        }
        let Some(warpgroup) = self.ctas[rank].warpgroups.get_mut(group) else {
            return Ok(());
        };
        warpgroup.exited[member] = true;
        let next = warpgroup.executed[member];
        let missed = warpgroup.steps.get((next - warpgroup.common) as usize).copied();
        if let Some(missed) = missed {
            let detail = format!(
                "the warp exits without {}, which other warps of its warpgroup have come to: all four must execute it",
                self.name_site(missed.site)
            );
            return Err(trouble(FaultKind::AsyncMatrix, lane, detail));
        }
        Ok(())
    }
}
