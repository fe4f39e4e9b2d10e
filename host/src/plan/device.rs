//! The device that plans are made for: what the models of cost know of it.

use super::Clusters;
use kernels_gpu::instances::{Gemm, gemms};

/// A device, as far as plans care. Rates are those of one multiprocessor; [`Device::H200`] says where each figure is
/// from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Streaming multiprocessors.
    pub multiprocessors: usize,
    /// Microseconds of a launch that nothing hides.
    pub launch: f64,
    /// Bytes that one of them streams from memory in a microsecond, while all do.
    pub stream: f64,
    /// Bytes that must be in flight per multiprocessor for the full streaming rate.
    pub in_flight: f64,
    /// Bytes of L2.
    pub l2_bytes: usize,
    /// A multiprocessor's share of the bytes that L2 gives in a microsecond to all of them together.
    pub l2: f64,
    /// Bytes that one of them takes in in a microsecond, whoever reads them there: 64 in a cycle.
    pub port: f64,
    /// Bytes of x that the warps of a GEMV bring to one of them in a microsecond, by loads of their own.
    pub x_loads: f64,
    /// Bytes that one of them moves to or from its own shared memory in a microsecond, when sums are put together.
    pub shared: f64,
    /// Bytes that one of them sends to the shared memory of others of its cluster in a microsecond.
    pub dsmem: f64,
    /// Products of two BF16 values that a multiprocessor's tensor cores add up in a microsecond.
    pub products: f64,
    /// Microseconds that a CTA takes to fill its ring where no other one runs beside it.
    pub fill: f64,
    /// Microseconds that a product's prologue and epilogue take beyond a GEMV's.
    pub pipeline: f64,
    /// Microseconds that each CTA of the busiest multiprocessor adds.
    pub cta: f64,
    /// Microseconds that each token block of a GEMV adds.
    pub token_block: f64,
    /// Microseconds that a GEMV over packed weights takes to decode what comes in last.
    pub decode: f64,
    /// Microseconds that each doubling of a cluster adds to its reduction.
    pub reduction: f64,
    /// Microseconds that it takes to put sums together in global memory: to add them, to count, and to read them again.
    pub join: f64,
    /// Microseconds that each slice of K adds to that, as all add to the same sums.
    pub slice: f64,
    /// Microseconds that a warp takes to choose a token's experts.
    pub choice: f64,
    /// The multiprocessors' clock, as a multiple of an H200's.
    pub clock: f64,
    /// Clusters that it holds at once.
    pub clusters: Clusters,
    /// Kernels whose self-test failed on it.
    pub miscompiled: Miscompiled,
}

/// What a driver says of a device. `None` where it says nothing: the device is then taken for an H200 in this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriverFacts {
    /// Streaming multiprocessors.
    pub multiprocessors: Option<usize>,
    /// Their clock, in kHz.
    pub clock: Option<usize>,
    /// The memory's clock, in kHz.
    pub memory_clock: Option<usize>,
    /// Bits that the memory's bus moves at a time.
    pub bus_bits: Option<usize>,
    /// Bytes of L2.
    pub l2_bytes: Option<usize>,
    /// Clusters that the device holds at once.
    pub clusters: Option<Clusters>,
}

impl DriverFacts {
    /// What the driver says of an H200.
    pub const H200: DriverFacts = DriverFacts {
        multiprocessors: Some(132),
        clock: Some(1_980_000),
        memory_clock: Some(3_201_000),
        bus_bits: Some(6144),
        l2_bytes: Some(50 << 20),
        clusters: Some(Clusters::H200),
    };
}

