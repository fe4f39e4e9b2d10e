//! `wgmma`: a warpgroup's matrix products.
//!
//! Each warp computes its sixteen rows when it issues the instruction. That the hardware does so later shows only in
//! what is refused: the memory is entered as read by an actor of its own, which nobody knows to be done before a wait,
//! and the registers belong to the instruction until then.

use super::clock::Epoch;
use super::cluster::{Cluster, Next};
use super::descriptor::{Matrix, PIECE};
use super::report::{Trouble, trouble};
use super::shadow::Touch;
use super::warpgroup::Step;
use crate::error::FaultKind;
use crate::num::{multiply_tile_bf16, pack_sums, unpack_rows, unpack_sums};
use crate::program::{Described, FULL, Left, Mask, Multiply, SHARED_BASE, WARPGROUP, Wgmma};

/// Rows of A that one warp multiplies.
const ROWS: u32 = 16;
/// The sign of a BF16 element.
const SIGN: u16 = 0x8000;

type Result<T = ()> = std::result::Result<T, Box<Trouble>>;

impl Cluster<'_> {
    pub(super) fn wgmma(&mut self, w: usize, wgmma: &Wgmma, exec: Mask, site: u32) -> Result<Next> {
        if let Some(next) = self.aligned(w, exec, true)? {
            return Ok(next);
        }
        let mut operands = ([0; 2], false);
        if let Wgmma::Multiply(multiply) = wgmma {
            operands = self.multiply_operands(w, multiply)?;
        }
        self.join_step(w, Step { site, operands })?;
        match wgmma {
            Wgmma::Fence => self.warps[w].products.fence(),
            Wgmma::Commit => {
                let products = &mut self.warps[w].products;
                products.committed.push_back(products.issued);
            }
            Wgmma::Wait { left } => {
                if let Next::Stay = self.wait_products(w, *left) {
                    return Ok(Next::Stay);
                }
            }
            Wgmma::Multiply(multiply) => self.multiply(w, multiply, operands, site)?,
        }
        self.end_step(w);
        Ok(Next::Advance)
    }

    /// The descriptors of A and B, and whether the accumulators are added.
    fn multiply_operands(&self, w: usize, multiply: &Multiply) -> Result<([u64; 2], bool)> {
        let descriptor = |matrix: &Described| self.uniform(w, matrix.descriptor, FULL, "the matrix descriptor");
        let a = match &multiply.a {
            Left::Shared(a) => descriptor(a)?,
            Left::Registers(_) => 0,
        };
        let add = self.warps[w].pred(multiply.add);
        if add != 0 && add != FULL {
            let detail = format!("scale-d differs between lanes: it is true in {add:#010x}");
            return Err(trouble(FaultKind::BadInstruction, 0, detail));
        }
        Ok(([a, descriptor(&multiply.b)?], add == FULL))
    }

    fn multiply(
        &mut self,
        w: usize,
        multiply: &Multiply,
        ([a_bits, b_bits], add): ([u64; 2], bool),
        site: u32,
    ) -> Result {
        self.take_registers(w, multiply, site)?;
        let number = self.warps[w].products.issued + 1;
        let columns = multiply.columns() as u32;
        let first_row = self.warps[w].index % WARPGROUP as u32 * ROWS;
        let matrix = |name: &str, bits: u64, described: &Described, length: u32| {
            Matrix::new(bits, described.transposed, length)
                .map_err(|(kind, why)| trouble(kind, 0, format!("{name}: {why}")))
        };
        let b = matrix("B", b_bits, &multiply.b, columns)?;
        self.read_matrix(w, "B", &b, (0, columns), number, site)?;
        let mut rows = match &multiply.a {
            Left::Shared(described) => {
                let a = matrix("A", a_bits, described, 4 * ROWS)?;
                self.read_matrix(w, "A", &a, (first_row, ROWS), number, site)?;
                let shared = &self.ctas[self.warps[w].cta].shared;
                std::array::from_fn(|i| a.row(shared, SHARED_BASE, first_row + i as u32))
            }
            Left::Registers(regs) => {
                let values = regs.map(|reg| &self.warps[w].registers[reg as usize]);
                unpack_rows(&std::array::from_fn(|lane| values.map(|value| value[lane] as u32)))
            }
        };
        if multiply.negate[0] != multiply.negate[1] {
            rows.iter_mut().flatten().for_each(|element| *element ^= SIGN);
        }
        let shared = &self.ctas[self.warps[w].cta].shared;
        let registers = &mut self.warps[w].registers;
        for (tile, regs) in multiply.d.chunks_exact(4).enumerate() {
            let across: [[u16; 16]; 8] = std::array::from_fn(|n| b.row(shared, SHARED_BASE, (8 * tile + n) as u32));
            let columns = std::array::from_fn(|k| across.map(|column| column[k]));
            let mut sums = [[0.0; 8]; 16];
            if add {
                sums = unpack_sums(|lane, i| f32::from_bits(registers[regs[i] as usize][lane] as u32));
            }
            multiply_tile_bf16(&rows, &columns, &mut sums);
            pack_sums(&sums, |lane, i, sum| {
                registers[regs[i] as usize][lane] = sum.to_bits().into()
            });
        }
        let products = &mut self.warps[w].products;
        products.issued = number;
        products.last = site;
        self.rouse_siblings(w);
        Ok(())
    }

    /// Enters the reading of a matrix into the books of the CTA's memory.
    fn read_matrix(
        &mut self,
        w: usize,
        name: &str,
        matrix: &Matrix,
        (first, length): (u32, u32),
        number: u32,
        site: u32,
    ) -> Result {
        let rank = self.warps[w].cta;
        let size = self.ctas[rank].shared.len() as u32;
        let pieces = matrix.pieces(first, length);
        let outside = |&&address: &&u32| address < SHARED_BASE || address - SHARED_BASE + PIECE > size;
        if let Some(address) = pieces.iter().find(outside) {
            let detail = format!(
                "{name}: its descriptor asks for {PIECE} bytes of shared memory at {address:#x}, which lie outside the CTA's \
                 {size} bytes at {SHARED_BASE:#x}"
            );
            return Err(trouble(FaultKind::OutOfBounds, 0, detail));
        }
        let reader = Epoch::new(self.multiplier(w), number, false);
        let pieces = pieces.iter().map(|address| (address - SHARED_BASE) as usize);
        if let Err((byte, objection)) = self.touch_pieces(w, (rank, PIECE as usize), pieces, reader, site) {
            return Err(self.objection(rank, byte, Touch::AsyncRead(reader), 0, objection));
        }
        Ok(())
    }
}
