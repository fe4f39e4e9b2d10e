//! The driver API's C functions, callable from Rust: those that `cust`'s bindings lack (launches with attributes,
//! clusters, occupancy of clusters, functions by name), and all others, with the plain C types of their arguments.
//!
//! A handle is a pointer here as it is there, so `cust`'s raw handles need a cast and nothing more. The functions newer
//! than `cust`'s bindings return every result code as it is; of the others, codes that `cust` cannot represent come as
//! 999.

pub use crate::symbols::absent::*;
pub use crate::symbols::capture::*;
pub use crate::symbols::context::*;
pub use crate::symbols::device::*;
pub use crate::symbols::event::*;
pub use crate::symbols::graph::*;
pub use crate::symbols::launch::*;
pub use crate::symbols::memory::*;
pub use crate::symbols::module::*;
pub use crate::symbols::newer::*;
pub use crate::symbols::newer_context::*;
pub use crate::symbols::newer_graph::*;
pub use crate::symbols::newer_memory::*;
pub use crate::symbols::newer_module::*;
pub use crate::symbols::older::*;
pub use crate::symbols::proc_address::*;
pub use crate::symbols::stream::*;
pub use crate::symbols::unsupported::*;
pub use crate::types::*;
