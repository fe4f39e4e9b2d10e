//! A warp: registers, and lanes in groups that share an instruction pointer.

use std::collections::HashMap;
use std::sync::Arc;

use super::async_copy::AsyncCopies;
use super::clock::{Abroad, Clock, Epoch};
use super::frames::{FrameId, Frames};
use super::held::Products;
use super::lane_books::Interval;
use crate::program::{CONSTANT, FULL, Lanes, Mask, PredSource, Program, Reg, WARP};

/// Instructions that a group of lanes may execute before the other groups of its warp, which would otherwise wait for
/// it, get their turn.
const QUANTUM: u32 = 1 << 12;
/// What a failed poll counts as.
const POLL: u32 = QUANTUM / 16;

/// What a group of lanes waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    /// A CTA barrier that it has arrived at.
    Barrier(u32),
    /// The cluster barrier.
    Cluster,
    /// An mbarrier's phase, or copies: it will execute its instruction again.
    Sleep,
    /// Lanes that may still come to this aligned instruction.
    Converge,
    /// Lanes that the instruction's member mask names.
    Members(Mask),
    /// The other warps of its warpgroup, which must take part in a matrix product.
    Warpgroup,
}

/// Lanes that share an instruction pointer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The call that they are in.
    pub(super) frame: FrameId,
    pub(super) pc: u32,
    pub(super) mask: Mask,
    pub(super) wait: Wait,
    /// Instructions executed since the warp was last whole.
    pub(super) spent: u32,
    /// Whether a suspended wait is to answer "not yet" instead of suspending again.
    pub(super) timed_out: bool,
    /// Whether it may run past the place where lanes behind it will join it.
    pub(super) forced: bool,
}

#[derive(Debug)]
pub(super) struct Warp {
    /// Its CTA's rank in the cluster.
    pub(super) cta: usize,
    /// Its index in the CTA.
    pub(super) index: u32,
    pub(super) registers: Vec<Lanes>,
    pub(super) predicates: Vec<Mask>,
    pub(super) carry: Mask,
    /// Local memory, lane after lane, and the bytes of each.
    pub(super) local: Vec<u8>,
    pub(super) local_size: usize,
    pub(super) frames: Frames,
    pub(super) groups: Vec<Group>,
    pub(super) current: usize,
    /// Lanes that have a thread that has not exited.
    pub(super) live: Mask,
    /// What it knows of others; its own entry is its time.
    pub(super) clock: Clock,
    /// What it knew at its last memory fence: what its relaxed stores publish.
    pub(super) fence: Option<Clock>,
    /// The same, for other clusters; none where that fence was not for the whole device.
    pub(super) fence_abroad: Option<Arc<Abroad>>,
    /// What those of other CTAs had done who arrived at mbarriers that it has waited for, whatever the scope. The ISA
    /// gives an arrival with the scope of its CTA no meaning for others. But whoever arrives has its operands in
    /// registers, or has waited for its matrix products, and a bulk copy that is issued after that arrival has been
    /// seen cannot reach shared memory before: so copies, and they alone, come after what others have read, and after
    /// the copies that these have seen land. CUTLASS's pipelines rest on the same.
    pub(super) drained: Clock,
    /// What its relaxed loads have met: learnt at the next memory fence.
    pub(super) met: Option<Clock>,
    /// Like `fence`, for `fence.mbarrier_init`.
    pub(super) init_fence: Option<Clock>,
    /// What it knows besides `clock` about initialisations of mbarriers.
    pub(super) inits: Clock,
    /// What its lanes have done to shared memory since they were last ordered.
    pub(super) interval: Interval,
    /// Lanes that have arrived at the cluster barrier and not yet waited.
    pub(super) cluster_arrived: Mask,
    /// Of these, the ones whose phase is still incomplete.
    pub(super) cluster_pending: Mask,
    /// Bulk groups per lane, made when the first copy joins one.
    pub(super) bulk: Vec<LaneGroups>,
    /// Bulk copies out of shared memory that it has issued.
    pub(super) copies_read: u32,
    /// Its `cp.async`.
    pub(super) async_copies: AsyncCopies,
    /// Matrix instructions of its warpgroup.
    pub(super) products: Products,
    /// For each instruction that has written to global memory, when it last did, and that moment's number in the
    /// launch.
    pub(super) moments: HashMap<u32, (Epoch, u32)>,
}

