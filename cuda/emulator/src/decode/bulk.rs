//! `cp.async`, with `.bulk` and without.

use super::memory::{hints, without_policy};
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{AsyncCopy, Bulk, Op, Prefetch, Space};

pub(super) const RULES: &[(&str, Rule)] = &[("cp", cp)];

fn cp(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    parts.one_of(&["async"])?;
    if !parts.flag("bulk") {
        return small(d, parts, source);
    }
    if parts.flag("commit_group") {
        let [] = d.operands(source)?;
        d.ops.push(Op::BulkCommit);
        return Ok(());
    }
    if parts.flag("wait_group") {
        // Copies read and write at one moment, so that waiting for the reads alone is the same.
        parts.flag("read");
        let [left] = d.operands(source)?;
        let left = u32::try_from(d.literal(left)?).map_err(|_| "the number of groups must not be negative")?;
        d.ops.push(Op::BulkWait { left });
        return Ok(());
    }
    let prefetch = parts.flag("prefetch");
    if parts.flag("tensor") {
        return super::tensor::copy(d, parts, source, prefetch);
    }
    if prefetch {
        parts.one_of(&["L2"])?;
        parts.one_of(&["global"])?;
        let policy = hints(parts);
        let [address, size] = without_policy(d, source, policy)? else {
            return Err("an address and a size are wanted".into());
        };
        let size = Some(d.source(size, Type::U32)?);
        let prefetch = Prefetch {
            address: d.address(address, Space::Global)?,
            size,
        };
        d.ops.push(Op::Prefetch(Box::new(prefetch)));
        return Ok(());
    }
    let (to, from) = (space(parts)?, space(parts)?);
    let by_barrier = match (to, from) {
        (Space::Cluster | Space::Shared, Space::Global) | (Space::Cluster, Space::Shared) => true,
        (Space::Global, Space::Shared) => false,
        _ => return Err("copies go between global and shared memory, or to `.shared::cluster`".into()),
    };
    parts.one_of(&[if by_barrier {
        "mbarrier::complete_tx::bytes"
    } else {
        "bulk_group"
    }])?;
    let multicast = parts.flag("multicast::cluster");
    if multicast && (to, from) != (Space::Cluster, Space::Global) {
        return Err("multicast goes from global memory to `.shared::cluster`".into());
    }
    let policy = hints(parts);
    let mut operands = without_policy(d, source, policy)?.iter();
    let mut next = || operands.next().ok_or("an operand is missing");
    let bulk = Bulk {
        to: d.address(next()?, to)?,
        from: d.address(next()?, from)?,
        size: d.source(next()?, Type::U32)?,
        barrier: if by_barrier {
            Some(d.address(next()?, to)?)
        } else {
            None
        },
        multicast: if multicast {
            Some(d.source(next()?, Type::U16)?)
        } else {
            None
        },
    };
    if operands.next().is_some() {
        return Err("an operand too many".into());
    }
    d.ops.push(Op::Bulk(Box::new(bulk)));
    Ok(())
}

/// `cp.async` without `.bulk`: each lane copies up to 16 bytes.
fn small(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    let op = match parts.any(&["commit_group", "wait_group", "wait_all", "mbarrier"]) {
        Some("commit_group") => {
            let [] = d.operands(source)?;
            Op::AsyncCommit
        }
        Some("wait_all") => {
            let [] = d.operands(source)?;
            Op::AsyncWait { left: None }
        }
        Some("wait_group") => {
            let [left] = d.operands(source)?;
            let left = u32::try_from(d.literal(left)?).map_err(|_| "the number of groups must not be negative")?;
            Op::AsyncWait { left: Some(left) }
        }
        Some(_) => {
            parts.one_of(&["arrive"])?;
            let counted = parts.flag("noinc");
            let space = super::memory::space(parts);
            if !matches!(space, Space::Generic | Space::Shared) {
                return Err("the mbarrier lies in the CTA's own shared memory".into());
            }
            parts.one_of(&["b64"])?;
            let [address] = d.operands(source)?;
            let address = d.address(address, space)?;
            Op::AsyncArrive { address, counted }
        }
        None => Op::AsyncCopy(Box::new(small_copy(d, parts, source)?)),
    };
    d.ops.push(op);
    Ok(())
}

/// `cp.async.ca.shared.global [to], [from], bytes` and what may follow: bytes to read, or a predicate that reads
/// nothing.
fn small_copy(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result<AsyncCopy> {
    let cache = parts.one_of(&["ca", "cg"])?;
    parts.one_of(&["shared", "shared::cta"])?;
    parts.one_of(&["global"])?;
    let policy = hints(parts);
    let [to, from, bytes, rest @ ..] = without_policy(d, source, policy)? else {
        return Err("two addresses and a size are wanted".into());
    };
    let bytes = match (d.literal(bytes)?, cache) {
        (bytes @ (4 | 8), "ca") | (bytes @ 16, _) => bytes as u32,
        _ => return Err("the size must be 16, or with `.ca` also 4 or 8".into()),
    };
    let (mut read, mut ignore) = (None, None);
    match rest {
        [] => {}
        [Operand::Reg(id)] if d.pred_index(*id).is_ok() => ignore = Some(d.pred_source(&rest[0])?),
        [Operand::NotReg(_)] => ignore = Some(d.pred_source(&rest[0])?),
        [size] => read = Some(d.source(size, Type::U32)?),
        _ => return Err("an operand too many".into()),
    }
    Ok(AsyncCopy {
        to: d.address(to, Space::Shared)?,
        from: d.address(from, Space::Global)?,
        bytes,
        read,
        ignore,
    })
}

/// Takes the state space of one end of a copy.
pub(super) fn space(parts: &mut Parts<'_>) -> Result<Space> {
    let name = parts.one_of(&["shared::cluster", "shared::cta", "global"])?;
    Ok(match name {
        "shared::cluster" => Space::Cluster,
        "shared::cta" => Space::Shared,
        _ => Space::Global,
    })
}
