//! Control flow: the order in which blocks are laid out, and which blocks every path must pass.
//!
//! Lanes that diverge are run lowest instruction first. That brings them together again as early as possible if every
//! loop is contiguous and stands before whatever follows it, which is what a weak topological order (Bourdoncle, 1993)
//! gives for any graph, reducible or not.

/// A control flow graph: the successors of each block, block 0 being the entry.
pub(super) struct Graph {
    pub(super) successors: Vec<Vec<usize>>,
    /// Whether a lane can leave the kernel from the block.
    pub(super) exits: Vec<bool>,
}

enum Item {
    Block(usize),
    /// Blocks that are still to be ordered.
    Region(Vec<usize>),
}

const UNSEEN: usize = usize::MAX;

/// What the searches for components keep between calls.
struct Search {
    region_of: Vec<usize>,
    regions: usize,
    number: Vec<usize>,
    low: Vec<usize>,
    on_path: Vec<bool>,
}

impl Graph {
    /// The blocks, the entry first, in an order in which every strongly connected component, at every level of nesting,
    /// is contiguous and stands before what follows it.
    pub(super) fn order(&self) -> Vec<usize> {
        let n = self.successors.len();
        let mut order = Vec::with_capacity(n);
        // Nested components cost a pass each; hostile texts could nest one per block, so passes are bounded and what is
        // left keeps the order of the text.
        let mut budget = 64 * n + 4096;
        let mut search = Search {
            region_of: vec![0; n],
            regions: 0,
            number: vec![UNSEEN; n],
            low: vec![0; n],
            on_path: vec![false; n],
        };
        let reached = self.reached();
        let (live, dead): (Vec<usize>, Vec<usize>) = (0..n).partition(|&block| reached[block]);
        let mut stack = vec![Item::Region(live)];
        while let Some(item) = stack.pop() {
            let blocks = match item {
                Item::Block(block) => {
                    order.push(block);
                    continue;
                }
                Item::Region(blocks) => blocks,
            };
            if budget < blocks.len() {
                order.extend(blocks);
                continue;
            }
            budget -= blocks.len();
            // Components come out last first, which is the order in which to push them.
            for mut component in self.components(&blocks, &mut search) {
                let head = component.remove(0);
                component.sort_unstable();
                if !component.is_empty() {
                    stack.push(Item::Region(component));
                }
                stack.push(Item::Block(head));
            }
        }
        order.extend(dead);
        order
    }

    /// Which blocks the entry leads to.
    fn reached(&self) -> Vec<bool> {
        let mut reached = vec![false; self.successors.len()];
        reached[0] = true;
        let mut stack = vec![0];
        while let Some(block) = stack.pop() {
            for &next in &self.successors[block] {
                if !std::mem::replace(&mut reached[next], true) {
                    stack.push(next);
                }
            }
        }
        reached
    }

    /// The strongly connected components of a region, last in topological order first; each starts with the block by
    /// which the search entered it.
    fn components(&self, blocks: &[usize], search: &mut Search) -> Vec<Vec<usize>> {
        search.regions += 1;
        let region = search.regions;
        for &block in blocks {
            search.region_of[block] = region;
            search.number[block] = UNSEEN;
        }
        let Search {
            region_of,
            number,
            low,
            on_path,
            ..
        } = search;
        let (mut path, mut found) = (Vec::new(), Vec::new());
        let mut next = 0;
        for &root in blocks {
            if number[root] != UNSEEN {
                continue;
            }
            let mut calls = vec![(root, 0)];
            while let Some(&mut (block, ref mut edge)) = calls.last_mut() {
                if number[block] == UNSEEN {
                    number[block] = next;
                    low[block] = next;
                    next += 1;
                    path.push(block);
                    on_path[block] = true;
                }
                let target = self.successors[block].get(*edge).copied();
                *edge += 1;
                match target {
                    Some(t) if region_of[t] != region => {}
                    Some(t) if number[t] == UNSEEN => calls.push((t, 0)),
                    Some(t) if on_path[t] => low[block] = low[block].min(number[t]),
                    Some(_) => {}
                    None => {
                        calls.pop();
                        if let Some(&(caller, _)) = calls.last() {
                            low[caller] = low[caller].min(low[block]);
                        }
                        if low[block] == number[block] {
                            let at = path.iter().rposition(|&b| b == block).unwrap_or(0);
                            let component = path.split_off(at);
                            component.iter().for_each(|&b| on_path[b] = false);
                            found.push(component);
                        }
                    }
                }
            }
        }
        found
    }

