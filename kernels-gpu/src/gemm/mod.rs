//! `y = x · Wᵀ` for many tokens, dense and of routers, by how the operands come into shared memory.
//!
//! | module | operands | products |
//! |---|---|---|
//! | [`tma`] | x and row-major weights by TMA tile loads | `wgmma`, both operands from shared memory |
//! | [`packed`] | x by TMA tile loads, packed units by bulk copies | `wgmma`, weights from registers |
//! | [`fallback`] | x and row-major weights by masked loads, from any address | `mma.sync` |
//!
//! [`pipeline`] is the ring of stages of the first two, [`epilogue`] puts together the sums of all three.

mod epilogue;
mod fallback;
mod packed;
mod pipeline;
mod tma;

pub(crate) use epilogue::Instance;
pub(crate) use packed::{PackedInstance, packed_entries, packed_gemm};
