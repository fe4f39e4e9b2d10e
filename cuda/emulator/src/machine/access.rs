//! Loads, stores and atomics: from an instruction to the memory it means.

use super::cluster::Cluster;
use super::global::Place;
use super::report::{Trouble, trouble};
use super::shadow::Touch;
use super::warp::lanes;
use crate::error::FaultKind;
use crate::program::{
    Access, Address, Atomic, CLUSTER_STRIDE, LOCAL_WINDOW, Lanes, Mask, PARAM_WINDOW, Prefetch, SHARED_BASE,
    SHARED_WINDOW, Space, WARP, WINDOW_BYTES,
};

/// Most elements of a vector access.
pub(crate) const MAX_ELEMENTS: usize = 8;

type Result<T = ()> = std::result::Result<T, Box<Trouble>>;

impl Cluster<'_> {
    /// What an address operand says, in every lane.
    pub(super) fn addresses(&self, w: usize, address: Address) -> Lanes {
        let base = self.warps[w].read(self.env.constants, address.base);
        base.map(|base| base.wrapping_add(address.offset as u64))
    }

    /// Tells generic addresses apart: each space that occurs, its lanes, and where its window starts.
    pub(super) fn spaces(&self, space: Space, addresses: &Lanes, exec: Mask) -> [(Space, Mask, u64); 4] {
        let nowhere = (Space::Global, 0, 0);
        if space != Space::Generic {
            return [(space, exec, 0), nowhere, nowhere, nowhere];
        }
        let windows = [
            (Space::Cluster, SHARED_WINDOW),
            (Space::Local, LOCAL_WINDOW),
            (Space::Param, PARAM_WINDOW),
        ];
        let mut found = [nowhere; 4];
        let mut rest = exec;
        for (i, (space, start)) in windows.into_iter().enumerate() {
            let inside = lanes(exec)
                .filter(|&l| addresses[l].wrapping_sub(start) < WINDOW_BYTES)
                .fold(0, |mask, l| mask | 1 << l);
            found[i + 1] = (space, inside, start);
            rest &= !inside;
        }
        found[0] = (Space::Global, rest, 0);
        found
    }

    pub(super) fn load(&mut self, w: usize, access: &Access, exec: Mask, site: u32) -> Result {
        let all = self.addresses(w, access.address);
        let total = u64::from(access.bytes) * access.regs.len() as u64;
        check_aligned(&all, exec, total)?;
        let mut values = [[0; WARP]; MAX_ELEMENTS];
        for (space, mask, start) in self.spaces(access.address.space, &all, exec) {
            if mask == 0 {
                continue;
            }
            let addresses = all.map(|a| a.wrapping_sub(start));
            match space {
                Space::Generic | Space::Global => {
                    let places = self.places(&addresses, mask, total)?;
                    for lane in lanes(mask) {
                        self.check_early(w, lane, places[lane], total, FaultKind::EarlyDependentRead)?;
                        self.check_race(w, lane, places[lane], total, ("reads", access.order))?;
                        let allocation = self.view.allocation(places[lane]);
                        allocation.note_reader(places[lane].at, total, self.env.id);
                        for (i, value) in values[..access.regs.len()].iter_mut().enumerate() {
                            let at = places[lane].at + u64::from(access.bytes) * i as u64;
                            value[lane] = allocation.load(at, access.bytes);
                        }
                        self.learn(w, addresses[lane] & !3, access.order);
                    }
                    self.view.count(lanes(mask).map(|l| places[l]), total, false);
                }
                Space::Shared | Space::Cluster => {
                    let spots =
                        self.touch_shared(w, space, &addresses, mask, total, Touch::Read, access.order, site)?;
                    for lane in lanes(mask) {
                        let (rank, at) = spots[lane];
                        for (i, value) in values[..access.regs.len()].iter_mut().enumerate() {
                            let at = at as usize + access.bytes as usize * i;
                            value[lane] = get(&self.ctas[rank as usize].shared, at, access.bytes);
                        }
                        self.learn(w, shared_key(spots[lane]), access.order);
                    }
                    self.conflicts[0] += self.bank_conflicts(w, &spots, mask, total);
                }
                Space::Local => {
                    for lane in lanes(mask) {
                        let at = self.local_at(w, lane, addresses[lane], total)?;
                        for (i, value) in values[..access.regs.len()].iter_mut().enumerate() {
                            value[lane] = get(&self.warps[w].local, at + access.bytes as usize * i, access.bytes);
                        }
                    }
                }
                Space::Param => {
                    let params = self.env.params;
                    for lane in lanes(mask) {
                        let at = inside(addresses[lane], total, params.len())
                            .ok_or_else(|| outside(lane, "parameter", addresses[lane], total, params.len()))?;
                        for (i, value) in values[..access.regs.len()].iter_mut().enumerate() {
                            value[lane] = get(params, at + access.bytes as usize * i, access.bytes);
                        }
                    }
                }
            }
        }
        for (reg, value) in access.regs.iter().zip(&mut values) {
            let Some(reg) = *reg else { continue };
            if access.sign_to != 0 {
                let (unused, to) = (64 - 8 * access.bytes, access.sign_to);
                *value = value.map(|v| super::alu::low_bits(((v << unused) as i64 >> unused) as u64, to));
            }
            self.warps[w].write(reg, exec, value);
        }
        Ok(())
    }

    pub(super) fn store(&mut self, w: usize, access: &Access, exec: Mask, site: u32) -> Result {
        let all = self.addresses(w, access.address);
        let total = u64::from(access.bytes) * access.regs.len() as u64;
        check_aligned(&all, exec, total)?;
        let mut values = [[0; WARP]; MAX_ELEMENTS];
        for (value, reg) in values.iter_mut().zip(&access.regs) {
            if let Some(reg) = *reg {
                *value = *self.warps[w].read(self.env.constants, reg);
            }
        }
        self.progress = true;
        for (space, mask, start) in self.spaces(access.address.space, &all, exec) {
            if mask == 0 {
                continue;
            }
            let addresses = all.map(|a| a.wrapping_sub(start));
            match space {
                Space::Generic | Space::Global => {
                    let places = self.places(&addresses, mask, total)?;
                    let moment = self.moment(w, access.order, site);
                    for lane in lanes(mask) {
                        self.check_early(w, lane, places[lane], total, FaultKind::EarlyDependentWrite)?;
                        let allocation = self.view.allocation(places[lane]);
                        let elements = || {
                            let values = values[..access.regs.len()].iter().enumerate();
                            values.map(|(i, value)| (places[lane].at + u64::from(access.bytes) * i as u64, value[lane]))
                        };
                        let unordered = self.check_race(w, lane, places[lane], total, ("writes", access.order));
                        // Who writes what is there already does no harm.
                        let kept = |(at, value)| {
                            allocation.load(at, access.bytes) == super::alu::low_bits(value, 8 * access.bytes)
                        };
                        if let Err(race) = unordered
                            && !elements().all(kept)
                        {
                            return Err(race);
                        }
                        self.publish(w, addresses[lane] & !3, access.order, false);
                        allocation.note_writer(places[lane].at, total, self.env.id, moment);
                        for (at, value) in elements() {
                            allocation.store(at, access.bytes, value);
                        }
                    }
                    self.view.count(lanes(mask).map(|l| places[l]), total, true);
                }
                Space::Shared | Space::Cluster => {
                    let spots =
                        self.touch_shared(w, space, &addresses, mask, total, Touch::Write, access.order, site)?;
                    for lane in lanes(mask) {
                        let (rank, at) = spots[lane];
                        self.publish(w, shared_key(spots[lane]), access.order, false);
                        for (i, value) in values[..access.regs.len()].iter().enumerate() {
                            let at = at as usize + access.bytes as usize * i;
                            put(&mut self.ctas[rank as usize].shared, at, access.bytes, value[lane]);
                        }
                    }
                    self.conflicts[1] += self.bank_conflicts(w, &spots, mask, total);
                }
                Space::Local => {
                    for lane in lanes(mask) {
                        let at = self.local_at(w, lane, addresses[lane], total)?;
                        for (i, value) in values[..access.regs.len()].iter().enumerate() {
                            let at = at + access.bytes as usize * i;
                            put(&mut self.warps[w].local, at, access.bytes, value[lane]);
                        }
                    }
                }
                Space::Param => return Err(read_only(mask)),
            }
        }
        Ok(())
    }

    pub(super) fn atomic(&mut self, w: usize, atomic: &Atomic, exec: Mask, site: u32) -> Result {
        let all = self.addresses(w, atomic.address);
        let total = u64::from(atomic.bytes) * atomic.elements.len() as u64;
        check_aligned(&all, exec, total)?;
        for (space, mask, start) in self.spaces(atomic.address.space, &all, exec) {
            if mask == 0 {
                continue;
            }
            let addresses = all.map(|a| a.wrapping_sub(start));
            // Reads and writes at once: read first, so that unwritten memory is found.
            let (places, spots) = match space {
                Space::Generic | Space::Global => (self.places(&addresses, mask, total)?, [(0, 0); WARP]),
                Space::Shared | Space::Cluster => {
                    self.touch_shared(w, space, &addresses, mask, total, Touch::Read, atomic.order, site)?;
                    let spots =
                        self.touch_shared(w, space, &addresses, mask, total, Touch::Write, atomic.order, site)?;
                    self.conflicts[1] += self.bank_conflicts(w, &spots, mask, total);
                    ([Place { allocation: 0, at: 0 }; WARP], spots)
                }
                Space::Local | Space::Param => return Err(read_only(mask)),
            };
            let global = matches!(space, Space::Generic | Space::Global);
            if global {
                let moment = self.moment(w, atomic.order, site);
                for lane in lanes(mask) {
                    self.check_early(w, lane, places[lane], total, FaultKind::EarlyDependentRead)?;
                    self.check_early(w, lane, places[lane], total, FaultKind::EarlyDependentWrite)?;
                    self.check_race(w, lane, places[lane], total, ("changes", atomic.order))?;
                    let allocation = self.view.allocation(places[lane]);
                    allocation.note_writer(places[lane].at, total, self.env.id, moment);
                }
                let wants_old = atomic.elements.iter().any(|(d, ..)| d.is_some());
                if wants_old {
                    self.view.count(lanes(mask).map(|l| places[l]), total, false);
                }
                self.view.count(lanes(mask).map(|l| places[l]), total, true);
            }
            // Lanes take their turns.
            for lane in lanes(mask) {
                let key = if global {
                    addresses[lane] & !3
                } else {
                    shared_key(spots[lane])
                };
                // Before the value is there to be read, and after it has been read: other clusters may run meanwhile.
                self.publish(w, key, atomic.order, true);
                if let (Some(compares), [low, high]) = (atomic.pair, &atomic.elements[..]) {
                    let operand = |reg| self.warps[w].read(self.env.constants, reg)[lane];
                    let ([b, c], [b_high, c_high]) = ([low.1, low.2].map(operand), [high.1, high.2].map(operand));
                    let new = |old| {
                        if compares && old != [b, b_high] {
                            old
                        } else {
                            [c, c_high]
                        }
                    };
                    let old = if global {
                        self.view.allocation(places[lane]).update_pair(places[lane].at, new)
                    } else {
                        let (rank, at) = (spots[lane].0 as usize, spots[lane].1 as usize);
                        let shared = &mut self.ctas[rank].shared;
                        let old = [get(shared, at, 8), get(shared, at + 8, 8)];
                        let [low, high] = new(old);
                        put(shared, at, 8, low);
                        put(shared, at + 8, 8, high);
                        old
                    };
                    self.progress |= new(old) != old;
                    for (target, old) in [low.0, high.0].into_iter().zip(old) {
                        if let Some(d) = target {
                            self.warps[w].registers[d as usize][lane] = old;
                        }
                    }
                    self.learn(w, key, atomic.order);
                    continue;
                }
                for (i, &(d, b, c)) in atomic.elements.iter().enumerate() {
                    let operand = |reg| self.warps[w].read(self.env.constants, reg)[lane];
                    let (b, c) = (operand(b), operand(c));
                    let f = if global { &atomic.in_global } else { &atomic.in_shared };
                    let new = |old| f(old, b, c);
                    let old = if global {
                        let at = places[lane].at + u64::from(atomic.bytes) * i as u64;
                        self.view.allocation(places[lane]).update(at, atomic.bytes, new)
                    } else {
                        let (rank, at) = spots[lane];
                        let at = at as usize + atomic.bytes as usize * i;
                        let shared = &mut self.ctas[rank as usize].shared;
                        let old = get(shared, at, atomic.bytes);
                        put(shared, at, atomic.bytes, new(old));
                        old
                    };
                    self.progress |= new(old) != old;
                    if let Some(d) = d {
                        self.warps[w].registers[d as usize][lane] = old;
                    }
                }
                self.learn(w, key, atomic.order);
            }
        }
        Ok(())
    }

    pub(super) fn prefetch(&mut self, w: usize, prefetch: &Prefetch, exec: Mask) -> Result {
        let Some(size) = prefetch.size else {
            return Ok(());
        };
        let addresses = self.addresses(w, prefetch.address);
        let sizes = *self.warps[w].read(self.env.constants, size);
        for lane in lanes(exec) {
            let (address, bytes) = (addresses[lane], sizes[lane]);
            if address % 16 != 0 || bytes % 16 != 0 {
                return Err(super::bulk::misaligned(lane, "prefetches", address, bytes));
            }
            if bytes != 0 && self.view.find(address, bytes).is_none() {
                return Err(self.outside_global(lane, address, bytes));
            }
        }
        Ok(())
    }

    /// Where lanes' global addresses lie.
    fn places(&mut self, addresses: &Lanes, mask: Mask, bytes: u64) -> Result<[Place; WARP]> {
        let mut places = [Place { allocation: 0, at: 0 }; WARP];
        for lane in lanes(mask) {
            places[lane] = match self.view.find(addresses[lane], bytes) {
                Some(place) => place,
                None => return Err(self.outside_global(lane, addresses[lane], bytes)),
            };
        }
        Ok(places)
    }

    pub(super) fn outside_global(&self, lane: usize, address: u64, bytes: u64) -> Box<Trouble> {
        let near = self.view.describe(address);
        let detail = format!("{bytes} bytes of global memory at {address:#x} lie in no allocation; {near}");
        trouble(FaultKind::OutOfBounds, lane, detail)
    }

    fn local_at(&self, w: usize, lane: usize, address: u64, bytes: u64) -> Result<usize> {
        let warp = &self.warps[w];
        let size = warp.frames.get(warp.group().frame).top as usize;
        let at = inside(address, bytes, size).ok_or_else(|| outside(lane, "local", address, bytes, size))?;
        Ok(lane * warp.local_size + at)
    }

    /// The rank and offset that a shared address means, for an access of so many bytes.
    pub(super) fn spot(&self, w: usize, space: Space, address: u64, bytes: u64, lane: usize) -> Result<(u32, u32)> {
        let own = self.warps[w].cta as u64;
        let stride = u64::from(CLUSTER_STRIDE);
        let (rank, within) = match (space, address / stride) {
            (Space::Cluster, r @ 1..) => (r - 1, address % stride),
            _ => (own, address),
        };
        let size = self.env.shared_bytes() as usize;
        match inside(within.wrapping_sub(u64::from(SHARED_BASE)), bytes, size) {
            Some(at) if rank < 1 << 16 => Ok((rank as u32, at as u32)),
            _ => {
                let detail = format!(
                    "{bytes} bytes of shared memory at {address:#x} lie outside the CTA's {size} bytes at {SHARED_BASE:#x}"
                );
                Err(trouble(FaultKind::OutOfBounds, lane, detail))
            }
        }
    }
}

