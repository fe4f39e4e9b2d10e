//! Placeholder.
use core::arch::asm;
use cuda_std::{shared, thread};
#[inline(always)]
pub(crate) unsafe fn last(counter: u64, arrivals: u32, flag: u32) -> bool {
    thread::sync_threads();
    unsafe {
        if thread::thread_idx_x() == 0 {
            let before: u32;
            asm!("atom.add.acq_rel.gpu.global.u32 {0}, [{1}], 1;", out(reg32) before, in(reg64) counter, options(nostack));
            if before + 1 == arrivals {
                cuda_std::global::store_u32(counter, 0);
            }
            shared::store_f32(flag, if before + 1 == arrivals { 1.0 } else { 0.0 });
        }
        thread::sync_threads();
        shared::load_f32(flag) != 0.0
    }
}
