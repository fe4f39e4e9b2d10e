//! Barriers of the CTA and of the cluster, and the aligned instructions' demand for a whole warp.

use super::clock::{Clock, STARTED};
use super::cluster::{Cluster, Next};
use super::cta::BARRIERS;
use super::report::{Trouble, trouble};
use super::warp::{Wait, lanes};
use crate::error::FaultKind;
use crate::program::{Barrier, BarrierKind, Mask, WARP};

/// The cluster's barrier.
#[derive(Default)]
pub(super) struct ClusterBarrier {
    /// What those who arrived with release knew.
    gathering: Clock,
    /// What those who arrived knew of mbarriers' initialisations.
    inits: Clock,
    /// The same of the phase that completed last.
    complete: (Clock, Clock),
}

impl Cluster<'_> {
    /// Lets an aligned instruction go on only in a whole warp; `None` where lanes may still come.
    ///
    /// Barriers count exited lanes as absent by right (`whole` false); matrix instructions do not.
    pub(super) fn aligned(&mut self, w: usize, exec: Mask, whole: bool) -> Result<Option<Next>, Box<Trouble>> {
        let warp = &mut self.warps[w];
        let wanted = if whole { Mask::MAX } else { warp.live };
        if exec == wanted {
            return Ok(None);
        }
        let (pc, mask) = (warp.group().pc, warp.group().mask);
        // Where only the guard or an exit keeps lanes away, nobody will come.
        if warp.any_behind() && exec == mask {
            warp.group_mut().wait = Wait::Converge;
            return Ok(Some(Next::Stay));
        }
        let others: Vec<String> = (self.warps[w].groups.iter())
            .filter(|g| g.pc != pc)
            .map(|g| (g.mask, self.env.program.code[g.pc as usize].site))
            .map(|(mask, site)| format!("lanes {mask:#010x} are at {}", self.name_site(site)))
            .collect();
        let rest = match (others.is_empty(), mask & !exec) {
            (false, _) => others.join(", "),
            (true, 0) => "the others have exited or never existed".into(),
            (true, skipped) => format!("lanes {skipped:#010x} skip it by its predicate"),
        };
        let detail = format!("only lanes {exec:#010x} execute it; {rest}");
        Err(trouble(FaultKind::PartialWarp, exec.trailing_zeros() as usize, detail))
    }

    pub(super) fn barrier(&mut self, w: usize, barrier: &Barrier, exec: Mask, site: u32) -> Result<Next, Box<Trouble>> {
        if barrier.aligned
            && let Some(next) = self.aligned(w, exec, false)?
        {
            return Ok(next);
        }
        let lane = exec.trailing_zeros() as usize;
        let id = self.uniform(w, barrier.id, exec, "the barrier's number")?;
        let count = match barrier.count {
            Some(reg) => Some(self.uniform(w, reg, exec, "the barrier's thread count")?),
            None => None,
        };
        if id >= BARRIERS as u64 {
            let detail = format!("barrier {id} does not exist; a CTA has barriers 0 to {}", BARRIERS - 1);
            return Err(trouble(FaultKind::BadInstruction, lane, detail));
        }
        if let Some(count) = count
            && (count == 0 || count % WARP as u64 != 0 || count > u64::from(self.env.threads()).next_multiple_of(32))
        {
            let detail = format!(
                "{count} threads at a barrier: it must be a multiple of 32, from 32 to the CTA's {} threads",
                self.env.threads()
            );
            return Err(trouble(FaultKind::BadInstruction, lane, detail));
        }
        let expected = count.map(|c| c as u32);
        let clock = self.release(w);
        let rank = self.warps[w].cta;
        let slot = &self.ctas[rank].barriers[id as usize];
        if slot.arrived > 0 && slot.expected != expected {
            let say = |e: Option<u32>| e.map_or("all".to_owned(), |n| n.to_string());
            let detail = format!(
                "barrier {id} is told to wait for {} threads, but {} told it to wait for {}",
                say(expected),
                self.name_site(slot.site),
                say(slot.expected)
            );
            return Err(trouble(FaultKind::BadInstruction, lane, detail));
        }
        let vote = match barrier.kind {
            BarrierKind::Popcount { p, .. } | BarrierKind::All { p, .. } | BarrierKind::Any { p, .. } => {
                (self.warps[w].pred(p) & exec).count_ones()
            }
            BarrierKind::Sync | BarrierKind::Arrive => 0,
        };
        let slot = &mut self.ctas[rank].barriers[id as usize];
        if slot.arrived == 0 {
            slot.site = site;
        }
        slot.expected = expected;
        // A counted aligned barrier counts warps, whatever their lanes.
        slot.arrived += if barrier.aligned && expected.is_some() {
            WARP as u32
        } else {
            exec.count_ones()
        };
        slot.votes += vote;
        slot.voters += exec.count_ones();
        slot.clock.join(&clock);
        let waits = !matches!(barrier.kind, BarrierKind::Arrive);
        if waits {
            slot.waiting.push((w, exec));
            self.split_off(w, exec);
            self.warps[w].group_mut().wait = Wait::Barrier(id as u32);
        } else {
            self.warps[w].group_mut().pc += 1;
        }
        self.check_barrier(rank, id as usize);
        Ok(Next::Moved)
    }

    /// Leaves only these lanes in the current group; the others go on to the next instruction.
    pub(super) fn split_off(&mut self, w: usize, exec: Mask) {
        let warp = &mut self.warps[w];
        let group = warp.group_mut();
        if group.mask != exec {
            let mut rest = *group;
            group.mask = exec;
            rest.mask &= !exec;
            rest.pc += 1;
            warp.groups.push(rest);
        }
    }

    /// Completes a CTA's barrier if everybody is there.
    pub(super) fn check_barrier(&mut self, rank: usize, id: usize) {
        let cta = &mut self.ctas[rank];
        let slot = &mut cta.barriers[id];
        if slot.arrived == 0 || slot.arrived < slot.expected.unwrap_or(cta.live_threads) {
            return;
        }
        let done = std::mem::take(slot);
        self.progress = true;
        for (w, mask) in done.waiting {
            let warp = &mut self.warps[w];
            warp.clock.join(&done.clock);
            let waiting = (warp.groups.iter_mut()).find(|g| g.wait == Wait::Barrier(id as u32) && g.mask == mask);
            let Some(group) = waiting else { continue };
            group.wait = Wait::Nothing;
            let inst = &self.env.program.code[group.pc as usize];
            group.pc += 1;
            if let crate::program::Op::Barrier(barrier) = &inst.op {
                match barrier.kind {
                    BarrierKind::Popcount { d, .. } => warp.write(d, mask, &[u64::from(done.votes); WARP]),
                    BarrierKind::All { d, .. } => warp.set_pred(d, mask, all(done.votes == done.voters)),
                    BarrierKind::Any { d, .. } => warp.set_pred(d, mask, all(done.votes > 0)),
                    BarrierKind::Sync | BarrierKind::Arrive => {}
                }
            }
            self.order_lanes(w);
            self.wake(w);
        }
    }

    pub(super) fn cluster_arrive(
        &mut self,
        w: usize,
        exec: Mask,
        release: bool,
        aligned: bool,
    ) -> Result<Next, Box<Trouble>> {
        if aligned && let Some(next) = self.aligned(w, exec, false)? {
            return Ok(next);
        }
        let twice = self.warps[w].cluster_arrived & exec;
        if twice != 0 {
            let detail = "it arrives a second time without `barrier.cluster.wait` in between".into();
            return Err(trouble(
                FaultKind::BadInstruction,
                twice.trailing_zeros() as usize,
                detail,
            ));
        }
        let known = if release {
            Some(self.release(w))
        } else {
            self.warps[w].fence.clone()
        };
        if let Some(known) = known {
            self.cluster_barrier.gathering.join(&known);
        }
        if let Some(inits) = &self.warps[w].init_fence {
            self.cluster_barrier.inits.join(inits);
        }
        let warp = &mut self.warps[w];
        warp.cluster_arrived |= exec;
        warp.cluster_pending |= exec;
        warp.group_mut().pc += 1;
        self.check_cluster_barrier();
        Ok(Next::Moved)
    }

    /// Completes the cluster's barrier if everybody who has not exited is there.
    pub(super) fn check_cluster_barrier(&mut self) {
        let there = |w: &super::warp::Warp| w.cluster_pending == w.live;
        if !self.warps.iter().all(there) {
            return;
        }
        self.progress = true;
        let barrier = &mut self.cluster_barrier;
        let gathered = std::mem::take(&mut barrier.gathering);
        barrier.complete = (gathered, std::mem::take(&mut barrier.inits));
        for w in 0..self.warps.len() {
            let warp = &mut self.warps[w];
            warp.cluster_pending = 0;
            let mut waited = false;
            for group in warp.groups.iter_mut().filter(|g| g.wait == Wait::Cluster) {
                group.wait = Wait::Nothing;
                waited = true;
            }
            if waited {
                self.wake(w);
            }
        }
    }

    pub(super) fn cluster_wait(&mut self, w: usize, exec: Mask, aligned: bool) -> Result<Next, Box<Trouble>> {
        if aligned && let Some(next) = self.aligned(w, exec, false)? {
            return Ok(next);
        }
        let warp = &mut self.warps[w];
        let absent = exec & !warp.cluster_arrived;
        if absent != 0 {
            let detail = "it waits at the cluster barrier without having arrived".into();
            return Err(trouble(
                FaultKind::BadInstruction,
                absent.trailing_zeros() as usize,
                detail,
            ));
        }
        if exec & warp.cluster_pending != 0 {
            if exec != warp.group().mask {
                let detail = "lanes of one warp are at different phases of the cluster barrier".into();
                return Err(trouble(
                    FaultKind::BadInstruction,
                    exec.trailing_zeros() as usize,
                    detail,
                ));
            }
            warp.group_mut().wait = Wait::Cluster;
            return Ok(Next::Stay);
        }
        warp.cluster_arrived &= !exec;
        let (known, inits) = &self.cluster_barrier.complete;
        warp.clock.join(known);
        warp.inits.join(inits);
        warp.clock.set(STARTED, 1);
        self.order_lanes(w);
        Ok(Next::Advance)
    }

    /// A register's value, which must be the same in all lanes that execute.
    pub(super) fn uniform(&self, w: usize, reg: u32, exec: Mask, what: &str) -> Result<u64, Box<Trouble>> {
        let values = self.warps[w].read(self.env.constants, reg);
        let first = values[exec.trailing_zeros() as usize];
        match lanes(exec).find(|&l| values[l] != first) {
            None => Ok(first),
            Some(lane) => {
                let detail = format!("{what} differs between lanes: {first} and {}", values[lane]);
                Err(trouble(FaultKind::BadInstruction, lane, detail))
            }
        }
    }
}

fn all(yes: bool) -> Mask {
    if yes { Mask::MAX } else { 0 }
}
