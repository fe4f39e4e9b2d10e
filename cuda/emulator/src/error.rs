//! What can go wrong, as values.

use std::fmt;

/// Why a PTX text was refused as a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {message}")]
pub struct PtxError {
    /// The line, counted from 1.
    pub line: u32,
    /// What was found, and what was expected or is allowed.
    pub message: String,
}

impl From<crate::parse::ParseError> for PtxError {
    fn from(error: crate::parse::ParseError) -> Self {
        PtxError {
            line: error.line,
            message: error.message,
        }
    }
}

/// Why the host's access to device memory was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No live allocation holds the first byte.
    #[error(
        "address {address:#x} lies in no live allocation; use an address that `allocate` returned and `free` has not seen"
    )]
    NotAllocated {
        /// The address.
        address: u64,
    },
    /// The range starts inside an allocation and ends outside it.
    #[error("{bytes} bytes at {address:#x} end outside their allocation, which is {size} bytes at {base:#x}")]
    OutOfBounds {
        /// The first byte's address.
        address: u64,
        /// The bytes wanted.
        bytes: u64,
        /// Where the allocation starts.
        base: u64,
        /// Its size in bytes.
        size: u64,
    },
    /// `free` was given an address inside an allocation.
    #[error("address {address:#x} is not the start of its allocation, which is {base:#x}; free that address")]
    NotABase {
        /// The address.
        address: u64,
        /// Where the allocation starts.
        base: u64,
    },
}

/// Why a launch was refused before its first instruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadLaunch {
    /// The module has no such kernel.
    #[error("the module has no kernel `{0}`")]
    NoSuchEntry(String),
    /// The parameters take a different number of bytes.
    #[error("kernel `{entry}` takes {expected} bytes of parameters, {given} were given")]
    ParameterSize {
        /// The kernel.
        entry: String,
        /// What its declaration says.
        expected: u32,
        /// What the launch gave.
        given: usize,
    },
    /// A dimension is zero or above what an sm_90 device allows, or contradicts the kernel's directives.
    #[error("kernel `{entry}`: {message}")]
    Dimensions {
        /// The kernel.
        entry: String,
        /// What was given and what is allowed.
        message: String,
    },
    /// Static and dynamic shared memory together are more than a CTA can have.
    #[error(
        "kernel `{entry}` wants {fixed} bytes of static and {dynamic} of dynamic shared memory; a CTA can have {limit} in all"
    )]
    SharedMemory {
        /// The kernel.
        entry: String,
        /// Bytes of static shared memory.
        fixed: u32,
        /// Bytes of dynamic shared memory.
        dynamic: u32,
        /// The most a CTA can have.
        limit: u32,
    },
    /// The module's variables do not fit into the memory.
    #[error("the module's variables take {bytes} bytes, which the memory does not have")]
    Variables {
        /// Their size.
        bytes: u64,
    },
}

/// Why a launch failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It was refused before its first instruction.
    #[error(transparent)]
    BadLaunch(#[from] BadLaunch),
    /// A kernel did what the hardware leaves undefined, or did not end.
    #[error(transparent)]
    Fault(#[from] Box<Fault>),
}

/// What a kernel did wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of wrong.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: String,
    /// The PTX line of the instruction.
    pub line: u32,
    /// The instruction as written.
    pub instruction: String,
    /// The CTA's index in the grid.
    pub cta: [u32; 3],
    /// The warp's index in its CTA.
    pub warp: u32,
    /// The first lane concerned.
    pub lane: u32,
    /// What exactly happened: addresses, the other access of a race, who waits where.
    pub detail: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.cta;
        write!(
            f,
            "{} in kernel `{}`, PTX line {} `{}`, CTA ({x}, {y}, {z}), warp {}, lane {}: {}",
            self.kind, self.kernel, self.line, self.instruction, self.warp, self.lane, self.detail
        )
    }
}

impl std::error::Error for Fault {}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside every allocation, or outside a CTA's shared memory.
    OutOfBounds,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// Nobody can make progress, or nobody does.
    Deadlock,
    /// Shared memory read before it was written.
    UninitialisedShared,
    /// Two warps touch the same shared bytes without ordering, one of them writing.
    SharedRace,
    /// Two lanes of a warp touch the same shared bytes, one of them writing, and no `bar.warp.sync` stands between.
    LaneRace,
    /// Two warps, of one CTA or of two, touch the same global bytes in one launch without ordering, one of them
    /// writing.
    GlobalRace,
    /// Asynchronous copies misused: read before their completion was seen, overwritten in flight, left in flight at
    /// exit.
    AsyncCopy,
    /// Asynchronous matrix products misused: registers touched before the wait, fences left out, matrices overwritten
    /// while they are read, or a warpgroup whose warps do not agree.
    AsyncMatrix,
    /// An aligned instruction in a partly active warp.
    PartialWarp,
    /// Another CTA's shared memory touched before the cluster is known to have started.
    RemoteBeforeStart,
    /// Another CTA's shared memory touched when that CTA may have exited.
    RemoteAfterExit,
    /// A read before `griddepcontrol.wait` of bytes that an unfinished earlier launch wrote.
    EarlyDependentRead,
    /// A write before `griddepcontrol.wait` over bytes that an unfinished earlier launch wrote or read.
    EarlyDependentWrite,
    /// A misused `mbarrier` object, or ordinary accesses to one.
    Mbarrier,
    /// Operands that the instruction does not allow.
    BadInstruction,
    /// The kernel executed `trap`.
    Trap,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultKind::OutOfBounds => "access out of bounds",
            FaultKind::Misaligned => "misaligned access",
            FaultKind::Deadlock => "deadlock",
            FaultKind::UninitialisedShared => "shared memory read before it was written",
            FaultKind::LaneRace => "shared-memory race between lanes of a warp",
            FaultKind::SharedRace => "shared-memory race between warps",
            FaultKind::GlobalRace => "global-memory race between warps",
            FaultKind::AsyncCopy => "misuse of an asynchronous copy",
            FaultKind::AsyncMatrix => "misuse of an asynchronous matrix product",
            FaultKind::PartialWarp => "aligned instruction in a partly active warp",
            FaultKind::RemoteBeforeStart => "remote access before the cluster has started",
            FaultKind::RemoteAfterExit => "remote access to a CTA that may have exited",
            FaultKind::EarlyDependentRead => "read of an unfinished launch's result",
            FaultKind::EarlyDependentWrite => "write over what an unfinished launch wrote or read",
            FaultKind::Mbarrier => "misuse of an mbarrier",
            FaultKind::BadInstruction => "operands that the instruction does not allow",
            FaultKind::Trap => "trap",
        })
    }
}
