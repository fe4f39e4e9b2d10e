//! Reads a disassembly and finds the loops in it.

use super::control::Control;
use super::lines;
use std::collections::HashMap;

/// One machine instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineInstruction {
    /// `HMMA.16816.F32.BF16`, `LDS.128`, …
    pub opcode: String,
    /// Where it may jump to: an index into the entry's instructions.
    target: Option<usize>,
    /// Whether the next instruction may follow it.
    falls_through: bool,
    /// Its scheduling, where the listing has the instructions' bits.
    pub(super) control: Option<Control>,
    /// The line of the PTX text that it comes from, where the listing says so.
    pub(super) line: Option<u32>,
}

/// The machine code of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineEntry {
    /// The entry's symbol.
    pub name: String,
    /// Its instructions, in order.
    pub instructions: Vec<MachineInstruction>,
}

/// A whole disassembly, as `nvdisasm -c -hex` prints it; without `-hex`, instructions have no scheduling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Each entry's code.
    pub entries: Vec<MachineEntry>,
}

/// Opcodes that multiply matrices.
const MATRIX: &[&str] = &["HMMA", "HGMMA"];

/// Opcodes that work on integers: arithmetic, logic, shifts, byte permutes, comparisons and choices.
const INTEGER: &[&str] = &[
    "BMSK",
    "BREV",
    "FLO",
    "IABS",
    "IADD",
    "IADD3",
    "IDP",
    "IMAD",
    "IMNMX",
    "IMUL",
    "ISCADD",
    "ISETP",
    "LEA",
    "LOP3",
    "POPC",
    "PRMT",
    "SEL",
    "SGXT",
    "SHF",
    "SHL",
    "SHR",
    "UIADD3",
    "UIMAD",
    "UISETP",
    "ULEA",
    "ULOP3",
    "UPRMT",
    "USEL",
    "USHF",
    "VABSDIFF",
    "VIADD",
    "VIADDMNMX",
    "VIMNMX",
];

impl Listing {
    /// Reads a disassembly. Lines that are no code are passed over.
    pub fn parse(text: &str) -> Self {
        let mut listing = Self::default();
        let mut section: Option<(String, Vec<&str>)> = None;
        for line in text.lines() {
            // `.text.name:` begins an entry's code, `.section` ends it.
            let name = line
                .trim()
                .strip_prefix(".text.")
                .and_then(|rest| rest.strip_suffix(':'));
            if name.is_some() || line.trim().starts_with(".section") {
                listing
                    .entries
                    .extend(section.take().map(|(name, lines)| MachineEntry::parse(name, &lines)));
            }
            match (name, &mut section) {
                (Some(name), _) => section = Some((name.to_owned(), Vec::new())),
                (None, Some((_, lines))) => lines.push(line.trim()),
                (None, None) => {}
            }
        }
        listing
            .entries
            .extend(section.map(|(name, lines)| MachineEntry::parse(name, &lines)));
        listing
    }

    /// The same code, without the lines that it comes from.
    pub(super) fn without_lines(&self) -> Self {
        let mut plain = self.clone();
        for entry in &mut plain.entries {
            entry
                .instructions
                .iter_mut()
                .for_each(|instruction| instruction.line = None);
        }
        plain
    }
}

impl MachineEntry {
    fn parse(name: String, lines: &[&str]) -> Self {
        let mut labels: HashMap<&str, usize> = HashMap::new();
        let mut code: Vec<(&str, Option<u32>, Option<Control>)> = Vec::new();
        let mut from = None;
        for line in lines {
            if let Some(label) = line.strip_suffix(':') {
                labels.insert(label, code.len());
            } else if let Some(mark) = lines::mark(line) {
                from = Some(mark);
            } else if let Some(instruction) = instruction_text(line) {
                code.push((instruction, from, None));
            } else if let (Some(high), Some((_, _, control))) = (upper_half(line), code.last_mut()) {
                *control = Some(Control::of(high));
            }
        }
        // A label after the last instruction leads nowhere.
        labels.retain(|_, at| *at < code.len());
        let instructions = code
            .iter()
            .map(|&(text, line, control)| MachineInstruction {
                line,
                control,
                ..MachineInstruction::parse(text, &labels)
            })
            .collect();
        Self { name, instructions }
    }

