//! Which registers an operation names, to read them or to write them.

use super::{
    Access, Address, Atomic, BarrierKind, Callee, Left, Mbarrier, MbarrierKind, Mma, Op, Passed, Reg, TensorKind,
    VoteKind, Wgmma,
};

/// What an operation names a register for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Read,
    Write,
    ReadAndWrite,
}

impl Role {
    pub(crate) fn reads(self) -> bool {
        self != Role::Write
    }

    pub(crate) fn writes(self) -> bool {
        self != Role::Read
    }
}

struct Visit<'f>(&'f mut dyn FnMut(&mut Reg, Role));

impl Visit<'_> {
    fn read<'r>(&mut self, regs: impl IntoIterator<Item = &'r mut Reg>) {
        regs.into_iter().for_each(|reg| (self.0)(reg, Role::Read));
    }

    fn write<'r>(&mut self, regs: impl IntoIterator<Item = &'r mut Reg>) {
        regs.into_iter().for_each(|reg| (self.0)(reg, Role::Write));
    }

    fn address(&mut self, address: &mut Address) {
        self.read([&mut address.base]);
    }

    fn mbarrier(&mut self, Mbarrier { address, kind }: &mut Mbarrier) {
        match kind {
            MbarrierKind::PendingCount { d, state } => {
                self.write([d]);
                return self.read([state]);
            }
            MbarrierKind::Init { count } => self.read([count]),
            MbarrierKind::Invalidate => {}
            MbarrierKind::Arrive {
                state, count, expect, ..
            } => {
                self.write(state);
                self.read(count);
                self.read(expect);
            }
            MbarrierKind::ExpectTx(bytes) | MbarrierKind::CompleteTx(bytes) => self.read([bytes]),
            MbarrierKind::Wait { phase, .. } => self.read([phase]),
        }
        self.address(address);
    }

    fn wgmma(&mut self, wgmma: &mut Wgmma) {
        let Wgmma::Multiply(multiply) = wgmma else { return };
        multiply.d.iter_mut().for_each(|reg| (self.0)(reg, Role::ReadAndWrite));
        self.read([&mut multiply.b.descriptor]);
        match &mut multiply.a {
            Left::Shared(a) => self.read([&mut a.descriptor]),
            Left::Registers(a) => self.read(a),
        }
    }
}

/// The registers among a call's values.
fn passed(values: &mut [Passed]) -> impl Iterator<Item = &mut Reg> {
    values.iter_mut().filter_map(Passed::register)
}

impl Passed {
    pub(crate) fn register(&mut self) -> Option<&mut Reg> {
        match self {
            Passed::Register { reg, .. } => Some(reg),
            Passed::Memory { .. } | Passed::Nothing => None,
        }
    }
}

