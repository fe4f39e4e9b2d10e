//! `window12` weights in device memory.

use super::{Packed, pack_with};
use crate::device::raw::{PACKED, Parameter, check_aligned};
use crate::device::{Allocation, Setup};
use crate::formats::DeviceWeights;
use crate::formats::device::{KernelOperands, Stored};
use crate::{Result, Shape, bf16};
use kernels_gpu::formats::window12::{PALETTE, STARTS_AFTER, Window12Args};
use kernels_gpu::instances::{Format, GemmArgs, GemvArgs, PackedGemmArgs};

/// The parts of a [`Packed`] matrix in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDevice {
    /// The address of the units, 16-byte aligned.
    pub units: u64,
    /// The address of the exceptions' starts: a `u64` for each row block, and the end
    /// [`STARTS_AFTER`] times; 8-byte aligned.
    pub starts: u64,
    /// The address of the exceptions, 8 bytes each, 8-byte aligned; not read where there are none.
    pub exceptions: u64,
    /// The palette as words.
    pub palette: [u32; 2],
}

/// A palette that lacks the high bytes of 1 and -1, which are exceptions then.
const LACKING_ONE: [u8; PALETTE] = [0, 1, 2, 3, 64, 65, 66, 67];

/// Alignment of exceptions and of their starts.
const ENTRY: u64 = 8;

impl KernelOperands for OnDevice {
    fn format(&self) -> Format {
        Format::Window12
    }

    fn units(&self) -> u64 {
        self.units
    }

    fn addresses(&self) -> Vec<u64> {
        vec![self.units, self.starts, self.exceptions]
    }

    fn check(&self) -> Result<()> {
        check_aligned("the packed weights", self.units, PACKED)?;
        check_aligned("the starts of the exceptions", self.starts, ENTRY)?;
        check_aligned("the exceptions", self.exceptions, ENTRY)
    }

    fn gemv(&self, gemv: GemvArgs) -> Parameter {
        Parameter::new(Window12Args {
            gemv,
            starts: self.starts,
            exceptions: self.exceptions,
            palette: self.palette,
        })
    }

    fn packed_gemm(&self, gemm: GemmArgs) -> Parameter {
        Parameter::new(PackedGemmArgs {
            weights: self.units,
            starts: self.starts,
            exceptions: self.exceptions,
            palette: self.palette,
            gemm,
        })
    }
}

/// Packs and uploads values so that some of them are exceptions.
pub(crate) fn store_for_self_test(setup: &Setup, values: &[bf16], shape: Shape) -> Result<Box<dyn Stored>> {
    store(setup, &pack_with(values, shape, LACKING_ONE)?)
}

/// Uploads a packed matrix.
pub(crate) fn store(setup: &Setup, packed: &Packed<'_>) -> Result<Box<dyn Stored>> {
    const CALL: &str = "upload packed weights";
    let exceptions: Vec<u64> = packed.exceptions().iter().map(|exception| exception.word()).collect();
    let end = [exceptions.len() as u64; STARTS_AFTER - 1];
    Ok(Box::new(Parts {
        units: setup.upload(CALL, packed.units())?,
        starts: setup.upload(CALL, &[packed.starts(), &end].concat())?,
        exceptions: setup.upload(CALL, &exceptions)?,
        palette: packed.palette_words(),
    }))
}

#[derive(Debug)]
struct Parts {
    units: Allocation,
    starts: Allocation,
    exceptions: Allocation,
    palette: [u32; 2],
}

impl Stored for Parts {
    fn weights(&self) -> DeviceWeights {
        DeviceWeights::Window12(OnDevice {
            units: self.units.address(),
            starts: self.starts.address(),
            exceptions: self.exceptions.address(),
            palette: self.palette,
        })
    }

    fn unit_bytes(&self) -> usize {
        self.units.bytes()
    }

    fn bytes(&self) -> usize {
        self.unit_bytes() + self.starts.bytes() + self.exceptions.bytes()
    }
}
