//! Weights in device memory: what each format keeps there, and how a kernel is told of it.

use super::DeviceWeights;
use crate::Result;
use crate::device::raw::Parameter;
use kernels_gpu::instances::{Format, GemmArgs, GemvArgs};
use std::fmt;

impl DeviceWeights {
    /// Their format.
    pub fn format(&self) -> Format {
        self.operands().format()
    }

    /// The address of the units.
    pub fn units(&self) -> u64 {
        self.operands().units()
    }

    /// The addresses of all parts, the units first. A part that is not there has the address 0.
    pub fn addresses(&self) -> Vec<u64> {
        self.operands().addresses()
    }

    /// Fails where a part of them is not aligned as the kernels need it.
    pub(crate) fn check(&self) -> Result<()> {
        self.operands().check()
    }
}

/// How kernels take weights of one format.
pub(crate) trait KernelOperands {
    /// The format.
    fn format(&self) -> Format;
    /// The address of the units.
    fn units(&self) -> u64;
    /// The addresses of all parts, the units first.
    fn addresses(&self) -> Vec<u64>;
    /// Fails where a part is not aligned as the kernels need it.
    fn check(&self) -> Result<()>;
    /// The parameter of the GEMVs of projections.
    fn gemv(&self, gemv: GemvArgs) -> Parameter;
    /// The last parameter of the matrix products over packed units.
    fn packed_gemm(&self, gemm: GemmArgs) -> Parameter;
}

/// Packed weights that own their device memory.
pub(crate) trait Stored: fmt::Debug + Send + Sync {
    /// Where they lie.
    fn weights(&self) -> DeviceWeights;
    /// Bytes of the units, padding included.
    fn unit_bytes(&self) -> usize;
    /// Bytes of all parts.
    fn bytes(&self) -> usize;
}
