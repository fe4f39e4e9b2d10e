//! Registers of the text share those of the warp, as a compiler's do: a compiler of PTX hands out thousands and uses
//! dozens at a time.
//!
//! Each lane's way through the code is a path of the control flow graph, wherever its fellows are, so the rules are
//! those of one thread: two registers may share where nowhere both hold values that may still be read. What is read
//! with nothing written before, and so is zero, counts as written when the kernel starts. This is the linear scan of
//! Poletto and Sarkar (1999) over the order in which the code is kept, where loops are contiguous.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::program::{CONSTANT, FULL, Inst, Op, Passed, Program, Reg, Wgmma};

/// A kernel or function that has just been decoded.
pub(super) struct Scope {
    /// Its first instruction and the first of its sites; all that follow are its own too.
    pub(super) code: usize,
    pub(super) sites: usize,
    /// The registers that the text declares; temporaries follow.
    pub(super) declared: Range<Reg>,
    /// One past the last register.
    pub(super) end: Reg,
    pub(super) in_function: bool,
}

/// From where to where a register may hold a value that somebody reads; instructions count from 1.
#[derive(Clone, Copy)]
struct Interval {
    start: u32,
    end: u32,
}

impl Interval {
    const NEVER: Interval = Interval {
        start: u32::MAX,
        end: 0,
    };
    const ALWAYS: Interval = Interval {
        start: 0,
        end: u32::MAX,
    };

    fn cover(&mut self, from: u32, to: u32) {
        self.start = self.start.min(from);
        self.end = self.end.max(to);
    }
}

struct Block {
    first: u32,
    last: u32,
    before: Vec<usize>,
}

/// Lets the registers of a scope share, renames them in its code and among what its calls pass, and says where the next
/// scope's start.
pub(super) fn share(scope: &Scope, program: &mut Program, formals: &mut [Box<[Passed]>]) -> Reg {
    let first = scope.declared.start;
    let mut intervals = intervals(scope, program);
    let mut passed: Vec<&mut Reg> = formals.iter_mut().flatten().filter_map(Passed::register).collect();
    for reg in &passed {
        intervals[(**reg - first) as usize] = Interval::ALWAYS;
    }
    let (slots, end) = scan(first, &intervals);
    let rename = |reg: &mut Reg| {
        if *reg & CONSTANT == 0 {
            *reg = slots[(*reg - first) as usize];
        }
    };
    passed.iter_mut().for_each(|reg| rename(reg));
    for inst in &mut program.code[scope.code..] {
        inst.op.registers(&mut |reg, _| rename(reg));
    }
    for site in &mut program.sites[scope.sites..] {
        site.matrix_registers.iter_mut().for_each(rename);
    }
    end
}

/// Where control goes from an instruction: targets, and whether to the next one.
fn leads(inst: &Inst) -> (&[u32], bool) {
    let always = inst.guard.index == 0 && inst.guard.flip == FULL;
    match &inst.op {
        Op::Jump(target) | Op::Branch(target) => (std::slice::from_ref(target), !always),
        Op::BranchIndexed(_, targets) => (targets, !always),
        Op::Exit | Op::Trap | Op::Return => (&[], !always),
        _ => (&[], true),
    }
}

/// The blocks of a scope, in order. Their instructions count from 1.
fn blocks(start: usize, program: &Program) -> (Vec<Block>, Vec<usize>) {
    let (code, block_of) = (&program.code[start..], &program.block_of[start..]);
    let mut blocks: Vec<Block> = Vec::new();
    let mut block_at = Vec::with_capacity(code.len());
    for (i, block) in block_of.iter().enumerate() {
        let at = i as u32 + 1;
        if i == 0 || *block != block_of[i - 1] {
            blocks.push(Block {
                first: at,
                last: at,
                before: Vec::new(),
            });
        }
        block_at.push(blocks.len() - 1);
        blocks[block_at[i]].last = at;
    }
    for (i, inst) in code.iter().enumerate() {
        let (targets, falls_through) = leads(inst);
        for &target in targets {
            blocks[block_at[target as usize - start]].before.push(block_at[i]);
        }
        if falls_through && i + 1 < code.len() && block_at[i + 1] != block_at[i] {
            blocks[block_at[i + 1]].before.push(block_at[i]);
        }
    }
    (blocks, block_at)
}

