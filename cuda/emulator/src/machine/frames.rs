//! Calls under way: a tree, in which lanes that came the same way share a node.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::warp::Group;
use crate::program::{Function, Lanes, Mask};

/// A call under way, by its number; 0 stands for the kernel itself.
pub(super) type FrameId = u32;

/// Where calls' local memory starts at multiples of.
const ALIGN: u32 = 128;
/// Calls under way one within the other.
const MAX_DEPTH: u32 = 1024;
/// Local memory of a thread.
const MAX_LOCAL: u32 = crate::decode::MAX_LOCAL as u32;
/// Registers of a warp that functions have kept for the calls that they were called within.
const MAX_SAVED: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) parent: FrameId,
    /// The calling instruction.
    pub(super) call: u32,
    /// The function's index among the program's; the kernel has none.
    pub(super) function: Option<u32>,
    depth: u32,
    /// Where its local memory starts and ends.
    pub(super) base: u32,
    pub(super) top: u32,
    /// The function's registers and predicates as they were, where it is under way further out already.
    pub(super) saved: Option<(Vec<Lanes>, Vec<Mask>)>,
}

#[derive(Debug)]
pub(super) struct Frames {
    frames: Vec<Frame>,
    /// Frames by parent, call and function.
    known: HashMap<(FrameId, u32, u32), FrameId>,
    saved: usize,
}

impl Frames {
    pub(super) fn new(local_bytes: u32) -> Self {
        let kernel = Frame {
            top: local_bytes,
            ..Frame::default()
        };
        Frames {
            frames: vec![kernel],
            known: HashMap::new(),
            saved: 0,
        }
    }

    pub(super) fn get(&self, id: FrameId) -> &Frame {
        &self.frames[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.frames[id as usize]
    }

    /// The frame of a call; `None` where there is no more room for it.
    pub(super) fn enter(&mut self, parent: FrameId, call: u32, index: u32, function: &Function) -> Option<FrameId> {
        let key = (parent, call, index);
        if let Some(&id) = self.known.get(&key) {
            return Some(id);
        }
        let outer = self.get(parent);
        let base = outer.top.next_multiple_of(ALIGN);
        let (depth, top) = (outer.depth + 1, base + function.frame);
        let mut saved = None;
        if self.is_within(parent, index) {
            let registers = vec![[0; crate::program::WARP]; function.registers.len()];
            self.saved += registers.len();
            saved = Some((registers, vec![0; function.predicates.len()]));
        }
        if depth > MAX_DEPTH || top > MAX_LOCAL || self.saved > MAX_SAVED {
            return None;
        }
        let id = self.frames.len() as FrameId;
        self.frames.push(Frame {
            parent,
            call,
            function: Some(index),
            depth,
            base,
            top,
            saved,
        });
        self.known.insert(key, id);
        Some(id)
    }

    /// Whether a function is under way in a frame or further out.
    fn is_within(&self, mut id: FrameId, function: u32) -> bool {
        while id != 0 {
            let frame = self.get(id);
            if frame.function == Some(function) {
                return true;
            }
            id = frame.parent;
        }
        false
    }

    /// Forgets the newest frames as far as nobody is in them.
    pub(super) fn trim(&mut self, groups: &[Group]) {
        loop {
            let id = (self.frames.len() - 1) as FrameId;
            let newest = self.get(id);
            let Some(function) = newest.function.filter(|_| groups.iter().all(|group| group.frame != id)) else {
                return;
            };
            let key = (newest.parent, newest.call, function);
            self.saved -= newest.saved.as_ref().map_or(0, |(registers, _)| registers.len());
            self.known.remove(&key);
            self.frames.pop();
        }
    }

    /// Where two groups stand in the innermost call that both are in, and whether each is in a further call from there.
    fn meet(&self, a: &Group, b: &Group) -> [(u32, bool); 2] {
        let (mut a, mut b) = ((a.frame, a.pc, false), (b.frame, b.pc, false));
        let out = |(id, ..): (FrameId, u32, bool)| {
            let frame = self.get(id);
            (frame.parent, frame.call, true)
        };
        while a.0 != b.0 {
            match self.get(a.0).depth.cmp(&self.get(b.0).depth) {
                Ordering::Greater => a = out(a),
                Ordering::Less => b = out(b),
                Ordering::Equal => (a, b) = (out(a), out(b)),
            }
        }
        [(a.1, a.2), (b.1, b.2)]
    }

    /// The order in which groups run: of two in one function, the lower instruction first.
    pub(super) fn compare(&self, a: &Group, b: &Group) -> Ordering {
        if a.frame == b.frame {
            return a.pc.cmp(&b.pc);
        }
        let [place_a, place_b] = self.meet(a, b);
        place_a.cmp(&place_b).then(a.frame.cmp(&b.frame))
    }

    /// The instructions at which `ahead` and `behind` stand in the innermost call that both are in, if those differ.
    pub(super) fn apart(&self, ahead: &Group, behind: &Group) -> Option<(u32, u32)> {
        if ahead.frame == behind.frame {
            return (behind.pc < ahead.pc).then_some((ahead.pc, behind.pc));
        }
        let [(ahead, _), (behind, _)] = self.meet(ahead, behind);
        (behind < ahead).then_some((ahead, behind))
    }
}
