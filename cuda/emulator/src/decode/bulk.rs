//! `cp.async.bulk`

use super::memory::hints;
use super::parts::Parts;
use super::{Decoder, Result, Rule};
use crate::parse::{Inst as Source, Type};
use crate::program::{Bulk, Op, Prefetch, Space};

pub(super) const RULES: &[(&str, Rule)] = &[("cp", cp)];

fn cp(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source) -> Result {
    for part in ["async", "bulk"] {
        parts.one_of(&[part])?;
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
        let [address, size] = super::memory::without_policy(d, source, policy)? else {
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
    let mut operands = super::memory::without_policy(d, source, policy)?.iter();
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

/// Takes the state space of one end of a copy.
pub(super) fn space(parts: &mut Parts<'_>) -> Result<Space> {
    let name = parts.one_of(&["shared::cluster", "shared::cta", "global"])?;
    Ok(match name {
        "shared::cluster" => Space::Cluster,
        "shared::cta" => Space::Shared,
        _ => Space::Global,
    })
}
