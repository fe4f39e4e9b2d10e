//! What is known of every byte of a CTA's shared memory: written or not, by whom last, read by whom since.
//!
//! Books are kept per 4-byte word. A word of which only parts are touched is split into bytes, so that neighbours in
//! one word do not count as a race.

use super::clock::{Clock, Epoch};
use super::lane_books::LaneBooks;

/// Bytes of the word that have been written: the low four flags.
const WRITTEN: u8 = 0b1111;
/// A bulk copy into the word is under way.
pub(super) const FLIGHT: u8 = 1 << 4;
/// The word belongs to an mbarrier object.
pub(super) const BARRIER: u8 = 1 << 5;
/// The word's books are kept per byte.
const SPLIT: u8 = 1 << 6;

/// The last write and the reads since.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    write: Epoch,
    read: Epoch,
    write_site: u32,
    read_site: u32,
}

/// Books of one CTA's shared memory.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    /// One per word. Where it is zero, nothing has happened to the word, and its cell means nothing.
    flags: Vec<u8>,
    cells: Vec<Cell>,
    /// Bytes of split words; the word's `write_site` is the index.
    splits: Vec<[Cell; 4]>,
    /// Readers, where there are several.
    sets: Vec<Vec<(Epoch, u32)>>,
    free_splits: Vec<u32>,
    free_sets: Vec<usize>,
    /// The same for lanes of one warp.
    pub(super) lanes: LaneBooks,
}

/// Who makes an access.
#[derive(Clone, Copy)]
pub(super) struct Who<'a> {
    pub(super) epoch: Epoch,
    pub(super) clock: &'a Clock,
    /// What copies come after besides, but for what warps have written: [`Warp::drained`](super::warp::Warp::drained).
    pub(super) drained: &'a Clock,
    pub(super) site: u32,
    /// Actors from here on are copies, whose writes other copies see without a proxy fence.
    pub(super) copiers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Read,
    Write,
    /// A read that a bulk copy or a matrix product makes on its own behalf: checked against its issuer's clock, entered
    /// under its own epoch.
    AsyncRead(Epoch),
    /// A bulk copy about to write: checked as a write of its issuer, entered when it lands.
    CopyWrite,
    /// A write that `cp.async` makes on its own behalf: checked against its issuer's clock, entered under its own
    /// epoch.
    AsyncWrite(Epoch),
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Objection {
    /// The byte has never been written.
    Unwritten,
    /// A copy into it is under way.
    InFlight,
    /// It is part of an mbarrier.
    Barrier,
    /// A warp wrote it, and no proxy fence lets copies see that.
    Unfenced { site: u32 },
    /// Another access is not ordered before this one.
    Race { other: Epoch, site: u32, wrote: bool },
}

impl Shadow {
    /// Forgets everything; the memory has `bytes` bytes from now on.
    pub(super) fn reset(&mut self, bytes: usize) {
        let words = bytes.div_ceil(4);
        self.flags.clear();
        self.flags.resize(words, 0);
        if self.cells.len() < words {
            self.cells.resize(words, Cell::default());
        }
        self.splits.clear();
        self.sets.clear();
        self.free_splits.clear();
        self.free_sets.clear();
        self.lanes.reset(bytes);
    }

    /// Enters an access to `len` bytes at offset `at`; on an objection, tells the byte.
    #[inline]
    pub(super) fn touch(
        &mut self,
        at: usize,
        len: usize,
        touch: Touch,
        who: Who<'_>,
    ) -> Result<(), (usize, Objection)> {
        let end = at + len;
        let mut word = at / 4;
        while word * 4 < end {
            let first = at.max(word * 4) - word * 4;
            let last = end.min(word * 4 + 4) - word * 4;
            let bytes = (WRITTEN >> (4 - last)) & (WRITTEN << first);
            if let Err((byte, objection)) = self.touch_word(word, bytes, touch, who) {
                return Err((word * 4 + byte as usize, objection));
            }
            word += 1;
        }
        Ok(())
    }

