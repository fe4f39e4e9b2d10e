//! What a launch is counted to have done.

use std::collections::BTreeMap;

/// Counts of one launch, or of several added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Instructions that warps issued, by opcode with all its qualifiers.
    pub instructions: BTreeMap<String, u64>,
    /// Global memory traffic, by the base address of the allocation.
    pub traffic: BTreeMap<u64, Traffic>,
    /// Extra passes that bank conflicts cost loads from shared memory.
    pub load_conflicts: u64,
    /// Extra passes that bank conflicts cost stores to and atomics on shared memory.
    pub store_conflicts: u64,
    /// How often the busiest warp of a kernel issued the instructions of each line of the PTX text. It is the one that
    /// came through most lines, and of those the one that issued most instructions. Counted where
    /// [`Options::count_lines`](crate::Options::count_lines) asks for it.
    pub lines: BTreeMap<String, BTreeMap<u32, u64>>,
}

/// Global memory traffic of one allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes that lanes and copies read.
    pub read_bytes: u64,
    /// 32-byte sectors read: the distinct ones of each warp's request, and a copy's bytes over 32.
    pub read_sectors: u64,
    /// Bytes that lanes and copies wrote.
    pub written_bytes: u64,
    /// 32-byte sectors written, counted in the same way.
    pub written_sectors: u64,
}

impl Counters {
    /// Instructions issued whose opcode starts with these dotted parts: `count("ld.global")` counts
    /// `ld.global.nc.v4.b32` too.
    pub fn count(&self, prefix: &str) -> u64 {
        let matches = |name: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.instructions
            .iter()
            .filter(|(name, _)| matches(name))
            .map(|(_, n)| n)
            .sum()
    }

    /// All instructions issued.
    pub fn total_instructions(&self) -> u64 {
        self.instructions.values().sum()
    }

    /// Adds another launch's counts.
    pub fn add(&mut self, other: &Counters) {
        for (name, n) in &other.instructions {
            *self.instructions.entry(name.clone()).or_default() += n;
        }
        for (&base, traffic) in &other.traffic {
            self.traffic.entry(base).or_default().add(traffic);
        }
        for (kernel, lines) in &other.lines {
            let own = self.lines.entry(kernel.clone()).or_default();
            let busy = |lines: &BTreeMap<u32, u64>| (lines.len(), lines.values().sum::<u64>());
            if busy(lines) > busy(own) {
                own.clone_from(lines);
            }
        }
        self.load_conflicts += other.load_conflicts;
        self.store_conflicts += other.store_conflicts;
    }
}

impl Traffic {
    /// Adds another allocation's, or another launch's, traffic.
    pub fn add(&mut self, other: &Traffic) {
        self.read_bytes += other.read_bytes;
        self.read_sectors += other.read_sectors;
        self.written_bytes += other.written_bytes;
        self.written_sectors += other.written_sectors;
    }
}
