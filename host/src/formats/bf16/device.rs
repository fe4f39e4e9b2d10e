//! BF16 weights, or sums of BF16 terms, in device memory.

use crate::device::raw::{PACKED, Parameter, check_aligned};
use crate::device::{Allocation, Setup};
use crate::formats::DeviceWeights;
use crate::formats::device::{KernelOperands, Stored};
use crate::{Error, Result, bf16};
use kernels_gpu::instances::{Format, GemmArgs, GemvArgs, PackedGemmArgs};

/// The [packed](super) form of BF16 values in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDevice {
    /// The address of the units, 16-byte aligned.
    pub units: u64,
    /// BF16 terms that add up to a weight: 1 to 3. A unit holds one after the other.
    pub terms: usize,
}

impl KernelOperands for OnDevice {
    fn format(&self) -> Format {
        super::format_of(self.terms)
    }

    fn units(&self) -> u64 {
        self.units
    }

    fn addresses(&self) -> Vec<u64> {
        vec![self.units]
    }

    fn check(&self) -> Result<()> {
        if !(1..=crate::formats::split::MAX_TERMS).contains(&self.terms) {
            return Err(Error::Terms { given: self.terms });
        }
        check_aligned("the packed weights", self.units, PACKED)
    }

    fn gemv(&self, gemv: GemvArgs) -> Parameter {
        Parameter::new(gemv)
    }

    fn packed_gemm(&self, gemm: GemmArgs) -> Parameter {
        Parameter::new(PackedGemmArgs {
            weights: self.units,
            starts: 0,
            exceptions: 0,
            palette: [0; 2],
            gemm,
        })
    }
}

/// Uploads units of so many terms.
pub(crate) fn store(setup: &Setup, units: &[bf16], terms: usize) -> Result<Box<dyn Stored>> {
    let units = setup.upload("upload packed weights", units)?;
    Ok(Box::new(Units { units, terms }))
}

#[derive(Debug)]
struct Units {
    units: Allocation,
    terms: usize,
}

impl Stored for Units {
    fn weights(&self) -> DeviceWeights {
        DeviceWeights::Bf16(OnDevice {
            units: self.units.address(),
            terms: self.terms,
        })
    }

    fn unit_bytes(&self) -> usize {
        self.units.bytes()
    }

    fn bytes(&self) -> usize {
        self.unit_bytes()
    }
}
