//! The device that plans are made for: what the models of cost know of it.

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
    /// Microseconds that a CTA takes to choose experts for one more token of each of its warps: instructions of the machine code, counted, not
    /// timed.
    pub choice: f64,
    /// Microseconds that each slice of K adds to that, as all add to the same sums.
    pub slice: f64,
    /// Microseconds that a multiprocessor takes to bring a unit of BF16 weights into the order of K: the instructions of the machine code,
    /// counted, not timed.
    pub bf16_unit: f64,
    /// The same for a unit of `window12` weights, which are decoded besides.
    pub window12_unit: f64,
    /// Instances whose results were wrong when they were tried on it.
    pub left_out: LeftOut,
}

/// What a driver tells of a device. `None` where it does not tell: the device is then taken for an H200 in this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Told {
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
}

impl Told {
    /// What the driver tells of an H200.
    pub const H200: Told = Told {
        multiprocessors: Some(132),
        clock: Some(1_980_000),
        memory_clock: Some(3_201_000),
        bus_bits: Some(6144),
        l2_bytes: Some(50 << 20),
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
        bf16_unit: 0.015,
        window12_unit: 0.03,
        left_out: LeftOut::NONE,
    };

    /// A device of which a driver tells this much: an H200 whose memory, multiprocessors and their clock are others.
    pub fn described(told: &Told) -> Self {
        // A multiprocessor's share of what the memory can deliver, beside the share of one of an H200.
        let ratio = |of: fn(&Told) -> Option<usize>| match (of(told), of(&Told::H200)) {
            (Some(value @ 1..), Some(reference)) => value as f64 / reference as f64,
            _ => 1.0,
        };
        let multiprocessors = ratio(|told| told.multiprocessors);
        let clock = ratio(|told| told.clock);
        let memory = ratio(|told| told.memory_clock) * ratio(|told| told.bus_bits) / multiprocessors;
        let reference = Device::H200;
        Device {
            multiprocessors: told
                .multiprocessors
                .filter(|&count| count > 0)
                .unwrap_or(reference.multiprocessors),
            stream: reference.stream * memory,
            l2: reference.l2 * clock,
            port: reference.port * clock,
            l2_bytes: told.l2_bytes.filter(|&bytes| bytes > 0).unwrap_or(reference.l2_bytes),
            in_flight: reference.in_flight * memory,
            shared: reference.shared * clock,
            products: reference.products * clock,
            choice: reference.choice / clock,
            bf16_unit: reference.bf16_unit / clock,
            window12_unit: reference.window12_unit / clock,
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

    /// The same device without these instances.
    #[must_use]
    pub fn without(self, left_out: LeftOut) -> Self {
        Device { left_out, ..self }
    }
}

impl Default for Device {
    fn default() -> Self {
        Device::H200
    }
}

/// Instances whose results were wrong when they were tried on the device at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// A bit for each of [`gemms`].
    bits: u64,
}

impl LeftOut {
    /// No instances.
    pub const NONE: LeftOut = LeftOut { bits: 0 };

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
        let at = gemms().position(|compiled| compiled == instance);
        at.and_then(|at| 1u64.checked_shl(at as u32)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_tells_an_h200s_numbers_or_nothing_has_an_h200() {
        for told in [Told::H200, Told::default()] {
            assert_eq!(Device::described(&told), Device::H200);
        }
        let silent = Told {
            multiprocessors: Some(0),
            bus_bits: Some(0),
            ..Told::H200
        };
        assert_eq!(Device::described(&silent), Device::H200);
    }

    #[test]
    fn a_slower_memory_is_shared_by_the_multiprocessors() {
        // An H100: 3.35 of an H200's 4.92 TB/s.
        let h100 = Told {
            memory_clock: Some(2_619_000),
            bus_bits: Some(5120),
            ..Told::H200
        };
        let device = Device::described(&h100);
        let rate = device.stream * device.multiprocessors as f64;
        assert!((2.9e6..3.0e6).contains(&rate), "{rate}");
        assert_eq!((device.l2, device.products), (Device::H200.l2, Device::H200.products));
        let fewer = Device::described(&Told {
            multiprocessors: Some(114),
            clock: Some(990_000),
            ..h100
        });
        assert!((fewer.stream * 114.0 - rate).abs() < 1.0);
        assert_eq!(fewer.products, Device::H200.products / 2.0);
        assert_eq!(fewer.window12_unit, Device::H200.window12_unit * 2.0);
    }

    #[test]
    fn a_set_has_room_for_every_instance() {
        let mut all = LeftOut::NONE;
        gemms().for_each(|instance| all.insert(instance));
        assert!(all.iter().eq(gemms()));
    }
}
