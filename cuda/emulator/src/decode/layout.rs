//! Putting decoded instructions in the order in which they are kept.

use super::flow::Graph;
use crate::program::{FULL, Inst, Op, PredSource, Program};

/// One instruction of the text, decoded. Targets of its branches are indices into the text's instructions.
pub(super) struct Lowered {
    /// The last one is the instruction itself.
    pub(super) ops: Vec<Op>,
    pub(super) guard: PredSource,
    pub(super) site: u32,
}

impl Lowered {
    fn always(&self) -> bool {
        self.guard.index == 0 && self.guard.flip == FULL
    }

    /// Where it may lead besides the next instruction.
    fn targets(&self) -> &[u32] {
        match self.ops.last() {
            Some(Op::Branch(target)) => std::slice::from_ref(target),
            Some(Op::BranchIndexed(_, targets)) => targets,
            _ => &[],
        }
    }

    fn leaves(&self) -> bool {
        matches!(self.ops.last(), Some(Op::Exit | Op::Trap | Op::Return))
    }

    /// Whether it may lead to the next instruction.
    fn falls_through(&self) -> bool {
        !self.always() || !(self.leaves() || matches!(self.ops.last(), Some(Op::Branch(_) | Op::BranchIndexed(..))))
    }
}

/// Orders the instructions by blocks, points branches at their targets, and fills in what the program knows of its
/// blocks.
pub(super) fn lay_out(lowered: Vec<Lowered>, program: &mut Program) {
    let n = lowered.len();
    let mut leads = vec![false; n + 1];
    leads[0] = true;
    for (i, inst) in lowered.iter().enumerate() {
        for &target in inst.targets() {
            leads[target as usize] = true;
        }
        if !inst.targets().is_empty() || inst.leaves() {
            leads[i + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..n).filter(|&i| leads[i]).collect();
    let mut block_at = vec![0; n];
    for (block, &start) in starts.iter().enumerate() {
        let end = starts.get(block + 1).copied().unwrap_or(n);
        block_at[start..end].fill(block);
    }
    let last_of = |block: usize| starts.get(block + 1).copied().unwrap_or(n) - 1;
    let mut graph = Graph {
        successors: Vec::with_capacity(starts.len()),
        exits: Vec::with_capacity(starts.len()),
    };
    for block in 0..starts.len() {
        let last = &lowered[last_of(block)];
        let next = (last.falls_through() && block + 1 < starts.len()).then_some(block + 1);
        let jumps = last.targets().iter().map(|&t| block_at[t as usize]);
        graph.successors.push(next.into_iter().chain(jumps).collect());
        graph.exits.push(last.leaves());
    }
    let order = graph.order();
    // Numbers of blocks, and of their intervals, go on from those of what is laid out already. The intervals of n
    // blocks take less than 2n numbers.
    let (first, first_block) = (program.code.len(), program.post.len());
    let post = graph.post_dominators();
    let blocks_here = 0..starts.len() as u32;
    let post = if post.is_empty() {
        blocks_here.map(|block| (block, block + 1)).collect()
    } else {
        post
    };
    let offset = 2 * first_block as u32;
    program
        .post
        .extend(post.into_iter().map(|(at, end)| (at + offset, end + offset)));

    let mut blocks: Vec<Vec<Lowered>> = Vec::with_capacity(starts.len());
    let mut rest = lowered.into_iter();
    for (block, start) in starts.iter().enumerate() {
        blocks.push(rest.by_ref().take(last_of(block) + 1 - start).collect());
    }
    let mut new_start = vec![0u32; starts.len()];
    for (i, &block) in order.iter().enumerate() {
        new_start[block] = program.code.len() as u32;
        let falls_through = blocks[block].last().is_some_and(Lowered::falls_through);
        let mut site = 0;
        for inst in std::mem::take(&mut blocks[block]) {
            site = inst.site;
            let unconditional = inst.always();
            let count = inst.ops.len();
            for (k, op) in inst.ops.into_iter().enumerate() {
                let op = match op {
                    Op::Branch(target) if unconditional => Op::Jump(target),
                    other => other,
                };
                program.code.push(Inst {
                    op,
                    guard: inst.guard,
                    site,
                    counts: k + 1 == count,
                    names_matrix_registers: false,
                });
            }
        }
        if falls_through && order.get(i + 1) != Some(&(block + 1)) {
            let guard = super::ALWAYS;
            let target = starts[block + 1] as u32;
            program.code.push(Inst {
                op: Op::Jump(target),
                guard,
                site,
                counts: false,
                names_matrix_registers: false,
            });
        }
        program
            .block_of
            .resize(program.code.len(), (first_block + block) as u32);
    }
    let place = |target: u32| new_start[block_at[target as usize]];
    for inst in &mut program.code[first..] {
        match &mut inst.op {
            Op::Jump(target) | Op::Branch(target) => *target = place(*target),
            Op::BranchIndexed(_, targets) => targets.iter_mut().for_each(|target| *target = place(*target)),
            _ => {}
        }
    }
}
