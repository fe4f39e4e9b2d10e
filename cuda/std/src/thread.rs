//! Thread and block indices, and the barrier of a CTA (PTX ISA §10 special registers, §9.7.13.1 `barrier.cta`).

use core::arch::nvptx;

#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.barrier.cta.red.or.aligned.all"]
    fn barrier_red_or(barrier: u32, predicate: bool) -> bool;
}

macro_rules! special_registers {
    ($($(#[$doc:meta])* $name:ident = $intrinsic:ident;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: reading a special register has no precondition.
            unsafe { nvptx::$intrinsic() as u32 }
        }
    )* };
}

special_registers! {
    /// `%tid.x`: the thread's index in its CTA.
    thread_idx_x = _thread_idx_x;
    /// `%ntid.x`: threads per CTA.
    block_dim_x = _block_dim_x;
    /// `%ctaid.x`: the CTA's index in the grid.
    block_idx_x = _block_idx_x;
    /// `%ctaid.y`: the CTA's index in the grid, second dimension.
    block_idx_y = _block_idx_y;
    /// `%ctaid.z`: the CTA's index in the grid, third dimension.
    block_idx_z = _block_idx_z;
    /// `%nctaid.x`: CTAs in the grid.
    grid_dim_x = _grid_dim_x;
    /// `%nctaid.y`: CTAs in the grid, second dimension.
    grid_dim_y = _grid_dim_y;
}

/// `barrier.cta.sync.aligned.all 0`: waits for every thread of the CTA and orders their shared-memory accesses.
#[inline(always)]
pub fn sync_threads() {
    // SAFETY: the intrinsic is convergent; every thread of the CTA reaches it because kernels call it in straight line.
    unsafe { nvptx::_syncthreads() }
}

/// `barrier.cta.red.or.pred.aligned 0`: like [`sync_threads`], and tells every thread whether `predicate` holds in any.
#[inline(always)]
pub fn sync_threads_or(predicate: bool) -> bool {
    // SAFETY: convergent; every thread of the CTA reaches it because kernels call it in straight line.
    unsafe { barrier_red_or(0, predicate) }
}
