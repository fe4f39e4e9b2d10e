//! `cp.async.bulk.tensor` and `prefetch.tensormap`

use super::bulk::space;
use super::memory::{hints, without_policy};
use super::parts::Parts;
use super::{Decoder, Result};
use crate::parse::{Inst as Source, Operand, Type};
use crate::program::{Address, Op, Space, Tensor, TensorKind};

/// Numbers of axes, by how instructions name them.
const RANKS: &[&str] = &["1d", "2d", "3d", "4d", "5d"];

/// A tensor copy or its prefetch, whose opcode has been taken up to `tensor`.
pub(super) fn copy(d: &mut Decoder<'_>, parts: &mut Parts<'_>, source: &Source, prefetch: bool) -> Result {
    let rank = parts.one_of(RANKS)?;
    let rank = RANKS.iter().position(|&name| name == rank).unwrap_or(0) + 1;
    let ends = if prefetch {
        parts.one_of(&["L2"])?;
        (None, space(parts)?)
    } else {
        (Some(space(parts)?), space(parts)?)
    };
    parts.flag("tile");
    let to_shared = match ends {
        (None, Space::Global) => false,
        (Some(Space::Cluster | Space::Shared), Space::Global) => true,
        (Some(Space::Global), Space::Shared) => false,
        _ => return Err("tensors lie in global memory, their boxes in shared memory".into()),
    };
    if !prefetch {
        parts.one_of(&[if to_shared {
            "mbarrier::complete_tx::bytes"
        } else {
            "bulk_group"
        }])?;
    }
    let multicast = ends.0 == Some(Space::Cluster) && parts.flag("multicast::cluster");
    let policy = hints(parts);
    let mut operands = without_policy(d, source, policy)?.iter();
    let mut next = || operands.next().ok_or("an operand is missing");
    let (first, map) = match ends {
        (Some(to @ (Space::Cluster | Space::Shared)), _) => (Some((next()?, to)), next()?),
        _ => (None, next()?),
    };
    let (map, coordinates) = map_operand(d, map, rank)?;
    let kind = match (first, ends) {
        (Some((to, space)), _) => TensorKind::Load {
            to: d.address(to, space)?,
            barrier: d.address(next()?, space)?,
            multicast: if multicast {
                Some(d.source(next()?, Type::U16)?)
            } else {
                None
            },
        },
        (None, (Some(_), from)) => TensorKind::Store {
            from: d.address(next()?, from)?,
        },
        (None, (None, _)) => TensorKind::Prefetch,
    };
    if operands.next().is_some() {
        return Err("an operand too many".into());
    }
    let tensor = Tensor { map, coordinates, kind };
    d.ops.push(Op::Tensor(Box::new(tensor)));
    Ok(())
}

/// `[map, {c0, …}]` with one coordinate per axis.
fn map_operand(d: &mut Decoder<'_>, operand: &Operand, rank: usize) -> Result<(Address, Box<[u32]>)> {
    let Operand::Tensor { map, coordinates } = operand else {
        return Err("a tensor map's address and coordinates are wanted: `[map, {c0, …}]`".into());
    };
    if coordinates.len() != rank {
        return Err(format!(
            "{rank} coordinates are wanted, {} are given",
            coordinates.len()
        ));
    }
    let mut regs = Vec::with_capacity(rank);
    for coordinate in coordinates {
        regs.push(d.source(coordinate, Type::S32)?);
    }
    Ok((d.address_in(map, Space::Generic)?, regs.into()))
}

/// `prefetch.tensormap`, in the space that its opcode names.
pub(super) fn prefetch_map(d: &mut Decoder<'_>, operand: &Operand, space: Space) -> Result {
    let tensor = Tensor {
        map: d.address(operand, space)?,
        coordinates: Box::default(),
        kind: TensorKind::PrefetchMap,
    };
    d.ops.push(Op::Tensor(Box::new(tensor)));
    Ok(())
}
