//! Warp-wide matrix multiply-accumulate (PTX ISA §9.7.14.5 `mma.sync`, sm_80 and later).

#[repr(C)]
struct Accumulator(f32, f32, f32, f32);

#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.mma.m16n8k16.row.col.bf16"]
    #[allow(clippy::too_many_arguments)]
    fn mma_bf16(
        a0: u32,
        a1: u32,
        a2: u32,
        a3: u32,
        b0: u32,
        b1: u32,
        c0: f32,
        c1: f32,
        c2: f32,
        c3: f32,
    ) -> Accumulator;
}

/// `mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32`: `acc += a · b`.
///
/// With g = lane / 4 and t = lane % 4, a lane holds of A (16 × 16) the pairs (row g, k 2t..), (g + 8, 2t..), (g, 2t +
/// 8..) and (g + 8, 2t + 8..); of B (16 × 8) the pairs (k 2t.., column g) and (2t + 8.., g); and of the sum (16 × 8)
/// the values (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). Pairs lie low half first.
///
/// # Safety
/// Every lane of the warp executes it together.
#[inline(always)]
pub unsafe fn m16n8k16_bf16(acc: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    // SAFETY: convergent intrinsic; the caller keeps the warp together.
    let d = unsafe { mma_bf16(a[0], a[1], a[2], a[3], b[0], b[1], acc[0], acc[1], acc[2], acc[3]) };
    *acc = [d.0, d.1, d.2, d.3];
}
