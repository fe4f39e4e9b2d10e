//! The layer below `Engine`: launches in terms of `CUstream`, `CUdeviceptr` and sizes, for use from any other wrapper
//! of the driver API, on its own context and stream.
//!
//! [`Kernels::prepare`] is slow and happens once for each weight matrix. A launch neither blocks, allocates,
//! synchronises, loads nor changes the current context, so it can be captured into a graph.

mod families;
mod kernels;
mod launch;
mod module;
mod occupancy;
mod operands;
mod project;
mod ptx;
mod route;
mod self_test;
mod tensor;

pub use crate::formats::DeviceWeights;
pub use kernels::Kernels;
pub use launch::Queue;
pub use module::load_module;
pub use operands::{Operands, Output};
pub use project::NO_GATE;
pub use ptx::{Replacement, ptx};
pub use route::{RouteCall, RouterMemory, Workspace};
pub use self_test::SelfTestSize;
pub use tensor::RowMajor;

pub(crate) use launch::Parameter;
pub(crate) use operands::{PACKED, check_aligned};

pub use cust::sys::{CUdeviceptr, CUfunction, CUstream};

/// Whether a launch may start before the preceding kernel on the stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlap {
    /// It may (programmatic dependent launch): the weights stream in while the preceding kernel ends. x and y are not
    /// touched before that kernel's writes are visible.
    ///
    /// The preceding kernel may itself have started before the one ahead of it had ended. So no launch since the last
    /// one that did not overlap, that one included, may write the weights.
    #[default]
    Programmatic,
    /// It waits for everything ahead of it on the stream, as launches do by default.
    None,
}
