//! Global memory as a cluster sees it, with its traffic counted.

use std::sync::Arc;

use crate::counters::Traffic;
use crate::memory::Allocation;
use crate::program::WARP;

pub(super) struct View<'a> {
    allocations: &'a [Arc<Allocation>],
    /// Index of the allocation found last.
    last: usize,
    pub(super) traffic: Vec<Traffic>,
}

/// Where an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) allocation: usize,
    pub(super) at: u64,
}

impl<'a> View<'a> {
    pub(super) fn new(allocations: &'a [Arc<Allocation>]) -> Self {
        View {
            allocations,
            last: 0,
            traffic: vec![Traffic::default(); allocations.len()],
        }
    }

    /// The place of `bytes` bytes that lie in one allocation.
    #[inline]
    pub(super) fn find(&mut self, address: u64, bytes: u64) -> Option<Place> {
        let inside = |a: &Allocation| {
            let at = address.wrapping_sub(a.base);
            (at < a.size && bytes <= a.size - at).then_some(at)
        };
        if let Some(at) = self.allocations.get(self.last).and_then(|a| inside(a)) {
            return Some(Place {
                allocation: self.last,
                at,
            });
        }
        let next = self.allocations.partition_point(|a| a.base <= address);
        self.last = next.checked_sub(1)?;
        let at = inside(&self.allocations[self.last])?;
        Some(Place {
            allocation: self.last,
            at,
        })
    }

    pub(super) fn allocation(&self, place: Place) -> &'a Allocation {
        &self.allocations[place.allocation]
    }

    /// What lies nearest to an address, for messages.
    pub(super) fn describe(&self, address: u64) -> String {
        let next = self.allocations.partition_point(|a| a.base <= address);
        match next.checked_sub(1).map(|i| &self.allocations[i]) {
            None => "it lies below every allocation".into(),
            Some(a) => {
                let at = address - a.base;
                format!(
                    "the allocation below it is {} bytes at {:#x}, in which it would be byte {at}",
                    a.size, a.base
                )
            }
        }
    }

    /// Counts a warp's request: one place per lane that takes part.
    #[inline]
    pub(super) fn count(&mut self, places: impl Iterator<Item = Place>, bytes: u64, write: bool) {
        let mut seen = [(0, 0); WARP];
        let mut n = 0usize;
        // Most requests run upward, so that only the last sector need be looked at.
        let mut upward = true;
        let (mut run, mut lanes_in_run) = (usize::MAX, 0);
        for place in places {
            if place.allocation != run {
                self.add(run, lanes_in_run * bytes, 0, write);
                (run, lanes_in_run) = (place.allocation, 0);
            }
            lanes_in_run += 1;
            let sector = (place.allocation, place.at / 32);
            let last = n.checked_sub(1).map(|i| seen[i]);
            if last == Some(sector) {
                continue;
            }
            if last.is_some_and(|last| !upward || sector < last) {
                upward = false;
                if seen[..n].contains(&sector) {
                    continue;
                }
            }
            seen[n] = sector;
            n += 1;
            self.add(place.allocation, 0, 1, write);
        }
        self.add(run, lanes_in_run * bytes, 0, write);
    }

    /// Adds to an allocation's traffic.
    pub(super) fn add(&mut self, allocation: usize, bytes: u64, sectors: u64, write: bool) {
        if let Some(traffic) = self.traffic.get_mut(allocation) {
            if write {
                traffic.written_bytes += bytes;
                traffic.written_sectors += sectors;
            } else {
                traffic.read_bytes += bytes;
                traffic.read_sectors += sectors;
            }
        }
    }
}
