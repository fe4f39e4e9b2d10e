//! Telling what went wrong.

use std::borrow::Cow;

use super::clock::Epoch;
use super::cluster::{Cluster, cta_at};
use super::lane_books::Unordered;
use super::order::Actor;
use super::shadow::{Objection, Touch};
use super::warp::{Wait, lanes};
use crate::error::{Fault, FaultKind};

/// What is wrong, before it is known where.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) kind: FaultKind,
    pub(super) lane: usize,
    pub(super) detail: String,
}

pub(super) fn trouble(kind: FaultKind, lane: usize, detail: String) -> Box<Trouble> {
    Box::new(Trouble { kind, lane, detail })
}

impl Cluster<'_> {
    /// A fault of a warp at an instruction.
    pub(super) fn fault(&self, w: usize, site: u32, trouble: Trouble) -> Box<Fault> {
        let program = self.env.program;
        let source = &program.sites[site as usize];
        let warp = &self.warps[w];
        Box::new(Fault {
            kind: trouble.kind,
            kernel: program.name.clone(),
            line: source.line,
            instruction: source.text.to_string(),
            cta: self.ctas[warp.cta].at,
            warp: warp.index,
            lane: trouble.lane as u32,
            detail: trouble.detail,
        })
    }

    pub(super) fn name_warp(&self, w: usize) -> String {
        let warp = &self.warps[w];
        let [x, y, z] = self.ctas[warp.cta].at;
        format!("warp {} of CTA ({x}, {y}, {z})", warp.index)
    }

    pub(super) fn name_site(&self, site: u32) -> String {
        let site = &self.env.program.sites[site as usize];
        format!("line {} `{}`", site.line, shortened(&site.text))
    }

    /// Who an epoch belongs to.
    fn name_actor(&self, epoch: Epoch) -> String {
        self.name_actor_of(self.index, epoch)
    }

    /// Who an epoch of an actor of some cluster belongs to.
    pub(super) fn name_actor_of(&self, cluster: u64, epoch: Epoch) -> String {
        let name = |w: usize| {
            let warp = &self.warps[w];
            let [x, y, z] = cta_at(self.env, cluster, warp.cta as u32);
            format!("warp {} of CTA ({x}, {y}, {z})", warp.index)
        };
        match self.who(epoch.actor()) {
            Actor::Warp(w) => name(w),
            Actor::Reader(w) => format!("a bulk copy of {}", name(w)),
            Actor::Writer(w) => format!("a `cp.async` of {}", name(w)),
            Actor::Multiplier => "a matrix product".into(),
            Actor::Copier => "an asynchronous copy".into(),
        }
    }

    /// What the books of lanes say against a lane's access to a CTA's shared memory.
    #[cold]
    pub(super) fn lanes_unordered(&self, rank: usize, lane: usize, writes: bool, other: Unordered) -> Box<Trouble> {
        let [x, y, z] = self.ctas[rank].at;
        let address = other.byte as u64 + u64::from(crate::program::SHARED_BASE);
        let detail = format!(
            "{} shared memory of CTA ({x}, {y}, {z}) at {address:#x}, which lane {} of the same warp {} at {}: a \
             `bar.warp.sync` must stand between the two",
            if writes { "writes" } else { "reads" },
            other.lane,
            if other.wrote { "wrote" } else { "read" },
            self.name_site(other.site)
        );
        trouble(FaultKind::LaneRace, lane, detail)
    }

    /// What the books say against an access to `bytes` bytes of a CTA's shared memory.
    pub(super) fn objection(
        &self,
        rank: usize,
        byte: usize,
        touch: Touch,
        lane: usize,
        objection: Objection,
    ) -> Box<Trouble> {
        let [x, y, z] = self.ctas[rank].at;
        let address = byte as u64 + u64::from(crate::program::SHARED_BASE);
        let place = format!("shared memory of CTA ({x}, {y}, {z}) at {address:#x}");
        let multiplies = matches!(touch, Touch::AsyncRead(read) if self.who(read.actor()) == Actor::Multiplier);
        let does = match touch {
            Touch::Read => "reads",
            Touch::Write => "writes",
            Touch::AsyncRead(_) if multiplies => "multiplies with",
            Touch::AsyncRead(_) => "copies from",
            Touch::CopyWrite | Touch::AsyncWrite(_) => "copies to",
        };
        let (kind, detail) = match objection {
            Objection::Unwritten => (
                FaultKind::UninitialisedShared,
                format!("{does} {place}, which nothing has written"),
            ),
            Objection::Unfenced { site } => (
                if multiplies {
                    FaultKind::AsyncMatrix
                } else {
                    FaultKind::AsyncCopy
                },
                format!(
                    "{does} {place}, written at {} with no `fence.proxy.async` between the two, so that it may not see what was \
                     written",
                    self.name_site(site)
                ),
            ),
            Objection::Barrier => (
                FaultKind::Mbarrier,
                format!("{does} {place}, where an mbarrier object lives; invalidate it first"),
            ),
            Objection::InFlight => {
                let flight = (self.flights.iter()).find(|f| f.writes(rank, byte));
                let by = flight.map_or(String::new(), |f| {
                    format!(" that {} began at {}", self.name_warp(f.issuer), self.name_site(f.site))
                });
                (
                    FaultKind::AsyncCopy,
                    format!("{does} {place}, into which the asynchronous copy{by} is still under way"),
                )
            }
            Objection::Race { other, site, wrote } => {
                let did = if wrote { "wrote" } else { "read" };
                let (kind, remedy) = match self.who(other.actor()) {
                    Actor::Copier => (FaultKind::AsyncCopy, "wait on the copy's mbarrier first"),
                    Actor::Reader(_) => (FaultKind::AsyncCopy, "wait for the bulk group first"),
                    Actor::Writer(_) => (
                        FaultKind::AsyncCopy,
                        "wait for it with `cp.async.wait_group` or an mbarrier, and let others know of that by a barrier",
                    ),
                    Actor::Multiplier => (
                        FaultKind::AsyncMatrix,
                        "wait for it with `wgmma.wait_group`, and let whoever overwrites the bytes know of that by a barrier",
                    ),
                    Actor::Warp(_) if multiplies => (FaultKind::AsyncMatrix, "a barrier must stand between the two"),
                    Actor::Warp(_) => (FaultKind::SharedRace, "a barrier must stand between the two"),
                };
                (
                    kind,
                    format!(
                        "{does} {place}, which {} {did} at {} with nothing that orders the two; {remedy}",
                        self.name_actor(other),
                        self.name_site(site)
                    ),
                )
            }
        };
        trouble(kind, lane, detail)
    }

    /// The fault of a cluster in which nobody can go on.
    pub(super) fn deadlock(&self, why: &str) -> Box<Fault> {
        let mut first = None;
        let mut waits = Vec::new();
        let mut partial = None;
        for (w, warp) in self.warps.iter().enumerate() {
            for group in &warp.groups {
                let inst = &self.env.program.code[group.pc as usize];
                first.get_or_insert((w, inst.site, group.mask));
                if group.wait == Wait::Converge {
                    partial.get_or_insert((w, inst.site, group.mask));
                }
                let what = match group.wait {
                    Wait::Nothing => "runs".to_owned(),
                    Wait::Barrier(id) => {
                        let barrier = &self.ctas[warp.cta].barriers[id as usize];
                        let all = barrier.expected.unwrap_or(self.ctas[warp.cta].live_threads);
                        format!(
                            "waits for barrier {id} ({} of {all} threads are there)",
                            barrier.arrived
                        )
                    }
                    Wait::Cluster => "waits for the cluster barrier".into(),
                    Wait::Sleep => "waits for a phase or a copy".into(),
                    Wait::Converge => "waits for the rest of its warp".into(),
                    Wait::Warpgroup => "waits for the other warps of its warpgroup to take part".into(),
                    Wait::Members(members) => format!("waits for the lanes {members:#010x} of its warp"),
                };
                let line = format!(
                    "{}, lanes {:#010x}, {what} at {}",
                    self.name_warp(w),
                    group.mask,
                    self.name_site(inst.site)
                );
                waits.push(line);
            }
        }
        const SHOWN: usize = 12;
        let more = waits.len().saturating_sub(SHOWN);
        waits.truncate(SHOWN);
        let mut detail = format!("{why}: {}", waits.join("; "));
        if more > 0 {
            detail.push_str(&format!("; and {more} more"));
        }
        let kind = if partial.is_some() {
            FaultKind::PartialWarp
        } else {
            FaultKind::Deadlock
        };
        let (w, site, mask) = partial.or(first).unwrap_or((0, 0, 1));
        let lane = lanes(mask).next().unwrap_or(0);
        self.fault(w, site, Trouble { kind, lane, detail })
    }
}

/// An instruction without the middle of its first list, if that is a long one.
fn shortened(text: &str) -> Cow<'_, str> {
    const SHOWN: usize = 8;
    let list = text
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match list {
        Some((before, (elements, after))) if elements.split(',').count() > SHOWN => {
            let mut elements = elements.split(',').map(str::trim);
            let (first, last) = (elements.next().unwrap_or(""), elements.next_back().unwrap_or(""));
            format!("{before}{{{first}, …, {last}}}{after}").into()
        }
        _ => text.into(),
    }
}
