//! The operations.

/// What a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// y = x · Wᵀ.
    Project,
    /// A router: logits = x · Wᵀ, which may go through a gate.
    Route,
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 2] = [Op::Project, Op::Route];

    /// The name, as tables and the command line spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Project => "project",
            Op::Route => "route",
        }
    }
}
