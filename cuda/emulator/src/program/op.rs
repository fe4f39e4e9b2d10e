//! The compact instruction set.

use super::{Lanes, Wgmma};
use crate::num::Product;
use crate::parse::Special;

/// A register of the warp, or from [`super::CONSTANT`] on a constant.
pub(crate) type Reg = u32;

/// A predicate as a source: its lanes, flipped where it is negated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PredSource {
    pub(crate) index: u32,
    pub(crate) flip: u32,
}

/// An operation on all lanes of so many sources; what it makes of lanes that do not execute is ignored.
pub(crate) type Lane1 = Box<dyn Fn(&Lanes, &mut Lanes) + Send + Sync>;
pub(crate) type Lane2 = Box<dyn Fn(&Lanes, &Lanes, &mut Lanes) + Send + Sync>;
pub(crate) type Lane3 = Box<dyn Fn(&Lanes, &Lanes, &Lanes, &mut Lanes) + Send + Sync>;
pub(crate) type Lane4 = Box<dyn Fn(&Lanes, &Lanes, &Lanes, &Lanes, &mut Lanes) + Send + Sync>;
/// What an atomic makes of the old value and its operands.
pub(crate) type Combine = Box<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;
/// Logic between predicates, all lanes at once.
pub(crate) type Logic = fn(u32, u32, u32) -> u32;

/// One instruction.
pub(crate) struct Inst {
    pub(crate) op: Op,
    /// The lanes that execute it, among the active ones.
    pub(crate) guard: PredSource,
    /// Index into [`super::Program::sites`].
    pub(crate) site: u32,
    /// Whether it counts as an instruction of the kernel: not what the decoder has added.
    pub(crate) counts: bool,
    /// Whether its site has [`super::Site::matrix_registers`].
    pub(crate) names_matrix_registers: bool,
}

/// What an instruction does. Destinations come first.
pub(crate) enum Op {
    Lane1(Lane1, Reg, Reg),
    Lane2(Lane2, Reg, Reg, Reg),
    Lane3(Lane3, Reg, Reg, Reg, Reg),
    Lane4(Lane4, Reg, [Reg; 4]),
    /// `setp` and `testp`: the function answers 0 or 1 per lane.
    Compare(Box<Compare>),
    /// Logic between predicates.
    Predicate(Logic, u32, [PredSource; 3]),
    /// `selp`
    Select(Reg, Reg, Reg, PredSource),
    /// `add.cc` and its like.
    Carry(Box<Carry>),
    /// Reads a special register.
    Special(Special, Reg),
    /// Splits or joins registers: `mov.b64 {a, b}, c`.
    Unpack(Box<[Option<Reg>]>, u32, Reg),
    Pack(Reg, u32, Box<[Reg]>),
    Jump(u32),
    Branch(u32),
    BranchIndexed(Reg, Box<[u32]>),
    /// Calls a function.
    Call(Box<Call>),
    /// Returns from one.
    Return,
    /// The address, in local memory, of a place in the function's own part of it.
    FrameAddress {
        d: Reg,
        offset: u64,
    },
    Exit,
    Trap,
    Nop,
    /// `nanosleep`: lets others run first.
    Yield,
    Load(Box<Access>),
    Store(Box<Access>),
    Atomic(Box<Atomic>),
    /// A prefetch or a bulk prefetch; only checks its addresses.
    Prefetch(Box<Prefetch>),
    Fence(Fence),
    /// `mapa`: maps a shared address to a rank.
    MapRank {
        d: Reg,
        address: Reg,
        rank: Reg,
        generic: bool,
    },
    /// `getctarank`
    RankOf {
        d: Reg,
        address: Reg,
        generic: bool,
    },
    /// `isspacep`
    IsSpace {
        d: u32,
        address: Reg,
        space: Space,
    },
    Barrier(Box<Barrier>),
    ClusterArrive {
        release: bool,
        aligned: bool,
    },
    ClusterWait {
        aligned: bool,
    },
    WarpSync(Reg),
    Shuffle(Box<Shuffle>),
    Vote(Box<Vote>),
    Match(Box<Match>),
    Reduce(Box<Reduce>),
    ActiveMask(Reg),
    /// `elect.sync d|p, members`
    Elect {
        d: Option<Reg>,
        p: Option<u32>,
        members: Reg,
    },
    Mma(Box<Mma>),
    Wgmma(Wgmma),
    Mbarrier(Box<Mbarrier>),
    Bulk(Box<Bulk>),
    StoreAsync(Box<StoreAsync>),
    Tensor(Box<Tensor>),
    /// `ldmatrix` and `stmatrix`
    Matrices(Box<Matrices>),
    AsyncCopy(Box<AsyncCopy>),
    /// `cp.async.commit_group`
    AsyncCommit,
    /// `cp.async.wait_group`; `cp.async.wait_all` where `left` is absent.
    AsyncWait {
        left: Option<u32>,
    },
    /// `cp.async.mbarrier.arrive`
    AsyncArrive {
        address: Address,
        /// The arrival counts as one of those that the phase expects.
        counted: bool,
    },
    BulkCommit,
    BulkWait {
        left: u32,
    },
    /// Register reallocation: does nothing, but the whole warp must take part.
    AlignedNop,
    /// `griddepcontrol.wait`
    GridWait,
    /// `griddepcontrol.launch_dependents`
    GridTrigger,
}

