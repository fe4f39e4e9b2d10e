//! Bulk copies: issued by a lane, landing when the scheduler says so.

use super::clock::Epoch;
use super::cluster::{Cluster, Next};
use super::global::Place;
use super::mbarrier::BYTES as BARRIER_BYTES;
use super::report::{Trouble, trouble};
use super::shadow::Touch;
use super::tensor::Tile;
use super::warp::{LaneGroups, Wait, lanes};
use crate::error::FaultKind;
use crate::program::{Bulk, Lanes, Mask, Order, Space, StoreAsync, WARP};

/// What a bulk copy's addresses and size are multiples of.
const GRAIN: u64 = 16;

/// A copy under way.
pub(super) struct Flight {
    number: u64,
    pub(super) issuer: usize,
    lane: usize,
    pub(super) site: u32,
    bytes: usize,
    from: Source,
    to: Target,
}

#[derive(Clone)]
pub(super) enum Source {
    Global(Place),
    Tensor(Tile),
    Shared {
        rank: usize,
        at: usize,
        read: Epoch,
    },
    /// What a store has taken from registers.
    Values(Vec<u8>),
}

pub(super) enum Target {
    Global(Place),
    Tensor(Tile),
    /// The same offset in each of these CTAs, with an mbarrier at the same offset in each.
    Shared {
        ranks: Vec<usize>,
        at: usize,
        barrier: u32,
    },
}

impl Source {
    /// Where it starts in shared memory, if it does.
    pub(super) fn shared_at(&self) -> u64 {
        match self {
            Source::Shared { at, .. } => *at as u64,
            Source::Global(_) | Source::Tensor(_) | Source::Values(_) => 0,
        }
    }
}

impl Target {
    /// Where it starts in shared memory, if it does.
    pub(super) fn shared_at(&self) -> u64 {
        match self {
            Target::Shared { at, .. } => *at as u64,
            Target::Global(_) | Target::Tensor(_) => 0,
        }
    }
}

impl Flight {
    /// Whether it will write this byte of a CTA's shared memory.
    pub(super) fn writes(&self, rank: usize, byte: usize) -> bool {
        match &self.to {
            Target::Shared { ranks, at, .. } => ranks.contains(&rank) && (*at..at + self.bytes).contains(&byte),
            Target::Global(_) | Target::Tensor(_) => false,
        }
    }

    /// Whether it will write into this CTA's shared memory.
    pub(super) fn targets(&self, rank: usize) -> bool {
        matches!(&self.to, Target::Shared { ranks, .. } if ranks.contains(&rank))
    }
}

pub(super) fn misaligned(lane: usize, does: &str, address: u64, bytes: u64) -> Box<Trouble> {
    let detail = format!("{does} {bytes} bytes at {address:#x}: both must be multiples of {GRAIN}");
    trouble(FaultKind::Misaligned, lane, detail)
}

