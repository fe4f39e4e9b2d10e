//! mbarrier objects: phases that end when all arrivals and all announced bytes are there.

use super::clock::{Clock, Epoch};
use super::cluster::{Cluster, Next};
use super::report::{Trouble, trouble};
use super::shadow::Touch;
use super::warp::{Wait, lanes};
use crate::error::FaultKind;
use crate::program::{Mask, Mbarrier as Instruction, MbarrierKind, Space, WARP};

/// Most arrivals and most bytes that a phase can be told to expect.
const LIMIT: i64 = (1 << 20) - 1;
/// Size and alignment of an object.
pub(super) const BYTES: u64 = 8;

/// One object.
pub(super) struct Mbarrier {
    /// Arrivals that each new phase expects.
    expected: i64,
    /// Arrivals still to come in this phase.
    pending: i64,
    /// Bytes still to come; negative where they came before they were announced.
    tx: i64,
    /// Phases completed.
    phase: u64,
    /// What those of the object's CTA who arrived so far knew, and those of others with a scope that reaches here.
    gathering: [Clock; 2],
    /// The same of completed phases: who waits with the scope of the CTA learns the first alone.
    complete: [Clock; 2],
    /// What those of other CTAs who arrived knew with whatever scope: a copy that is started once they are known to
    /// have arrived comes after what they have read. See [`Warp::drained`](super::warp::Warp::drained).
    draining: Clock,
    /// The same of completed phases.
    drained: Clock,
    /// The actor that its copies are.
    pub(super) actor: usize,
    /// Copies that have landed.
    pub(super) landed: u32,
    /// Copies under way.
    pub(super) in_flight: u32,
    /// Warp, lane and site of the copy that landed last.
    pub(super) last_copy: (usize, usize, u32),
    init: Epoch,
    pub(super) init_site: u32,
    /// The lane that initialised it, and its warp's interval then.
    init_by: (usize, u32),
    /// Whether a fence by the initialising warp has made it visible to copies: one of the asynchronous proxy, as the
    /// ISA asks, or `fence.mbarrier_init` alone, on which CUTLASS's pipelines rest.
    is_fenced: bool,
    /// Warps that sleep until the phase ends.
    sleepers: Vec<usize>,
}

impl Mbarrier {
    fn new(count: i64, actor: usize, init: Epoch, init_site: u32, init_by: (usize, u32)) -> Self {
        Mbarrier {
            expected: count,
            pending: count,
            tx: 0,
            phase: 0,
            gathering: Default::default(),
            complete: Default::default(),
            draining: Clock::default(),
            drained: Clock::default(),
            actor,
            landed: 0,
            in_flight: 0,
            last_copy: (0, 0, 0),
            init,
            init_site,
            init_by,
            is_fenced: false,
            sleepers: Vec::new(),
        }
    }

    /// Ends the phase if it is complete; answers who is to be woken.
    fn settle(&mut self) -> Vec<usize> {
        if self.pending != 0 || self.tx != 0 {
            return Vec::new();
        }
        self.phase += 1;
        self.pending = self.expected;
        for (complete, gathering) in self.complete.iter_mut().zip(&self.gathering) {
            complete.join(gathering);
        }
        self.drained.join(&self.draining);
        self.complete[0].set(self.actor, self.landed);
        std::mem::take(&mut self.sleepers)
    }

    /// One arrival more; an objection where the phase expects none.
    pub(super) fn arrive_once(&mut self) -> Option<String> {
        self.pending -= 1;
        (self.pending < 0).then(|| format!("the phase expects {} arrivals and gets one too many", self.expected))
    }

    /// Whoever sees the phase end knows that this has come to pass: a copy has read its source, or a `cp.async` is
    /// complete.
    pub(super) fn has_happened(&mut self, read: Epoch) {
        let gathering = &mut self.gathering[0];
        let known = gathering.get(read.actor());
        gathering.set(read.actor(), known.max(read.count()));
    }

    /// What whoever sees the phase end learns, with a scope that reaches beyond the CTA or not.
    fn learnt(&self, wide: bool) -> &[Clock] {
        &self.complete[..1 + usize::from(wide)]
    }

    /// The state that an arrival returns: phase above, expected and pending arrivals below.
    fn state(&self) -> u64 {
        self.phase << 40 | (self.expected as u64 & 0xf_ffff) << 20 | self.pending as u64 & 0xf_ffff
    }
}

