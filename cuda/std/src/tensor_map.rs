//! TMA tile loads: boxes of a tensor in global memory, addressed by coordinates (PTX ISA §9.7.9.27
//! `cp.async.bulk.tensor`, sm_90).

use crate::shared::SharedAddr;
use core::arch::asm;

/// A tensor map that the host has encoded, as a kernel's by-value parameter.
///
/// The loads read it where it lies, so a kernel takes the parameter's own address by [`tensor_map_address!`] and leaves
/// the value alone: a use of it would be a copy in local memory. The alignment of 64 bytes that the hardware asks for
/// is written into the finished PTX by the builder.
///
/// [`tensor_map_address!`]: crate::tensor_map_address
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct TensorMap([u64; 16]);

/// The generic address of the tensor map that is parameter `$index` (a literal) of the kernel with the symbol `$entry`
/// (a string literal, or a macro that makes one; `cvta.param`, PTX ISA §9.7.9.20).
#[macro_export]
macro_rules! tensor_map_address {
    ($entry:expr, $index:literal) => {{
        let address: u64;
        // SAFETY: takes the address of a parameter of this entry; accesses nothing.
        unsafe {
            core::arch::asm!(
                concat!("mov.b64 {0}, ", $entry, "_param_", $index, "; cvta.param.u64 {0}, {0};"),
                out(reg64) address, options(pure, nomem, nostack)
            )
        };
        address
    }};
}

/// `cp.async.bulk.tensor.2d` from global to this CTA's shared memory: the box of the map at these coordinates, the
/// innermost first. What lies outside the tensor arrives as zeros; the bytes of the whole box are counted on `barrier`.
///
/// # Safety
/// `map` is the generic address of a tensor map of two dimensions; `to` is aligned as its swizzle asks; the destination
/// stays untouched until the barrier's phase ends; the barrier expects the bytes.
#[inline(always)]
pub unsafe fn load_2d(to: SharedAddr, map: u64, at: [u32; 2], barrier: SharedAddr) {
    // SAFETY: the map has two dimensions, so two coordinates fit it; the barrier awaits the box's bytes, and until its
    // phase ends the caller keeps the destination untouched.
    unsafe {
        asm!("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{0}], [{1}, {{{2}, {3}}}], [{4}];",
            in(reg32) to, in(reg64) map, in(reg32) at[0], in(reg32) at[1], in(reg32) barrier, options(nostack))
    };
}

/// [`load_2d`] into several CTAs of the cluster, those whose bits of `ranks` are set, by one read
/// (`.multicast::cluster`): in each, the box lands where `to` is in this CTA, and its bytes are counted on the barrier
/// that lies where `barrier` does.
///
/// # Safety
/// `map` is the generic address of a tensor map of two dimensions; `to` is aligned as its swizzle asks. Each CTA of
/// `ranks` has started and has initialised its barrier, which expects the bytes; it leaves its destination untouched,
/// and does not exit, until the barrier's phase ends.
#[inline(always)]
pub unsafe fn load_2d_into(ranks: u16, to: SharedAddr, map: u64, at: [u32; 2], barrier: SharedAddr) {
    // SAFETY: every CTA of `ranks` is there with an initialised barrier that awaits the box's bytes, and keeps its
    // destination untouched until its phase ends.
    unsafe {
        asm!("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster",
            "    [{0}], [{1}, {{{2}, {3}}}], [{4}], {5};",
            in(reg32) to, in(reg64) map, in(reg32) at[0], in(reg32) at[1], in(reg32) barrier, in(reg16) ranks, options(nostack))
    };
}

/// `cp.async.bulk.tensor.3d`: like [`load_2d`].
///
/// # Safety
/// `map` is the generic address of a tensor map of three dimensions; `to` is aligned as its swizzle asks; the
/// destination stays untouched until the barrier's phase ends; the barrier expects the bytes.
#[inline(always)]
pub unsafe fn load_3d(to: SharedAddr, map: u64, at: [u32; 3], barrier: SharedAddr) {
    // SAFETY: the map has three dimensions, so three coordinates fit it; the barrier awaits the box's bytes, and until
    // its phase ends the caller keeps the destination untouched.
    unsafe {
        asm!("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{0}], [{1}, {{{2}, {3}, {4}}}], [{5}];",
            in(reg32) to, in(reg64) map, in(reg32) at[0], in(reg32) at[1], in(reg32) at[2], in(reg32) barrier,
            options(nostack))
    };
}