impl Op {
    /// Shows every place where the operation names a register, once, and those that name constants too.
    pub(crate) fn registers(&mut self, visit: &mut dyn FnMut(&mut Reg, Role)) {
        let mut v = Visit(visit);
        match self {
            Op::Lane1(_, d, a) => {
                v.write([d]);
                v.read([a]);
            }
            Op::Lane2(_, d, a, b) | Op::Select(d, a, b, _) => {
                v.write([d]);
                v.read([a, b]);
            }
            Op::Lane3(_, d, a, b, c) => {
                v.write([d]);
                v.read([a, b, c]);
            }
            Op::Lane4(_, d, sources) => {
                v.write([d]);
                v.read(sources);
            }
            Op::Compare(compare) => v.read([&mut compare.a, &mut compare.b]),
            Op::Carry(carry) => {
                v.write([&mut carry.d]);
                v.read([&mut carry.a, &mut carry.b, &mut carry.c]);
            }
            Op::Special(_, d) | Op::FrameAddress { d, .. } | Op::ActiveMask(d) => v.write([d]),
            Op::Unpack(to, _, from) => {
                v.write(to.iter_mut().flatten());
                v.read([from]);
            }
            Op::Pack(d, _, from) => {
                v.write([d]);
                v.read(from.iter_mut());
            }
            Op::BranchIndexed(index, _) => v.read([index]),
            Op::Call(call) => {
                if let Callee::Address(target) = &mut call.target {
                    v.read([target]);
                }
                v.read(passed(&mut call.args));
                v.write(passed(&mut call.returns));
            }
            Op::Load(access) => {
                let Access { address, regs, .. } = &mut **access;
                v.write(regs.iter_mut().flatten());
                v.address(address);
            }
            Op::Store(access) => {
                let Access { address, regs, .. } = &mut **access;
                v.read(regs.iter_mut().flatten());
                v.address(address);
            }
            Op::Atomic(atomic) => {
                let Atomic { address, elements, .. } = &mut **atomic;
                for (d, a, b) in elements {
                    v.write(d);
                    v.read([a, b]);
                }
                v.address(address);
            }
            Op::Prefetch(prefetch) => {
                v.read(&mut prefetch.size);
                v.address(&mut prefetch.address);
            }
            Op::MapRank { d, address, rank, .. } => {
                v.write([d]);
                v.read([address, rank]);
            }
            Op::RankOf { d, address, .. } => {
                v.write([d]);
                v.read([address]);
            }
            Op::IsSpace { address, .. } => v.read([address]),
            Op::Barrier(barrier) => {
                v.read([&mut barrier.id]);
                v.read(&mut barrier.count);
                if let BarrierKind::Popcount { d, .. } = &mut barrier.kind {
                    v.write([d]);
                }
            }
            Op::WarpSync(members) => v.read([members]),
            Op::Shuffle(shuffle) => {
                v.write(&mut shuffle.d);
                v.read([&mut shuffle.a, &mut shuffle.b, &mut shuffle.c, &mut shuffle.members]);
            }
            Op::Vote(vote) => {
                if let VoteKind::Ballot(d) = &mut vote.kind {
                    v.write([d]);
                }
                v.read([&mut vote.members]);
            }
            Op::Match(m) => {
                v.write(&mut m.d);
                v.read([&mut m.a, &mut m.members]);
            }
            Op::Reduce(reduce) => {
                v.write([&mut reduce.d]);
                v.read([&mut reduce.a, &mut reduce.members]);
            }
            Op::Elect { d, members, .. } => {
                v.write(d);
                v.read([members]);
            }
            Op::Mma(mma) => match &mut **mma {
                Mma::Bf16 { d, a, b, c } => {
                    v.write(d);
                    v.read(a.iter_mut().chain(b).chain(c));
                }
                Mma::Any { d, a, b, c, .. } => {
                    v.write(d.iter_mut());
                    v.read(a.iter_mut().chain(b).chain(c));
                }
            },
            Op::Wgmma(wgmma) => v.wgmma(wgmma),
            Op::Mbarrier(mbarrier) => v.mbarrier(mbarrier),
            Op::Bulk(bulk) => {
                v.read([&mut bulk.to.base, &mut bulk.from.base, &mut bulk.size]);
                v.read(bulk.barrier.as_mut().map(|barrier| &mut barrier.base));
                v.read(&mut bulk.multicast);
            }
            Op::StoreAsync(store) => {
                v.read([&mut store.to.base, &mut store.barrier.base]);
                v.read(store.values.iter_mut());
            }
            Op::Tensor(tensor) => {
                v.address(&mut tensor.map);
                v.read(tensor.coordinates.iter_mut());
                match &mut tensor.kind {
                    TensorKind::Load { to, barrier, multicast } => {
                        v.read([&mut to.base, &mut barrier.base]);
                        v.read(multicast);
                    }
                    TensorKind::Store { from } => v.address(from),
                    TensorKind::Prefetch | TensorKind::PrefetchMap => {}
                }
            }
            Op::Matrices(matrices) => {
                v.address(&mut matrices.address);
                let regs = matrices.regs.iter_mut();
                if matrices.store { v.read(regs) } else { v.write(regs) }
            }
            Op::AsyncCopy(copy) => {
                v.read([&mut copy.to.base, &mut copy.from.base]);
                v.read(&mut copy.read);
            }
            Op::AsyncArrive { address, .. } => v.address(address),
            Op::Predicate(..)
            | Op::Jump(_)
            | Op::Branch(_)
            | Op::Return
            | Op::Exit
            | Op::Trap
            | Op::Nop
            | Op::Yield
            | Op::Fence(_)
            | Op::ClusterArrive { .. }
            | Op::ClusterWait { .. }
            | Op::AsyncCommit
            | Op::AsyncWait { .. }
            | Op::BulkCommit
            | Op::BulkWait { .. }
            | Op::AlignedNop
            | Op::GridWait
            | Op::GridTrigger => {}
        }
    }
}