impl Cluster<'_> {
    pub(super) fn mbarrier(
        &mut self,
        w: usize,
        instruction: &Instruction,
        exec: Mask,
        site: u32,
    ) -> Result<Next, Box<Trouble>> {
        let address = instruction.address;
        match instruction.kind {
            MbarrierKind::PendingCount { d, state } => {
                let counts = self.warps[w].read(self.env.constants, state).map(|s| s & 0xf_ffff);
                self.warps[w].write(d, exec, &counts);
                return Ok(Next::Advance);
            }
            MbarrierKind::Wait { .. } => return self.mbarrier_wait(w, instruction, exec, site),
            _ => {}
        }
        let addresses = self.addresses(w, address);
        for lane in lanes(exec) {
            let operand = |reg: u32| self.warps[w].read(self.env.constants, reg)[lane];
            match instruction.kind {
                MbarrierKind::Init { count } => {
                    let count = operand(count) as u32 as i64;
                    self.mbarrier_init(w, address.space, addresses[lane], count, lane, site)?;
                }
                MbarrierKind::Invalidate => {
                    let (rank, at) = self.object(w, address.space, addresses[lane], lane, site, false)?;
                    let flying = self.ctas[rank]
                        .mbarriers
                        .remove(&at)
                        .map_or(0, |object| object.in_flight);
                    if flying > 0 {
                        let detail = format!("{flying} copies that report to this mbarrier are still under way");
                        return Err(trouble(FaultKind::AsyncCopy, lane, detail));
                    }
                    self.ctas[rank].shadow.set_barrier(at as usize, false);
                }
                MbarrierKind::Arrive {
                    state,
                    count,
                    expect,
                    drop,
                    no_complete,
                    release,
                    wide,
                } => {
                    let count = count.map_or(1, |reg| operand(reg) as u32 as i64);
                    let expect = expect.map(|reg| operand(reg) as u32 as i64);
                    let (rank, at) = self.object(w, address.space, addresses[lane], lane, site, release)?;
                    let clock = if release {
                        Some(self.release(w))
                    } else {
                        self.warps[w].fence.clone()
                    };
                    self.progress = true;
                    let remote = rank != self.warps[w].cta;
                    let Some(object) = self.ctas[rank].mbarriers.get_mut(&at) else {
                        continue;
                    };
                    if let Some(bytes) = expect {
                        object.tx += bytes;
                    }
                    let before = object.state();
                    if let Some(clock) = clock.as_ref().filter(|_| release && remote) {
                        object.draining.join(clock);
                    }
                    // An arrival with the scope of its CTA tells nobody of another.
                    if let Some(clock) = clock.filter(|_| wide || !remote) {
                        object.gathering[usize::from(remote)].join(&clock);
                    }
                    object.pending -= count;
                    if drop {
                        object.expected -= count;
                    }
                    let completes = object.pending == 0 && object.tx == 0;
                    let complaint = if !(1..=LIMIT).contains(&count) {
                        Some(format!("it arrives {count} times at once; 1 to {LIMIT} are allowed"))
                    } else if object.pending < 0 {
                        Some(format!(
                            "the phase expects {} arrivals and gets {} too many",
                            object.expected, -object.pending
                        ))
                    } else if object.tx.abs() > LIMIT {
                        Some(format!("{} bytes expected; a phase can count {LIMIT}", object.tx))
                    } else if no_complete && completes {
                        Some("`.noComplete` was promised, but the arrival completes the phase".into())
                    } else {
                        None
                    };
                    if let Some(detail) = complaint {
                        return Err(trouble(FaultKind::Mbarrier, lane, detail));
                    }
                    if let Some(state) = state {
                        self.warps[w].registers[state as usize][lane] = before;
                    }
                    self.settle(rank, at);
                }
                MbarrierKind::ExpectTx(bytes) => {
                    let bytes = operand(bytes) as u32 as i64;
                    let (rank, at) = self.object(w, address.space, addresses[lane], lane, site, false)?;
                    self.expect_tx(rank, at, bytes, lane)?;
                }
                MbarrierKind::CompleteTx(bytes) => {
                    let bytes = operand(bytes) as u32 as i64;
                    let (rank, at) = self.object(w, address.space, addresses[lane], lane, site, false)?;
                    self.take_tx(rank, at, bytes);
                }
                MbarrierKind::PendingCount { .. } | MbarrierKind::Wait { .. } => {}
            }
        }
        Ok(Next::Advance)
    }

    fn mbarrier_init(
        &mut self,
        w: usize,
        space: Space,
        address: u64,
        count: i64,
        lane: usize,
        site: u32,
    ) -> Result<(), Box<Trouble>> {
        let (rank, at) = self.object_place(w, space, address, lane)?;
        let at = at as u32;
        if rank != self.warps[w].cta {
            let detail = "an mbarrier can only be initialised in the CTA's own shared memory".into();
            return Err(trouble(FaultKind::Mbarrier, lane, detail));
        }
        if !(1..=LIMIT).contains(&count) {
            let detail = format!("an mbarrier is told to expect {count} arrivals; 1 to {LIMIT} are allowed");
            return Err(trouble(FaultKind::Mbarrier, lane, detail));
        }
        if let Some(old) = self.ctas[rank].mbarriers.get(&at) {
            let old = self.name_site(old.init_site);
            let detail = format!("an mbarrier lives here already, initialised at {old}; invalidate it first");
            return Err(trouble(FaultKind::Mbarrier, lane, detail));
        }
        let epoch = self.now(w, false);
        if let Err((byte, objection)) = self.touch(w, false, (rank, at as usize, BYTES as usize), Touch::Write, site) {
            return Err(self.objection(rank, byte, Touch::Write, lane, objection));
        }
        self.ctas[rank].shadow.set_barrier(at as usize, true);
        let actor = self.copier(self.mbarriers_made);
        let init_by = (lane, self.warps[w].interval.number);
        self.mbarriers_made += 1;
        self.ctas[rank]
            .mbarriers
            .insert(at, Mbarrier::new(count, actor, epoch, site, init_by));
        self.progress = true;
        Ok(())
    }

    /// Where an object's address points; it need not hold one.
    fn object_place(&self, w: usize, space: Space, address: u64, lane: usize) -> Result<(usize, usize), Box<Trouble>> {
        let (space, address) = match space {
            Space::Generic => (Space::Cluster, address.wrapping_sub(crate::program::SHARED_WINDOW)),
            other => (other, address),
        };
        if address % BYTES != 0 {
            let detail = format!("mbarrier address {address:#x} is not a multiple of {BYTES}");
            return Err(trouble(FaultKind::Misaligned, lane, detail));
        }
        let (rank, at) = self.spot(w, space, address, BYTES, lane)?;
        Ok((rank as usize, at as usize))
    }

    /// The live object at an address, whose initialisation the warp must know of. `noted` accesses to another CTA's
    /// must come before that CTA's exit; for the others the phase that they end does.
    pub(super) fn object(
        &mut self,
        w: usize,
        space: Space,
        address: u64,
        lane: usize,
        site: u32,
        noted: bool,
    ) -> Result<(usize, u32), Box<Trouble>> {
        let (rank, at) = self.object_place(w, space, address, lane)?;
        let at = at as u32;
        let own = self.warps[w].cta;
        if rank != own {
            self.check_remote(w, rank, lane)?;
        }
        if noted {
            self.note_remote(w, rank, site);
        }
        let Some(object) = self.ctas[rank].mbarriers.get(&at) else {
            let detail = format!("no mbarrier has been initialised at {address:#x}");
            return Err(trouble(FaultKind::Mbarrier, lane, detail));
        };
        let warp = &self.warps[w];
        if object.init.actor() != Self::actor(w) && !warp.clock.knows(object.init) && !warp.inits.knows(object.init) {
            let detail = format!(
                "the mbarrier at {address:#x} was initialised at {} with nothing that orders this use after it",
                self.name_site(object.init_site)
            );
            return Err(trouble(FaultKind::SharedRace, lane, detail));
        }
        self.check_init_lane(w, object, 1 << lane)?;
        Ok((rank, at))
    }

    /// Whether lanes of a warp come after the lane of it that has initialised an object.
    fn check_init_lane(&self, w: usize, object: &Mbarrier, mask: Mask) -> Result<(), Box<Trouble>> {
        let (init_lane, interval) = object.init_by;
        let others = mask & !(1 << init_lane);
        if others == 0 || object.init.actor() != Self::actor(w) || interval != self.warps[w].interval.number {
            return Ok(());
        }
        let detail = format!(
            "uses the mbarrier that lane {init_lane} of the same warp initialised at {}: a `bar.warp.sync` must stand \
             between the two",
            self.name_site(object.init_site)
        );
        Err(trouble(FaultKind::LaneRace, others.trailing_zeros() as usize, detail))
    }

    /// Makes the mbarriers that a warp has initialised visible to copies.
    pub(super) fn fence_inits(&mut self, w: usize) {
        let actor = Self::actor(w);
        let objects = self.ctas[self.warps[w].cta].mbarriers.values_mut();
        objects
            .filter(|object| object.init.actor() == actor)
            .for_each(|object| object.is_fenced = true);
    }

    /// Whether a copy may report to an object.
    pub(super) fn check_fenced(&self, rank: usize, at: u32, lane: usize) -> Result<(), Box<Trouble>> {
        match self.ctas[rank].mbarriers.get(&at) {
            Some(object) if !object.is_fenced => {
                let detail = format!(
                    "a copy reports to the mbarrier that was initialised at {}, which copies may not see: \
                     `fence.mbarrier_init.release.cluster` or `fence.proxy.async` must come between the two",
                    self.name_site(object.init_site)
                );
                Err(trouble(FaultKind::Mbarrier, lane, detail))
            }
            _ => Ok(()),
        }
    }

    /// Adds to the bytes that a phase expects.
    fn expect_tx(&mut self, rank: usize, at: u32, bytes: i64, lane: usize) -> Result<(), Box<Trouble>> {
        if let Some(object) = self.ctas[rank].mbarriers.get_mut(&at) {
            object.tx += bytes;
            if object.tx.abs() > LIMIT {
                let detail = format!("a phase's byte count reaches {}; it can count {LIMIT}", object.tx);
                return Err(trouble(FaultKind::Mbarrier, lane, detail));
            }
        }
        self.settle(rank, at);
        Ok(())
    }

    /// Takes bytes that have come from those that the phase expects.
    pub(super) fn take_tx(&mut self, rank: usize, at: u32, bytes: i64) {
        if let Some(object) = self.ctas[rank].mbarriers.get_mut(&at) {
            object.tx -= bytes;
        }
        self.settle(rank, at);
    }

    /// Ends an object's phase if it is complete, and wakes who waits for that.
    pub(super) fn settle(&mut self, rank: usize, at: u32) {
        let Some(object) = self.ctas[rank].mbarriers.get_mut(&at) else {
            return;
        };
        let phase = object.phase;
        let sleepers = object.settle();
        self.progress |= object.phase != phase;
        for w in sleepers {
            self.rouse(w);
        }
    }

    fn mbarrier_wait(
        &mut self,
        w: usize,
        instruction: &Instruction,
        exec: Mask,
        site: u32,
    ) -> Result<Next, Box<Trouble>> {
        let MbarrierKind::Wait {
            p,
            phase,
            parity,
            may_sleep,
            acquire,
            wide,
        } = instruction.kind
        else {
            return Ok(Next::Advance);
        };
        let addresses = self.addresses(w, instruction.address);
        let phases = *self.warps[w].read(self.env.constants, phase);
        let mut complete = 0;
        let mut places = [(0, 0); WARP];
        let mut last = None;
        for lane in lanes(exec) {
            // All lanes mostly ask the same.
            if let Some((like, holds)) = last
                && addresses[like] == addresses[lane]
                && phases[like] == phases[lane]
            {
                places[lane] = places[like];
                complete |= u32::from(holds) << lane;
                continue;
            }
            places[lane] = self.object(w, instruction.address.space, addresses[lane], lane, site, false)?;
            let (rank, at) = places[lane];
            if rank != self.warps[w].cta {
                let detail = "an mbarrier can only be waited on by its own CTA".into();
                return Err(trouble(FaultKind::Mbarrier, lane, detail));
            }
            let Some(object) = self.ctas[rank].mbarriers.get(&at) else {
                continue;
            };
            self.check_init_lane(w, object, exec)?;
            let holds = if parity {
                object.phase & 1 != phases[lane] & 1
            } else {
                object.phase & 0xff_ffff != phases[lane] >> 40
            };
            if holds {
                complete |= 1 << lane;
                let warp = &mut self.warps[w];
                let clock = if acquire {
                    &mut warp.clock
                } else {
                    warp.met.get_or_insert_with(Clock::default)
                };
                object.learnt(wide).iter().for_each(|known| clock.join(known));
                if acquire {
                    warp.drained.join(&object.drained);
                }
            }
            last = Some((lane, holds));
        }
        let warp = &mut self.warps[w];
        if complete == 0 {
            warp.polled();
            let group = warp.group_mut();
            if may_sleep && !group.timed_out && group.mask == exec {
                group.wait = Wait::Sleep;
                for lane in lanes(exec) {
                    let (rank, at) = places[lane];
                    if let Some(object) = self.ctas[rank].mbarriers.get_mut(&at)
                        && object.sleepers.last() != Some(&w)
                    {
                        object.sleepers.push(w);
                    }
                }
                return Ok(Next::Stay);
            }
            group.timed_out = false;
        }
        warp.set_pred(p, exec, complete);
        if complete != 0 && acquire {
            self.order_lanes(w);
        }
        Ok(if complete == 0 { Next::Yield } else { Next::Advance })
    }
}
