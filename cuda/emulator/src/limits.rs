//! When a launch is given up.

/// When to give up on a launch that does not end.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Warp instructions that each thread that runs the launch may execute with no visible progress of any (a store, an
    /// atomic that changes a value, a barrier or copy that completes, an exit): where all have executed more, they are
    /// taken for an endless spin.
    pub idle_instructions: u64,
    /// Warp instructions that the launch may execute in all.
    pub total_instructions: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            idle_instructions: 10_000_000,
            total_instructions: 1_000_000_000_000,
        }
    }
}
