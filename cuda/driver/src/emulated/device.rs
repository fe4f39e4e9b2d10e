//! The one device: an sm_90 part with an H200's numbers.

use crate::codes::{Answer, Code};
use crate::gpcs;
use crate::types::*;

/// The device's number.
pub(super) const ORDINAL: CUdevice = 0;
pub(super) const TOTAL_MEMORY: u64 = 139 << 30;

pub(super) const WARP: u32 = 32;
pub(super) const MAX_BLOCK_THREADS: u32 = 1024;
pub(super) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
pub(super) const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65535, 65535];
pub(super) const SM_THREADS: u32 = 2048;
pub(super) const SM_BLOCKS: u32 = 32;
pub(super) const SM_REGISTERS: u32 = 65536;
/// Shared memory: per block by default, per block with opt-in, per SM, and reserved by the system per block.
pub(super) const SHARED_DEFAULT: u32 = 48 << 10;
pub(super) const SHARED_OPT_IN: u32 = 227 << 10;
pub(super) const SHARED_SM: u32 = 228 << 10;
pub(super) const SHARED_RESERVED: u32 = 1 << 10;
/// The largest cluster: portable, and where the kernel allows a non-portable size.
pub(super) const CLUSTER_PORTABLE: u32 = 8;
pub(super) const CLUSTER_MAX: u32 = 16;
/// The `CUdevice_attribute` that is the number of SMs.
const SMS: c_uint = 16;

/// SMs of each GPC.
pub(super) fn gpcs() -> &'static [u32] {
    gpcs::sizes()
}

/// SMs.
pub(super) fn sms() -> u32 {
    gpcs().iter().sum()
}

/// The answer to every `CUdevice_attribute` but [`SMS`]. Sizes and rates are an H200's. A feature that the emulation
/// lacks is answered with 0, so that a program which asks first does not use it.
const ATTRIBUTES: &[(c_uint, c_int)] = &[
    (1, MAX_BLOCK_THREADS as c_int),
    (2, MAX_BLOCK[0] as c_int),
    (3, MAX_BLOCK[1] as c_int),
    (4, MAX_BLOCK[2] as c_int),
    (5, MAX_GRID[0] as c_int),
    (6, MAX_GRID[1] as c_int),
    (7, MAX_GRID[2] as c_int),
    (8, SHARED_DEFAULT as c_int),
    (9, 64 << 10), // constant memory
    (10, WARP as c_int),
    (11, c_int::MAX), // pitch of copies
    (12, SM_REGISTERS as c_int),
    (13, 1_980_000), // clock, kHz
    (14, 512),       // texture alignment
    (15, 1),         // copies overlap kernels
    (17, 0),         // no time limit on kernels
    (18, 0),         // not integrated
    (19, 1),         // kernels reach page-locked host memory
    (20, 0),         // compute mode: default
    (21, 131_072),   // textures, 21 to 29
    (22, 131_072),
    (23, 65536),
    (24, 16384),
    (25, 16384),
    (26, 16384),
    (27, 32768),
    (28, 32768),
    (29, 2048),
    (30, 512), // surface alignment
    (31, 1),   // concurrent kernels
    (32, 1),   // ECC
    (33, 0),   // PCI bus and device
    (34, 0),
    (35, 0),         // not TCC
    (36, 3_201_000), // memory clock, kHz
    (37, 6144),      // memory bus, bits
    (38, 50 << 20),  // L2
    (39, SM_THREADS as c_int),
    (40, 3),     // copy engines
    (41, 1),     // unified addressing
    (42, 32768), // textures, 42 to 49
    (43, 2048),
    (44, 1),
    (45, 32768),
    (46, 32768),
    (47, 8192),
    (48, 8192),
    (49, 32768),
    (50, 0),  // PCI domain
    (51, 32), // textures and surfaces, 51 to 74
    (52, 32768),
    (53, 32768),
    (54, 2046),
    (55, 32768),
    (56, 131_072),
    (57, 65536),
    (58, 16384),
    (59, 16384),
    (60, 16384),
    (61, 32768),
    (62, 2048),
    (63, 32768),
    (64, 32768),
    (65, 2048),
    (66, 32768),
    (67, 32768),
    (68, 2046),
    (69, 268_435_456),
    (70, 131_072),
    (71, 65000),
    (72, 2_097_120),
    (73, 32768),
    (74, 32768),
    (75, 9), // compute capability 9.0
    (76, 0),
    (77, 32768), // textures
    (78, 1),     // stream priorities
    (79, 1),     // L1 caches global loads
    (80, 1),     // L1 caches local loads
    (81, SHARED_SM as c_int),
    (82, SM_REGISTERS as c_int),
    (83, 1), // managed memory
    (84, 0), // not a multi-GPU board
    (85, 0),
    (86, 0), // no atomics on host memory
    (87, 2), // FP32 rate over FP64 rate
    (88, 0), // pageable memory is out of kernels' reach
    (89, 1), // managed memory may be used while kernels run
    (90, 1), // preemption
    (91, 0), // registered host memory has an address of its own for kernels
    (92, 0), // stream memory operations, 92 to 94: not emulated
    (93, 0),
    (94, 0),
    (95, 1), // cooperative launch
    (96, 0),
    (97, SHARED_OPT_IN as c_int),
    (98, 0),  // flushing remote writes: not emulated
    (99, 1),  // host memory can be registered
    (100, 0), // pageable memory: out of reach
    (101, 0), // managed memory: not emulated
    (102, 0), // virtual memory management, 102 to 105: not emulated
    (103, 0),
    (104, 0),
    (105, 0),
    (106, SM_BLOCKS as c_int),
    (107, 0),           // compression: not emulated
    (108, 32_768_000),  // L2 that can be set aside for persisting accesses
    (109, 134_213_632), // access policy window
    (110, 0),           // RDMA: not emulated
    (111, SHARED_RESERVED as c_int),
    (112, 0), // sparse arrays: not emulated
    (113, 0), // read-only registered memory: not emulated
    (114, 0), // timeline semaphores: not emulated
    (115, 1), // memory pools
    (116, 0), // RDMA, 116 to 118: not emulated
    (117, 0),
    (118, 0),
    (119, 0), // pools cannot be shared with other processes
    (120, 1), // cluster launch
    (121, 0), // deferred mapping of arrays: not emulated
    (122, 0), // stream memory operations: not emulated
    (123, 0),
    (124, 0), // RDMA: not emulated
    (125, 0), // IPC events: not emulated
    (126, 0), // memory-synchronisation domains: one
    (127, 1), // tensor maps
    (128, 0), // fabric handles: not emulated
    (129, 0), // unified function pointers
    (130, 0), // the device's memory is no NUMA node
    (131, -1),
    (132, 0),  // multicast: not emulated
    (133, 0),  // MPS
    (134, -1), // NUMA node of the host
    (135, 0),  // graphics
    (136, 0),  // decompression, 136 and 137: not emulated
    (137, 0),
    (138, 0), // graphics
    (139, 0), // on no PCI bus
    (140, 0),
    (141, 0), // memory of host nodes, 141 to 146: not emulated
    (142, 0),
    (143, 0),
    (144, 0),
    (145, 0),
    (146, 0),
    (147, 0),
];

