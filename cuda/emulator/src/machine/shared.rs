//! Shared memory: books kept of a warp's accesses, and what bank conflicts cost them.

use super::clock::Epoch;
use super::cluster::Cluster;
use super::lane_books::{LaneAccess, MOST_READS, Read};
use super::report::Trouble;
use super::shadow::{Objection, Touch, Who};
use super::warp::lanes;
use crate::program::{FULL, Lanes, Mask, Order, Space, WARP};

/// Banks, each 4 bytes wide.
const BANKS: usize = 32;

impl Cluster<'_> {
    /// Enters an access to bytes of a CTA's memory (rank, offset, length) into its books; on an objection, tells the
    /// byte.
    pub(super) fn touch(
        &mut self,
        w: usize,
        strong: bool,
        (rank, at, len): (usize, usize, usize),
        touch: Touch,
        site: u32,
    ) -> Result<(), (usize, Objection)> {
        let (epoch, copiers) = (self.now(w, strong), self.copier(0));
        let who = Who {
            epoch,
            clock: &self.warps[w].clock,
            drained: &self.warps[w].drained,
            site,
            copiers,
        };
        self.ctas[rank].shadow.touch(at, len, touch, who)
    }

    /// Enters an asynchronous read of many pieces of a CTA's memory (rank, length of each), whole words all of them.
    pub(super) fn touch_pieces(
        &mut self,
        w: usize,
        (rank, len): (usize, usize),
        pieces: impl Iterator<Item = usize>,
        reader: Epoch,
        site: u32,
    ) -> Result<(), (usize, Objection)> {
        let (epoch, copiers) = (self.now(w, false), self.copier(0));
        let who = Who {
            epoch,
            clock: &self.warps[w].clock,
            drained: &self.warps[w].drained,
            site,
            copiers,
        };
        let shadow = &mut self.ctas[rank].shadow;
        let mut seen = Epoch::NEVER;
        for at in pieces {
            seen = shadow.read_words(at, len, reader, who, seen)?;
        }
        Ok(())
    }

    /// Enters a warp's access into the books of the CTAs concerned; answers with rank and offset per lane.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn touch_shared(
        &mut self,
        w: usize,
        space: Space,
        addresses: &Lanes,
        mask: Mask,
        bytes: u64,
        touch: Touch,
        order: Order,
        site: u32,
    ) -> Result<[(u32, u32); WARP], Box<Trouble>> {
        let mut spots = [(0, 0); WARP];
        for lane in lanes(mask) {
            spots[lane] = self.spot(w, space, addresses[lane], bytes, lane)?;
        }
        let (len, own) = (bytes as u32, self.warps[w].cta as u32);
        let (rank, first) = spots[mask.trailing_zeros() as usize];
        // Whole warps mostly touch one run of bytes, or all the same ones.
        let run = |step: u32| (0..WARP as u32).all(|l| spots[l as usize] == (rank, first.wrapping_add(l * step)));
        let (count, len_each) = if mask == FULL && run(len) {
            (1, len * WARP as u32)
        } else if mask == FULL && run(0) {
            (1, len)
        } else {
            (WARP, len)
        };
        for lane in lanes(mask).take(count) {
            let (rank, at) = (spots[lane].0 as usize, spots[lane].1 as usize);
            if rank as u32 != own {
                self.check_remote(w, rank, lane)?;
                self.note_remote(w, rank, site);
            }
            let touched = self.touch(w, order.strong, (rank, at, len_each as usize), touch, site);
            if let Err((byte, objection)) = touched {
                let covers = |l: &usize| {
                    let start = spots[*l].1 as usize;
                    spots[*l].0 as usize == rank && (start..start + len as usize).contains(&byte)
                };
                let lane = lanes(mask).find(covers).unwrap_or(lane);
                return Err(self.objection(rank, byte, touch, lane, objection));
            }
        }
        self.touch_by_lanes(w, &spots, mask, len, touch, order, site)?;
        Ok(spots)
    }

    /// Enters a warp's access, of `len` bytes at each lane's rank and offset, into the books of lanes.
    #[allow(clippy::too_many_arguments)]
    fn touch_by_lanes(
        &mut self,
        w: usize,
        spots: &[(u32, u32); WARP],
        mask: Mask,
        len: u32,
        touch: Touch,
        order: Order,
        site: u32,
    ) -> Result<(), Box<Trouble>> {
        let writes = matches!(touch, Touch::Write | Touch::AsyncWrite(_));
        // Atomics and other strong accesses of lanes do not race among themselves.
        if order.strong || !writes && touch != Touch::Read {
            return Ok(());
        }
        if writes {
            self.enter_reads(w)?;
        } else if !self.warps[w].interval.has_entries {
            let reads = &mut self.warps[w].interval.reads;
            reads.push(Read {
                spots: *spots,
                mask,
                len,
                site,
            });
            return if reads.len() < MOST_READS {
                Ok(())
            } else {
                self.enter_reads(w)
            };
        }
        self.enter_by_lanes(w, spots, mask, len, writes, site)
    }

    fn enter_by_lanes(
        &mut self,
        w: usize,
        spots: &[(u32, u32); WARP],
        mask: Mask,
        len: u32,
        writes: bool,
        site: u32,
    ) -> Result<(), Box<Trouble>> {
        for lane in lanes(mask) {
            let (rank, at) = (spots[lane].0 as usize, spots[lane].1 as usize);
            self.enter_by_lane(w, lane, (rank, at, len as usize), writes, site)?;
        }
        Ok(())
    }

    #[inline]
    fn enter_by_lane(
        &mut self,
        w: usize,
        lane: usize,
        (rank, at, len): (usize, usize, usize),
        writes: bool,
        site: u32,
    ) -> Result<(), Box<Trouble>> {
        let access = LaneAccess {
            lane,
            writes,
            interval: self.warps[w].interval.number,
            site,
        };
        match self.ctas[rank].shadow.lanes.enter(at, len, access) {
            Ok(()) => Ok(()),
            Err(unordered) => Err(self.lanes_unordered(rank, lane, writes, unordered)),
        }
    }

    /// Enters the reads of a warp's interval that are not in the books yet.
    fn enter_reads(&mut self, w: usize) -> Result<(), Box<Trouble>> {
        let mut reads = std::mem::take(&mut self.warps[w].interval.reads);
        for read in reads.drain(..) {
            self.enter_by_lanes(w, &read.spots, read.mask, read.len, false, read.site)?;
        }
        self.warps[w].interval.reads = reads;
        self.warps[w].interval.has_entries = true;
        Ok(())
    }

    /// A lane's copy writes or reads bytes of a CTA's memory (rank, offset, length): others of its warp may not have
    /// touched them since lanes were last ordered.
    pub(super) fn copied_by_lane(
        &mut self,
        w: usize,
        lane: usize,
        place: (usize, usize, usize),
        writes: bool,
        site: u32,
    ) -> Result<(), Box<Trouble>> {
        // What lanes do after it is held against the copy under way.
        if self.warps[w].interval.is_empty() {
            return Ok(());
        }
        self.enter_reads(w)?;
        self.enter_by_lane(w, lane, place, writes, site)
    }

    /// Extra passes that an access to the CTA's own memory takes: a pass serves each bank one word. Lanes of 8 and 16
    /// bytes are served 16 and 8 at a time.
    pub(super) fn bank_conflicts(&self, w: usize, spots: &[(u32, u32); WARP], mask: Mask, bytes: u64) -> u64 {
        let words = (bytes as u32).div_ceil(4).max(1);
        let at_once = (WARP as u32 / words).max(1) as usize;
        let own = self.warps[w].cta as u32;
        let mut extra = 0;
        for part in 0..WARP / at_once {
            let part_mask = mask & (FULL >> (WARP - at_once)) << (part * at_once);
            let start = part * at_once;
            let run = |l: usize| spots[l].1 == spots[start].1 + (l - start) as u32 * bytes as u32;
            let whole = part_mask.count_ones() as usize == at_once;
            if part_mask == 0 || whole && bytes >= 4 && (start..start + at_once).all(run) {
                continue;
            }
            let mut touched: [u32; WARP] = [u32::MAX; WARP];
            let mut n = 0;
            for lane in lanes(part_mask).filter(|&l| spots[l].0 == own) {
                for word in 0..words {
                    touched[n] = spots[lane].1 / 4 + word;
                    n += 1;
                }
            }
            touched[..n].sort_unstable();
            let mut passes = [0u8; BANKS];
            let mut last = None;
            for &word in &touched[..n] {
                if last != Some(word) {
                    passes[word as usize % BANKS] += 1;
                    last = Some(word);
                }
            }
            let most = passes.iter().copied().max().unwrap_or(0);
            extra += u64::from(most.saturating_sub(1));
        }
        extra
    }
}
