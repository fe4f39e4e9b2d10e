//! Instructions that touch nothing but the warp's registers.

use super::warp::{Warp, lanes};
use crate::program::{Carry, CarryKind, Compare, Lanes, Mask, Op, PredSource, Reg, WARP};

impl Warp {
    /// Executes an instruction that needs only registers; false where it is none of these.
    #[inline]
    pub(super) fn execute(&mut self, op: &Op, exec: Mask, constants: &[Lanes]) -> bool {
        let mut out = [0; WARP];
        let d = match *op {
            Op::Lane1(ref f, d, a) => {
                f(self.read(constants, a), &mut out);
                d
            }
            Op::Lane2(ref f, d, a, b) => {
                f(self.read(constants, a), self.read(constants, b), &mut out);
                d
            }
            Op::Lane3(ref f, d, a, b, c) => {
                f(
                    self.read(constants, a),
                    self.read(constants, b),
                    self.read(constants, c),
                    &mut out,
                );
                d
            }
            Op::Lane4(ref f, d, [a, b, c, e]) => {
                f(
                    self.read(constants, a),
                    self.read(constants, b),
                    self.read(constants, c),
                    self.read(constants, e),
                    &mut out,
                );
                d
            }
            Op::Select(d, a, b, p) => {
                self.select_lanes(p, self.read(constants, a), self.read(constants, b), &mut out);
                d
            }
            Op::Compare(ref compare) => {
                self.compare(compare, exec, constants);
                return true;
            }
            Op::Predicate(f, d, [a, b, c]) => {
                let value = f(self.pred(a), self.pred(b), self.pred(c));
                self.set_pred(d, exec, value);
                return true;
            }
            Op::Carry(ref carry) => {
                self.carry(carry, exec, constants);
                return true;
            }
            Op::Unpack(ref to, bits, from) => {
                let from = *self.read(constants, from);
                for (i, d) in to.iter().enumerate() {
                    if let Some(d) = *d {
                        let part = from.map(|v| low_bits(v >> (bits * i as u32), bits));
                        self.write(d, exec, &part);
                    }
                }
                return true;
            }
            Op::Pack(d, bits, ref from) => {
                for (i, &reg) in from.iter().enumerate() {
                    let part = self.read(constants, reg);
                    for lane in 0..WARP {
                        out[lane] |= low_bits(part[lane], bits) << (bits * i as u32);
                    }
                }
                d
            }
            _ => return false,
        };
        self.write(d, exec, &out);
        true
    }

    fn select_lanes(&self, p: PredSource, a: &Lanes, b: &Lanes, out: &mut Lanes) {
        let p = self.pred(p);
        for lane in 0..WARP {
            out[lane] = if p & 1 << lane != 0 { a[lane] } else { b[lane] };
        }
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