    /// Enters an asynchronous read of whole words. What was written in the epoch `seen` is known to be there to be
    /// read; answers with the next such epoch.
    #[inline]
    pub(super) fn read_words(
        &mut self,
        at: usize,
        len: usize,
        reader: Epoch,
        who: Who<'_>,
        mut seen: Epoch,
    ) -> Result<Epoch, (usize, Objection)> {
        for word in at / 4..(at + len) / 4 {
            let cell = &mut self.cells[word];
            let known = self.flags[word] == WRITTEN && cell.write == seen;
            if known && cell.read == reader {
                continue;
            }
            if known
                && (cell.read == Epoch::NEVER || cell.read.as_set().is_none() && cell.read.actor() == reader.actor())
            {
                (cell.read, cell.read_site) = (reader, who.site);
                continue;
            }
            self.touch_word(word, WRITTEN, Touch::AsyncRead(reader), who)
                .map_err(|(byte, objection)| (word * 4 + byte as usize, objection))?;
            if self.flags[word] == WRITTEN {
                seen = self.cells[word].write;
            }
        }
        Ok(seen)
    }

    /// Enters an access to these bytes of a word; on an objection, tells the first byte of the word that it concerns.
    #[inline]
    fn touch_word(&mut self, word: usize, bytes: u8, touch: Touch, who: Who<'_>) -> Result<(), (u32, Objection)> {
        let flags = self.flags[word];
        if flags & (FLIGHT | BARRIER) != 0 {
            let objection = if flags & BARRIER != 0 {
                Objection::Barrier
            } else {
                Objection::InFlight
            };
            return Err((bytes.trailing_zeros(), objection));
        }
        let reads = matches!(touch, Touch::Read | Touch::AsyncRead(_));
        if reads && flags & bytes != bytes {
            return Err(((bytes & !flags).trailing_zeros(), Objection::Unwritten));
        }
        if flags == 0 {
            self.cells[word] = Cell::default();
        }
        if flags & SPLIT == 0 && bytes == WRITTEN {
            enter(&mut self.cells[word], touch, who, &mut self.sets, &mut self.free_sets).map_err(|why| (0, why))?;
        } else {
            self.touch_bytes(word, bytes, touch, who)?;
        }
        match touch {
            Touch::Write | Touch::AsyncWrite(_) => self.flags[word] |= bytes,
            Touch::CopyWrite => self.flags[word] |= FLIGHT,
            _ => {}
        }
        Ok(())
    }

    #[cold]
    fn touch_bytes(&mut self, word: usize, bytes: u8, touch: Touch, who: Who<'_>) -> Result<(), (u32, Objection)> {
        if self.flags[word] & SPLIT == 0 {
            let cell = self.cells[word];
            // A set of readers cannot have four owners, so each byte gets a copy.
            let quarters = [0; 4].map(|_| {
                let mut quarter = cell;
                if let Some(set) = cell.read.as_set() {
                    let copy = self.sets[set].clone();
                    quarter.read = new_set(&mut self.sets, &mut self.free_sets, copy);
                }
                quarter
            });
            if let Some(set) = cell.read.as_set() {
                self.free_sets.push(set);
            }
            let index = match self.free_splits.pop() {
                Some(index) => {
                    self.splits[index as usize] = quarters;
                    index
                }
                None => {
                    self.splits.push(quarters);
                    (self.splits.len() - 1) as u32
                }
            };
            self.cells[word].write_site = index;
            self.flags[word] |= SPLIT;
        }
        let index = self.cells[word].write_site;
        for byte in 0..4 {
            if bytes & 1 << byte != 0 {
                let cell = &mut self.splits[index as usize][byte];
                enter(cell, touch, who, &mut self.sets, &mut self.free_sets).map_err(|why| (byte as u32, why))?;
            }
        }
        if bytes == WRITTEN && matches!(touch, Touch::Write | Touch::AsyncWrite(_)) {
            // All four bytes now say the same.
            self.cells[word] = self.splits[index as usize][0];
            self.free_splits.push(index);
            self.flags[word] &= !SPLIT;
        }
        Ok(())
    }