/// One lane's copies from shared memory to global memory.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneGroups {
    /// Copies since the last commit: flight, number among the warp's reads, site.
    pub(super) open: Vec<(u64, u32, u32)>,
    /// Committed groups that have not been waited for.
    pub(super) committed: Vec<Vec<(u64, u32, u32)>>,
}

impl Warp {
    pub(super) fn new(cta: usize, index: u32, threads: Mask, program: &Program) -> Warp {
        let group = Group {
            frame: 0,
            pc: 0,
            mask: threads,
            wait: Wait::Nothing,
            spent: 0,
            timed_out: false,
            forced: false,
        };
        Warp {
            cta,
            index,
            registers: vec![[0; WARP]; program.registers as usize],
            predicates: vec![0; program.predicates as usize],
            carry: 0,
            local: vec![0; program.local_bytes as usize * WARP],
            local_size: program.local_bytes as usize,
            frames: Frames::new(program.local_bytes),
            groups: vec![group],
            current: 0,
            live: threads,
            clock: Clock::default(),
            fence: None,
            fence_abroad: None,
            drained: Clock::default(),
            met: None,
            init_fence: None,
            inits: Clock::default(),
            interval: Interval::default(),
            cluster_arrived: 0,
            cluster_pending: 0,
            bulk: Vec::new(),
            copies_read: 0,
            async_copies: AsyncCopies::default(),
            products: Products::default(),
            moments: HashMap::new(),
        }
    }

    /// A register's value in every lane.
    #[inline]
    pub(super) fn read<'a>(&'a self, constants: &'a [Lanes], reg: Reg) -> &'a Lanes {
        let registers = &self.registers;
        match registers.get(reg as usize) {
            Some(lanes) => lanes,
            None => &constants[(reg & !CONSTANT) as usize],
        }
    }

    /// The values of some 32-bit registers, lane by lane.
    pub(super) fn fragment<const N: usize>(&self, constants: &[Lanes], regs: &[Reg; N]) -> [[u32; N]; WARP] {
        let values = regs.map(|reg| self.read(constants, reg));
        std::array::from_fn(|lane| values.map(|value| value[lane] as u32))
    }

    /// Sets a register in the lanes of a mask.
    #[inline]
    pub(super) fn write(&mut self, reg: Reg, mask: Mask, value: &Lanes) {
        let register = &mut self.registers[reg as usize];
        if mask == FULL {
            *register = *value;
        } else {
            for lane in 0..WARP {
                if mask & 1 << lane != 0 {
                    register[lane] = value[lane];
                }
            }
        }
    }

    #[inline]
    pub(super) fn pred(&self, source: PredSource) -> Mask {
        self.predicates[source.index as usize] ^ source.flip
    }

    #[inline]
    pub(super) fn set_pred(&mut self, index: u32, mask: Mask, value: Mask) {
        let pred = &mut self.predicates[index as usize];
        *pred = (*pred & !mask) | (value & mask);
    }

    pub(super) fn group(&self) -> &Group {
        &self.groups[self.current]
    }

    pub(super) fn group_mut(&mut self) -> &mut Group {
        &mut self.groups[self.current]
    }

