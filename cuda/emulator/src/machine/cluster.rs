//! A cluster of CTAs: its warps, what they share, and how they take turns.

use std::collections::HashMap;

use super::Env;
use super::barrier::ClusterBarrier;
use super::bulk::Flight;
use super::clock::{Clock, WAITED};
use super::cta::{BARRIERS, Cta};
use super::global::View;
use super::report::{Trouble, trouble};
use super::schedule::Random;
use super::spare;
use super::warp::{Wait, Warp, lanes};
use crate::error::{Fault, FaultKind};
use crate::program::{
    CLUSTER_STRIDE, FULL, Inst, Lanes, Mask, Op, Reg, SHARED_WINDOW, Space, WARP, WARPGROUP, WINDOW_BYTES,
};

/// What an instruction leaves its lanes to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Advance,
    /// They wait and will execute it again.
    Stay,
    /// They have been moved already.
    Moved,
    /// Advance, and let other warps run.
    Yield,
}

/// How a cluster's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Busy,
    /// Only polls are left to do: somebody else must change something.
    Idle,
    Done,
}

pub(super) struct Cluster<'a> {
    pub(super) env: &'a Env<'a>,
    /// Its index among the grid's clusters.
    pub(super) index: u64,
    pub(super) ctas: Vec<Cta>,
    pub(super) warps: Vec<Warp>,
    pub(super) cluster_barrier: ClusterBarrier,
    /// Copies under way.
    pub(super) flights: Vec<Flight>,
    pub(super) next_flight: u64,
    /// Warpgroups that a CTA has room for, the last one perhaps in part.
    pub(super) warpgroups: usize,
    /// mbarriers initialised so far.
    pub(super) mbarriers_made: usize,
    /// What strong stores have published, by address.
    pub(super) published: HashMap<u64, Clock>,
    pub(super) view: View<'a>,
    /// Executions of each instruction, by all warps or by each, one after the other.
    pub(super) tally: Vec<u64>,
    /// Between two warps' in `tally`: 0 where all count together.
    tally_stride: usize,
    /// Extra passes through shared memory, of loads and of stores.
    pub(super) conflicts: [u64; 2],
    /// Instructions executed.
    pub(super) executed: u64,
    /// Something visible has happened since this was last cleared.
    pub(super) progress: bool,
    /// Room for the bytes of a copy that lands.
    pub(super) landing: Vec<u8>,
    /// Warps that can run.
    ready: Vec<usize>,
    is_ready: Vec<bool>,
    live_warps: usize,
    /// Intervals of warps so far: see [`LaneBooks`](super::lane_books::LaneBooks).
    pub(super) intervals: u32,
    random: Random,
}

/// Where in the grid the CTA of a rank lies, in the cluster of an index.
pub(super) fn cta_at(env: &Env<'_>, cluster: u64, rank: u32) -> [u32; 3] {
    let (size, rank) = (env.cluster, u64::from(rank));
    let along = |index: u64, counts: [u64; 3]| {
        let rest = index / counts[0];
        [index % counts[0], rest % counts[1], rest / counts[1]]
    };
    let at = along(cluster, std::array::from_fn(|i| u64::from(env.grid[i] / size[i])));
    let within = along(rank, size.map(u64::from));
    std::array::from_fn(|i| at[i] as u32 * size[i] + within[i] as u32)
}