    /// Enters the write of a copy that lands: whole words, known to whoever knows `epoch`.
    pub(super) fn land(&mut self, at: usize, len: usize, epoch: Epoch, site: u32) {
        let cell = Cell {
            write: epoch,
            write_site: site,
            ..Cell::default()
        };
        for word in at / 4..(at + len) / 4 {
            self.drop_readers(word);
            self.flags[word] = WRITTEN;
            self.cells[word] = cell;
        }
    }

    /// Makes 8 bytes an mbarrier's, or gives them back; either way their bytes count as unwritten.
    pub(super) fn set_barrier(&mut self, at: usize, barrier: bool) {
        for word in [at / 4, at / 4 + 1] {
            self.drop_readers(word);
            self.flags[word] = if barrier { BARRIER } else { 0 };
            self.cells[word] = Cell::default();
        }
    }

    fn drop_readers(&mut self, word: usize) {
        if self.flags[word] == 0 {
            return;
        }
        if self.flags[word] & SPLIT != 0 {
            let index = self.cells[word].write_site;
            for cell in self.splits[index as usize] {
                self.free_sets.extend(cell.read.as_set());
            }
            self.free_splits.push(index);
        } else {
            self.free_sets.extend(self.cells[word].read.as_set());
        }
    }
}

fn new_set(sets: &mut Vec<Vec<(Epoch, u32)>>, free: &mut Vec<usize>, set: Vec<(Epoch, u32)>) -> Epoch {
    match free.pop() {
        Some(index) => {
            sets[index] = set;
            Epoch::set(index)
        }
        None => {
            sets.push(set);
            Epoch::set(sets.len() - 1)
        }
    }
}

/// Whether `other` races with an access of `who`.
#[inline]
fn races(other: Epoch, who: Who<'_>) -> bool {
    other != Epoch::NEVER
        && other.actor() != who.epoch.actor()
        && !(other.strong() && who.epoch.strong())
        && !who.clock.knows(other)
}

/// The same for a copy about to write, which may race with a write or, `read`, with a read.
#[inline]
fn copy_races(other: Epoch, read: bool, who: Who<'_>) -> bool {
    let is_drained = (read || other.actor() >= who.copiers) && who.drained.knows(other);
    races(other, who) && !is_drained
}

#[inline]
fn enter(
    cell: &mut Cell,
    touch: Touch,
    who: Who<'_>,
    sets: &mut Vec<Vec<(Epoch, u32)>>,
    free_sets: &mut Vec<usize>,
) -> Result<(), Objection> {
    // Lanes of one `cp.async` do not race among themselves.
    let races_with_write = match touch {
        Touch::CopyWrite => copy_races(cell.write, false, who),
        touch => races(cell.write, who) && touch != Touch::AsyncWrite(cell.write),
    };
    if races_with_write {
        return Err(Objection::Race {
            other: cell.write,
            site: cell.write_site,
            wrote: true,
        });
    }
    let reader = match touch {
        Touch::Read => who.epoch,
        Touch::AsyncRead(_) if cell.write.actor() < who.copiers && !who.clock.copies_see(cell.write) => {
            return Err(Objection::Unfenced { site: cell.write_site });
        }
        Touch::AsyncRead(epoch) => epoch,
        Touch::Write => return enter_write(cell, Some(who.epoch), who, sets, free_sets),
        Touch::AsyncWrite(epoch) => return enter_write(cell, Some(epoch), who, sets, free_sets),
        Touch::CopyWrite => return enter_write(cell, None, who, sets, free_sets),
    };
    if cell.read == reader {
        return Ok(());
    }
    if let Some(set) = cell.read.as_set() {
        let set = &mut sets[set];
        set.retain(|&(other, _)| other.actor() != reader.actor() && !who.clock.knows(other));
        set.push((reader, who.site));
    } else if cell.read == Epoch::NEVER || cell.read.actor() == reader.actor() || who.clock.knows(cell.read) {
        cell.read = reader;
        cell.read_site = who.site;
    } else {
        let readers = vec![(cell.read, cell.read_site), (reader, who.site)];
        cell.read = new_set(sets, free_sets, readers);
    }
    Ok(())
}

