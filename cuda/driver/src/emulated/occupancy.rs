//! How many blocks fit: arithmetic over the device's numbers and the kernel's. Registers are an estimate, since nothing
//! is compiled.

use super::device::*;
use super::function::Function;

/// Registers are handed out to warps in this many, shared memory to blocks.
const REGISTER_UNIT: u32 = 256;
pub(super) const SHARED_UNIT: u32 = 128;

/// Blocks of a kernel that an SM can hold at once.
pub(super) fn per_sm(function: &Function, threads: u32, dynamic: u32) -> u32 {
    let shared = function.info.static_shared.saturating_add(dynamic);
    if threads == 0 || threads > function.max_threads() || shared > SHARED_OPT_IN {
        return 0;
    }
    let warps = threads.div_ceil(WARP);
    let registers = warps * (function.info.registers * WARP).next_multiple_of(REGISTER_UNIT);
    let shared = (shared + SHARED_RESERVED).next_multiple_of(SHARED_UNIT);
    [
        SM_BLOCKS,
        SM_THREADS / (warps * WARP),
        SM_REGISTERS / registers.max(1),
        SHARED_SM / shared,
    ]
    .into_iter()
    .fold(u32::MAX, u32::min)
}

/// Blocks of a kernel that the device can hold at once.
pub(super) fn resident(function: &Function, threads: u32, dynamic: u32) -> u64 {
    u64::from(per_sm(function, threads, dynamic)) * u64::from(sms())
}

/// Clusters of a size that the device can hold at once: a cluster stays within a GPC.
pub(super) fn clusters_of(size: u32, per_sm: u32) -> u32 {
    gpcs().iter().map(|sms| sms * per_sm / size).sum()
}
