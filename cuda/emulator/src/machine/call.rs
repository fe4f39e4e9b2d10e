//! Calls and returns.

use super::access::{get, put};
use super::alu::low_bits;
use super::cluster::{Cluster, Next};
use super::report::{Trouble, trouble};
use super::warp::{Warp, lanes};
use crate::error::FaultKind;
use crate::program::{Call, Callee, FUNCTION_STRIDE, FUNCTION_WINDOW, Lanes, Mask, Op, Passed, Reg, WARP};

type Result<T = ()> = std::result::Result<T, Box<Trouble>>;

/// A value on its way, lane after lane.
#[expect(clippy::large_enum_variant, reason = "a few live at a time, and most are lanes")]
enum Value {
    Lanes(Lanes),
    Bytes(Vec<u8>),
    Nothing,
}

impl Cluster<'_> {
    pub(super) fn call(&mut self, w: usize, call: &Call, exec: Mask) -> Result<Next> {
        let program = self.env.program;
        let (index, exec) = self.callee(w, call, exec)?;
        let function = &program.functions[index as usize];
        let fits = |given: &[Passed], wanted: &[Passed]| {
            given.len() == wanted.len() && given.iter().zip(wanted).all(|(a, b)| a.fits(*b))
        };
        if !fits(&call.args, &function.params) || !fits(&call.returns, &function.returns) {
            let detail = format!(
                "`{}` takes or returns other values than those that the call passes",
                function.name
            );
            return Err(trouble(
                FaultKind::BadInstruction,
                exec.trailing_zeros() as usize,
                detail,
            ));
        }
        self.split_off(w, exec);
        let constants = self.env.constants;
        let warp = &mut self.warps[w];
        let (outer, pc) = (warp.group().frame, warp.group().pc);
        let base = warp.frames.get(outer).base;
        let values: Vec<Value> = call.args.iter().map(|arg| warp.fetch(constants, *arg, base)).collect();
        let Some(id) = warp.frames.enter(outer, pc, index, function) else {
            let detail = format!("the call of `{}` exceeds the stack", function.name);
            return Err(trouble(FaultKind::OutOfBounds, exec.trailing_zeros() as usize, detail));
        };
        let frame = warp.frames.get_mut(id);
        if let Some((registers, predicates)) = &mut frame.saved {
            for (saved, reg) in registers.iter_mut().zip(function.registers.clone()) {
                let now = &warp.registers[reg as usize];
                lanes(exec).for_each(|lane| saved[lane] = now[lane]);
            }
            for (saved, reg) in predicates.iter_mut().zip(function.predicates.clone()) {
                *saved = *saved & !exec | warp.predicates[reg as usize] & exec;
            }
        }
        let (base, top) = (frame.base, frame.top);
        warp.reserve_local(top as usize);
        for (value, formal) in values.iter().zip(&function.params) {
            warp.deliver(value, *formal, base, exec);
        }
        let group = warp.group_mut();
        group.frame = id;
        group.pc = function.start;
        Ok(Next::Moved)
    }

    /// The function to call, and the lanes that call this one; others call theirs afterwards.
    fn callee(&mut self, w: usize, call: &Call, exec: Mask) -> Result<(u32, Mask)> {
        let reg = match call.target {
            Callee::Function(index) => return Ok((index, exec)),
            Callee::Address(reg) => reg,
        };
        let addresses = *self.warps[w].read(self.env.constants, reg);
        let first = exec.trailing_zeros() as usize;
        let address = addresses[first];
        let at = address.wrapping_sub(FUNCTION_WINDOW);
        let named = |number: u32| u64::from(number) * FUNCTION_STRIDE == at;
        let Some(index) = (self.env.program.functions.iter()).position(|function| named(function.number)) else {
            let detail = format!("{address:#x} is not the address of a function defined in this module");
            return Err(trouble(FaultKind::BadInstruction, first, detail));
        };
        let same = lanes(exec)
            .filter(|&l| addresses[l] == address)
            .fold(0, |mask, l| mask | 1 << l);
        if same != exec {
            let warp = &mut self.warps[w];
            let group = warp.group_mut();
            let mut rest = *group;
            rest.mask = exec & !same;
            group.mask &= !rest.mask;
            warp.groups.push(rest);
        }
        Ok((index as u32, same))
    }

    pub(super) fn ret(&mut self, w: usize, exec: Mask) -> Next {
        self.split_off(w, exec);
        let (program, constants) = (self.env.program, self.env.constants);
        let warp = &mut self.warps[w];
        let frame = warp.frames.get(warp.group().frame);
        let (outer, pc, base) = (frame.parent, frame.call, frame.base);
        let function = frame.function.map(|index| &program.functions[index as usize]);
        let (Some(function), Op::Call(call)) = (function, &program.code[pc as usize].op) else {
            return Next::Advance;
        };
        let results: Vec<Value> = (function.returns.iter())
            .map(|result| warp.fetch(constants, *result, base))
            .collect();
        if let Some((registers, predicates)) = &frame.saved {
            for (saved, reg) in registers.iter().zip(function.registers.clone()) {
                let now = &mut warp.registers[reg as usize];
                lanes(exec).for_each(|lane| now[lane] = saved[lane]);
            }
            for (saved, reg) in predicates.iter().zip(function.predicates.clone()) {
                let now = &mut warp.predicates[reg as usize];
                *now = *now & !exec | saved & exec;
            }
        }
        let group = warp.group_mut();
        group.frame = outer;
        group.pc = pc + 1;
        let base = warp.frames.get(outer).base;
        for (value, place) in results.iter().zip(&call.returns) {
            warp.deliver(value, *place, base, exec);
        }
        let Warp { frames, groups, .. } = warp;
        frames.trim(groups);
        Next::Moved
    }

    pub(super) fn frame_address(&mut self, w: usize, d: Reg, offset: u64, exec: Mask) {
        let warp = &mut self.warps[w];
        let base = warp.frames.get(warp.group().frame).base;
        warp.write(d, exec, &[u64::from(base).wrapping_add(offset); WARP]);
    }
}

