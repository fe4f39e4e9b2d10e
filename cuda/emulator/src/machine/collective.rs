//! Instructions by which the lanes of a warp work together.

use super::alu::low_bits;
use super::cluster::{Cluster, Next};
use super::report::{Trouble, trouble};
use super::schedule::Random;
use super::warp::{Wait, lanes};
use crate::error::FaultKind;
use crate::program::{FULL, Lanes, Mask, Match, Mma, Op, Reduce, Reg, Shuffle, ShuffleMode, Vote, VoteKind, WARP};

impl Cluster<'_> {
    /// Makes sure that the lanes that the member masks name are there. `Ok(Err(next))` where they are still to come.
    fn members(&mut self, w: usize, reg: Reg, exec: Mask) -> Result<Result<Lanes, Next>, Box<Trouble>> {
        let members = *self.warps[w].read(self.env.constants, reg);
        let warp = &self.warps[w];
        let group = *warp.group();
        let mut missing = 0;
        for lane in lanes(exec) {
            let mask = members[lane] as Mask;
            if mask & 1 << lane == 0 {
                let detail = format!("the lane executes it, but its member mask {mask:#010x} leaves it out");
                return Err(trouble(FaultKind::BadInstruction, lane, detail));
            }
            let absent = mask & warp.live & !exec;
            if absent & group.mask != 0 {
                let detail = format!(
                    "the member mask {mask:#010x} names lanes {:#010x}, which skip it by its predicate",
                    absent & group.mask
                );
                return Err(trouble(FaultKind::PartialWarp, lane, detail));
            }
            missing |= absent;
        }
        if missing == 0 {
            return Ok(Ok(members));
        }
        self.warps[w].group_mut().wait = Wait::Members(members[exec.trailing_zeros() as usize] as Mask);
        Ok(Err(Next::Stay))
    }

    pub(super) fn warp_sync(&mut self, w: usize, reg: Reg, exec: Mask) -> Result<Next, Box<Trouble>> {
        match self.members(w, reg, exec)? {
            Ok(_) => {
                self.order_lanes(w);
                Ok(Next::Advance)
            }
            Err(next) => {
                self.meet_elsewhere(w);
                Ok(next)
            }
        }
    }

    /// Lanes may meet at different `bar.warp.sync` instructions if these name the same members.
    fn meet_elsewhere(&mut self, w: usize) {
        let program = self.env.program;
        let warp = &mut self.warps[w];
        let wait = warp.group().wait;
        let Wait::Members(members) = wait else { return };
        let at_sync = |pc: u32| matches!(program.code[pc as usize].op, Op::WarpSync(_));
        let there: Mask = (warp.groups.iter())
            .filter(|g| g.wait == wait && at_sync(g.pc))
            .fold(0, |mask, g| mask | g.mask);
        if members & warp.live & !there == 0 {
            for group in warp.groups.iter_mut().filter(|g| g.wait == wait && at_sync(g.pc)) {
                group.wait = Wait::Nothing;
                group.pc += 1;
            }
            self.order_lanes(w);
        }
    }

    pub(super) fn shuffle(&mut self, w: usize, s: &Shuffle, exec: Mask) -> Result<Next, Box<Trouble>> {
        let members = match self.members(w, s.members, exec)? {
            Ok(members) => members,
            Err(next) => return Ok(next),
        };
        let read = |reg| *self.warps[w].read(self.env.constants, reg);
        let (a, b, c) = (read(s.a), read(s.b), read(s.c));
        let mut out = a;
        let mut in_range = 0;
        for lane in lanes(exec) {
            let (clamp, segment) = (c[lane] as usize & 31, (c[lane] >> 8) as usize & 31);
            let b = b[lane] as usize & 31;
            let most = lane & segment | clamp & !segment;
            let least = lane & segment;
            let (source, ok) = match s.mode {
                ShuffleMode::Up => (lane.wrapping_sub(b), lane as isize - b as isize >= most as isize),
                ShuffleMode::Down => (lane + b, lane + b <= most),
                ShuffleMode::Xor => (lane ^ b, lane ^ b <= most),
                ShuffleMode::Index => (least | b & !segment, least | b & !segment <= most),
            };
            if !ok {
                continue;
            }
            in_range |= 1 << lane;
            if exec & 1 << source == 0 || members[lane] & 1 << source == 0 {
                let detail = format!("it reads from lane {source}, which does not take part");
                return Err(trouble(FaultKind::BadInstruction, lane, detail));
            }
            out[lane] = a[source];
        }
        let warp = &mut self.warps[w];
        if let Some(d) = s.d {
            warp.write(d, exec, &out);
        }
        if let Some(p) = s.p {
            warp.set_pred(p, exec, in_range);
        }
        Ok(Next::Advance)
    }

    pub(super) fn vote(&mut self, w: usize, vote: &Vote, exec: Mask) -> Result<Next, Box<Trouble>> {
        let members = match self.members(w, vote.members, exec)? {
            Ok(members) => members,
            Err(next) => return Ok(next),
        };
        let warp = &mut self.warps[w];
        let yes = warp.pred(vote.p) & exec;
        let mut ballots = [0; WARP];
        let (mut all, mut any) = (0, 0);
        for lane in lanes(exec) {
            let voters = members[lane] as Mask & exec;
            ballots[lane] = u64::from(yes & voters);
            all |= u32::from(yes & voters == voters) << lane;
            any |= u32::from(yes & voters != 0) << lane;
        }
        match vote.kind {
            VoteKind::All(d) => warp.set_pred(d, exec, all),
            VoteKind::Any(d) => warp.set_pred(d, exec, any),
            VoteKind::Uniform(d) => warp.set_pred(d, exec, all | !any),
            VoteKind::Ballot(d) => warp.write(d, exec, &ballots),
        }
        Ok(Next::Advance)
    }

    pub(super) fn match_lanes(&mut self, w: usize, m: &Match, exec: Mask) -> Result<Next, Box<Trouble>> {
        let members = match self.members(w, m.members, exec)? {
            Ok(members) => members,
            Err(next) => return Ok(next),
        };
        let a = *self.warps[w].read(self.env.constants, m.a);
        let mut out = [0; WARP];
        let mut equal = 0;
        for lane in lanes(exec) {
            let voters = members[lane] as Mask & exec;
            let same = lanes(voters)
                .filter(|&l| a[l] == a[lane])
                .fold(0, |mask, l| mask | 1u32 << l);
            let all_same = same == voters;
            equal |= u32::from(all_same) << lane;
            out[lane] = u64::from(if m.all && !all_same { 0 } else { same });
        }
        let warp = &mut self.warps[w];
        if let Some(d) = m.d {
            warp.write(d, exec, &out);
        }
        if let Some(p) = m.p {
            warp.set_pred(p, exec, equal);
        }
        Ok(Next::Advance)
    }

    pub(super) fn reduce(&mut self, w: usize, reduce: &Reduce, exec: Mask) -> Result<Next, Box<Trouble>> {
        let members = match self.members(w, reduce.members, exec)? {
            Ok(members) => members,
            Err(next) => return Ok(next),
        };
        let a = *self.warps[w].read(self.env.constants, reduce.a);
        let mut out = [0; WARP];
        for lane in lanes(exec) {
            let mut values = lanes(members[lane] as Mask & exec).map(|l| a[l]);
            let first = values.next().unwrap_or(0);
            out[lane] = low_bits(values.fold(first, |x, y| (reduce.f)(x, y, 0)), 32);
        }
        self.warps[w].write(reduce.d, exec, &out);
        Ok(Next::Advance)
    }

    pub(super) fn elect(
        &mut self,
        w: usize,
        d: Option<Reg>,
        p: Option<u32>,
        members: Reg,
        exec: Mask,
    ) -> Result<Next, Box<Trouble>> {
        let members = match self.members(w, members, exec)? {
            Ok(members) => members,
            Err(next) => return Ok(next),
        };
        let seed = self.env.seed;
        let leader = |lane: usize| leader(members[lane] as Mask & exec, seed);
        let warp = &mut self.warps[w];
        if let Some(d) = d {
            let leaders = std::array::from_fn(|lane| u64::from(leader(lane)));
            warp.write(d, exec, &leaders);
        }
        if let Some(p) = p {
            let elected = lanes(exec)
                .filter(|&l| leader(l) == l as u32)
                .fold(0, |mask, l| mask | 1 << l);
            warp.set_pred(p, exec, elected);
        }
        Ok(Next::Advance)
    }

    pub(super) fn mma(&mut self, w: usize, mma: &Mma, exec: Mask) -> Result<Next, Box<Trouble>> {
        if let Some(next) = self.aligned(w, exec, true)? {
            return Ok(next);
        }
        let constants = self.env.constants;
        let warp = &mut self.warps[w];
        match mma {
            Mma::Bf16 { d, a, b, c } => {
                let (a, b, c) = (
                    warp.fragment(constants, a),
                    warp.fragment(constants, b),
                    warp.fragment(constants, c),
                );
                let c = c.map(|lane| lane.map(f32::from_bits));
                let sums = crate::num::mma_m16n8k16_bf16(&a, &b, &c);
                for (i, &reg) in d.iter().enumerate() {
                    let value = sums.map(|lane| u64::from(lane[i].to_bits()));
                    warp.write(reg, FULL, &value);
                }
            }
            Mma::Any { product, d, a, b, c } => {
                let [a, b, c] = [a, b, c]
                    .map(|regs| -> Vec<Lanes> { regs.iter().map(|&reg| *warp.read(constants, reg)).collect() });
                for (&reg, value) in d.iter().zip(product.multiply(&a, &b, &c)) {
                    warp.write(reg, FULL, &value);
                }
            }
        }
        Ok(Next::Advance)
    }
}

/// The lane that `elect.sync` elects of a mask: any, but for one mask always the same.
fn leader(mask: Mask, seed: Option<u64>) -> u32 {
    let Some(seed) = seed else {
        return mask.trailing_zeros();
    };
    let nth = Random::new(seed ^ u64::from(mask)).below(mask.count_ones().max(1) as usize);
    lanes(mask).nth(nth).unwrap_or(0) as u32
}
