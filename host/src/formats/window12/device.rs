//! `window12` weights in device memory.

use super::{Packed, pack_with};
use crate::device::raw::{PACKED, Parameter, check_aligned};
use crate::device::upload;
use crate::formats::DeviceWeights;
use crate::formats::device::{KernelOperands, Stored};
use crate::{Result, Shape, bf16};
use cust::memory::DeviceBuffer;
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
pub(crate) fn store_for_self_test(values: &[bf16], shape: Shape) -> Result<Box<dyn Stored>> {
    store(&pack_with(values, shape, LACKING_ONE)?)
}

/// Uploads a packed matrix. The context to hold it is current.
pub(crate) fn store(packed: &Packed<'_>) -> Result<Box<dyn Stored>> {
    const CALL: &str = "upload packed weights";
    let exceptions: Vec<u64> = packed.exceptions().iter().map(|exception| exception.word()).collect();
    let end = [exceptions.len() as u64; STARTS_AFTER - 1];
    Ok(Box::new(Parts {
        units: upload(CALL, packed.units())?,
        starts: upload(CALL, &[packed.starts(), &end].concat())?,
        exceptions: upload(CALL, &exceptions)?,
        palette: packed.palette_words(),
    }))
}

#[derive(Debug)]
struct Parts {
    units: DeviceBuffer<u8>,
    starts: DeviceBuffer<u64>,
    exceptions: DeviceBuffer<u64>,
    palette: [u32; 2],
}

impl Stored for Parts {
    fn weights(&self) -> DeviceWeights {
        DeviceWeights::Window12(OnDevice {
            units: self.units.as_device_ptr().as_raw(),
            starts: self.starts.as_device_ptr().as_raw(),
            exceptions: self.exceptions.as_device_ptr().as_raw(),
            palette: self.palette,
        })
    }

    fn unit_bytes(&self) -> usize {
        self.units.len()
    }

    fn bytes(&self) -> usize {
        self.unit_bytes() + (self.starts.len() + self.exceptions.len()) * size_of::<u64>()
    }
}