impl<'a> Cluster<'a> {
    pub(super) fn new(env: &'a Env<'a>, index: u64, random: Random) -> Self {
        let ranks = env.ctas_per_cluster();
        let warps_per_cta = env.warps_per_cta();
        let (mut ctas, mut warps) = (Vec::with_capacity(ranks), Vec::with_capacity(ranks * warps_per_cta));
        for rank in 0..ranks {
            let (shared, shadow) = spare::take(env.shared_bytes() as usize);
            ctas.push(Cta {
                at: cta_at(env, index, rank as u32),
                shared,
                shadow,
                live_threads: env.threads(),
                live_warps: warps_per_cta as u32,
                ..Cta::default()
            });
            for index in 0..warps_per_cta {
                let threads = (env.threads() - 32 * index as u32).min(32);
                let mut warp = Warp::new(rank, index as u32, FULL >> (32 - threads), env.program);
                warp.clock.set(Self::actor(warps.len()), 1);
                warp.interval.number = warps.len() as u32;
                warps.push(warp);
            }
        }
        Cluster {
            env,
            index,
            ctas,
            cluster_barrier: ClusterBarrier::default(),
            flights: Vec::new(),
            next_flight: 0,
            warpgroups: warps_per_cta.div_ceil(WARPGROUP),
            mbarriers_made: 0,
            published: HashMap::new(),
            view: View::new(env.allocations),
            tally: vec![0; env.program.code.len() * if env.count_lines { warps.len() } else { 1 }],
            tally_stride: if env.count_lines { env.program.code.len() } else { 0 },
            conflicts: [0; 2],
            executed: 0,
            progress: false,
            landing: Vec::new(),
            ready: (0..warps.len()).collect(),
            is_ready: vec![true; warps.len()],
            live_warps: warps.len(),
            intervals: warps.len() as u32,
            warps,
            random,
        }
    }

    /// Lands a copy, perhaps, and lets some warp execute up to `burst` instructions.
    pub(super) fn turn(&mut self, burst: u32) -> Result<Turn, Box<Fault>> {
        if !self.flights.is_empty() && (self.ready.is_empty() || self.random.below(4) == 0) {
            let index = self.random.below(self.flights.len());
            self.land(index);
        }
        if self.ready.is_empty() {
            return self.unstick();
        }
        let at = self.random.below(self.ready.len());
        let w = self.ready[at];
        self.run(w, burst)?;
        if !self.warps[w].ready(self.env.program) {
            self.is_ready[w] = false;
            self.ready.retain(|&other| other != w);
        }
        Ok(Turn::Busy)
    }

    /// Nobody can run. Lets lanes run that wait only for their fellows, lets timed waits time out, or gives up.
    fn unstick(&mut self) -> Result<Turn, Box<Fault>> {
        if !self.flights.is_empty() {
            return Ok(Turn::Busy);
        }
        if self.live_warps == 0 {
            return Ok(Turn::Done);
        }
        let mut forced = false;
        for w in 0..self.warps.len() {
            if self.warps[w].force() {
                self.wake(w);
                forced = true;
            }
        }
        if forced {
            return Ok(Turn::Busy);
        }
        let mut slept = false;
        for w in 0..self.warps.len() {
            for group in self.warps[w].groups.iter_mut().filter(|g| g.wait == Wait::Sleep) {
                group.timed_out = true;
                slept = true;
            }
            self.rouse(w);
        }
        if slept {
            Ok(Turn::Idle)
        } else {
            Err(self.deadlock("nobody can go on"))
        }
    }

    /// Notes that a warp may be able to run.
    pub(super) fn wake(&mut self, w: usize) {
        if !self.is_ready[w] && self.warps[w].ready(self.env.program) {
            self.is_ready[w] = true;
            self.ready.push(w);
        }
    }

    /// Lets a warp's sleeping lanes look again.
    pub(super) fn rouse(&mut self, w: usize) {
        for group in self.warps[w].groups.iter_mut().filter(|g| g.wait == Wait::Sleep) {
            group.wait = Wait::Nothing;
        }
        self.wake(w);
    }

