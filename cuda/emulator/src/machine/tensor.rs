//! Tensor copies: a box of a tensor that a map describes, moved row by row.

use super::access::outside;
use super::bulk::{Source, Target};
use super::cluster::Cluster;
use super::global::{Place, View};
use super::report::{Trouble, trouble};
use super::warp::lanes;
use crate::error::FaultKind;
use crate::program::{Mask, Space, Tensor, TensorKind, WARP};
use crate::tensor_map::{Element, Fill, Interleave, Swizzle, TensorMap};

/// Bytes of a tensor map, and what its address is a multiple of.
const MAP: (usize, u64) = (128, 64);
/// What a box's address in shared memory is a multiple of.
const BOX_GRAIN: u64 = 128;
/// Most bytes of a box: all the shared memory that a CTA can have.
const MAX_BOX: u64 = 227 * 1024;

/// Bytes of a row that lie in the tensor.
#[derive(Clone)]
struct Run {
    /// Where they are in the box.
    at: usize,
    place: Place,
    bytes: usize,
}

/// A box of a tensor on its way.
#[derive(Clone)]
pub(super) struct Tile {
    runs: Vec<Run>,
    fill: Fill,
    element: Element,
    swizzle: Swizzle,
    /// Where the box starts in shared memory.
    at: u64,
}

impl Tile {
    /// Reads the box out of global memory, as it is to lie in shared memory.
    pub(super) fn read(&self, view: &View<'_>, bytes: &mut [u8]) {
        let covered: usize = self.runs.iter().map(|run| run.bytes).sum();
        match self.fill {
            _ if covered == bytes.len() => {}
            Fill::Zero => bytes.fill(0),
            Fill::Nan => {
                let element = self.element.bytes() as usize;
                bytes.fill(0xff);
                bytes
                    .iter_mut()
                    .skip(element - 1)
                    .step_by(element)
                    .for_each(|b| *b = 0x7f);
            }
        }
        for run in &self.runs {
            let allocation = view.allocation(run.place);
            allocation.read(run.place.at, &mut bytes[run.at..run.at + run.bytes]);
        }
        self.permute(bytes);
    }

    /// Writes the box, as it lies in shared memory, to global memory, on behalf of a launch at some moment.
    pub(super) fn write(&self, view: &mut View<'_>, bytes: &mut [u8], (launch, moment): (u32, u32)) {
        self.permute(bytes);
        for run in &self.runs {
            let allocation = view.allocation(run.place);
            allocation.write(run.place.at, &bytes[run.at..run.at + run.bytes], launch, moment);
        }
        self.count(view, true);
    }

    /// Permutes the box's pieces, or takes the permutation back.
    fn permute(&self, bytes: &mut [u8]) {
        if self.swizzle == Swizzle::None {
            return;
        }
        for from in (0..bytes.len()).step_by(16) {
            let to = (self.swizzle.apply(self.at + from as u64) - self.at) as usize;
            if to > from {
                let (low, high) = bytes.split_at_mut(to);
                low[from..from + 16].swap_with_slice(&mut high[..16]);
            }
        }
    }

    /// Counts the traffic: the distinct sectors of the rows, which lie in the order of their addresses.
    fn count(&self, view: &mut View<'_>, write: bool) {
        let mut last = None;
        for Run { place, bytes, .. } in &self.runs {
            let (first, end) = (place.at / 32, (place.at + *bytes as u64).div_ceil(32));
            let again = u64::from(last == Some((place.allocation, first)));
            view.add(place.allocation, *bytes as u64, end - first - again, write);
            last = Some((place.allocation, end - 1));
        }
    }
}