impl Device {
    /// An H200. What its rates are based on:
    ///
    /// * *readers*: kernels that only read, timed on an H200 with a cold L2. They take 0.30 µs and a microsecond per
    ///   4.44 MB;
    /// * *prototypes*: projections timed in the same way. `launch`, `x_loads`, `token_block`, `decode`, `cta`,
    ///   `reduction` and `shared` were fitted to their 48 rows. They put every two rows that differ by more than 3 % in
    ///   their order, and miss single times by up to 9 %;
    /// * *machine code*: cycles of `cargo xtask sass --timeline` at 1.755 GHz.
    ///
    /// Readers and prototypes are in `benchmarks/record/h200/2026-11-29-peers.csv`.
    pub const H200: Device = Device {
        multiprocessors: 132,
        // Prototypes: the readers' 0.30, and what it takes to drain.
        launch: 0.547,
        // Readers: 4.44 TB/s.
        stream: 4.44e6 / 132.0,
        // By Little's law, for a memory that answers within 0.71 µs. Prototypes with as little in flight are as fast.
        in_flight: 24_000.0,
        l2_bytes: 50 << 20,
        // An assumption: 7.9 TB/s over all. Prototypes took in 6.8 TB/s, if neighbours found each other's x in L1.
        l2: 60_000.0,
        // The width of the port at 1.98 GHz.
        port: 126_720.0,
        // Prototypes. More than the port takes in: CTAs side by side find each other's x in L1.
        x_loads: 236_000.0,
        // Prototypes: 70 of 128 bytes in a cycle.
        shared: 122_300.0,
        // Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking" (2024):
        // 2.65 TB/s over all in clusters of four.
        dsmem: 20_000.0,
        // What long products sustain: 790 TFLOP/s over all.
        products: 790e6 / 2.0 / 132.0,
        // Machine code, 200 cycles to the first copy, and the memory's answer.
        fill: 0.8,
        // Machine code: about 700 cycles more ahead of griddepcontrol.wait, and 1,600 more behind the main loop.
        pipeline: 1.3,
        // Prototypes.
        cta: 0.017,
        token_block: 0.324,
        decode: 0.216,
        reduction: 0.208,
        // Machine code: stores and a fence, an atomic operation, loads; about 1,600 cycles.
        join: 0.9,
        // An assumption.
        slice: 0.05,
        // Machine code: 5,400 cycles for 256 experts in 8 groups, of which 8 are chosen.
        choice: 3.1,
        clock: 1.0,
        clusters: Clusters::H200,
        miscompiled: Miscompiled::NONE,
    };

    /// A device of which a driver says this much: an H200 whose memory, multiprocessors and their clock are others.
    pub fn described(facts: &DriverFacts) -> Self {
        // A multiprocessor's share of what the memory can deliver, beside the share of one of an H200.
        let ratio = |of: fn(&DriverFacts) -> Option<usize>| match (of(facts), of(&DriverFacts::H200)) {
            (Some(value @ 1..), Some(reference)) => value as f64 / reference as f64,
            _ => 1.0,
        };
        let multiprocessors = ratio(|facts| facts.multiprocessors);
        let clock = ratio(|facts| facts.clock);
        let memory = ratio(|facts| facts.memory_clock) * ratio(|facts| facts.bus_bits) / multiprocessors;
        let reference = Device::H200;
        Device {
            multiprocessors: facts
                .multiprocessors
                .filter(|&count| count > 0)
                .unwrap_or(reference.multiprocessors),
            stream: reference.stream * memory,
            in_flight: reference.in_flight * memory,
            l2_bytes: facts.l2_bytes.filter(|&bytes| bytes > 0).unwrap_or(reference.l2_bytes),
            l2: reference.l2 * clock,
            port: reference.port * clock,
            x_loads: reference.x_loads * clock,
            shared: reference.shared * clock,
            dsmem: reference.dsmem * clock,
            products: reference.products * clock,
            decode: reference.decode / clock,
            choice: reference.choice / clock,
            clock,
            clusters: facts.clusters.unwrap_or(reference.clusters),
            ..reference
        }
    }

    /// The same device without these kernels.
    #[must_use]
    pub fn without(self, miscompiled: Miscompiled) -> Self {
        Device { miscompiled, ..self }
    }
}

impl Default for Device {
    fn default() -> Self {
        Device::H200
    }
}

/// Kernels whose self-test failed on the device at hand: its driver's compiler gets them wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Miscompiled {
    /// A bit for each of [`gemms`], by its number.
    bits: u64,
}