    /// Lets a warp execute up to `budget` instructions.
    fn run(&mut self, w: usize, budget: u32) -> Result<(), Box<Fault>> {
        let program = self.env.program;
        for _ in 0..budget {
            let warp = &mut self.warps[w];
            let several = warp.groups.len() > 1;
            if several {
                if !warp.select(program) {
                    break;
                }
            } else if warp.groups.first().is_none_or(|g| g.wait != Wait::Nothing) {
                break;
            }
            let group = &mut warp.groups[warp.current];
            group.spent = group.spent.saturating_add(u32::from(several));
            let (pc, mask) = (group.pc, group.mask);
            let inst = &program.code[pc as usize];
            let exec = mask & warp.pred(inst.guard);
            let count = w * self.tally_stride + pc as usize;
            self.tally[count] += 1;
            self.executed += 1;
            if inst.names_matrix_registers
                && exec != 0
                && let Err(trouble) = self.touch_held(w, exec, inst.site)
            {
                return Err(self.fault(w, inst.site, *trouble));
            }
            let warp = &mut self.warps[w];
            if exec == 0 || warp.execute(&inst.op, exec, self.env.constants) {
                self.warps[w].group_mut().pc += 1;
                continue;
            }
            match self.execute(w, inst, exec) {
                Ok(Next::Advance) => self.warps[w].group_mut().pc += 1,
                Ok(Next::Yield) => {
                    self.warps[w].group_mut().pc += 1;
                    break;
                }
                Ok(Next::Moved) => {}
                // It counts when it goes through.
                Ok(Next::Stay) => self.tally[count] -= 1,
                Err(trouble) => return Err(self.fault(w, inst.site, *trouble)),
            }
        }
        Ok(())
    }

