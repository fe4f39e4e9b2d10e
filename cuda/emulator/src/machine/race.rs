//! Global memory: which moment of a launch wrote what, and whether an access comes after it.
//!
//! Only writes are entered. So a read and a write that nothing orders are found where the write came first, as it will
//! under some seed. Of 4 bytes only the last writer is known, and which of them it wrote.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

use super::clock::{Abroad, Epoch, join_abroad};
use super::cluster::Cluster;
use super::global::Place;
use super::report::{Trouble, trouble};
use crate::error::FaultKind;
use crate::memory::MOMENTS;
use crate::program::Order;

/// What the clusters of a launch know of each other's accesses to global memory.
#[derive(Default)]
pub(crate) struct Books {
    /// Moments by number, which is one less than the one that is entered with the bytes.
    moments: RwLock<Vec<Moment>>,
    /// What strong stores and atomics have published, by address. A later store ends what the ones before it published
    /// on the device, but not here: clusters run on threads of their own, and one may have read the value before.
    published: Mutex<HashMap<u64, Option<Arc<Abroad>>>>,
    any_published: AtomicBool,
}

/// When and where something was written.
#[derive(Clone, Copy)]
struct Moment {
    cluster: u64,
    epoch: Epoch,
    /// Its scope is the device.
    wide: bool,
    site: u32,
}

impl Books {
    pub(super) fn publish(&self, address: u64, known: &Arc<Abroad>) {
        let mut published = self.published.lock().unwrap_or_else(|e| e.into_inner());
        join_abroad(published.entry(address).or_default(), known);
        self.any_published.store(true, Relaxed);
    }

    pub(super) fn published(&self, address: u64) -> Option<Arc<Abroad>> {
        if !self.any_published.load(Relaxed) {
            return None;
        }
        let published = self.published.lock().unwrap_or_else(|e| e.into_inner());
        published.get(&address)?.clone()
    }

    /// A moment's number; 0 where there are too many.
    fn enter(&self, moment: Moment) -> u32 {
        let mut moments = self.moments.write().unwrap_or_else(|e| e.into_inner());
        match u32::try_from(moments.len() + 1) {
            Ok(number) if number < MOMENTS => {
                moments.push(moment);
                number
            }
            _ => 0,
        }
    }

    fn moment(&self, number: u32) -> Option<Moment> {
        let moments = self.moments.read().unwrap_or_else(|e| e.into_inner());
        moments.get((number as usize).checked_sub(1)?).copied()
    }
}

impl Cluster<'_> {
    /// The number under which a warp's writes at an instruction are entered now.
    pub(super) fn moment(&mut self, w: usize, order: Order, site: u32) -> u32 {
        let epoch = self.now(w, order.strong);
        match self.warps[w].moments.get(&site) {
            Some(&(then, number)) if then == epoch => number,
            _ => {
                let number = self.moment_of(epoch, order.wide, site);
                self.warps[w].moments.insert(site, (epoch, number));
                number
            }
        }
    }

    /// The number under which what an actor of this cluster writes in an epoch is entered.
    pub(super) fn moment_of(&self, epoch: Epoch, wide: bool, site: u32) -> u32 {
        self.env.state.books.enter(Moment {
            cluster: self.index,
            epoch,
            wide,
            site,
        })
    }

    /// Whether somebody has written some of these bytes in this launch, with nothing that orders the two.
    pub(super) fn check_race(
        &self,
        w: usize,
        lane: usize,
        place: Place,
        bytes: u64,
        (does, order): (&str, Order),
    ) -> Result<(), Box<Trouble>> {
        let allocation = self.view.allocation(place);
        if allocation.untouched_since(self.env.id) {
            return Ok(());
        }
        for writer in allocation.writers(place.at, bytes) {
            if writer.launch != self.env.id || writer.bytes == 0 {
                continue;
            }
            let Some(moment) = self.env.state.books.moment(writer.moment) else {
                continue;
            };
            let own = moment.cluster == self.index;
            let both_strong = order.strong && moment.epoch.strong() && (own || order.wide && moment.wide);
            let clock = &self.warps[w].clock;
            let known = if own {
                clock.knows(moment.epoch)
            } else {
                clock.knows_abroad(moment.cluster, moment.epoch)
            };
            if known || both_strong {
                continue;
            }
            let detail = format!(
                "{does} {bytes} bytes of global memory at {:#x}, which {} wrote at {} with nothing that orders the two; {}",
                allocation.base + place.at,
                self.name_actor_of(moment.cluster, moment.epoch),
                self.name_site(moment.site),
                if own {
                    "a barrier must stand between the two"
                } else {
                    "let the one release and the other acquire, by fences of the scope `.gpu` around accesses to one address that \
                     are atomic or `.relaxed`"
                }
            );
            return Err(trouble(FaultKind::GlobalRace, lane, detail));
        }
        Ok(())
    }
}
