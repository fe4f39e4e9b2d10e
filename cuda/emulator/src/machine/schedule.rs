//! Who runs when: one interleaving picked by a seed, or clusters on all cores.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use super::Env;
use super::cluster::{Cluster, Turn};
use super::spare;
use super::special::MULTIPROCESSORS;
use super::standstill::Watch;
use crate::counters::{Counters, Traffic};
use crate::error::Fault;

/// A small generator of the xorshift family (Marsaglia 2003), with a multiplicative finish.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        // Any seed will do but zero, which the generator cannot leave.
        let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Random((mixed ^ mixed >> 31).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, which must not be zero.
    pub(super) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Instructions between two looks at the launch's state.
const SLICE: u64 = 1 << 16;
/// Instructions without progress after which somebody else is given a chance.
const PATIENCE: u64 = 1 << 13;
/// Instructions that a warp executes before another one's turn, where no seed asks for more variety.
const BURST: u32 = 1 << 10;
/// What a round of polls in a cluster that stands still counts as.
const IDLE_ROUND: u64 = 100_000;
/// Clusters that a seeded run interleaves, where the device could hold that many.
const INTERLEAVED: usize = 8;

/// Runs all clusters of a launch.
pub(crate) fn run(env: &Env<'_>, seed: Option<u64>) -> Result<Counters, Box<Fault>> {
    let totals = Mutex::new(Totals::new(env));
    let next = AtomicU64::new(0);
    match seed {
        Some(seed) => {
            env.state.standstill.begin();
            Worker::new(env, &next, &totals).run_seeded(seed);
        }
        None => {
            let workers = env.clusters().min(cores());
            let share = match env.at_once() {
                // Even where one thread is all there is.
                true => resident(env),
                false => resident(env).div_ceil(workers as usize),
            };
            let standstill = &env.state.standstill;
            let work = || {
                Worker::new(env, &next, &totals).run_freely(share);
                standstill.end();
            };
            // Threads of its own: one of a pool that waited for the others would take up whatever else the pool has to
            // do, perhaps another launch of a caller who holds a lock over this one. Where no more threads are to be
            // had, fewer do.
            std::thread::scope(|scope| {
                // Each counts from before it is there: the system may let it wait.
                standstill.begin();
                for _ in 1..workers {
                    standstill.begin();
                    if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                        standstill.end();
                        break;
                    }
                }
                work();
            });
        }
    }
    let totals = totals.into_inner().unwrap_or_else(|e| e.into_inner());
    match totals.fault {
        Some((_, fault)) => Err(fault),
        None => Ok(totals.counters(env)),
    }
}

/// Threads that the host runs at once.
fn cores() -> u64 {
    static CORES: OnceLock<u64> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u64))
}

/// Clusters that the device could hold at once.
fn resident(env: &Env<'_>) -> usize {
    const THREADS: u32 = 2048;
    const CTAS: u32 = 32;
    const SHARED: u32 = 228 * 1024;
    // The system takes 1 KB of shared memory per CTA.
    let by_shared = SHARED / (env.shared_bytes() + 1024);
    let by_threads = THREADS / env.threads().next_multiple_of(32);
    let ctas = MULTIPROCESSORS * CTAS.min(by_shared).min(by_threads).max(1);
    (ctas as usize / env.ctas_per_cluster()).max(1)
}

/// What finished clusters add up to.
struct Totals {
    /// Executions of each instruction.
    tally: Vec<u64>,
    /// Those by the warp that came through most instructions, where that is asked for.
    busiest: Vec<u64>,
    traffic: Vec<Traffic>,
    conflicts: [u64; 2],
    /// The fault of the cluster with the lowest index.
    fault: Option<(u64, Box<Fault>)>,
}

impl Totals {
    fn new(env: &Env<'_>) -> Self {
        Totals {
            tally: vec![0; env.program.code.len()],
            busiest: vec![0; if env.count_lines { env.program.code.len() } else { 0 }],
            traffic: vec![Traffic::default(); env.allocations.len()],
            conflicts: [0; 2],
            fault: None,
        }
    }

    fn add(&mut self, cluster: &Cluster<'_>) {
        for counts in cluster.tally.chunks_exact(self.tally.len().max(1)) {
            self.tally.iter_mut().zip(counts).for_each(|(a, b)| *a += b);
            // A warp that only polls goes through few instructions often.
            let busy = |counts: &[u64]| (counts.iter().filter(|&&n| n > 0).count(), counts.iter().sum::<u64>());
            if !self.busiest.is_empty() && busy(counts) > busy(&self.busiest) {
                self.busiest.copy_from_slice(counts);
            }
        }
        self.traffic
            .iter_mut()
            .zip(&cluster.view.traffic)
            .for_each(|(a, b)| a.add(b));
        self.conflicts
            .iter_mut()
            .zip(cluster.conflicts)
            .for_each(|(a, b)| *a += b);
    }

    fn counters(self, env: &Env<'_>) -> Counters {
        let mut counters = Counters {
            load_conflicts: self.conflicts[0],
            store_conflicts: self.conflicts[1],
            ..Counters::default()
        };
        for (inst, &n) in env.program.code.iter().zip(&self.tally) {
            let opcode = &*env.program.sites[inst.site as usize].opcode;
            // What the decoder has added counts as nothing.
            if n > 0 && inst.counts {
                *counters.instructions.entry(opcode.to_owned()).or_default() += n;
            }
        }
        for (inst, &n) in env.program.code.iter().zip(&self.busiest) {
            if n > 0 && inst.counts {
                let lines = counters.lines.entry(env.program.name.clone()).or_default();
                // A line may hold several instructions, as many as the decoder has made of it.
                let of_line = lines.entry(env.program.sites[inst.site as usize].line).or_default();
                *of_line = n.max(*of_line);
            }
        }
        for (allocation, traffic) in env.allocations.iter().zip(self.traffic) {
            if traffic != Traffic::default() {
                counters.traffic.insert(allocation.base, traffic);
            }
        }
        counters
    }
}