/// The default of every limit of a context that this device has (`CUlimit`).
const LIMITS: &[(c_uint, usize)] = &[
    (0, 1024),    // stack of a thread
    (1, 7 << 20), // printf buffer
    (2, 8 << 20), // heap of device-side malloc
    (4, 2048),    // pending launches of the device's runtime
    (5, 128),     // L2 fetch granularity
    (6, 0),       // L2 set aside for persisting accesses
];

/// The value in a table of numbers.
fn look_up<T: Copy>(table: &[(c_uint, T)], key: c_uint) -> Option<T> {
    table.iter().find(|(number, _)| *number == key).map(|&(_, value)| value)
}

pub(super) fn check(device: CUdevice) -> Answer {
    if device == ORDINAL {
        Ok(())
    } else {
        Err(Code::INVALID_DEVICE)
    }
}

/// The default of a context's limit.
pub(super) fn limit(limit: c_uint) -> Answer<usize> {
    look_up(LIMITS, limit).ok_or(Code::UNSUPPORTED_LIMIT)
}

/// Refuses sizes that cannot be: the one limit with a fixed range is how much L2 fetches at once.
pub(super) fn check_limit(limit: c_uint, value: usize) -> Answer {
    const FETCH_GRANULARITY: c_uint = 5;
    const PERSISTING: c_uint = 6;
    let fits = match limit {
        FETCH_GRANULARITY => value <= 128,
        PERSISTING => look_up(ATTRIBUTES, 108).is_some_and(|most| value <= most as usize),
        _ => true,
    };
    if fits { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Refuses what is no `CUfunc_cache`.
pub(super) fn check_cache_config(config: c_uint) -> Answer<c_uint> {
    if config <= 3 {
        Ok(config)
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// Refuses what is no `CUsharedconfig`.
pub(super) fn check_shared_config(config: c_uint) -> Answer<c_uint> {
    if config <= 2 {
        Ok(config)
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// The answer to an attribute.
pub(super) fn number(attribute: c_uint) -> Answer<c_int> {
    match attribute {
        SMS => Ok(sms() as c_int),
        _ => look_up(ATTRIBUTES, attribute).ok_or(Code::INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_has_one_answer() {
        let mut numbers: Vec<c_uint> = ATTRIBUTES.iter().map(|&(number, _)| number).collect();
        numbers.insert(SMS as usize - 1, SMS);
        assert_eq!(numbers, (1..=147).collect::<Vec<_>>());
        assert_eq!(number(SMS).ok(), Some(132));
    }
}
