//! How many CTAs of a kernel an SM of compute capability 9.0 holds at once.

const REGISTERS: u32 = 65_536;
/// An SM is four partitions, and a warp's registers lie in one of them.
const PARTITIONS: u32 = 4;
/// Registers are given to a warp in lots of this many.
const REGISTER_LOT: u32 = 256;
const WARP: u32 = 32;
const THREADS: u32 = 2048;
const CTAS: u32 = 32;
const THREADS_PER_CTA: u32 = 1024;
const SHARED: u32 = 228 * 1024;
/// The system takes this much for each CTA.
const SHARED_RESERVED: u32 = 1024;
const SHARED_PER_CTA: u32 = 227 * 1024;
/// Shared memory is given to a CTA in lots of this many bytes.
const SHARED_LOT: u32 = 128;

/// What keeps a further CTA out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The register file.
    Registers,
    /// Shared memory.
    Shared,
    /// The threads of an SM.
    Threads,
    /// The CTAs of an SM.
    Ctas,
}

/// CTAs per SM, and why not more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// CTAs that run on one SM at once; 0 where not even one does.
    pub ctas: u32,
    /// What keeps a further one out.
    pub limit: Limit,
}

/// How many CTAs of `threads` threads with `registers` registers each and `shared_bytes` of shared memory (static and
/// dynamic) an SM holds.
pub fn occupancy(threads: u32, registers: u32, shared_bytes: u32) -> Occupancy {
    let warps = threads.div_ceil(WARP).max(1);
    let warp_registers = registers
        .max(1)
        .saturating_mul(WARP)
        .div_ceil(REGISTER_LOT)
        .saturating_mul(REGISTER_LOT);
    let by_registers = (REGISTERS / PARTITIONS / warp_registers) * PARTITIONS / warps;
    let by_threads = if threads > THREADS_PER_CTA {
        0
    } else {
        THREADS / (warps * WARP)
    };
    let by_shared = if shared_bytes > SHARED_PER_CTA {
        0
    } else {
        SHARED / (shared_bytes.div_ceil(SHARED_LOT) * SHARED_LOT + SHARED_RESERVED)
    };
    let limits = [
        (by_registers, Limit::Registers),
        (by_shared, Limit::Shared),
        (by_threads, Limit::Threads),
        (CTAS, Limit::Ctas),
    ];
    let (ctas, limit) = limits
        .into_iter()
        .min_by_key(|(ctas, _)| *ctas)
        .unwrap_or((0, Limit::Ctas));
    Occupancy { ctas, limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resource_can_be_the_limit() {
        let cases = [
            ((256, 128, 0), (2, Limit::Registers)),
            ((256, 96, 0), (2, Limit::Registers)),
            ((256, 80, 0), (3, Limit::Registers)),
            ((128, 168, 0), (3, Limit::Registers)),
            ((1024, 64, 0), (1, Limit::Registers)),
            ((256, 32, 0), (8, Limit::Registers)),
            ((256, 24, 0), (8, Limit::Threads)),
            ((32, 16, 0), (32, Limit::Ctas)),
            ((256, 32, 113 * 1024), (2, Limit::Shared)),
            ((256, 32, 113 * 1024 + 1), (1, Limit::Shared)),
            ((256, 32, 227 * 1024), (1, Limit::Shared)),
            ((256, 32, 227 * 1024 + 1), (0, Limit::Shared)),
            ((1025, 16, 0), (0, Limit::Threads)),
            ((1024, 72, 0), (0, Limit::Registers)),
        ];
        for ((threads, registers, shared), (ctas, limit)) in cases {
            let found = occupancy(threads, registers, shared);
            assert_eq!(
                found,
                Occupancy { ctas, limit },
                "{threads} threads, {registers} registers, {shared} bytes"
            );
        }
    }

    #[test]
    fn senseless_numbers_give_an_answer_too() {
        for number in [0, 1, u32::MAX] {
            occupancy(number, number, number);
            occupancy(256, number, 0);
        }
        assert_eq!(occupancy(u32::MAX, 1, 0).ctas, 0);
    }
}
