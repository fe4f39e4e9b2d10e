//! Kernel crate in, finished PTX out.
//!
//! [`CudaBuilder`] compiles a `no_std` crate for `nvptx64-nvidia-cuda` with rustc's own backend and finishes the PTX
//! with the launch bounds that Rust source cannot express. [`lint`](lint::lint) and [`sass`] then hold the result
//! against the same table of entries: the first in the PTX text, the second in what NVIDIA's assembler makes of it.
//!
//! ```no_run
//! use cuda_builder::{CudaBuilder, EntrySpec, NvvmArch};
//!
//! let entries = [EntrySpec::new("saxpy", 256).min_ctas(4)];
//! CudaBuilder::new("kernels")
//!     .arch(NvvmArch::Compute90a)
//!     .launch_bounds(entries)
//!     .copy_to("ptx/kernels.ptx")
//!     .build()?;
//! # Ok::<(), cuda_builder::BuildError>(())
//! ```

mod builder;
mod error;
pub mod finish;
mod library_source;
pub mod lint;
pub mod sass;
mod spec;
mod toolchain;

pub use builder::{CudaBuilder, NvvmArch};
pub use error::{BuildError, LIBRARY_SOURCE_VARIABLE, SourceError};
pub use finish::FinishError;
pub use library_source::library_source;
pub use spec::{EntrySpec, SassPromise};