pub(crate) struct Call {
    pub(crate) target: Callee,
    pub(crate) args: Box<[Passed]>,
    pub(crate) returns: Box<[Passed]>,
}

pub(crate) enum Callee {
    /// The index of a function among the program's.
    Function(u32),
    /// A function's address.
    Address(Reg),
}

/// Where a value of a call is, on the side of the caller or of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// A register, or where values are only read a constant.
    Register { reg: Reg, bytes: u32 },
    /// Local memory, counted from the frame's start.
    Memory { at: u32, bytes: u32 },
    /// A result that is not wanted.
    Nothing,
}

impl Passed {
    /// Whether a value goes from one place to the other.
    pub(crate) fn fits(self, other: Passed) -> bool {
        let bytes = |passed| match passed {
            Passed::Register { bytes, .. } | Passed::Memory { bytes, .. } => Some(bytes),
            Passed::Nothing => None,
        };
        match (bytes(self), bytes(other)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
    }
}

pub(crate) struct Compare {
    pub(crate) f: Lane2,
    pub(crate) d: Option<u32>,
    /// What the second destination gets; the negated comparison where absent.
    pub(crate) second: Option<Lane2>,
    pub(crate) second_d: Option<u32>,
    pub(crate) a: Reg,
    pub(crate) b: Reg,
    pub(crate) with: Option<(Logic, PredSource)>,
}

/// Extended-precision arithmetic through the carry flag.
pub(crate) struct Carry {
    pub(crate) kind: CarryKind,
    pub(crate) bits: u32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) d: Reg,
    pub(crate) a: Reg,
    pub(crate) b: Reg,
    pub(crate) c: Reg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarryKind {
    Add,
    Sub,
    /// Low half of `a * b + c`.
    MadLow,
    /// High half of `a * b`, signed or not, plus `c`.
    MadHigh {
        signed: bool,
    },
}

/// A state space that an address is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    /// `.shared::cta`: the executing CTA's own.
    Shared,
    /// `.shared::cluster`: any CTA's of the cluster.
    Cluster,
    Param,
    Local,
}

/// An address: register plus offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) space: Space,
    pub(crate) base: Reg,
    pub(crate) offset: i64,
}

/// How an access takes part in the memory model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Not weak: does not race with other strong accesses.
    pub(crate) strong: bool,
    pub(crate) acquire: bool,
    pub(crate) release: bool,
    /// Its scope holds the whole device, not only a CTA or a cluster.
    pub(crate) wide: bool,
}

/// A load or store.
pub(crate) struct Access {
    pub(crate) address: Address,
    /// Bytes of one element.
    pub(crate) bytes: u32,
    /// Bits to sign-extend a loaded element to; 0 for zero-extension.
    pub(crate) sign_to: u32,
    /// One register per element, none where a load's is discarded.
    pub(crate) regs: Box<[Option<Reg>]>,
    pub(crate) order: Order,
}

/// `atom` and `red`.
pub(crate) struct Atomic {
    pub(crate) address: Address,
    pub(crate) bytes: u32,
    /// Per element: destination, operand, second operand of `cas`.
    pub(crate) elements: Box<[(Option<Reg>, Reg, Reg)]>,
    /// In global memory sums of F32 flush subnormals, in shared memory they do not.
    pub(crate) in_global: Combine,
    pub(crate) in_shared: Combine,
    /// Both elements are one value of 128 bits, exchanged, or if true compared first.
    pub(crate) pair: Option<bool>,
    pub(crate) order: Order,
}

pub(crate) struct Prefetch {
    pub(crate) address: Address,
    /// Bytes of a bulk prefetch; an ordinary one asks for one byte and may miss every allocation.
    pub(crate) size: Option<Reg>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Orders memory accesses: acquire, release or both; for the whole device if it is wide.
    Memory { wide: bool },
    /// `fence.mbarrier_init.release.cluster`
    MbarrierInit,
    /// `fence.proxy.*`
    Proxy,
}

