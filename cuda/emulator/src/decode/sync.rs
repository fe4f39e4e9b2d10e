//! Control flow, barriers, mbarriers, and the instructions by which lanes work together.

use super::atomic::combine;
use super::memory::{SCOPES, space};
use super::operand::no_type;
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{
    Barrier, BarrierKind, Match, Mbarrier, MbarrierKind, Op, Reduce, Shuffle, ShuffleMode, Space, Vote, VoteKind,
};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("bra", bra),
    ("brx", brx),
    ("exit", |d, p, s| plain(d, p, s, &[], Op::Exit)),
    ("trap", |d, p, s| plain(d, p, s, &[], Op::Trap)),
    // There is no debugger to break into.
    ("brkpt", |d, p, s| plain(d, p, s, &[], Op::Trap)),
    ("pmevent", |d, p, s| {
        p.flag("mask");
        let [event] = d.operands(s)?;
        d.literal(event)?;
        d.ops.push(Op::Nop);
        Ok(())
    }),
    ("bar", bar),
    ("barrier", barrier),
    ("mbarrier", mbarrier),
    ("shfl", shfl),
    ("vote", vote),
    ("match", match_lanes),
    ("redux", redux),
    ("elect", elect),
    ("activemask", |d, p, s| {
        p.one_of(&["b32"])?;
        let [to] = d.operands(s)?;
        let op = Op::ActiveMask(d.target(to, 32)?);
        d.ops.push(op);
        Ok(())
    }),
    ("griddepcontrol", |d, p, s| {
        let op = match p.one_of(&["wait", "launch_dependents"])? {
            "wait" => Op::GridWait,
            _ => Op::GridTrigger,
        };
        plain(d, p, s, &[], op)
    }),
    ("setmaxnreg", |d, p, s| {
        p.one_of(&["inc", "dec"])?;
        for part in ["sync", "aligned", "u32"] {
            p.one_of(&[part])?;
        }
        let [count] = d.operands(s)?;
        d.literal(count)?;
        d.ops.push(Op::AlignedNop);
        Ok(())
    }),
    ("nanosleep", |d, p, s| {
        p.one_of(&["u32"])?;
        let [time] = d.operands(s)?;
        d.source(time, Type::U32)?;
        d.ops.push(Op::Yield);
        Ok(())
    }),
];

fn plain(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, optional: &[&str], op: Op) -> Result {
    parts.any(optional);
    let [] = d.operands(source)?;
    d.ops.push(op);
    Ok(())
}

fn bra(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.flag("uni");
    let [Operand::Label(target)] = d.operands(source)? else {
        return Err("a label is wanted".into());
    };
    d.ops.push(Op::Branch(*target as u32));
    Ok(())
}

fn brx(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["idx"])?;
    parts.flag("uni");
    let [index, Operand::Labels(targets)] = d.operands(source)? else {
        return Err("an index and a list of labels are wanted".into());
    };
    let op = Op::BranchIndexed(d.source(index, Type::U32)?, targets.iter().map(|&t| t as u32).collect());
    d.ops.push(op);
    Ok(())
}

/// `bar.*`, which is `barrier.*.aligned` by another name, and `bar.warp.sync`.
fn bar(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    if parts.flag("warp") {
        parts.one_of(&["sync"])?;
        let [members] = d.operands(source)?;
        let op = Op::WarpSync(d.source(members, Type::B32)?);
        d.ops.push(op);
        return Ok(());
    }
    parts.flag("cta");
    cta_barrier(d, parts, source, true)
}

fn barrier(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    if parts.flag("cluster") {
        let aligned = parts.flag("aligned");
        let op = match parts.one_of(&["arrive", "wait"])? {
            "arrive" => Op::ClusterArrive {
                release: parts.any(&["release", "relaxed"]) != Some("relaxed"),
                aligned,
            },
            _ => {
                parts.flag("acquire");
                Op::ClusterWait { aligned }
            }
        };
        let [] = d.operands(source)?;
        d.ops.push(op);
        return Ok(());
    }
    parts.flag("cta");
    let aligned = parts.flag("aligned");
    cta_barrier(d, parts, source, aligned)
}

