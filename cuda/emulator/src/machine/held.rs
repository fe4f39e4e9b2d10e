//! Registers that matrix instructions use on their own time: who may touch them, and when.
//!
//! From a `wgmma.mma_async` on until a `wgmma.wait_group` covers it, its accumulators and its registers of A belong to
//! it; a `wgmma.fence` must come between any other access and the next matrix instruction that uses them. Matrix
//! instructions of one shape on the same accumulators follow each other by themselves.

use std::collections::VecDeque;

use super::cluster::Cluster;
use super::report::{Trouble, trouble};
use crate::error::FaultKind;
use crate::program::{Left, Mask, Multiply, Reg};

/// What a matrix instruction uses a register for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Input,
    /// The `index`-th accumulator of an instruction with so many columns.
    Accumulator {
        columns: usize,
        index: usize,
    },
}

/// What has happened to a register.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// The matrix instruction that used it last: its number, its site, the fences before it.
    user: Option<(u32, Role, u32, u32)>,
    /// The last access of another instruction: its site, the fences before it.
    touched: Option<(u32, u32)>,
}

/// A warp's matrix instructions.
#[derive(Debug, Default)]
pub(super) struct Products {
    /// Instructions issued.
    pub(super) issued: u32,
    /// Of these, the first so many have been waited for.
    pub(super) retired: u32,
    /// For each group that has been committed and not waited for, the instructions issued until then.
    pub(super) committed: VecDeque<u32>,
    /// Site of the last one.
    pub(super) last: u32,
    fences: u32,
    /// By register; empty until the first `wgmma`.
    registers: Vec<Held>,
}

impl Products {
    pub(super) fn fence(&mut self) {
        self.fences += 1;
    }

    /// What will have been waited for when no more than `left` groups are under way.
    pub(super) fn due(&self, left: u32) -> u32 {
        let groups = self.committed.len().saturating_sub(left as usize);
        groups.checked_sub(1).map_or(self.retired, |last| self.committed[last])
    }
}

impl Cluster<'_> {
    fn held(&mut self, w: usize) -> &mut [Held] {
        let registers = &mut self.warps[w].products.registers;
        if registers.is_empty() {
            registers.resize(self.env.program.registers as usize, Held::default());
        }
        registers
    }

    /// An ordinary instruction is about to access registers that matrix instructions use too.
    pub(super) fn touch_held(&mut self, w: usize, exec: Mask, site: u32) -> Result<(), Box<Trouble>> {
        let program = self.env.program;
        let (fences, retired) = (self.warps[w].products.fences, self.warps[w].products.retired);
        for &reg in &program.sites[site as usize].matrix_registers {
            let held = &mut self.held(w)[reg as usize];
            held.touched = Some((site, fences));
            let Some((number, role, user, _)) = held.user.filter(|&(number, ..)| number > retired) else {
                continue;
            };
            let what = match role {
                Role::Input => "a register of A".to_owned(),
                Role::Accumulator { index, .. } => format!("accumulator {index}"),
            };
            let after = self.warps[w].products.issued - number;
            let detail = format!(
                "it accesses {what} of {}, which nothing has waited for ({after} matrix instructions were issued since): commit \
                 its group, and wait for it with `wgmma.wait_group` first",
                self.name_site(user)
            );
            return Err(trouble(FaultKind::AsyncMatrix, exec.trailing_zeros() as usize, detail));
        }
        Ok(())
    }

    /// A matrix instruction takes its registers.
    pub(super) fn take_registers(&mut self, w: usize, multiply: &Multiply, site: u32) -> Result<(), Box<Trouble>> {
        let bad = |detail| Err(trouble(FaultKind::AsyncMatrix, 0, detail));
        let products = &self.warps[w].products;
        let (fences, retired, number) = (products.fences, products.retired, products.issued + 1);
        if fences == 0 {
            return bad("no `wgmma.fence` has been executed: one must come before the first matrix instruction".into());
        }
        let columns = multiply.columns();
        let accumulators =
            (multiply.d.iter().enumerate()).map(|(index, &reg)| (reg, Role::Accumulator { columns, index }));
        let inputs: &[Reg] = match &multiply.a {
            Left::Registers(regs) => regs,
            Left::Shared(_) => &[],
        };
        for (reg, role) in accumulators.chain(inputs.iter().map(|&reg| (reg, Role::Input))) {
            let held = &mut self.held(w)[reg as usize];
            let before = *held;
            held.user = Some((number, role, site, fences));
            let what = match role {
                Role::Input => "a register of A".to_owned(),
                Role::Accumulator { index, .. } => format!("accumulator {index}"),
            };
            if let Some((other, _)) = before.touched.filter(|&(_, then)| then == fences) {
                let other = self.name_site(other);
                return bad(format!(
                    "{what} was accessed at {other} with no `wgmma.fence` between the two"
                ));
            }
            let Some((user, other_role, other, then)) = before.user.filter(|&(_, other, ..)| other != role) else {
                continue;
            };
            if user == number {
                return bad("one register is both an accumulator and a part of A".into());
            }
            let other = self.name_site(other);
            let was = match other_role {
                Role::Input => "a register of A".to_owned(),
                Role::Accumulator { columns, index } => format!("accumulator {index} of {}", columns / 2),
            };
            if user > retired {
                return bad(format!(
                    "{what} is {was} of {other}, which nothing has waited for: only instructions of one shape on the same \
                     accumulators follow each other by themselves"
                ));
            }
            if then == fences {
                return bad(format!(
                    "{what} was {was} of {other}, with no `wgmma.fence` between the two, which are not of one shape on the same \
                     accumulators"
                ));
            }
        }
        Ok(())
    }
}