impl Cluster<'_> {
    pub(super) fn bulk(&mut self, w: usize, bulk: &Bulk, exec: Mask, site: u32) -> Result<(), Box<Trouble>> {
        let (to, from) = (self.addresses(w, bulk.to), self.addresses(w, bulk.from));
        let sizes = *self.warps[w].read(self.env.constants, bulk.size);
        let barriers = bulk.barrier.map(|address| (address.space, self.addresses(w, address)));
        let multicast = bulk.multicast.map(|reg| *self.warps[w].read(self.env.constants, reg));
        for lane in lanes(exec) {
            let bytes = u64::from(sizes[lane] as u32);
            for (does, address) in [("writes", to[lane]), ("reads", from[lane])] {
                if address % GRAIN != 0 || bytes % GRAIN != 0 {
                    return Err(misaligned(lane, does, address, bytes));
                }
            }
            if bytes == 0 {
                continue;
            }
            let barrier = barriers.as_ref().map(|(space, addresses)| (*space, addresses[lane]));
            let target = match barrier {
                Some(barrier) => {
                    let ranks = multicast.as_ref().map(|masks| masks[lane]);
                    self.shared_target(w, lane, (bulk.to.space, to[lane]), bytes, barrier, ranks, site)?
                }
                None => match self.view.find(to[lane], bytes) {
                    Some(place) => {
                        self.check_copy(w, lane, place, bytes, true)?;
                        Target::Global(place)
                    }
                    None => return Err(self.outside_global(lane, to[lane], bytes)),
                },
            };
            let source = match bulk.from.space {
                Space::Global | Space::Generic => match self.view.find(from[lane], bytes) {
                    Some(place) => {
                        self.check_copy(w, lane, place, bytes, false)?;
                        Source::Global(place)
                    }
                    None => return Err(self.outside_global(lane, from[lane], bytes)),
                },
                space => self.shared_source(w, lane, (space, from[lane]), bytes, site)?,
            };
            self.launch_flight(w, lane, site, bytes as usize, source, target);
        }
        Ok(())
    }

    /// `st.async`: lands in its own time, as copies do.
    pub(super) fn store_async(
        &mut self,
        w: usize,
        store: &StoreAsync,
        exec: Mask,
        site: u32,
    ) -> Result<(), Box<Trouble>> {
        let (to, barriers) = (self.addresses(w, store.to), self.addresses(w, store.barrier));
        let bytes = u64::from(store.bytes) * store.values.len() as u64;
        super::access::check_aligned(&to, exec, bytes)?;
        let values: Vec<_> = (store.values.iter())
            .map(|&reg| *self.warps[w].read(self.env.constants, reg))
            .collect();
        for lane in lanes(exec) {
            let barrier = (store.barrier.space, barriers[lane]);
            let target = self.shared_target(w, lane, (store.to.space, to[lane]), bytes, barrier, None, site)?;
            let of_lane = |value: &Lanes| value[lane].to_le_bytes().into_iter().take(store.bytes as usize);
            let source = Source::Values(values.iter().flat_map(of_lane).collect());
            self.launch_flight(w, lane, site, bytes as usize, source, target);
        }
        Ok(())
    }

    /// Whether a copy that a warp issues may read or write these bytes of global memory; if so, enters what it reads.
    pub(super) fn check_copy(
        &self,
        w: usize,
        lane: usize,
        place: Place,
        bytes: u64,
        writes: bool,
    ) -> Result<(), Box<Trouble>> {
        let (early, does) = if writes {
            (FaultKind::EarlyDependentWrite, "copies to")
        } else {
            (FaultKind::EarlyDependentRead, "copies from")
        };
        self.check_early(w, lane, place, bytes, early)?;
        self.check_race(w, lane, place, bytes, (does, Order::default()))?;
        if !writes {
            self.view.allocation(place).note_reader(place.at, bytes, self.env.id);
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn shared_target(
        &mut self,
        w: usize,
        lane: usize,
        (space, address): (Space, u64),
        bytes: u64,
        (barrier_space, barrier): (Space, u64),
        ranks: Option<u64>,
        site: u32,
    ) -> Result<Target, Box<Trouble>> {
        let (rank, at) = self.spot(w, space, address, bytes, lane)?;
        let (barrier_rank, barrier_at) = self.spot(w, barrier_space, barrier, BARRIER_BYTES, lane)?;
        let ranks = match ranks {
            None if rank != barrier_rank => {
                let detail =
                    format!("the copy goes to the CTA of rank {rank}, its mbarrier is in that of rank {barrier_rank}");
                return Err(trouble(FaultKind::BadInstruction, lane, detail));
            }
            None => vec![rank as usize],
            Some(mask) => (0..16).filter(|r| mask >> r & 1 != 0).collect(),
        };
        // First whether the objects are there for this warp, then whether copies see them.
        for &rank in &ranks {
            self.check_remote(w, rank, lane)?;
            let base = u64::from(crate::program::CLUSTER_STRIDE) * (rank as u64 + 1);
            let object_at = base + u64::from(crate::program::SHARED_BASE) + u64::from(barrier_at);
            self.object(w, Space::Cluster, object_at, lane, site, false)?;
        }
        for &rank in &ranks {
            self.check_fenced(rank, barrier_at, lane)?;
            let touched = self.touch(w, false, (rank, at as usize, bytes as usize), Touch::CopyWrite, site);
            if let Err((byte, objection)) = touched {
                let mut trouble = self.objection(rank, byte, Touch::CopyWrite, lane, objection);
                if trouble.kind == FaultKind::SharedRace {
                    trouble.kind = FaultKind::AsyncCopy;
                }
                return Err(trouble);
            }
            self.copied_by_lane(w, lane, (rank, at as usize, bytes as usize), true, site)?;
            if let Some(object) = self.ctas[rank].mbarriers.get_mut(&barrier_at) {
                object.in_flight += 1;
            }
        }
        Ok(Target::Shared {
            ranks,
            at: at as usize,
            barrier: barrier_at,
        })
    }

    pub(super) fn shared_source(
        &mut self,
        w: usize,
        lane: usize,
        (space, address): (Space, u64),
        bytes: u64,
        site: u32,
    ) -> Result<Source, Box<Trouble>> {
        let (rank, at) = self.spot(w, space, address, bytes, lane)?;
        let (rank, at) = (rank as usize, at as usize);
        self.warps[w].copies_read += 1;
        let read = Epoch::new(self.reader(w), self.warps[w].copies_read, false);
        let touch = Touch::AsyncRead(read);
        if let Err((byte, objection)) = self.touch(w, false, (rank, at, bytes as usize), touch, site) {
            return Err(self.objection(rank, byte, touch, lane, objection));
        }
        self.copied_by_lane(w, lane, (rank, at, bytes as usize), false, site)?;
        Ok(Source::Shared { rank, at, read })
    }

    pub(super) fn launch_flight(&mut self, w: usize, lane: usize, site: u32, bytes: usize, from: Source, to: Target) {
        let number = self.next_flight;
        self.next_flight += 1;
        if let (Target::Global(_) | Target::Tensor(_), Source::Shared { read, .. }) = (&to, &from) {
            let warp = &mut self.warps[w];
            if warp.bulk.is_empty() {
                warp.bulk = vec![LaneGroups::default(); WARP];
            }
            warp.bulk[lane].open.push((number, read.count(), site));
        }
        if let Source::Global(place) = from {
            let sectors = (place.at + bytes as u64).div_ceil(32) - place.at / 32;
            self.view.add(place.allocation, bytes as u64, sectors, false);
        }
        let flight = |from, to| Flight {
            number,
            issuer: w,
            lane,
            site,
            bytes,
            from,
            to,
        };
        match to {
            // It comes to each CTA in its own time.
            Target::Shared { ranks, at, barrier } if ranks.len() > 1 => {
                let to_each = ranks.iter().map(|&rank| Target::Shared {
                    ranks: vec![rank],
                    at,
                    barrier,
                });
                self.flights.extend(to_each.map(|to| flight(from.clone(), to)));
            }
            _ => self.flights.push(flight(from, to)),
        }
    }

    /// Lands a copy.
    pub(super) fn land(&mut self, index: usize) {
        let flight = self.flights.swap_remove(index);
        self.progress = true;
        let mut bytes = std::mem::take(&mut self.landing);
        bytes.resize(flight.bytes, 0);
        match &flight.from {
            Source::Global(place) => self.view.allocation(*place).read(place.at, &mut bytes),
            Source::Tensor(tile) => tile.read(&self.view, &mut bytes),
            &Source::Shared { rank, at, .. } => bytes.copy_from_slice(&self.ctas[rank].shared[at..at + flight.bytes]),
            Source::Values(values) => bytes.copy_from_slice(values),
        }
        let moment = match (&flight.from, &flight.to) {
            (&Source::Shared { read, .. }, Target::Global(_) | Target::Tensor(_)) => {
                self.moment_of(read, false, flight.site)
            }
            _ => 0,
        };
        match &flight.to {
            Target::Global(place) => {
                self.view
                    .allocation(*place)
                    .write(place.at, &bytes, self.env.id, moment);
                let sectors = (place.at + bytes.len() as u64).div_ceil(32) - place.at / 32;
                self.view.add(place.allocation, bytes.len() as u64, sectors, true);
                self.rouse(flight.issuer);
            }
            Target::Tensor(tile) => {
                tile.write(&mut self.view, &mut bytes, (self.env.id, moment));
                self.rouse(flight.issuer);
            }
            Target::Shared { ranks, at, barrier } => {
                for &rank in ranks {
                    let cta = &mut self.ctas[rank];
                    cta.shared[*at..at + flight.bytes].copy_from_slice(&bytes);
                    if let Some(object) = cta.mbarriers.get_mut(barrier) {
                        object.landed += 1;
                        object.in_flight -= 1;
                        object.last_copy = (flight.issuer, flight.lane, flight.site);
                        let epoch = Epoch::new(object.actor, object.landed, false);
                        if let Source::Shared { read, .. } = flight.from {
                            object.has_happened(read);
                        }
                        cta.shadow.land(*at, flight.bytes, epoch, flight.site);
                    }
                    self.take_tx(rank, *barrier, flight.bytes as i64);
                }
            }
        }
        self.landing = bytes;
    }

    pub(super) fn bulk_commit(&mut self, w: usize, exec: Mask) {
        let warp = &mut self.warps[w];
        if warp.bulk.is_empty() {
            return;
        }
        for lane in lanes(exec) {
            let groups = &mut warp.bulk[lane];
            let group = std::mem::take(&mut groups.open);
            groups.committed.push(group);
        }
    }

    pub(super) fn bulk_wait(&mut self, w: usize, exec: Mask, left: u32) -> Next {
        let under_way = |number: u64| self.flights.iter().any(|f| f.number == number);
        let reader = self.reader(w);
        let warp = &self.warps[w];
        if warp.bulk.is_empty() {
            return Next::Advance;
        }
        let due = |lane: usize| {
            let groups = &warp.bulk[lane].committed;
            &groups[..groups.len().saturating_sub(left as usize)]
        };
        if lanes(exec).any(|lane| due(lane).iter().flatten().any(|&(number, ..)| under_way(number))) {
            self.warps[w].group_mut().wait = Wait::Sleep;
            return Next::Stay;
        }
        let read = lanes(exec).flat_map(due).flatten().map(|&(_, read, _)| read).max();
        let counts: Vec<usize> = (0..WARP).map(|lane| due(lane).len()).collect();
        let warp = &mut self.warps[w];
        for lane in lanes(exec) {
            warp.bulk[lane].committed.drain(..counts[lane]);
        }
        if let Some(read) = read {
            let read = read.max(warp.clock.get(reader));
            warp.clock.set(reader, read);
        }
        Next::Advance
    }

    /// A copy out of a CTA's shared memory that its lane has not waited for: warp, lane and site.
    pub(super) fn unwaited(&self, rank: usize) -> Option<(usize, usize, u32)> {
        (self.warps.iter().enumerate())
            .filter(|(_, warp)| warp.cta == rank)
            .flat_map(|(w, warp)| {
                warp.bulk
                    .iter()
                    .enumerate()
                    .map(move |(lane, groups)| (w, lane, groups))
            })
            .find_map(|(w, lane, groups)| {
                let mut copies = groups.open.iter().chain(groups.committed.iter().flatten());
                copies.next().map(|&(.., site)| (w, lane, site))
            })
    }
}