    /// Whether all lanes have exited.
    pub(super) fn done(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether any group could run.
    pub(super) fn ready(&mut self, program: &Program) -> bool {
        match self.groups.as_slice() {
            [] => false,
            [one] => one.wait == Wait::Nothing,
            _ => self.select(program),
        }
    }

    /// Joins groups that have met, and makes the group that should run current; false where none can.
    ///
    /// The lowest instruction goes first. A group that stands where lanes behind it must pass waits for them, as the
    /// hardware's convergence barriers make it wait, unless they spin or the cluster would stand still.
    pub(super) fn select(&mut self, program: &Program) -> bool {
        self.join_groups();
        if let [one] = self.groups.as_mut_slice() {
            one.spent = 0;
            one.forced = false;
            self.current = 0;
            return one.wait == Wait::Nothing;
        }
        let lowest = (self.groups.iter().copied()).min_by(|a, b| self.frames.compare(a, b));
        for group in &mut self.groups {
            // Nobody is left to come: let the instruction say what it thinks of that.
            let first = lowest.is_some_and(|lowest| (lowest.frame, lowest.pc) == (group.frame, group.pc));
            if group.wait == Wait::Converge && first {
                group.wait = Wait::Nothing;
            }
        }
        let mut best: Option<((u32, bool), usize)> = None;
        let mut any_free = false;
        for (i, group) in self.groups.iter().enumerate() {
            if group.wait != Wait::Nothing {
                continue;
            }
            let held = !group.forced && self.is_behind(group, program);
            any_free |= !held;
            let key = (group.spent / QUANTUM, held);
            let precedes = |(other, at): (_, usize)| {
                let order = key.cmp(&other);
                order.then_with(|| self.frames.compare(group, &self.groups[at])).is_lt()
            };
            if best.is_none_or(precedes) {
                best = Some((key, i));
            }
        }
        match best {
            Some((_, i)) if any_free => {
                self.current = i;
                true
            }
            _ => false,
        }
    }

    /// Whether other lanes will come to where this group stands.
    fn is_behind(&self, group: &Group, program: &Program) -> bool {
        let comes = |other: &Group| {
            let apart = self.frames.apart(group, other);
            apart.is_some_and(|(ahead, behind)| program.post_dominates(ahead, behind))
        };
        self.groups.iter().any(comes)
    }

    /// Whether any lanes stand where they might still come to the current group's instruction.
    pub(super) fn any_behind(&self) -> bool {
        let group = self.group();
        self.groups
            .iter()
            .any(|other| self.frames.compare(other, group).is_lt())
    }

    fn join_groups(&mut self) {
        let joins = |g: &Group| !matches!(g.wait, Wait::Barrier(_) | Wait::Cluster);
        let mut i = 0;
        while i < self.groups.len() {
            let mut j = i + 1;
            while j < self.groups.len() {
                let (a, b) = (self.groups[i], self.groups[j]);
                if (a.frame, a.pc) == (b.frame, b.pc) && joins(&a) && joins(&b) {
                    self.groups[i] = Group {
                        mask: a.mask | b.mask,
                        wait: Wait::Nothing,
                        spent: a.spent.max(b.spent),
                        timed_out: a.timed_out && b.timed_out,
                        forced: false,
                        ..a
                    };
                    self.groups.remove(j);
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    /// Lets groups run that wait only for lanes behind them. Whether there were any.
    pub(super) fn force(&mut self) -> bool {
        let held = |g: &&mut Group| g.wait == Wait::Nothing && !g.forced;
        let mut any = false;
        for group in self.groups.iter_mut().filter(held) {
            group.forced = true;
            any = true;
        }
        any
    }

    /// Lanes have exited: whoever waits for them shall look again.
    pub(super) fn recheck(&mut self) {
        for group in &mut self.groups {
            if matches!(group.wait, Wait::Converge | Wait::Members(_)) {
                group.wait = Wait::Nothing;
            }
        }
    }

    /// Splits the current group: `taken` go to `target`, the rest to the next instruction.
    pub(super) fn branch(&mut self, taken: Mask, target: u32) {
        let group = self.group_mut();
        if taken == group.mask {
            group.pc = target;
            return;
        }
        group.pc += 1;
        if taken != 0 {
            group.mask &= !taken;
            let mut other = *group;
            other.mask = taken;
            other.pc = target;
            self.groups.push(other);
        }
    }

    /// Counts a poll that failed, so that lanes that spin let the others go on.
    pub(super) fn polled(&mut self) {
        let group = self.group_mut();
        group.spent = group.spent.saturating_add(POLL);
    }
}

/// The lanes of a mask, lowest first.
#[inline]
pub(super) fn lanes(mask: Mask) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        (left != 0).then(|| {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            lane
        })
    })
}