fn cta_barrier(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, aligned: bool) -> Result {
    let name = parts.one_of(&["sync", "arrive", "red"])?;
    let mut operands = source.operands.iter();
    let mut next = || operands.next().ok_or("an operand is missing");
    let reduction = if name == "red" {
        let kind = parts.one_of(&["popc", "and", "or"])?;
        parts.one_of(&[if kind == "popc" { "u32" } else { "pred" }])?;
        Some((kind, next()?))
    } else {
        None
    };
    let id = d.source(next()?, Type::U32)?;
    let mut rest: Vec<&Operand> = operands.collect();
    let kind = match reduction {
        None if name == "sync" => BarrierKind::Sync,
        None => BarrierKind::Arrive,
        Some((kind, to)) => {
            let p = d.pred_source(rest.pop().ok_or("a predicate is missing")?)?;
            match kind {
                "popc" => BarrierKind::Popcount {
                    d: d.target(to, 32)?,
                    p,
                },
                "and" => BarrierKind::All {
                    d: d.pred_target(to)?,
                    p,
                },
                _ => BarrierKind::Any {
                    d: d.pred_target(to)?,
                    p,
                },
            }
        }
    };
    let count = match rest[..] {
        [] if name == "arrive" => return Err("the number of threads is missing".into()),
        [] => None,
        [count] => Some(d.source(count, Type::U32)?),
        _ => return Err("an operand too many".into()),
    };
    d.ops.push(Op::Barrier(Box::new(Barrier {
        id,
        count,
        aligned,
        kind,
    })));
    Ok(())
}

fn mbarrier(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    const NAMES: &[&str] = &[
        "init",
        "inval",
        "arrive",
        "arrive_drop",
        "expect_tx",
        "complete_tx",
        "test_wait",
        "try_wait",
        "pending_count",
    ];
    let name = parts.one_of(NAMES)?;
    let expect = name.starts_with("arrive") && parts.flag("expect_tx");
    let no_complete = name.starts_with("arrive") && parts.flag("noComplete");
    let parity = name.ends_with("wait") && parts.flag("parity");
    let sem = parts.any(&["release", "acquire", "relaxed"]);
    // The scope is the CTA where none is given.
    let wide = !matches!(parts.any(SCOPES), None | Some("cta"));
    let space = space(parts);
    parts.one_of(&["b64"])?;
    if !matches!(space, Space::Generic | Space::Shared | Space::Cluster) {
        return Err("mbarriers live in shared memory".into());
    }
    let operands: Vec<&Operand> = source.operands.iter().collect();
    let (address, kind) = match (name, &operands[..]) {
        ("init", [address, count]) => (
            address,
            MbarrierKind::Init {
                count: d.source(count, Type::U32)?,
            },
        ),
        ("inval", [address]) => (address, MbarrierKind::Invalidate),
        ("arrive" | "arrive_drop", [state, address, rest @ ..]) => {
            let (expect, count) = match rest {
                [bytes] if expect => (Some(d.source(bytes, Type::U32)?), None),
                [count] => (None, Some(d.source(count, Type::U32)?)),
                [] if !expect && !no_complete => (None, None),
                _ => return Err("the number of operands is wrong".into()),
            };
            let kind = MbarrierKind::Arrive {
                state: d.optional_target(state, 64)?,
                count,
                expect,
                drop: name == "arrive_drop",
                no_complete,
                release: sem != Some("relaxed"),
                wide,
            };
            (address, kind)
        }
        ("expect_tx", [address, bytes]) => (address, MbarrierKind::ExpectTx(d.source(bytes, Type::U32)?)),
        ("complete_tx", [address, bytes]) => (address, MbarrierKind::CompleteTx(d.source(bytes, Type::U32)?)),
        ("test_wait", [p, address, phase]) | ("try_wait", [p, address, phase] | [p, address, phase, _]) => {
            // How long a wait may take at most is the scheduler's choice anyway.
            if let Some(time) = operands.get(3) {
                d.source(time, Type::U32)?;
            }
            let kind = MbarrierKind::Wait {
                p: d.pred_target(p)?,
                phase: d.source(phase, if parity { Type::U32 } else { Type::B64 })?,
                parity,
                may_sleep: name == "try_wait",
                acquire: sem != Some("relaxed"),
                wide,
            };
            (address, kind)
        }
        ("pending_count", [to, state]) => {
            let kind = MbarrierKind::PendingCount {
                d: d.target(to, 32)?,
                state: d.source(state, Type::B64)?,
            };
            let nowhere = crate::program::Address {
                space: Space::Generic,
                base: d.constant(0),
                offset: 0,
            };
            d.ops.push(Op::Mbarrier(Box::new(Mbarrier { address: nowhere, kind })));
            return Ok(());
        }
        _ => return Err("the number of operands is wrong".into()),
    };
    let address = d.address(address, space)?;
    d.ops.push(Op::Mbarrier(Box::new(Mbarrier { address, kind })));
    Ok(())
}