    /// The intervals of the post-dominator tree, as [`crate::program::Program::post`] wants them: empty where the graph
    /// is too large or too tangled to find out in reasonable time.
    pub(super) fn post_dominators(&self) -> Vec<(u32, u32)> {
        let n = self.successors.len();
        let exit = n;
        let mut predecessors = vec![Vec::new(); n + 1];
        let mut successors = self.successors.clone();
        successors.push(Vec::new());
        for (block, next) in successors[..n].iter_mut().enumerate() {
            next.extend(self.exits[block].then_some(exit));
            next.iter().for_each(|&s| predecessors[s].push(block));
        }
        let Some(parent) = immediate_dominators(exit, &predecessors, &successors) else {
            return Vec::new();
        };
        // Blocks from which the exit cannot be reached are nobody's children: they get intervals of their own.
        let mut children = vec![Vec::new(); n + 1];
        let mut roots = vec![exit];
        for (block, parent) in parent[..n].iter().enumerate() {
            match parent {
                Some(p) => children[*p].push(block),
                None => roots.push(block),
            }
        }
        let mut intervals = vec![(0, 0); n + 1];
        let mut clock = 0;
        let mut stack: Vec<(usize, usize)> = Vec::new();
        for root in roots {
            stack.push((root, 0));
            while let Some(&mut (block, ref mut child)) = stack.last_mut() {
                if *child == 0 {
                    intervals[block].0 = clock;
                    clock += 1;
                }
                match children[block].get(*child) {
                    Some(&c) => {
                        *child += 1;
                        stack.push((c, 0));
                    }
                    None => {
                        intervals[block].1 = clock;
                        stack.pop();
                    }
                }
            }
        }
        intervals.truncate(n);
        intervals
    }
}

/// Cooper, Harvey and Kennedy's algorithm from `root` along `forward`; `None` where it takes too long.
fn immediate_dominators(root: usize, forward: &[Vec<usize>], backward: &[Vec<usize>]) -> Option<Vec<Option<usize>>> {
    let n = forward.len();
    let mut finished = Vec::with_capacity(n);
    let mut seen = vec![false; n];
    let mut stack = vec![(root, 0)];
    seen[root] = true;
    while let Some(&mut (block, ref mut edge)) = stack.last_mut() {
        match forward[block].get(*edge) {
            Some(&next) => {
                *edge += 1;
                if !seen[next] {
                    seen[next] = true;
                    stack.push((next, 0));
                }
            }
            None => {
                finished.push(block);
                stack.pop();
            }
        }
    }
    let mut number = vec![0; n];
    for (i, &block) in finished.iter().enumerate() {
        number[block] = i;
    }
    let mut parent: Vec<Option<usize>> = vec![None; n];
    parent[root] = Some(root);
    let mut budget = 2000 * n + 100_000;
    let mut changed = true;
    while changed {
        changed = false;
        for &block in finished.iter().rev().skip(1) {
            let mut new: Option<usize> = None;
            for &other in backward[block].iter().filter(|&&b| parent[b].is_some()) {
                let Some(mut a) = new else {
                    new = Some(other);
                    continue;
                };
                let mut b = other;
                while a != b {
                    budget = budget.checked_sub(1)?;
                    let lower = if number[a] < number[b] { &mut a } else { &mut b };
                    *lower = parent[*lower]?;
                }
                new = Some(a);
            }
            budget = budget.checked_sub(1)?;
            if new.is_some() && parent[block] != new {
                parent[block] = new;
                changed = true;
            }
        }
    }
    parent[root] = None;
    Some(parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(successors: &[&[usize]]) -> Graph {
        Graph {
            successors: successors.iter().map(|s| s.to_vec()).collect(),
            exits: successors.iter().map(|s| s.is_empty()).collect(),
        }
    }

    fn inside(post: &[(u32, u32)], outer: usize, inner: usize) -> bool {
        (post[outer].0..post[outer].1).contains(&post[inner].0)
    }

    #[test]
    fn a_loop_stands_before_its_exit() {
        // 0 → 1 (head) → 2 (exit) or 3 (body) → 1
        let g = graph(&[&[1], &[2, 3], &[], &[1]]);
        assert_eq!(g.order(), [0, 1, 3, 2]);
        let post = g.post_dominators();
        assert!(inside(&post, 2, 3) && inside(&post, 1, 3) && inside(&post, 2, 0));
        assert!(!inside(&post, 3, 1));
    }

    #[test]
    fn what_nothing_leads_to_comes_last() {
        let g = graph(&[&[2], &[2], &[]]);
        assert_eq!(g.order(), [0, 2, 1]);
    }

    #[test]
    fn nested_loops_stay_contiguous() {
        // 1: outer head, 2: inner head, 4: inner body, 5: outer latch, 3: exit
        let g = graph(&[&[1], &[3, 2], &[5, 4], &[], &[2], &[1]]);
        let order = g.order();
        let at = |b: usize| order.iter().position(|&x| x == b).unwrap();
        assert!(at(2) < at(4) && at(4) < at(5) && at(5) < at(3));
    }

    #[test]
    fn a_join_waits_for_both_sides() {
        let g = graph(&[&[1, 2], &[3], &[3], &[]]);
        let order = g.order();
        assert_eq!((order[0], order[3]), (0, 3));
        let post = g.post_dominators();
        assert!(inside(&post, 3, 1) && inside(&post, 3, 2) && inside(&post, 3, 0));
        assert!(!inside(&post, 1, 0) && !inside(&post, 1, 2));
    }

    #[test]
    fn irreducible_and_endless_graphs_end() {
        let g = graph(&[&[1, 2], &[2], &[1], &[3]]);
        assert_eq!(g.order().len(), 4);
        let post = g.post_dominators();
        assert!(!inside(&post, 1, 0) && !inside(&post, 3, 0));
        let n = 3000;
        let deep = Graph {
            successors: (0..n).map(|i| vec![(i + 1) % n, 0, n - 1 - i]).collect(),
            exits: vec![false; n],
        };
        let mut order = deep.order();
        order.sort_unstable();
        assert!(order.into_iter().eq(0..n));
        deep.post_dominators();
    }
}
