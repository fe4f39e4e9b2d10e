//! `ldmatrix` and `stmatrix`: a warp moves 8 × 8 matrices of 16-bit elements between shared memory and fragments.

use super::access::{get, put};
use super::cluster::{Cluster, Next};
use super::report::{Trouble, trouble};
use super::shadow::Touch;
use super::warp::lanes;
use crate::error::FaultKind;
use crate::program::{FULL, Mask, Matrices, Order, SHARED_WINDOW, Space, WARP};

/// Rows and columns of a matrix.
const SIDE: usize = 8;
/// Bytes of a row.
const ROW: u64 = 16;

/// Row and column of one of the two elements that a lane's register holds.
fn element(lane: usize, half: usize, transposed: bool) -> (usize, usize) {
    let (major, minor) = (lane / 4, lane % 4 * 2 + half);
    if transposed { (minor, major) } else { (major, minor) }
}

impl Cluster<'_> {
    pub(super) fn matrices(&mut self, w: usize, m: &Matrices, exec: Mask, site: u32) -> Result<Next, Box<Trouble>> {
        if let Some(next) = self.aligned(w, exec, true)? {
            return Ok(next);
        }
        // Only these lanes' addresses count.
        let named = FULL >> (WARP - SIDE * m.regs.len());
        let (space, window) = match m.address.space {
            Space::Generic => (Space::Cluster, SHARED_WINDOW),
            space => (space, 0),
        };
        let addresses = self.addresses(w, m.address).map(|a| a.wrapping_sub(window));
        if let Some(lane) = lanes(named).find(|&l| !addresses[l].is_multiple_of(ROW)) {
            let detail = format!(
                "the row at {:#x} does not start at a multiple of {ROW}",
                addresses[lane]
            );
            return Err(trouble(FaultKind::Misaligned, lane, detail));
        }
        let touch = if m.store { Touch::Write } else { Touch::Read };
        let spots = self.touch_shared(w, space, &addresses, named, ROW, touch, Order::default(), site)?;
        let own = self.warps[w].cta;
        if let Some(lane) = lanes(named).find(|&l| spots[l].0 as usize != own) {
            let detail = format!(
                "the row lies in the CTA of rank {}, not in the warp's own",
                spots[lane].0
            );
            return Err(trouble(FaultKind::BadInstruction, lane, detail));
        }
        self.progress |= m.store;
        self.conflicts[usize::from(m.store)] += self.bank_conflicts(w, &spots, named, ROW);
        for (i, &reg) in m.regs.iter().enumerate() {
            let place = |lane: usize, half: usize| {
                let (row, column) = element(lane, half, m.transposed);
                spots[SIDE * i + row].1 as usize + 2 * column
            };
            let shared = &mut self.ctas[own].shared;
            if m.store {
                let value = self.warps[w].read(self.env.constants, reg);
                for (lane, pair) in value.iter().enumerate() {
                    put(shared, place(lane, 0), 2, pair & 0xffff);
                    put(shared, place(lane, 1), 2, pair >> 16);
                }
            } else {
                let value = std::array::from_fn(|l| get(shared, place(l, 0), 2) | get(shared, place(l, 1), 2) << 16);
                self.warps[w].write(reg, FULL, &value);
            }
        }
        Ok(Next::Advance)
    }
}