/// Bytes read as a little-endian number; they must lie inside.
#[inline]
pub(super) fn get(memory: &[u8], at: usize, bytes: u32) -> u64 {
    match bytes {
        1 => u64::from(memory[at]),
        2 => u64::from(u16::from_le_bytes([memory[at], memory[at + 1]])),
        4 => u64::from(u32::from_le_bytes(std::array::from_fn(|i| memory[at + i]))),
        _ => u64::from_le_bytes(std::array::from_fn(|i| memory[at + i])),
    }
}

/// The opposite of [`get`].
#[inline]
pub(super) fn put(memory: &mut [u8], at: usize, bytes: u32, value: u64) {
    let bytes = bytes as usize;
    memory[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

/// What a shared word is called in the table of published orders.
fn shared_key((rank, at): (u32, u32)) -> u64 {
    SHARED_WINDOW + u64::from(rank) * u64::from(CLUSTER_STRIDE) + u64::from(at & !3)
}

fn inside(at: u64, bytes: u64, size: usize) -> Option<usize> {
    (at.checked_add(bytes)? <= size as u64).then_some(at as usize)
}

pub(super) fn outside(lane: usize, what: &str, address: u64, bytes: u64, size: usize) -> Box<Trouble> {
    let detail = format!("{bytes} bytes of {what} memory at {address:#x} lie outside its {size} bytes");
    trouble(FaultKind::OutOfBounds, lane, detail)
}

fn read_only(mask: Mask) -> Box<Trouble> {
    let detail = "the address lies in parameter or local memory, where this instruction has no business".into();
    trouble(FaultKind::BadInstruction, mask.trailing_zeros() as usize, detail)
}

pub(super) fn check_aligned(addresses: &Lanes, exec: Mask, bytes: u64) -> Result {
    let all = addresses.iter().fold(0, |all, a| all | a);
    if all & (bytes - 1) == 0 {
        return Ok(());
    }
    match lanes(exec).find(|&l| !addresses[l].is_multiple_of(bytes)) {
        None => Ok(()),
        Some(lane) => {
            let detail = format!(
                "address {:#x} is not a multiple of the {bytes} bytes accessed",
                addresses[lane]
            );
            Err(trouble(FaultKind::Misaligned, lane, detail))
        }
    }
}
