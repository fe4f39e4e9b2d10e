//! Matrix fragments from shared memory (PTX ISA §9.7.14.5.15 `ldmatrix`, sm_75 and later).

use crate::shared::SharedAddr;
use core::arch::asm;

/// `ldmatrix.sync.aligned.m8n8.x4.shared.b16`: four matrices of 8 × 8 values of 2 bytes. Lanes 8·i.. give the addresses
/// of the eight rows of matrix i; lane l gets of each matrix the pair of row l / 4 at column 2·(l % 4).
///
/// # Safety
/// Every lane of the warp executes it together, in straight line; each address is a multiple of 16 and its 16 bytes
/// were written before by this thread or by one ordered before it.
#[inline(always)]
pub unsafe fn load_x4(row: SharedAddr) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the whole warp is here, and each lane's address is that of 16 aligned bytes whose writes are ordered
    // before the load.
    unsafe {
        asm!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{0}, {1}, {2}, {3}}}, [{4}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) row, options(readonly, nostack))
    };
    [a, b, c, d]
}