/// `bar`/`barrier`.
pub(crate) struct Barrier {
    pub(crate) id: Reg,
    /// Threads that take part; all of the CTA's where absent.
    pub(crate) count: Option<Reg>,
    pub(crate) aligned: bool,
    pub(crate) kind: BarrierKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    Popcount { d: Reg, p: PredSource },
    All { d: u32, p: PredSource },
    Any { d: u32, p: PredSource },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShuffleMode {
    Up,
    Down,
    Xor,
    Index,
}

pub(crate) struct Shuffle {
    pub(crate) mode: ShuffleMode,
    pub(crate) d: Option<Reg>,
    pub(crate) p: Option<u32>,
    pub(crate) a: Reg,
    pub(crate) b: Reg,
    pub(crate) c: Reg,
    pub(crate) members: Reg,
}

pub(crate) struct Vote {
    pub(crate) kind: VoteKind,
    pub(crate) p: PredSource,
    pub(crate) members: Reg,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum VoteKind {
    All(u32),
    Any(u32),
    Uniform(u32),
    Ballot(Reg),
}

/// `match.any` and `match.all`.
pub(crate) struct Match {
    pub(crate) all: bool,
    pub(crate) d: Option<Reg>,
    pub(crate) p: Option<u32>,
    pub(crate) a: Reg,
    pub(crate) members: Reg,
}

/// `redux.sync`
pub(crate) struct Reduce {
    pub(crate) f: Combine,
    pub(crate) d: Reg,
    pub(crate) a: Reg,
    pub(crate) members: Reg,
}

/// `mma.sync`
pub(crate) enum Mma {
    /// `m16n8k16` on BF16, which has code of its own.
    Bf16 {
        d: [Reg; 4],
        a: [Reg; 4],
        b: [Reg; 2],
        c: [Reg; 4],
    },
    Any {
        product: Product,
        d: Box<[Reg]>,
        a: Box<[Reg]>,
        b: Box<[Reg]>,
        c: Box<[Reg]>,
    },
}

/// An operation on an mbarrier object.
pub(crate) struct Mbarrier {
    /// Where the object is; unused by `pending_count`.
    pub(crate) address: Address,
    pub(crate) kind: MbarrierKind,
}

pub(crate) enum MbarrierKind {
    Init {
        count: Reg,
    },
    Invalidate,
    /// `arrive` and `arrive_drop`
    Arrive {
        state: Option<Reg>,
        count: Option<Reg>,
        expect: Option<Reg>,
        drop: bool,
        no_complete: bool,
        release: bool,
        /// Its scope reaches beyond the CTA.
        wide: bool,
    },
    ExpectTx(Reg),
    CompleteTx(Reg),
    /// `test_wait` and `try_wait`, on a state or on a parity.
    Wait {
        p: u32,
        phase: Reg,
        parity: bool,
        may_sleep: bool,
        acquire: bool,
        /// Its scope reaches beyond the CTA.
        wide: bool,
    },
    PendingCount {
        d: Reg,
        state: Reg,
    },
}

/// `cp.async.bulk`
pub(crate) struct Bulk {
    pub(crate) to: Address,
    pub(crate) from: Address,
    pub(crate) size: Reg,
    /// The mbarrier that counts the bytes; none for copies to global memory, which join a bulk group.
    pub(crate) barrier: Option<Address>,
    /// The ranks that get a copy, as a mask.
    pub(crate) multicast: Option<Reg>,
}

/// `st.async`: registers to the shared memory of a CTA of the cluster.
pub(crate) struct StoreAsync {
    pub(crate) to: Address,
    /// Bytes of an element.
    pub(crate) bytes: u32,
    pub(crate) values: Box<[Reg]>,
    /// The mbarrier that counts the bytes, in the CTA that they go to.
    pub(crate) barrier: Address,
}

/// `cp.async`: a few bytes from global to shared memory.
pub(crate) struct AsyncCopy {
    pub(crate) to: Address,
    pub(crate) from: Address,
    /// Bytes written: 4, 8 or 16.
    pub(crate) bytes: u32,
    /// Bytes read; those written beyond are zero.
    pub(crate) read: Option<Reg>,
    /// Lanes that read nothing.
    pub(crate) ignore: Option<PredSource>,
}

/// A tensor copy.
pub(crate) struct Tensor {
    /// Where the tensor map is.
    pub(crate) map: Address,
    /// Where the box starts, along each axis; none where only the map is looked at.
    pub(crate) coordinates: Box<[Reg]>,
    pub(crate) kind: TensorKind,
}

/// What a tensor copy does with its box.
pub(crate) enum TensorKind {
    /// `cp.async.bulk.tensor` to shared memory.
    Load {
        to: Address,
        barrier: Address,
        /// The ranks that get a copy, as a mask.
        multicast: Option<Reg>,
    },
    /// `cp.async.bulk.tensor` from shared memory.
    Store { from: Address },
    /// `cp.async.bulk.prefetch.tensor`
    Prefetch,
    /// `prefetch.tensormap`
    PrefetchMap,
}

/// `ldmatrix` and `stmatrix`: 8 × 8 matrices of 16-bit elements, their rows in shared memory.
pub(crate) struct Matrices {
    /// Lane 8i + r says where row r of matrix i is.
    pub(crate) address: Address,
    pub(crate) transposed: bool,
    pub(crate) store: bool,
    /// One register per matrix.
    pub(crate) regs: Box<[Reg]>,
}