/// Enters a write, under an epoch if it is one of now.
#[inline]
fn enter_write(
    cell: &mut Cell,
    entered: Option<Epoch>,
    who: Who<'_>,
    sets: &[Vec<(Epoch, u32)>],
    free_sets: &mut Vec<usize>,
) -> Result<(), Objection> {
    let race = |(other, site)| Objection::Race {
        other,
        site,
        wrote: false,
    };
    // Of writes, those of copies alone have no epoch yet.
    let races = |other: Epoch| match entered {
        None => copy_races(other, true, who),
        Some(_) => races(other, who),
    };
    if let Some(set) = cell.read.as_set() {
        if let Some(&other) = sets[set].iter().find(|(other, _)| races(*other)) {
            return Err(race(other));
        }
        if entered.is_some() {
            free_sets.push(set);
        }
    } else if races(cell.read) {
        return Err(race((cell.read, cell.read_site)));
    }
    if let Some(write) = entered {
        *cell = Cell {
            write,
            write_site: who.site,
            ..Cell::default()
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ACTORS: usize = 4;
    const BYTES: usize = 12;

    #[derive(Clone, Debug)]
    enum Step {
        Access {
            actor: usize,
            at: usize,
            len: usize,
            write: bool,
            strong: bool,
        },
        Order {
            from: usize,
            to: usize,
        },
    }

    fn steps(strong: bool) -> impl Strategy<Value = Vec<Step>> {
        let access = (0..ACTORS, 0..BYTES, 1..9usize, any::<bool>(), any::<bool>()).prop_map(
            move |(actor, at, len, write, s)| Step::Access {
                actor,
                at,
                len: len.min(BYTES - at),
                write,
                strong: s && strong,
            },
        );
        let order = (0..ACTORS, 0..ACTORS).prop_map(|(from, to)| Step::Order { from, to });
        prop::collection::vec(prop_oneof![access, order], 1..40)
    }

    /// Runs the steps up to the first access that is objected to by the books or by a plain list of all accesses, and
    /// tells who objected: the books, the list.
    fn first_objections(steps: &[Step]) -> (bool, bool) {
        let mut shadow = Shadow::default();
        shadow.reset(BYTES);
        let mut clocks: Vec<Clock> = vec![Clock::default(); ACTORS];
        for (actor, clock) in clocks.iter_mut().enumerate() {
            clock.set(actor, 1);
        }
        // Everything starts written, by an actor that everybody knows.
        let start = Epoch::new(ACTORS, 0, false);
        shadow.land(0, BYTES, start, 0);
        let mut past: Vec<(usize, Epoch, bool)> = Vec::new();
        for step in steps {
            match *step {
                Step::Order { from, to } => {
                    let known = clocks[from].clone();
                    clocks[to].join(&known);
                    let next = clocks[from].get(from) + 1;
                    clocks[from].set(from, next);
                }
                Step::Access {
                    actor,
                    at,
                    len,
                    write,
                    strong,
                } => {
                    let clock = &clocks[actor];
                    let epoch = Epoch::new(actor, clock.get(actor), strong);
                    let races = past.iter().any(|&(byte, other, wrote)| {
                        (at..at + len).contains(&byte)
                            && (write || wrote)
                            && other.actor() != actor
                            && !(strong && other.strong())
                            && !clock.knows(other)
                    });
                    let who = Who {
                        epoch,
                        clock,
                        drained: &Clock::default(),
                        site: 0,
                        copiers: ACTORS,
                    };
                    let touch = if write { Touch::Write } else { Touch::Read };
                    let objects = shadow.touch(at, len, touch, who).is_err();
                    if objects || races {
                        return (objects, races);
                    }
                    past.extend((at..at + len).map(|byte| (byte, epoch, write)));
                }
            }
        }
        (false, false)
    }

    proptest! {
        #[test]
        fn the_books_find_the_first_race_and_nothing_else(steps in steps(false)) {
            let (books, list) = first_objections(&steps);
            prop_assert_eq!(books, list);
        }

        /// Of several unordered strong accesses only the last is kept, so that races with the others may go unseen; but
        /// what is objected to is a race.
        #[test]
        fn strong_accesses_never_raise_false_alarms(steps in steps(true)) {
            let (books, list) = first_objections(&steps);
            prop_assert!(list || !books);
        }
    }
}
