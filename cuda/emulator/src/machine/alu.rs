//! Instructions that touch nothing but the warp's registers.

use super::warp::{Warp, lanes};
use crate::program::{CONSTANT, Carry, CarryKind, Compare, FULL, Lanes, Mask, Op, Reg, WARP};

impl Warp {
    /// Executes an instruction that needs only registers; false where it is none of these.
    #[inline]
    pub(super) fn execute(&mut self, op: &Op, exec: Mask, constants: &[Lanes]) -> bool {
        match *op {
            Op::Lane1(ref f, d, a) => self.compute(constants, (d, exec), [a], |[a], out| f(a, out)),
            Op::Lane2(ref f, d, a, b) => self.compute(constants, (d, exec), [a, b], |[a, b], out| f(a, b, out)),
            Op::Lane3(ref f, d, a, b, c) => {
                self.compute(constants, (d, exec), [a, b, c], |[a, b, c], out| f(a, b, c, out));
            }
            Op::Lane4(ref f, d, sources) => {
                self.compute(constants, (d, exec), sources, |[a, b, c, e], out| f(a, b, c, e, out));
            }
            Op::Select(d, a, b, p) => {
                let p = self.pred(p);
                self.compute(constants, (d, exec), [a, b], |[a, b], out| select_lanes(p, a, b, out));
            }
            Op::Compare(ref compare) => self.compare(compare, exec, constants),
            Op::Predicate(f, d, [a, b, c]) => {
                let value = f(self.pred(a), self.pred(b), self.pred(c));
                self.set_pred(d, exec, value);
            }
            Op::Carry(ref carry) => self.carry(carry, exec, constants),
            Op::Unpack(ref to, bits, from) => {
                let from = *self.read(constants, from);
                for (i, d) in to.iter().enumerate() {
                    if let Some(d) = *d {
                        let part = from.map(|v| low_bits(v >> (bits * i as u32), bits));
                        self.write(d, exec, &part);
                    }
                }
            }
            Op::Pack(d, bits, ref from) => {
                let mut out = [0; WARP];
                for (i, &reg) in from.iter().enumerate() {
                    let part = self.read(constants, reg);
                    for lane in 0..WARP {
                        out[lane] |= low_bits(part[lane], bits) << (bits * i as u32);
                    }
                }
                self.write(d, exec, &out);
            }
            _ => return false,
        }
        true
    }

    /// Writes a function of other registers, which sets every lane of what it is given, to a register in the lanes of a
    /// mask.
    #[inline]
    fn compute<const N: usize>(
        &mut self,
        constants: &[Lanes],
        (d, exec): (Reg, Mask),
        sources: [Reg; N],
        f: impl FnOnce([&Lanes; N], &mut Lanes),
    ) {
        if exec == FULL && !sources.contains(&d) {
            let (before, rest) = self.registers.split_at_mut(d as usize);
            if let Some((target, after)) = rest.split_first_mut() {
                let read = |reg: Reg| match reg {
                    CONSTANT.. => &constants[(reg & !CONSTANT) as usize],
                    _ if reg < d => &before[reg as usize],
                    _ => &after[(reg - d - 1) as usize],
                };
                return f(sources.map(read), target);
            }
        }
        let mut out = [0; WARP];
        f(sources.map(|reg| self.read(constants, reg)), &mut out);
        self.write(d, exec, &out);
    }

    fn compare(&mut self, compare: &Compare, exec: Mask, constants: &[Lanes]) {
        let mut out = [0; WARP];
        let (a, b) = (self.read(constants, compare.a), self.read(constants, compare.b));
        (compare.f)(a, b, &mut out);
        let first = mask_of(&out);
        let second = match &compare.second {
            None => !first,
            Some(f) => {
                f(a, b, &mut out);
                mask_of(&out)
            }
        };
        let (first, second) = match compare.with {
            None => (first, second),
            Some((f, with)) => {
                let with = self.pred(with);
                (f(first, with, 0), f(second, with, 0))
            }
        };
        if let Some(d) = compare.d {
            self.set_pred(d, exec, first);
        }
        if let Some(d) = compare.second_d {
            self.set_pred(d, exec, second);
        }
    }

    fn carry(&mut self, carry: &Carry, exec: Mask, constants: &[Lanes]) {
        let operand = |reg: Reg| *self.read(constants, reg);
        let (a, b, c) = (operand(carry.a), operand(carry.b), operand(carry.c));
        let mut out = [0; WARP];
        let mut carries = 0;
        for lane in lanes(exec) {
            let incoming = u64::from(carry.reads && self.carry & 1 << lane != 0);
            let (value, outgoing) = with_carry(carry, [a[lane], b[lane], c[lane]], incoming);
            out[lane] = value;
            carries |= u32::from(outgoing) << lane;
        }
        self.write(carry.d, exec, &out);
        if carry.writes {
            self.carry = (self.carry & !exec) | carries;
        }
    }
}

fn select_lanes(p: Mask, a: &Lanes, b: &Lanes, out: &mut Lanes) {
    for lane in 0..WARP {
        out[lane] = if p & 1 << lane != 0 { a[lane] } else { b[lane] };
    }
}

/// One lane of extended-precision arithmetic: result and carry (or borrow) out.
fn with_carry(carry: &Carry, [a, b, c]: [u64; 3], incoming: u64) -> (u64, bool) {
    let bits = carry.bits;
    let wide = |v: u64| u128::from(low_bits(v, bits));
    let signed = |v: u64| (low_bits(v, bits) << (64 - bits)) as i64 as i128 >> (64 - bits);
    let (x, y) = match carry.kind {
        CarryKind::Add => (wide(a), wide(b)),
        CarryKind::Sub => {
            let (x, y) = (wide(a), wide(b) + u128::from(incoming));
            return (low_bits(x.wrapping_sub(y) as u64, bits), x < y);
        }
        CarryKind::MadLow => (wide(low_bits((wide(a) * wide(b)) as u64, bits)), wide(c)),
        CarryKind::MadHigh { signed: false } => (wide(((wide(a) * wide(b)) >> bits) as u64), wide(c)),
        CarryKind::MadHigh { signed: true } => (wide(((signed(a) * signed(b)) >> bits) as u64), wide(c)),
    };
    let sum = x + y + u128::from(incoming);
    (low_bits(sum as u64, bits), sum >> bits != 0)
}

/// The low `bits` bits, of 1 to 64.
#[inline]
pub(super) fn low_bits(value: u64, bits: u32) -> u64 {
    value & (u64::MAX >> (64 - bits))
}

/// The lanes whose value is 1 rather than 0.
#[inline]
pub(super) fn mask_of(values: &Lanes) -> Mask {
    (values.iter().enumerate()).fold(0, |mask, (lane, &value)| mask | (value as u32 & 1) << lane)
}