fn intervals(scope: &Scope, program: &mut Program) -> Vec<Interval> {
    let (blocks, block_at) = blocks(scope.code, program);
    let first = scope.declared.start;
    let count = (scope.end - first) as usize;
    let mut intervals = vec![Interval::NEVER; count];
    // Per register: blocks that read what was there before them, and blocks that surely write it.
    let (mut reads, mut writes) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for (i, inst) in program.code[scope.code..].iter_mut().enumerate() {
        let (at, block) = (i as u32 + 1, block_at[i]);
        let always = inst.guard.index == 0 && inst.guard.flip == FULL;
        inst.op.registers(&mut |reg, role| {
            if *reg & CONSTANT != 0 {
                return;
            }
            let index = (*reg - first) as usize;
            intervals[index].cover(at, at);
            if role.reads() && writes[index].last() != Some(&block) && reads[index].last() != Some(&block) {
                reads[index].push(block);
            }
        });
        inst.op.registers(&mut |reg, role| {
            // A temporary lives within one instruction of the text, whose guard holds for all of it.
            let surely = always || *reg >= scope.declared.end;
            if *reg & CONSTANT != 0 || !role.writes() || !surely {
                return;
            }
            let index = (*reg - first) as usize;
            if writes[index].last() != Some(&block) {
                writes[index].push(block);
            }
        });
        // Matrix instructions use theirs on their own time, and keep a record by register.
        if let Op::Wgmma(Wgmma::Multiply(multiply)) = &inst.op {
            for reg in multiply.registers().filter(|reg| reg & CONSTANT == 0) {
                intervals[(reg - first) as usize] = Interval::ALWAYS;
            }
        }
    }
    // Hostile texts could have every register live in every block.
    let mut budget = 256 * block_at.len() + 4096;
    let (mut kills, mut seen) = (vec![usize::MAX; blocks.len()], vec![usize::MAX; blocks.len()]);
    for (index, interval) in intervals.iter_mut().enumerate() {
        writes[index].iter().for_each(|&block| kills[block] = index);
        let mut stack = std::mem::take(&mut reads[index]);
        stack.iter().for_each(|&block| seen[block] = index);
        while let Some(block) = stack.pop() {
            interval.cover(blocks[block].first, blocks[block].first);
            if block == 0 {
                // What a function finds in its registers is what its last call has left.
                let from_before = Interval { start: 0, end: 0 };
                let found = if scope.in_function {
                    Interval::ALWAYS
                } else {
                    from_before
                };
                interval.cover(found.start, found.end);
            }
            for &before in &blocks[block].before {
                interval.cover(blocks[before].last, blocks[before].last);
                if kills[before] != index && seen[before] != index {
                    seen[before] = index;
                    stack.push(before);
                }
            }
            match budget.checked_sub(1 + blocks[block].before.len()) {
                Some(left) => budget = left,
                None => {
                    *interval = Interval::ALWAYS;
                    break;
                }
            }
        }
    }
    intervals
}

/// Gives each register the place of one whose interval has ended, or a new one. Says what was given, and one past the
/// last.
fn scan(first: Reg, intervals: &[Interval]) -> (Vec<Reg>, Reg) {
    let mut order: Vec<usize> = (0..intervals.len())
        .filter(|&i| intervals[i].start <= intervals[i].end)
        .collect();
    order.sort_by_key(|&i| intervals[i].start);
    let mut slots = vec![first; intervals.len()];
    let mut end = first;
    let (mut taken, mut free) = (BinaryHeap::new(), Vec::new());
    for i in order {
        let Interval { start, end: until } = intervals[i];
        while let Some(&Reverse((over, slot))) = taken.peek() {
            // Within an instruction nothing is shared: it may write before it has read all.
            if over >= start {
                break;
            }
            taken.pop();
            free.push(slot);
        }
        slots[i] = free.pop().unwrap_or_else(|| {
            end += 1;
            end - 1
        });
        taken.push(Reverse((until, slots[i])));
    }
    (slots, end)
}

#[cfg(test)]
mod tests {
    /// Registers of a warp of a kernel with this body.
    fn registers(body: &str) -> u32 {
        let text = format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n\
             .visible .entry k(.param .u64 out) {{ .reg .pred %p; .reg .b32 %r<1000>; .reg .b64 %d;\n{body}\nret; }}"
        );
        let module = crate::Module::parse(&text).unwrap();
        module.kernel("k").unwrap().1.registers
    }

    #[test]
    fn a_chain_takes_turns_with_two_registers() {
        let chain: Vec<String> = (1..1000).map(|i| format!("add.u32 %r{i}, %r{}, 1;", i - 1)).collect();
        assert_eq!(registers(&chain.join("\n")), 2);
        assert_eq!(registers(""), 0);
    }

    #[test]
    fn what_a_guard_may_spare_is_still_to_be_read() {
        let loops = |guard| format!("L: mov.u32 %r2, 5; {guard} mov.u32 %r1, 1; setp.eq.u32 %p, %r0, %r1; @%p bra L;");
        assert_eq!((registers(&loops("")), registers(&loops("@%p"))), (2, 3));
    }
}
