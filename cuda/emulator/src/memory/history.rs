//! Which launches may still be unfinished while another one runs.
//!
//! With programmatic serialisation a launch starts when every CTA of the one before it has let it (by
//! `griddepcontrol.launch_dependents` or by exiting), and `griddepcontrol.wait` returns when that one has finished.
//! What came before that one is only known to have finished if it waited itself.

use std::collections::BTreeMap;

/// Launches in flight at once, at most: the number of resident grids that compute capability 9.0 allows.
const RESIDENT: usize = 128;
/// Launches whose records are kept.
const KEPT: u32 = 4096;

/// Launches that may be unfinished while one runs, by what it has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Early {
    before_wait: Vec<u32>,
    after_wait: Vec<u32>,
}

impl Early {
    /// Those that may be unfinished before or after `griddepcontrol.wait`.
    pub(crate) fn unfinished(&self, waited: bool) -> &[u32] {
        if waited { &self.after_wait } else { &self.before_wait }
    }
}

#[derive(Debug)]
struct Record {
    early: Early,
    /// Some CTA waited: when the launch has finished, so has what it waited for.
    waited: bool,
    /// Some CTA waited before it let dependents start: they start after what it waited for has finished.
    waited_first: bool,
}

/// Numbers and records of a memory's launches.
#[derive(Debug, Default)]
pub(super) struct History {
    last: u32,
    records: BTreeMap<u32, Record>,
}

impl History {
    /// Numbers a new launch.
    pub(super) fn begin(&mut self, overlaps: Option<u32>) -> (u32, Early) {
        self.last += 1;
        let mut early = Early::default();
        if let Some((id, record)) = overlaps.and_then(|id| Some((id, self.records.get(&id)?))) {
            let at_start = record.early.unfinished(record.waited_first);
            early.before_wait.push(id);
            early.before_wait.extend(at_start.iter().take(RESIDENT - 1));
            early.after_wait.extend(record.early.unfinished(record.waited));
        }
        (self.last, early)
    }

    /// Records a launch that has ended.
    pub(super) fn end(&mut self, id: u32, early: Early, waited: bool, waited_first: bool) {
        self.records.insert(
            id,
            Record {
                early,
                waited,
                waited_first,
            },
        );
        let oldest = id.saturating_sub(KEPT);
        while self.records.first_key_value().is_some_and(|(&id, _)| id < oldest) {
            self.records.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_waited_leaves_its_predecessor_unfinished() {
        let mut history = History::default();
        let (a, early) = history.begin(None);
        history.end(a, early, false, false);
        // b triggers first and waits then; c may start while a runs, but not go past its wait.
        let (b, early) = history.begin(Some(a));
        assert_eq!((early.unfinished(false), early.unfinished(true)), (&[a][..], &[][..]));
        history.end(b, early, true, false);
        let (c, early) = history.begin(Some(b));
        assert_eq!(
            (early.unfinished(false), early.unfinished(true)),
            (&[b, a][..], &[][..])
        );
        // c never waits: d may even pass its own wait while b and a run.
        history.end(c, early, false, false);
        let (d, early) = history.begin(Some(c));
        assert_eq!(early.unfinished(false), [c, b, a]);
        assert_eq!(early.unfinished(true), [b, a]);
        // d waits before it triggers: whoever starts then starts after c.
        history.end(d, early, true, true);
        let (_, early) = history.begin(Some(d));
        assert_eq!(early.unfinished(false), [d, b, a]);
        let (_, early) = history.begin(None);
        assert!(early.unfinished(false).is_empty());
    }
}