impl Miscompiled {
    /// No instances.
    pub const NONE: Miscompiled = Miscompiled { bits: 0 };

    /// Adds an instance.
    pub fn insert(&mut self, instance: &Gemm) {
        self.bits |= Self::bit(instance);
    }

    /// Whether it is one of them.
    pub fn contains(&self, instance: &Gemm) -> bool {
        self.bits & Self::bit(instance) != 0
    }

    /// All of them, in the order of their table.
    pub fn iter(&self) -> impl Iterator<Item = &'static Gemm> {
        gemms().filter(|instance| self.contains(instance))
    }

    fn bit(instance: &Gemm) -> u64 {
        1u64.checked_shl(instance.number as u32).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_abs_diff_eq;

    #[test]
    fn a_driver_that_states_an_h200s_numbers_or_nothing_has_an_h200() {
        for facts in [DriverFacts::H200, DriverFacts::default()] {
            assert_eq!(Device::described(&facts), Device::H200);
        }
        let silent = DriverFacts {
            multiprocessors: Some(0),
            bus_bits: Some(0),
            ..DriverFacts::H200
        };
        assert_eq!(Device::described(&silent), Device::H200);
    }

    #[test]
    fn a_slower_memory_is_shared_by_the_multiprocessors() {
        // An H100: 3.35 of an H200's 4.92 TB/s.
        let h100 = DriverFacts {
            memory_clock: Some(2_619_000),
            bus_bits: Some(5120),
            ..DriverFacts::H200
        };
        let device = Device::described(&h100);
        let rate = device.stream * device.multiprocessors as f64;
        assert!((2.9e6..3.1e6).contains(&rate), "{rate}");
        assert_eq!((device.l2, device.products), (Device::H200.l2, Device::H200.products));
        let fewer = Device::described(&DriverFacts {
            multiprocessors: Some(114),
            clock: Some(990_000),
            ..h100
        });
        assert_abs_diff_eq!(fewer.stream * 114.0, rate, epsilon = 1.0);
        assert_eq!(fewer.products, Device::H200.products / 2.0);
        assert_eq!(fewer.clock, 0.5);
    }

    /// Half the multiprocessors at a quarter of the clock, and an eighth of the memory's rate: a quarter for each of
    /// them.
    #[test]
    fn each_rate_follows_what_it_depends_on() {
        let facts = DriverFacts {
            multiprocessors: Some(66),
            clock: Some(495_000),
            memory_clock: Some(3_201_000 / 2),
            bus_bits: Some(6144 / 4),
            l2_bytes: Some(1),
            clusters: Some(super::super::Clusters::ANYWHERE),
        };
        let reference = Device::H200;
        let device = Device::described(&facts);
        let expected = Device {
            multiprocessors: 66,
            stream: reference.stream * device.stream / reference.stream,
            in_flight: reference.in_flight * device.stream / reference.stream,
            l2_bytes: 1,
            l2: reference.l2 / 4.0,
            port: reference.port / 4.0,
            x_loads: reference.x_loads / 4.0,
            shared: reference.shared / 4.0,
            dsmem: reference.dsmem / 4.0,
            products: reference.products / 4.0,
            decode: reference.decode * 4.0,
            choice: reference.choice * 4.0,
            clock: 0.25,
            clusters: super::super::Clusters::ANYWHERE,
            ..reference
        };
        assert_eq!(device, expected);
        assert_abs_diff_eq!(device.stream, reference.stream / 4.0, epsilon = 10.0);
        // The peak rates that the figures are shares of.
        assert_eq!(reference.l2_bytes, 52_428_800);
        assert_abs_diff_eq!(reference.stream * 132.0, 4.44e6, epsilon = 1.0);
        assert_abs_diff_eq!(reference.products * 132.0 * 2.0, 790e6, epsilon = 1.0);
    }

    #[test]
    fn a_set_has_room_for_every_instance() {
        let mut all = Miscompiled::NONE;
        gemms().for_each(|instance| all.insert(instance));
        assert!(all.iter().eq(gemms()));
    }
}