impl Warp {
    /// A value where a call has it; local memory counts from `base`.
    fn fetch(&self, constants: &[Lanes], from: Passed, base: u32) -> Value {
        match from {
            Passed::Register { reg, .. } => Value::Lanes(*self.read(constants, reg)),
            Passed::Memory { at, bytes } if matches!(bytes, 1 | 2 | 4 | 8) => {
                let at = (base + at) as usize;
                Value::Lanes(std::array::from_fn(|lane| {
                    get(&self.local, lane * self.local_size + at, bytes)
                }))
            }
            Passed::Memory { at, bytes } => {
                let at = (base + at) as usize;
                let of_lane = |lane| &self.local[lane * self.local_size + at..][..bytes as usize];
                Value::Bytes((0..WARP).flat_map(of_lane).copied().collect())
            }
            Passed::Nothing => Value::Nothing,
        }
    }

    /// Puts a value where it belongs. Its size has been checked.
    fn deliver(&mut self, value: &Value, to: Passed, base: u32, exec: Mask) {
        match (value, to) {
            (Value::Lanes(value), Passed::Register { reg, bytes }) => {
                self.write(reg, exec, &value.map(|value| low_bits(value, 8 * bytes)));
            }
            (Value::Lanes(value), Passed::Memory { at, bytes }) => {
                for lane in lanes(exec) {
                    let at = lane * self.local_size + (base + at) as usize;
                    put(&mut self.local, at, bytes, value[lane]);
                }
            }
            (Value::Bytes(value), Passed::Memory { at, bytes }) => {
                let bytes = bytes as usize;
                for lane in lanes(exec) {
                    let at = lane * self.local_size + (base + at) as usize;
                    self.local[at..at + bytes].copy_from_slice(&value[lane * bytes..][..bytes]);
                }
            }
            _ => {}
        }
    }

    /// Makes room for so many bytes of local memory in each lane.
    fn reserve_local(&mut self, bytes: usize) {
        if bytes <= self.local_size {
            return;
        }
        let size = bytes.max(2 * self.local_size).next_multiple_of(128);
        let mut local = vec![0; size * WARP];
        for lane in 0..WARP {
            local[lane * size..][..self.local_size]
                .copy_from_slice(&self.local[lane * self.local_size..][..self.local_size]);
        }
        (self.local, self.local_size) = (local, size);
    }
}