impl Cluster<'_> {
    pub(super) fn tensor(&mut self, w: usize, tensor: &Tensor, exec: Mask, site: u32) -> Result<(), Box<Trouble>> {
        let maps = self.addresses(w, tensor.map);
        let coordinates: Vec<_> = (tensor.coordinates.iter())
            .map(|&reg| *self.warps[w].read(self.env.constants, reg))
            .collect();
        for lane in lanes(exec) {
            let at = maps[lane];
            let map = self.tensor_map(w, lane, tensor.map.space, at)?;
            if matches!(tensor.kind, TensorKind::PrefetchMap) {
                continue;
            }
            let bytes = box_bytes(&map, coordinates.len()).map_err(|why| bad_map(lane, at, &why))?;
            let start: Vec<i64> = coordinates.iter().map(|lanes| (lanes[lane] as i32).into()).collect();
            let mut tile = Tile {
                runs: Vec::new(),
                fill: map.fill,
                element: map.element,
                swizzle: map.swizzle,
                at: 0,
            };
            let runs = |cluster: &mut Self, writes| cluster.runs(w, lane, (at, &map), &start, writes);
            let (source, target) = match tensor.kind {
                TensorKind::PrefetchMap => continue,
                TensorKind::Prefetch => {
                    runs(self, None)?;
                    continue;
                }
                TensorKind::Load { to, barrier, multicast } => {
                    let address = self.box_address(w, lane, to)?;
                    let barrier = (barrier.space, self.addresses(w, barrier)[lane]);
                    let ranks = multicast.map(|reg| self.warps[w].read(self.env.constants, reg)[lane]);
                    tile.runs = runs(self, Some(false))?;
                    let target = self.shared_target(w, lane, (to.space, address), bytes, barrier, ranks, site)?;
                    tile.at = target.shared_at();
                    tile.count(&mut self.view, false);
                    (Source::Tensor(tile), target)
                }
                TensorKind::Store { from } => {
                    let address = self.box_address(w, lane, from)?;
                    tile.runs = runs(self, Some(true))?;
                    let source = self.shared_source(w, lane, (from.space, address), bytes, site)?;
                    tile.at = source.shared_at();
                    (source, Target::Tensor(tile))
                }
            };
            self.launch_flight(w, lane, site, bytes as usize, source, target);
        }
        Ok(())
    }

    /// A lane's address of a box in shared memory.
    fn box_address(&self, w: usize, lane: usize, address: crate::program::Address) -> Result<u64, Box<Trouble>> {
        let address = self.addresses(w, address)[lane];
        if address.is_multiple_of(BOX_GRAIN) {
            return Ok(address);
        }
        let detail = format!("the box at {address:#x} of shared memory does not start at a multiple of {BOX_GRAIN}");
        Err(trouble(FaultKind::Misaligned, lane, detail))
    }

    /// Reads the tensor map at an address.
    fn tensor_map(&mut self, w: usize, lane: usize, space: Space, address: u64) -> Result<TensorMap, Box<Trouble>> {
        let (len, align) = MAP;
        let spaces = self.spaces(space, &[address; WARP], 1 << lane);
        let (space, _, start) = spaces.into_iter().find(|&(_, mask, _)| mask != 0).unwrap_or(spaces[0]);
        let at = address.wrapping_sub(start);
        if !at.is_multiple_of(align) {
            let detail = format!("the tensor map at {address:#x} does not start at a multiple of {align}");
            return Err(trouble(FaultKind::Misaligned, lane, detail));
        }
        let mut bytes = [0; MAP.0];
        match space {
            Space::Global | Space::Generic => {
                let Some(place) = self.view.find(at, len as u64) else {
                    return Err(self.outside_global(lane, at, len as u64));
                };
                self.check_copy(w, lane, place, len as u64, false)?;
                self.view.allocation(place).read(place.at, &mut bytes);
            }
            Space::Param => {
                let params = self.env.params;
                let map = usize::try_from(at).ok().and_then(|at| params.get(at..)?.get(..len));
                let map = map.ok_or_else(|| outside(lane, "parameter", at, len as u64, params.len()))?;
                bytes.copy_from_slice(map);
            }
            Space::Shared | Space::Cluster | Space::Local => {
                let why = "tensor maps lie in global, constant or parameter memory, not in shared or local memory";
                return Err(bad_map(lane, address, why));
            }
        }
        TensorMap::decode(&bytes).map_err(|why| bad_map(lane, address, &why.to_string()))
    }

    /// The rows of a box, as far as they lie in the tensor, for a copy that reads or writes them; checked only for
    /// bounds where it does neither.
    fn runs(
        &mut self,
        w: usize,
        lane: usize,
        (map_at, map): (u64, &TensorMap),
        start: &[i64],
        writes: Option<bool>,
    ) -> Result<Vec<Run>, Box<Trouble>> {
        let (element, row) = (map.element.bytes(), map.row_bytes());
        let within = |axis: usize, at: i64| u64::try_from(at).ok().filter(|&at| at < map.axes[axis].size);
        let first = start[0].max(0);
        let last = (start[0] + map.count(0) as i64).min(map.axes[0].size as i64);
        let mut runs = Vec::new();
        if first >= last {
            return Ok(runs);
        }
        let bytes = (last - first) as u64 * element;
        // Which row it is, along the axes above the first.
        let mut index = [0; 5];
        for number in 0..map.box_bytes() / row {
            let coordinates =
                (1..start.len()).map(|axis| within(axis, start[axis] + (index[axis] * map.step(axis)) as i64));
            let offset = coordinates.zip(&map.axes[1..]).try_fold(0, |offset, (at, axis)| {
                at.map(|at| offset + u128::from(at) * u128::from(axis.stride))
            });
            if let Some(offset) = offset {
                let address = u128::from(map.address) + offset + u128::from(first as u64 * element);
                let place = u64::try_from(address)
                    .ok()
                    .and_then(|address| self.view.find(address, bytes));
                let place = place.ok_or_else(|| self.outside_tensor(lane, map_at, map, address as u64, bytes))?;
                if let Some(writes) = writes {
                    self.check_copy(w, lane, place, bytes, writes)?;
                }
                runs.push(Run {
                    at: (number * row + (first - start[0]) as u64 * element) as usize,
                    place,
                    bytes: bytes as usize,
                });
            }
            for (axis, index) in index.iter_mut().enumerate().take(start.len()).skip(1) {
                *index += 1;
                if *index < map.count(axis) {
                    break;
                }
                *index = 0;
            }
        }
        Ok(runs)
    }

    fn outside_tensor(&self, lane: usize, map_at: u64, map: &TensorMap, address: u64, bytes: u64) -> Box<Trouble> {
        let sizes: Vec<_> = map.axes.iter().map(|axis| axis.size).collect();
        let mut trouble = self.outside_global(lane, address, bytes);
        trouble.detail += &format!(
            "; the tensor map at {map_at:#x} says that a tensor of {sizes:?} elements at {:#x} reaches there",
            map.address
        );
        trouble
    }
}

fn bad_map(lane: usize, address: u64, why: &str) -> Box<Trouble> {
    trouble(
        FaultKind::BadInstruction,
        lane,
        format!("the tensor map at {address:#x}: {why}"),
    )
}

/// Bytes of a map's box, where a copy with so many coordinates can move it.
fn box_bytes(map: &TensorMap, coordinates: usize) -> Result<u64, String> {
    let rank = map.axes.len();
    if rank != coordinates {
        return Err(format!("it has {rank} axes, the instruction {coordinates} coordinates"));
    }
    if map.interleave != Interleave::None {
        return Err("copies of interleaved tensors are not supported".into());
    }
    let row = map.row_bytes();
    if let Some(span) = map.swizzle.span().filter(|&span| span != row) {
        return Err(format!(
            "its box has rows of {row} bytes, swizzled within {span}: how they lie is not known; make a row fill the span"
        ));
    }
    let bytes = map.box_bytes();
    if bytes > MAX_BOX {
        return Err(format!(
            "its box has {bytes} bytes; a CTA's shared memory can have {MAX_BOX}"
        ));
    }
    Ok(bytes)
}