/// What runs clusters.
struct Worker<'a> {
    env: &'a Env<'a>,
    /// The next cluster to start.
    next: &'a AtomicU64,
    totals: &'a Mutex<Totals>,
    running: Vec<Cluster<'a>>,
    /// Whether no other cluster can start before one that runs has ended.
    full: bool,
    watch: Watch,
}

impl<'a> Worker<'a> {
    fn new(env: &'a Env<'a>, next: &'a AtomicU64, totals: &'a Mutex<Totals>) -> Self {
        Worker {
            env,
            next,
            totals,
            running: Vec::new(),
            full: false,
            watch: Watch::default(),
        }
    }

    fn admit(&mut self, seed: u64) -> bool {
        let index = self.next.fetch_add(1, Relaxed);
        let more = index < self.env.clusters();
        if more {
            let random = Random::new(seed.wrapping_add(index.wrapping_mul(0x9e37_79b9)));
            self.running.push(Cluster::new(self.env, index, random));
            // It may be the one that all others wait for, and has its time from here on.
            self.watch.happened(&self.env.state.standstill);
        }
        more
    }

    /// Slices of time in turn. A cluster that does not end within its slice may wait for one that has not started, so
    /// each round with a leftover starts another.
    fn run_freely(mut self, most: usize) {
        let mut more = true;
        loop {
            while more && self.running.len() < most {
                more = self.admit(0);
                if !self.env.at_once() {
                    break;
                }
            }
            if self.running.is_empty() {
                return;
            }
            self.full = !more || self.running.len() >= most;
            // The latest first: what takes the place of one that is done has had its turn.
            for i in (0..self.running.len()).rev() {
                if self.env.state.stop.load(Relaxed) {
                    return;
                }
                match self.slice(i) {
                    Some(Turn::Done) => self.finish(i),
                    Some(_) => {}
                    None => return,
                }
            }
        }
    }

    /// Runs a cluster for a slice; `None` after a fault.
    fn slice(&mut self, i: usize) -> Option<Turn> {
        let begin = self.running[i].executed;
        for _ in 0..SLICE {
            let start = self.running[i].executed;
            let turn = self.step(i, BURST)?;
            let idle = self.account(i, start, turn)?;
            let executed = self.running[i].executed - begin;
            if turn != Turn::Busy || executed > SLICE || idle.min(executed) > PATIENCE {
                return Some(turn);
            }
        }
        Some(Turn::Busy)
    }

    fn step(&mut self, i: usize, burst: u32) -> Option<Turn> {
        match self.running[i].turn(burst) {
            Ok(turn) => Some(turn),
            Err(fault) => {
                self.fail(i, fault);
                None
            }
        }
    }

    /// One turn after another of clusters picked at random, all from one seed.
    fn run_seeded(mut self, seed: u64) {
        let mut random = Random::new(seed);
        let most = match self.env.at_once() {
            true => resident(self.env),
            false => 1 + random.below(INTERLEAVED.min(resident(self.env))),
        };
        let mut more = true;
        // A spin on a cluster that has not started must end too, so each idle turn makes room for one more.
        let mut room = most;
        loop {
            while more && self.running.len() < room.min(resident(self.env)) {
                more = self.admit(seed);
            }
            if self.running.is_empty() {
                return;
            }
            self.full = !more || self.running.len() >= resident(self.env);
            let i = random.below(self.running.len());
            let start = self.running[i].executed;
            let burst = 1 << random.below(9);
            let Some(turn) = self.step(i, burst) else { return };
            let Some(idle) = self.account(i, start, turn) else {
                return;
            };
            if turn == Turn::Done {
                self.finish(i);
                room = most;
            } else if idle > PATIENCE {
                room = room.max(self.running.len() + 1);
            }
        }
    }

    /// Counts what a cluster executed towards the limits; answers with the instructions since the launch last made
    /// progress, or `None` after a fault.
    fn account(&mut self, i: usize, start: u64, turn: Turn) -> Option<u64> {
        let (env, cluster) = (self.env, &mut self.running[i]);
        let executed = cluster.executed - start;
        let cost = if turn == Turn::Idle {
            executed + IDLE_ROUND
        } else {
            executed
        };
        let total = env.state.total.fetch_add(executed, Relaxed) + executed;
        let all = &env.state.standstill;
        let idle = if std::mem::take(&mut cluster.progress) {
            self.watch.happened(all);
            0
        } else {
            self.watch.idle(all, cost)
        };
        let too_long = self.full && idle > env.limits.idle_instructions;
        let why = if too_long && self.watch.stands_still(all) {
            "nothing visible has happened for too long"
        } else if total > env.limits.total_instructions {
            "the launch has executed all instructions that it may"
        } else {
            if too_long {
                // Whoever makes something happen may want this core.
                std::thread::yield_now();
            }
            return Some(idle);
        };
        let fault = self.running[i].deadlock(why);
        self.fail(i, fault);
        None
    }

    fn finish(&mut self, i: usize) {
        let cluster = self.running.swap_remove(i);
        self.totals.lock().unwrap_or_else(|e| e.into_inner()).add(&cluster);
        spare::give(cluster.ctas);
    }

    fn fail(&mut self, i: usize, fault: Box<Fault>) {
        let index = self.running[i].index;
        let mut totals = self.totals.lock().unwrap_or_else(|e| e.into_inner());
        if totals.fault.as_ref().is_none_or(|(other, _)| index < *other) {
            totals.fault = Some((index, fault));
        }
        self.env.state.stop.store(true, Relaxed);
    }
}