fn shfl(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["sync"])?;
    let mode = match parts.one_of(&["up", "down", "bfly", "idx"])? {
        "up" => ShuffleMode::Up,
        "down" => ShuffleMode::Down,
        "bfly" => ShuffleMode::Xor,
        _ => ShuffleMode::Index,
    };
    parts.one_of(&["b32"])?;
    let [to, a, b, c, members] = d.operands(source)?;
    let (to, p) = d.target_and_pred(to, 32)?;
    let shuffle = Shuffle {
        mode,
        d: to,
        p,
        a: d.source(a, Type::B32)?,
        b: d.source(b, Type::B32)?,
        c: d.source(c, Type::B32)?,
        members: d.source(members, Type::B32)?,
    };
    d.ops.push(Op::Shuffle(Box::new(shuffle)));
    Ok(())
}

fn vote(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["sync"])?;
    let name = parts.one_of(&["all", "any", "uni", "ballot"])?;
    parts.one_of(&[if name == "ballot" { "b32" } else { "pred" }])?;
    let [to, p, members] = d.operands(source)?;
    let kind = match name {
        "all" => VoteKind::All(d.pred_target(to)?),
        "any" => VoteKind::Any(d.pred_target(to)?),
        "uni" => VoteKind::Uniform(d.pred_target(to)?),
        _ => VoteKind::Ballot(d.target(to, 32)?),
    };
    let vote = Vote {
        kind,
        p: d.pred_source(p)?,
        members: d.source(members, Type::B32)?,
    };
    d.ops.push(Op::Vote(Box::new(vote)));
    Ok(())
}

fn match_lanes(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let all = parts.one_of(&["any", "all"])? == "all";
    parts.one_of(&["sync"])?;
    let ty = parts.ty()?;
    if !matches!(ty, Type::B32 | Type::B64) {
        return Err(no_type(ty));
    }
    let [to, a, members] = d.operands(source)?;
    let (to, p) = d.target_and_pred(to, 32)?;
    let op = Match {
        all,
        d: to,
        p,
        a: d.source(a, ty)?,
        members: d.source(members, Type::B32)?,
    };
    d.ops.push(Op::Match(Box::new(op)));
    Ok(())
}

fn redux(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["sync"])?;
    let name = parts.one_of(&["add", "min", "max", "and", "or", "xor"])?;
    let ty = parts.ty()?;
    let f = match ty {
        Type::U32 | Type::S32 | Type::B32 => combine(name, ty, false),
        _ => None,
    };
    let [to, a, members] = d.operands(source)?;
    let reduce = Reduce {
        f: f.ok_or_else(|| no_type(ty))?,
        d: d.target(to, 32)?,
        a: d.source(a, ty)?,
        members: d.source(members, Type::B32)?,
    };
    d.ops.push(Op::Reduce(Box::new(reduce)));
    Ok(())
}

fn elect(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["sync"])?;
    let [to, members] = d.operands(source)?;
    let (to, p) = d.target_and_pred(to, 32)?;
    let op = Op::Elect {
        d: to,
        p,
        members: d.source(members, Type::B32)?,
    };
    d.ops.push(op);
    Ok(())
}