    /// How many instructions match `wanted` (`LDG.128` matches `LDG.E.128.CONSTANT`), anywhere.
    pub fn count(&self, wanted: &str) -> u32 {
        self.instructions
            .iter()
            .filter(|instruction| instruction.is(wanted))
            .count() as u32
    }

    /// The same for each main loop: each innermost loop that multiplies matrices.
    pub fn count_in_main_loops(&self, wanted: &str) -> Vec<u32> {
        self.count_where(|instruction| instruction.is(wanted))
    }

    /// How many integer instructions each main loop holds.
    pub fn integers_in_main_loops(&self) -> Vec<u32> {
        self.count_where(|instruction| INTEGER.iter().any(|opcode| instruction.is(opcode)))
    }

    fn count_where(&self, wanted: impl Fn(&MachineInstruction) -> bool) -> Vec<u32> {
        let count = |members: Vec<bool>| {
            let inside = self.instructions.iter().zip(&members).filter(|(_, inside)| **inside);
            inside.filter(|(instruction, _)| wanted(instruction)).count() as u32
        };
        self.main_loops().into_iter().map(count).collect()
    }

    pub(super) fn main_loops(&self) -> Vec<Vec<bool>> {
        let matrix = |members: &[bool]| {
            let inside = self.instructions.iter().zip(members).filter(|(_, inside)| **inside);
            inside
                .into_iter()
                .any(|(instruction, _)| MATRIX.iter().any(|opcode| instruction.is(opcode)))
        };
        let loops: Vec<Vec<bool>> = self.loops().into_iter().filter(|members| matrix(members)).collect();
        let within = |a: &[bool], b: &[bool]| a != b && a.iter().zip(b).all(|(a, b)| *b || !*a);
        let innermost = |outer: &&Vec<bool>| !loops.iter().any(|inner| within(inner, outer));
        loops.iter().filter(innermost).cloned().collect()
    }

    /// The natural loops, each as a mask over the instructions. A jump back alone makes no loop: slow paths stand at
    /// the end of the code and jump back into the middle.
    pub(super) fn loops(&self) -> Vec<Vec<bool>> {
        let count = self.instructions.len();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
        for at in 0..count {
            for to in self.successors(at) {
                before[to].push(at);
            }
        }
        let dominators = self.dominators(&before);
        let mut loops: HashMap<usize, Vec<bool>> = HashMap::new();
        for (from, instruction) in self.instructions.iter().enumerate() {
            let Some(head) = instruction.target else { continue };
            if !dominates(&dominators, head, from) {
                continue;
            }
            let members = loops.entry(head).or_insert_with(|| vec![false; count]);
            members[head] = true;
            let mut open = vec![from];
            while let Some(at) = open.pop() {
                if !std::mem::replace(&mut members[at], true) {
                    open.extend(&before[at]);
                }
            }
        }
        let mut loops: Vec<(usize, Vec<bool>)> = loops.into_iter().collect();
        loops.sort_by_key(|(head, _)| *head);
        loops.into_iter().map(|(_, members)| members).collect()
    }

    /// The instructions that may follow one.
    pub(super) fn successors(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let instruction = &self.instructions[at];
        let next = (instruction.falls_through && at + 1 < self.instructions.len()).then_some(at + 1);
        instruction.target.into_iter().chain(next)
    }

