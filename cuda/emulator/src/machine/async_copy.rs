//! `cp.async`: lanes copy a few bytes each from global to shared memory.
//!
//! The bytes move when the instruction is issued. That the hardware moves them later shows in what is refused: the
//! books enter the writes under an actor of their own, which nobody knows to be done before a wait, or a phase of an
//! mbarrier, that covers them.

use super::clock::Epoch;
use super::cluster::Cluster;
use super::report::{Trouble, trouble};
use super::shadow::Touch;
use super::warp::lanes;
use crate::error::FaultKind;
use crate::program::{Address, AsyncCopy, Mask, Order, Space, WARP};

type Result<T = ()> = std::result::Result<T, Box<Trouble>>;

/// A warp's copies, counted as they are issued.
#[derive(Debug, Default)]
pub(super) struct AsyncCopies {
    issued: u32,
    /// For each lane, the count at each commit that it has not waited for; empty until the first commit.
    committed: Vec<Vec<u32>>,
}

impl Cluster<'_> {
    pub(super) fn async_copy(&mut self, w: usize, copy: &AsyncCopy, exec: Mask, site: u32) -> Result {
        let bytes = u64::from(copy.bytes);
        let (to, from) = (self.addresses(w, copy.to), self.addresses(w, copy.from));
        let ignored = copy.ignore.map_or(0, |p| self.warps[w].pred(p));
        let sizes = copy.read.map(|reg| *self.warps[w].read(self.env.constants, reg));
        let mut values = [[0; 2]; WARP];
        let mut sources = Vec::with_capacity(WARP);
        for lane in lanes(exec) {
            for (does, address) in [("writes", to[lane]), ("reads", from[lane])] {
                if !address.is_multiple_of(bytes) {
                    let detail = format!("{does} at {address:#x}, which is not a multiple of the {bytes} bytes copied");
                    return Err(trouble(FaultKind::Misaligned, lane, detail));
                }
            }
            let size = match &sizes {
                _ if ignored & 1 << lane != 0 => 0,
                Some(sizes) => u64::from(sizes[lane] as u32),
                None => bytes,
            };
            if size > bytes {
                let detail = format!("it is told to read {size} bytes for the {bytes} that it writes");
                return Err(trouble(FaultKind::BadInstruction, lane, detail));
            }
            if size == 0 {
                continue;
            }
            let Some(place) = self.view.find(from[lane], size) else {
                return Err(self.outside_global(lane, from[lane], size));
            };
            self.check_copy(w, lane, place, size, false)?;
            let mut data = [0; 16];
            self.view.allocation(place).read(place.at, &mut data[..size as usize]);
            let (low, high) = data.split_at(8);
            values[lane] = [low, high].map(|half| u64::from_le_bytes(std::array::from_fn(|i| half[i])));
            sources.push((place, size));
        }
        // Lanes that read less than the others are rare: they are counted one by one.
        if sources.iter().all(|&(_, size)| size == bytes) {
            self.view.count(sources.iter().map(|&(place, _)| place), bytes, false);
        } else {
            for &(place, size) in &sources {
                self.view.count(std::iter::once(place), size, false);
            }
        }
        let (writer, copies) = (self.writer(w), &mut self.warps[w].async_copies);
        copies.issued += 1;
        let touch = Touch::AsyncWrite(Epoch::new(writer, copies.issued, false));
        let spots = self.touch_shared(w, Space::Shared, &to, exec, bytes, touch, Order::default(), site)?;
        self.conflicts[1] += self.bank_conflicts(w, &spots, exec, bytes);
        self.progress = true;
        for lane in lanes(exec) {
            let (rank, at) = (spots[lane].0 as usize, spots[lane].1 as usize);
            for (i, value) in values[lane].into_iter().enumerate().take(bytes.div_ceil(8) as usize) {
                super::access::put(&mut self.ctas[rank].shared, at + 8 * i, copy.bytes.min(8), value);
            }
        }
        Ok(())
    }

    pub(super) fn async_commit(&mut self, w: usize, exec: Mask) {
        let copies = &mut self.warps[w].async_copies;
        copies.committed.resize(WARP, Vec::new());
        for lane in lanes(exec) {
            copies.committed[lane].push(copies.issued);
        }
    }

    /// Makes known what is complete once at most `left` groups are not, or all copies are.
    pub(super) fn async_wait(&mut self, w: usize, exec: Mask, left: Option<u32>) {
        let writer = self.writer(w);
        let warp = &mut self.warps[w];
        let copies = &mut warp.async_copies;
        let mut complete = if left.is_none() { copies.issued } else { 0 };
        for lane in lanes(exec) {
            let Some(groups) = copies.committed.get_mut(lane) else {
                break;
            };
            let due = groups.len().saturating_sub(left.unwrap_or(0) as usize);
            complete = groups.drain(..due).fold(complete, u32::max);
        }
        let known = warp.clock.get(writer);
        warp.clock.set(writer, known.max(complete));
    }

    /// Arrives at mbarriers once all copies that the lanes have issued are complete.
    pub(super) fn async_arrive(&mut self, w: usize, address: Address, counted: bool, exec: Mask, site: u32) -> Result {
        let addresses = self.addresses(w, address);
        let done = Epoch::new(self.writer(w), self.warps[w].async_copies.issued, false);
        for lane in lanes(exec) {
            let (rank, at) = self.object(w, address.space, addresses[lane], lane, site, false)?;
            if rank != self.warps[w].cta {
                let detail = "the mbarrier must lie in the CTA's own shared memory".into();
                return Err(trouble(FaultKind::Mbarrier, lane, detail));
            }
            let Some(object) = self.ctas[rank].mbarriers.get_mut(&at) else {
                continue;
            };
            object.has_happened(done);
            if counted && let Some(detail) = object.arrive_once() {
                return Err(trouble(FaultKind::Mbarrier, lane, detail));
            }
            self.progress = true;
            self.settle(rank, at);
        }
        Ok(())
    }
}
