//! Who knows of whom: fences, strong accesses, and the order that they make between warps.

use std::sync::Arc;
use std::sync::atomic::{self, Ordering::SeqCst};

use super::clock::{Abroad, Clock, Epoch, FIRST_WARP, STARTED, WAITED};

use super::cluster::Cluster;
use super::report::{Trouble, trouble};
use crate::error::FaultKind;
use crate::program::{Fence, Order, WARPGROUP};

/// Who acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actor {
    /// A warp.
    Warp(usize),
    /// A warp's bulk copies out of shared memory.
    Reader(usize),
    /// A warp's `cp.async`.
    Writer(usize),
    /// A warpgroup's matrix products.
    Multiplier,
    /// Copies that report to an mbarrier.
    Copier,
}

impl Cluster<'_> {
    /// The actor that a warp is.
    #[inline]
    pub(super) fn actor(w: usize) -> usize {
        FIRST_WARP + w
    }

    /// The actor that a warp's bulk copies out of shared memory are.
    pub(super) fn reader(&self, w: usize) -> usize {
        FIRST_WARP + self.warps.len() + w
    }

    /// The actor that a warp's `cp.async` are.
    pub(super) fn writer(&self, w: usize) -> usize {
        FIRST_WARP + 2 * self.warps.len() + w
    }

    /// The actor that the matrix products of a warp's warpgroup are.
    pub(super) fn multiplier(&self, w: usize) -> usize {
        let warp = &self.warps[w];
        FIRST_WARP + 3 * self.warps.len() + warp.cta * self.warpgroups + warp.index as usize / WARPGROUP
    }

    /// The actor that the copies of the `n`-th mbarrier are.
    pub(super) fn copier(&self, n: usize) -> usize {
        FIRST_WARP + 3 * self.warps.len() + self.ctas.len() * self.warpgroups + n
    }

    /// Who an actor is.
    pub(super) fn who(&self, actor: usize) -> Actor {
        let n = self.warps.len();
        match actor - FIRST_WARP {
            w if w < n => Actor::Warp(w),
            r if r < 2 * n => Actor::Reader(r - n),
            c if c < 3 * n => Actor::Writer(c - 2 * n),
            _ if actor < self.copier(0) => Actor::Multiplier,
            _ => Actor::Copier,
        }
    }

    /// The present moment of a warp.
    #[inline]
    pub(super) fn now(&self, w: usize, strong: bool) -> Epoch {
        let actor = Self::actor(w);
        Epoch::new(actor, self.warps[w].clock.get(actor), strong)
    }

    /// Begins a new moment: what the warp does from now on is not part of what it has published.
    pub(super) fn tick(&mut self, w: usize) {
        let actor = Self::actor(w);
        let clock = &mut self.warps[w].clock;
        let next = clock.get(actor) + 1;
        clock.set(actor, next);
    }

    /// All that a warp knows, as it publishes it.
    pub(super) fn release(&mut self, w: usize) -> Clock {
        let clock = self.warps[w].clock.clone();
        self.tick(w);
        clock
    }

    pub(super) fn fence(&mut self, w: usize, fence: Fence) {
        match fence {
            Fence::Memory { wide } => {
                // Clusters on other cores are ordered by the host's own fences.
                atomic::fence(SeqCst);
                let warp = &mut self.warps[w];
                if let Some(met) = warp.met.take() {
                    warp.clock.join(&met);
                }
                self.order_lanes(w);
                let clock = self.release(w);
                self.warps[w].fence_abroad = wide.then(|| self.export(&clock));
                self.warps[w].fence = Some(clock);
            }
            Fence::MbarrierInit => {
                let clock = self.release(w);
                self.warps[w].init_fence = Some(clock);
                self.fence_inits(w);
            }
            Fence::Proxy => {
                self.warps[w].clock.fence_proxy();
                self.fence_inits(w);
                self.tick(w);
            }
        }
    }

    /// A strong store or atomic at a place: publishes there what its order says.
    pub(super) fn publish(&mut self, w: usize, place: u64, order: Order, atomic: bool) {
        if !order.strong {
            return;
        }
        let (clock, abroad) = if order.release {
            atomic::fence(SeqCst);
            let clock = self.release(w);
            let abroad = order.wide.then(|| self.export(&clock));
            (Some(clock), abroad)
        } else {
            let warp = &self.warps[w];
            (warp.fence.clone(), warp.fence_abroad.clone().filter(|_| order.wide))
        };
        if let Some(abroad) = abroad.filter(|_| place < crate::memory::END) {
            self.env.state.books.publish(place, &abroad);
        }
        // An atomic continues what the stores before it published; a store ends it.
        match (clock, atomic) {
            (Some(clock), true) => self.published.entry(place).or_default().join(&clock),
            (Some(clock), false) => {
                self.published.insert(place, clock);
            }
            (None, true) => {}
            (None, false) => {
                self.published.remove(&place);
            }
        }
    }

    /// A strong load or atomic at a place: learns what was published there.
    pub(super) fn learn(&mut self, w: usize, place: u64, order: Order) {
        if order.acquire {
            atomic::fence(SeqCst);
        }
        if !order.strong {
            return;
        }
        let here = self.published.get(&place);
        let abroad = (order.wide && place < crate::memory::END)
            .then(|| self.env.state.books.published(place))
            .flatten();
        if here.is_none() && abroad.is_none() {
            return;
        }
        let warp = &mut self.warps[w];
        let clock = if order.acquire {
            &mut warp.clock
        } else {
            warp.met.get_or_insert_with(Clock::default)
        };
        if let Some(here) = here {
            clock.join(here);
        }
        if let Some(abroad) = abroad {
            clock.import(self.index, &abroad);
        }
        if order.acquire {
            self.order_lanes(w);
        }
    }

    /// A warp's lanes are ordered: what one did before, others come after.
    pub(super) fn order_lanes(&mut self, w: usize) {
        // Some 2^32 later, an old entry may be taken for a new one's.
        self.intervals = self.intervals.wrapping_add(1);
        self.warps[w].interval.restart(self.intervals);
    }

    /// What a warp knows, in terms that other clusters understand.
    fn export(&self, clock: &Clock) -> Arc<Abroad> {
        clock.export(self.index, self.multiplier(0))
    }

    /// Whether a warp may touch the shared memory of the CTA of that rank.
    pub(super) fn check_remote(&self, w: usize, rank: usize, lane: usize) -> Result<(), Box<Trouble>> {
        let own = self.warps[w].cta;
        if rank == own {
            return Ok(());
        }
        if rank >= self.ctas.len() {
            let detail = format!(
                "the cluster has no CTA of rank {rank}, its ranks are 0 to {}",
                self.ctas.len() - 1
            );
            return Err(trouble(FaultKind::OutOfBounds, lane, detail));
        }
        if self.warps[w].clock.get(STARTED) == 0 {
            let detail = format!(
                "the CTA of rank {rank} may not have started: arrive and wait at a cluster barrier before the first access"
            );
            return Err(trouble(FaultKind::RemoteBeforeStart, lane, detail));
        }
        if self.ctas[rank].exited() {
            let detail = format!(
                "the CTA of rank {rank} has exited: it must wait at a cluster barrier for the last access to its memory"
            );
            return Err(trouble(FaultKind::RemoteAfterExit, lane, detail));
        }
        Ok(())
    }

    /// Notes that a warp touched another CTA's shared memory, which that CTA must know of before it exits.
    pub(super) fn note_remote(&mut self, w: usize, rank: usize, site: u32) {
        if rank != self.warps[w].cta {
            let time = self.warps[w].clock.get(Self::actor(w));
            self.ctas[rank].touched.insert(w, (time, site));
        }
    }

    /// Whether a warp may read or write these bytes of global memory, or an unfinished launch has written them; or,
    /// where it writes, read them.
    pub(super) fn check_early(
        &self,
        w: usize,
        lane: usize,
        place: super::global::Place,
        bytes: u64,
        kind: FaultKind,
    ) -> Result<(), Box<Trouble>> {
        let waited = self.warps[w].clock.get(WAITED) != 0;
        let unfinished = self.env.early.unfinished(waited);
        if unfinished.is_empty() {
            return Ok(());
        }
        let allocation = self.view.allocation(place);
        let mut writers = allocation.writers(place.at, bytes).map(|writer| writer.launch);
        let writer = writers.find(|launch| unfinished.contains(launch));
        let reader = || match kind {
            FaultKind::EarlyDependentWrite => allocation.reader_among(place.at, bytes, unfinished),
            _ => None,
        };
        let found = writer.map(|writer| (writer, "wrote"));
        let Some((launch, did)) = found.or_else(|| reader().map(|reader| (reader, "read"))) else {
            return Ok(());
        };
        let address = allocation.base + place.at;
        let detail = if waited {
            format!(
                "launch {launch} {did} the {bytes} bytes at {address:#x} and may not have finished: a launch between it and \
                 this one never executed `griddepcontrol.wait`"
            )
        } else {
            format!(
                "launch {launch}, which this one may overlap, {did} the {bytes} bytes at {address:#x}: execute \
                 `griddepcontrol.wait` first"
            )
        };
        Err(trouble(kind, lane, detail))
    }
}
