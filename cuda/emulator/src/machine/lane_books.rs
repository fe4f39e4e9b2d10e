//! Which lane of a warp last wrote each word of shared memory, and which have read it since, while nothing orders the
//! lanes.
//!
//! Lanes of a warp are threads like others: what one writes, another may read behind a `bar.warp.sync` that names both
//! (PTX ISA §9.7.13.2), or behind a barrier of the CTA or the cluster. A warp's time is cut into intervals at these
//! places; within one, no lane may read or write what another has written, nor write what another has read. An interval
//! ends for the whole warp, whichever lanes meet, and also where a lane acquires what others have released: so some
//! races are missed, and none is made up.

use crate::program::{Mask, WARP};

/// The books of one CTA's shared memory, which [`Shadow`](super::shadow::Shadow) holds.
#[derive(Debug, Default)]
pub(super) struct LaneBooks {
    words: Vec<Word>,
    /// How often the memory has had a new owner: what earlier ones have entered means nothing.
    owner: u32,
}

/// What the lanes of one warp have done to a word in one interval.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    owner: u32,
    interval: u32,
    readers: Mask,
    /// The lanes that wrote last, by one instruction, and the bytes that they wrote: none where no lane has written.
    writers: Mask,
    bytes: u8,
    write_site: u32,
    read_site: u32,
}

/// What the lanes of a warp have done to shared memory since they were last ordered.
///
/// While they only read, their reads are put aside: most intervals end before a lane writes.
#[derive(Debug, Default)]
pub(super) struct Interval {
    /// No other interval of the cluster has the same.
    pub(super) number: u32,
    /// Reads that are not in the books yet.
    pub(super) reads: Vec<Read>,
    /// Whether accesses of the interval are in the books.
    pub(super) has_entries: bool,
}

/// Most reads that are put aside.
pub(super) const MOST_READS: usize = 256;

/// A warp's read.
#[derive(Debug)]
pub(super) struct Read {
    /// Rank and offset per lane.
    pub(super) spots: [(u32, u32); WARP],
    pub(super) mask: Mask,
    pub(super) len: u32,
    pub(super) site: u32,
}

impl Interval {
    /// Starts afresh as the interval of this number.
    pub(super) fn restart(&mut self, number: u32) {
        self.number = number;
        self.reads.clear();
        self.has_entries = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty() && !self.has_entries
    }
}

/// An access by one lane.
#[derive(Clone, Copy)]
pub(super) struct LaneAccess {
    pub(super) lane: usize,
    pub(super) writes: bool,
    /// The warp's interval: no two warps have the same.
    pub(super) interval: u32,
    pub(super) site: u32,
}

/// Another lane's access, which nothing orders before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unordered {
    pub(super) byte: usize,
    pub(super) lane: usize,
    pub(super) site: u32,
    pub(super) wrote: bool,
}

/// All bytes of a word.
const WHOLE: u8 = 0b1111;

impl LaneBooks {
    /// Forgets everything; the memory has `bytes` bytes from now on.
    pub(super) fn reset(&mut self, bytes: usize) {
        let words = bytes.div_ceil(4);
        if self.words.len() < words {
            self.words.resize(words, Word::default());
        }
        self.owner = self.owner.wrapping_add(1);
        if self.owner == 0 {
            self.words.fill(Word::default());
            self.owner = 1;
        }
    }

    /// Enters an access to `len` bytes at offset `at`.
    #[inline]
    pub(super) fn enter(&mut self, at: usize, len: usize, access: LaneAccess) -> Result<(), Unordered> {
        let end = at + len;
        for index in at / 4..end.div_ceil(4) {
            let first = at.max(index * 4) - index * 4;
            let last = end.min(index * 4 + 4) - index * 4;
            let bytes = (WHOLE >> (4 - last)) & (WHOLE << first);
            let word = &mut self.words[index];
            if word.interval != access.interval || word.owner != self.owner {
                *word = Word {
                    owner: self.owner,
                    interval: access.interval,
                    ..Word::default()
                };
            }
            word.enter(bytes, access).map_err(|(lane, site, wrote)| Unordered {
                byte: index * 4 + bytes.trailing_zeros() as usize,
                lane,
                site,
                wrote,
            })?;
        }
        Ok(())
    }
}

impl Word {
    /// Enters an access to these bytes; or tells the lane, site and kind of one that it is not ordered with.
    #[inline]
    fn enter(&mut self, bytes: u8, access: LaneAccess) -> Result<(), (usize, u32, bool)> {
        let own = 1 << access.lane;
        // Lanes that store to one place by one instruction leave the value of one of them; each may read it, which is
        // its own where they are equal.
        let together = match access.writes {
            true => self.write_site == access.site,
            false => self.writers & own != 0,
        };
        let others = self.writers & !own;
        if self.bytes & bytes != 0 && others != 0 && !together {
            return Err((others.trailing_zeros() as usize, self.write_site, true));
        }
        if access.writes {
            let others = self.readers & !own;
            if others != 0 {
                return Err((others.trailing_zeros() as usize, self.read_site, false));
            }
            let alike = self.write_site == access.site && self.bytes == bytes;
            self.writers = if alike { self.writers | own } else { own };
            (self.bytes, self.write_site) = (bytes, access.site);
        } else if bytes == WHOLE {
            // Of a part, a write to another part would seem to race with it.
            self.readers |= own;
            self.read_site = access.site;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn books() -> LaneBooks {
        let mut books = LaneBooks::default();
        books.reset(64);
        books
    }

    fn access(lane: usize, writes: bool, interval: u32, site: u32) -> LaneAccess {
        LaneAccess {
            lane,
            writes,
            interval,
            site,
        }
    }

    #[test]
    fn lanes_meet_between_accesses_of_which_one_writes() {
        for (first, second, races) in [
            (true, false, true),
            (false, true, true),
            (true, true, true),
            (false, false, false),
        ] {
            let mut books = books();
            books.enter(8, 16, access(3, first, 1, 10)).unwrap();
            assert_eq!(books.enter(12, 4, access(3, second, 1, 11)), Ok(()), "the lane's own");
            let unordered = Unordered {
                byte: 20,
                lane: 3,
                site: 10,
                wrote: first,
            };
            let found = books.enter(20, 8, access(4, second, 1, 11));
            assert_eq!(found, if races { Err(unordered) } else { Ok(()) });
            assert_eq!(books.enter(16, 4, access(4, second, 2, 11)), Ok(()), "another interval");
        }
    }

    #[test]
    fn parts_of_words_do_not_race() {
        let mut books = books();
        books.enter(0, 1, access(0, true, 1, 10)).unwrap();
        books.enter(2, 2, access(1, true, 1, 11)).unwrap();
        books.enter(0, 2, access(2, false, 1, 12)).unwrap();
        assert!(books.enter(1, 2, access(2, false, 1, 12)).is_err());
    }

    #[test]
    fn one_instruction_may_store_to_one_place() {
        let mut books = books();
        books.enter(0, 4, access(0, true, 1, 10)).unwrap();
        books.enter(0, 4, access(1, true, 1, 10)).unwrap();
        books.enter(0, 4, access(1, false, 1, 12)).unwrap();
        assert!(books.enter(0, 4, access(2, false, 1, 12)).is_err());
        assert!(books.enter(0, 4, access(0, true, 1, 11)).is_err());
    }

    #[test]
    fn a_new_owner_starts_afresh() {
        let mut books = books();
        books.enter(0, 4, access(0, true, 1, 10)).unwrap();
        books.reset(32);
        books.enter(0, 4, access(1, false, 1, 11)).unwrap();
    }
}
