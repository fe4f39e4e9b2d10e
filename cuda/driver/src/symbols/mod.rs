//! The C symbols, one file per family of the driver API.
//!
//! The signatures are those of NVIDIA's `cuda.h`. The newest name of a function that comes in versions is the one
//! defined (`cuMemAlloc_v2`), as the header's macros have programs call it.

pub(crate) mod absent;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod newer;
pub(crate) mod newer_context;
pub(crate) mod newer_graph;
pub(crate) mod newer_memory;
pub(crate) mod newer_module;
pub(crate) mod older;
pub(crate) mod proc_address;
pub(crate) mod since;
pub(crate) mod stream;
pub(crate) mod unsupported;

use crate::table::Export;

/// Every symbol of the crate.
pub(crate) fn exports() -> impl Iterator<Item = &'static Export> {
    [
        absent::EXPORTS,
        capture::EXPORTS,
        context::EXPORTS,
        device::EXPORTS,
        event::EXPORTS,
        graph::EXPORTS,
        launch::EXPORTS,
        memory::EXPORTS,
        module::EXPORTS,
        newer::EXPORTS,
        newer_context::EXPORTS,
        newer_graph::EXPORTS,
        newer_memory::EXPORTS,
        newer_module::EXPORTS,
        older::EXPORTS,
        proc_address::EXPORTS,
        stream::EXPORTS,
        unsupported::EXPORTS,
    ]
    .into_iter()
    .flatten()
}
