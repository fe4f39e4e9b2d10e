//! The functions of the driver API, a file per family, as the table of symbols names them. They work on the objects
//! beside this folder, none of which uses a call.
//!
//! # Safety
//!
//! Every call has the contract of the CUDA function that it serves: each pointer must be null or valid for what that
//! function reads or writes there, for as long as it does so. Handles and device addresses may be anything: they are
//! looked up.

pub(crate) mod about;
pub(crate) mod boxes;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod host;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod occupancy;
pub(crate) mod peer;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod tensor_map;