    /// Executes an instruction that needs more than the warp's registers.
    fn execute(&mut self, w: usize, inst: &Inst, exec: Mask) -> Result<Next, Box<Trouble>> {
        let site = inst.site;
        match &inst.op {
            Op::Load(access) => self.load(w, access, exec, site)?,
            Op::Store(access) => self.store(w, access, exec, site)?,
            Op::Atomic(atomic) => self.atomic(w, atomic, exec, site)?,
            Op::Prefetch(prefetch) => self.prefetch(w, prefetch, exec)?,
            Op::Bulk(bulk) => self.bulk(w, bulk, exec, site)?,
            Op::StoreAsync(store) => self.store_async(w, store, exec, site)?,
            Op::Tensor(tensor) => self.tensor(w, tensor, exec, site)?,
            Op::Matrices(matrices) => return self.matrices(w, matrices, exec, site),
            Op::AsyncCopy(copy) => self.async_copy(w, copy, exec, site)?,
            Op::AsyncCommit => self.async_commit(w, exec),
            Op::AsyncWait { left } => self.async_wait(w, exec, *left),
            Op::AsyncArrive { address, counted } => self.async_arrive(w, *address, *counted, exec, site)?,
            Op::BulkCommit => self.bulk_commit(w, exec),
            Op::BulkWait { left } => return Ok(self.bulk_wait(w, exec, *left)),
            Op::Mma(mma) => return self.mma(w, mma, exec),
            Op::Wgmma(wgmma) => return self.wgmma(w, wgmma, exec, site),
            Op::Mbarrier(mbarrier) => return self.mbarrier(w, mbarrier, exec, site),
            Op::Barrier(barrier) => return self.barrier(w, barrier, exec, site),
            Op::ClusterArrive { release, aligned } => return self.cluster_arrive(w, exec, *release, *aligned),
            Op::ClusterWait { aligned } => return self.cluster_wait(w, exec, *aligned),
            Op::WarpSync(members) => return self.warp_sync(w, *members, exec),
            Op::Shuffle(shuffle) => return self.shuffle(w, shuffle, exec),
            Op::Vote(vote) => return self.vote(w, vote, exec),
            Op::Match(m) => return self.match_lanes(w, m, exec),
            Op::Reduce(reduce) => return self.reduce(w, reduce, exec),
            Op::Elect { d, p, members } => return self.elect(w, *d, *p, *members, exec),
            Op::AlignedNop => return Ok(self.aligned(w, exec, true)?.unwrap_or(Next::Advance)),
            Op::ActiveMask(d) => self.warps[w].write(*d, exec, &[u64::from(exec); WARP]),
            Op::Special(special, d) => self.special(w, *special, *d, exec),
            Op::Fence(fence) => self.fence(w, *fence),
            Op::MapRank {
                d,
                address,
                rank,
                generic,
            } => self.map_rank(w, [*d, *address, *rank], *generic, exec),
            Op::RankOf { d, address, generic } => self.rank_of(w, *d, *address, *generic, exec),
            Op::IsSpace { d, address, space } => self.is_space(w, *d, *address, *space, exec),
            Op::Jump(target) | Op::Branch(target) => {
                self.warps[w].branch(exec, *target);
                return Ok(Next::Moved);
            }
            Op::Call(call) => return self.call(w, call, exec),
            Op::Return => return Ok(self.ret(w, exec)),
            Op::FrameAddress { d, offset } => self.frame_address(w, *d, *offset, exec),
            Op::BranchIndexed(index, targets) => return self.branch_indexed(w, *index, targets, exec),
            Op::Exit => return self.exit(w, exec),
            Op::Trap => {
                let lane = exec.trailing_zeros() as usize;
                return Err(trouble(FaultKind::Trap, lane, "the kernel gave up".into()));
            }
            Op::Yield => {
                self.warps[w].polled();
                return Ok(Next::Yield);
            }
            Op::GridWait => {
                self.warps[w].clock.set(WAITED, 1);
                self.env.state.waited.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            Op::GridTrigger => {
                let (rank, waited) = (self.warps[w].cta, self.warps[w].clock.get(WAITED) != 0);
                self.trigger(rank, waited);
            }
            // The rest needs only registers and has been executed.
            _ => {}
        }
        Ok(Next::Advance)
    }

    /// A CTA lets its dependents start, by instruction or by exiting.
    fn trigger(&mut self, rank: usize, waited: bool) {
        if !std::mem::replace(&mut self.ctas[rank].triggered, true) && waited {
            self.env
                .state
                .waited_first
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    fn map_rank(&mut self, w: usize, [d, address, rank]: [Reg; 3], generic: bool, exec: Mask) {
        let constants = self.env.constants;
        let warp = &self.warps[w];
        let (addresses, ranks) = (warp.read(constants, address), warp.read(constants, rank));
        let window = if generic { SHARED_WINDOW } else { 0 };
        let stride = u64::from(CLUSTER_STRIDE);
        let mapped: Lanes = std::array::from_fn(|lane| {
            let within = addresses[lane].wrapping_sub(window) % stride;
            // A rank that does not exist gives an address that no access accepts.
            let rank = u64::from(ranks[lane] as u32).min(0xfe);
            window + (rank + 1) * stride + within
        });
        self.warps[w].write(d, exec, &mapped);
    }

    fn rank_of(&mut self, w: usize, d: Reg, address: Reg, generic: bool, exec: Mask) {
        let own = self.warps[w].cta as u64;
        let window = if generic { SHARED_WINDOW } else { 0 };
        let addresses = self.warps[w].read(self.env.constants, address);
        let ranks = addresses.map(|a| match a.wrapping_sub(window) / u64::from(CLUSTER_STRIDE) {
            0 => own,
            r => (r - 1) & 0xffff_ffff,
        });
        self.warps[w].write(d, exec, &ranks);
    }

    fn is_space(&mut self, w: usize, d: Reg, address: Reg, space: Space, exec: Mask) {
        let inside = |a: u64, start: u64, bytes: u64| a.wrapping_sub(start) < bytes;
        let addresses = self.warps[w].read(self.env.constants, address);
        let holds = |&lane: &usize| {
            let a = addresses[lane];
            match space {
                Space::Shared => inside(a, SHARED_WINDOW, u64::from(CLUSTER_STRIDE)),
                Space::Cluster => inside(a, SHARED_WINDOW, WINDOW_BYTES),
                Space::Local => inside(a, crate::program::LOCAL_WINDOW, WINDOW_BYTES),
                Space::Param => inside(a, crate::program::PARAM_WINDOW, WINDOW_BYTES),
                Space::Global | Space::Generic => a < crate::memory::END,
            }
        };
        let mask = lanes(exec).filter(holds).fold(0, |mask, l| mask | 1 << l);
        self.warps[w].set_pred(d, exec, mask);
    }

    fn branch_indexed(&mut self, w: usize, index: Reg, targets: &[u32], exec: Mask) -> Result<Next, Box<Trouble>> {
        let indices = *self.warps[w].read(self.env.constants, index);
        self.split_off(w, exec);
        let group = *self.warps[w].group();
        let current = self.warps[w].current;
        self.warps[w].groups.remove(current);
        self.warps[w].current = 0;
        let mut left = exec;
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let Some(&target) = targets.get(indices[first] as usize) else {
                let detail = format!("index {} into {} branch targets", indices[first], targets.len());
                return Err(trouble(FaultKind::BadInstruction, first, detail));
            };
            let same = lanes(left)
                .filter(|&l| indices[l] == indices[first])
                .fold(0, |mask, l| mask | 1 << l);
            left &= !same;
            let mut part = group;
            part.mask = same;
            part.pc = target;
            self.warps[w].groups.push(part);
        }
        Ok(Next::Moved)
    }

    fn exit(&mut self, w: usize, exec: Mask) -> Result<Next, Box<Trouble>> {
        self.progress = true;
        let warp = &mut self.warps[w];
        let rank = warp.cta;
        warp.live &= !exec;
        warp.cluster_pending &= !exec;
        let group = warp.group_mut();
        group.mask &= !exec;
        group.pc += 1;
        if group.mask == 0 {
            let current = warp.current;
            warp.groups.remove(current);
            warp.current = 0;
        }
        warp.recheck();
        let done = warp.done();
        if done {
            self.leave_warpgroup(w, exec.trailing_zeros() as usize)?;
        }
        let warp = &self.warps[w];
        let cta = &mut self.ctas[rank];
        cta.live_threads -= exec.count_ones();
        if done {
            self.live_warps -= 1;
            cta.live_warps -= 1;
            cta.exit_clock.join(&warp.clock);
            if cta.live_warps == 0 {
                self.end_cta(rank, exec.trailing_zeros() as usize)?;
            }
        }
        for id in 0..BARRIERS {
            self.check_barrier(rank, id);
        }
        self.check_cluster_barrier();
        Ok(Next::Moved)
    }

    /// A CTA's last thread exits: whatever others do to its memory must be over.
    fn end_cta(&mut self, rank: usize, lane: usize) -> Result<(), Box<Trouble>> {
        let waited = self.ctas[rank].exit_clock.get(WAITED) != 0;
        self.trigger(rank, waited);
        if let Some(flight) = self.flights.iter().find(|f| f.targets(rank)) {
            let detail = format!(
                "the CTA exits while the asynchronous copy that {} began at {} is under way into its shared memory",
                self.name_warp(flight.issuer),
                self.name_site(flight.site)
            );
            return Err(trouble(FaultKind::AsyncCopy, lane, detail));
        }
        let cta = &self.ctas[rank];
        if let Some(object) = (cta.mbarriers.values()).find(|m| cta.exit_clock.get(m.actor) < m.landed) {
            let (issuer, _, site) = object.last_copy;
            let detail = format!(
                "the CTA exits and never waited for the asynchronous copy that {} began at {}: it may still be under way",
                self.name_warp(issuer),
                self.name_site(site)
            );
            return Err(trouble(FaultKind::AsyncCopy, lane, detail));
        }
        if let Some((issuer, _, site)) = self.unwaited(rank) {
            let detail = format!(
                "the CTA exits while the bulk copy that {} began at {} may still read its shared memory: commit its group \
                 and wait for it",
                self.name_warp(issuer),
                self.name_site(site)
            );
            return Err(trouble(FaultKind::AsyncCopy, lane, detail));
        }
        let unknown = |&(&w, &(time, _)): &(&usize, &(u32, u32))| cta.exit_clock.get(Self::actor(w)) < time;
        if let Some((&w, &(_, site))) = cta.touched.iter().find(unknown) {
            let detail = format!(
                "the CTA exits with nothing that orders this after the access that {} made to its shared memory at {}: arrive \
                 (with release) and wait at a cluster barrier in between",
                self.name_warp(w),
                self.name_site(site)
            );
            return Err(trouble(FaultKind::RemoteAfterExit, lane, detail));
        }
        Ok(())
    }
}