    /// For each instruction, the last one that every way to it passes; itself for the first, none for dead code.
    /// (Cooper, Harvey and Kennedy's iteration.)
    fn dominators(&self, before: &[Vec<usize>]) -> Vec<Option<usize>> {
        let order = self.reverse_postorder();
        let mut rank = vec![usize::MAX; before.len()];
        for (place, at) in order.iter().enumerate() {
            rank[*at] = place;
        }
        let mut dominator: Vec<Option<usize>> = vec![None; before.len()];
        if let Some(first) = dominator.first_mut() {
            *first = Some(0);
        }
        let mut changed = true;
        while changed {
            changed = false;
            for &at in order.iter().skip(1) {
                let known = before[at].iter().copied().filter(|from| dominator[*from].is_some());
                let met = known.reduce(|mut a, mut b| {
                    while a != b {
                        let later = if rank[a] > rank[b] { &mut a } else { &mut b };
                        *later = dominator[*later].unwrap_or(0);
                    }
                    a
                });
                if met.is_some() && dominator[at] != met {
                    dominator[at] = met;
                    changed = true;
                }
            }
        }
        dominator
    }

    pub(super) fn reverse_postorder(&self) -> Vec<usize> {
        let count = self.instructions.len();
        let mut seen = vec![false; count];
        let mut order = Vec::with_capacity(count);
        // An instruction stands on the stack twice: first to be entered, then to be left.
        let mut stack = vec![(0, false)];
        while let Some((at, leave)) = stack.pop() {
            if leave {
                order.push(at);
            } else if at < count && !std::mem::replace(&mut seen[at], true) {
                let instruction = &self.instructions[at];
                stack.push((at, true));
                stack.extend(instruction.target.map(|to| (to, false)));
                stack.extend(instruction.falls_through.then_some((at + 1, false)));
            }
        }
        order.reverse();
        order
    }
}

fn dominates(dominator: &[Option<usize>], head: usize, mut at: usize) -> bool {
    loop {
        match dominator[at] {
            _ if at == head => return dominator[at].is_some(),
            Some(up) if up != at => at = up,
            _ => return false,
        }
    }
}

/// `/*0d40*/  @!P0 BRA `(.L_x_528) ;` without offset, semicolon and what follows.
fn instruction_text(line: &str) -> Option<&str> {
    let (offset, code) = line.strip_prefix("/*")?.split_once("*/")?;
    let is_offset = !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_hexdigit());
    let code = code.split_once(';')?.0.trim().trim_start_matches('{').trim_start();
    (is_offset && !code.is_empty()).then_some(code)
}

/// `/* 0x000fe20000000800 */`, which stands under an instruction: the upper half of its bits.
fn upper_half(line: &str) -> Option<u64> {
    let digits = line.strip_prefix("/* 0x")?.strip_suffix("*/")?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

impl MachineInstruction {
    fn parse(text: &str, labels: &HashMap<&str, usize>) -> Self {
        let guarded = text.starts_with('@');
        let unguarded = if guarded {
            text.split_once(' ').map_or("", |(_, rest)| rest.trim_start())
        } else {
            text
        };
        let (opcode, operands) = unguarded.split_once(' ').unwrap_or((unguarded, ""));
        let operands = operands.trim();
        let kind = opcode.split('.').next().unwrap_or_default();
        let jumps = matches!(kind, "BRA" | "JMP");
        // `BRA.U UP0, `(.L_x_5)` is conditional without a guard.
        let alone = !guarded && operands.starts_with('`');
        let ends = !guarded && matches!(kind, "EXIT" | "RET" | "KILL") || jumps && alone;
        let label = operands.split_once("`(").and_then(|(_, rest)| rest.split(')').next());
        let target = if jumps {
            label.and_then(|label| labels.get(label)).copied()
        } else {
            None
        };
        Self {
            opcode: opcode.to_owned(),
            target,
            falls_through: !ends,
            control: None,
            line: None,
        }
    }

    /// Whether the opcode begins as `wanted` does and holds its modifiers, in order.
    pub(super) fn is(&self, wanted: &str) -> bool {
        let (mut have, mut want) = (self.opcode.split('.'), wanted.split('.'));
        have.next() == want.next() && want.all(|modifier| have.any(|own| own == modifier))
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
