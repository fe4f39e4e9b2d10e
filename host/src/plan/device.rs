//! The device that plans are made for: what the models of cost know of it.

use super::Clusters;
use kernels_gpu::instances::{Gemm, gemms};

/// A device, as far as plans care. Rates are those of one multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Streaming multiprocessors.
    pub multiprocessors: usize,
    /// Bytes that one of them streams from memory in a microsecond, while all do.
    pub stream: f64,
    /// Bytes that one of them loads from L2 in a microsecond.
    pub l2: f64,
    /// Bytes that one of them takes in from L2 in a microsecond, whoever reads them there: 64 in a cycle.
    pub port: f64,
    /// Bytes of L2.
    pub l2_bytes: usize,
    /// Bytes that must be in flight per multiprocessor for the full streaming rate.
    pub in_flight: f64,
    /// Bytes that one of them moves to or from shared memory in a microsecond: 128 in a cycle.
    pub shared: f64,
    /// Products of two BF16 values that a multiprocessor's tensor cores add up in a microsecond.
    pub products: f64,
    /// Microseconds that a CTA takes to start, fill its ring and drain it.
    pub cta: f64,
    /// Microseconds that a cluster's reduction adds, and again for each doubling of the cluster.
    pub reduction: f64,
    /// Microseconds that it takes to put sums together in global memory: to add them, to count, and to read them again.
    pub join: f64,
    /// Microseconds that a CTA takes to choose experts for one more token of each of its warps: instructions of the
    /// machine code, counted, not timed.
    pub choice: f64,
    /// Microseconds that each slice of K adds to that, as all add to the same sums.
    pub slice: f64,
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
    /// An H200, as measured with a cold L2: 4.34 TB/s over all.
    pub const H200: Device = Device {
        multiprocessors: 132,
        stream: 32_900.0,
        l2: 60_000.0,
        port: 126_720.0,
        l2_bytes: 50 << 20,
        in_flight: 32_768.0,
        shared: 253_000.0,
        products: 3.7e6,
        cta: 0.8,
        reduction: 0.15,
        join: 0.9,
        choice: 0.35,
        slice: 0.05,
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
            l2: reference.l2 * clock,
            port: reference.port * clock,
            l2_bytes: facts.l2_bytes.filter(|&bytes| bytes > 0).unwrap_or(reference.l2_bytes),
            in_flight: reference.in_flight * memory,
            shared: reference.shared * clock,
            products: reference.products * clock,
            choice: reference.choice / clock,
            clock,
            clusters: facts.clusters.unwrap_or(reference.clusters),
            ..reference
        }
    }

    /// Microseconds that the reduction of a cluster of so many CTAs takes.
    pub(super) fn reduction_of(&self, cluster: usize) -> f64 {
        match cluster {
            0 | 1 => 0.0,
            cluster => self.reduction * (1.0 + (cluster as f64).log2()),
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
        assert!((2.9e6..3.0e6).contains(&rate), "{rate}");
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

    #[test]
    fn a_set_has_room_for_every_instance() {
        let mut all = Miscompiled::NONE;
        gemms().for_each(|instance| all.insert(instance));
        assert!(all.iter().eq(gemms()));
    }
}
