//! Copies and fills. They are checked when they are made, and carried out in their stream's order.

use super::room;
use super::state::STATE;
use crate::codes::{Answer, Code};
use crate::types::*;
use ptx_emulator::AccessError;

/// A copy of a box of bytes.
#[derive(Clone, Copy)]
pub(super) struct Copy {
    pub(super) params: CUDA_MEMCPY3D,
    /// Target and source, resolved when the copy was made: a device address stays one, even if it is freed later.
    ends: [End; 2],
}

// SAFETY: its pointers are followed only as the caller has promised: whenever the copy is done, by whatever thread.
unsafe impl Send for Copy {}
// SAFETY: a shared copy is only carried out, which the caller has promised any thread may do.
unsafe impl Sync for Copy {}

/// One end of a copy: where the box starts, and how far its rows and slices are apart.
#[derive(Clone, Copy)]
struct End {
    place: Place,
    pitch: usize,
    slice: usize,
}

/// Where bytes are.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Host(*mut u8),
    Device(u64),
}

impl Place {
    fn plus(self, bytes: usize) -> Place {
        match self {
            Place::Host(host) => Place::Host(host.wrapping_add(bytes)),
            Place::Device(address) => Place::Device(address.wrapping_add(bytes as u64)),
        }
    }
}

/// The parameters of a copy of bytes that follow each other.
pub(super) fn linear(to: Place, from: Place, bytes: usize) -> CUDA_MEMCPY3D {
    let mut copy = CUDA_MEMCPY3D {
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    };
    match from {
        Place::Host(host) => (copy.srcMemoryType, copy.srcHost) = (memory_type::HOST, host.cast()),
        Place::Device(address) => (copy.srcMemoryType, copy.srcDevice) = (memory_type::DEVICE, address),
    }
    match to {
        Place::Host(host) => (copy.dstMemoryType, copy.dstHost) = (memory_type::HOST, host.cast()),
        Place::Device(address) => (copy.dstMemoryType, copy.dstDevice) = (memory_type::DEVICE, address),
    }
    copy
}

impl Copy {
    /// A copy that can be done now: of the kinds of memory that are emulated, within live allocations.
    pub(super) fn new(params: CUDA_MEMCPY3D) -> Answer<Copy> {
        let copy = Copy {
            params,
            ends: Self::ends(&params)?,
        };
        if copy.is_nothing() {
            return Ok(copy);
        }
        for end in copy.ends {
            let (rows, slices) = (params.Height - 1, params.Depth - 1);
            let bytes = rows
                .checked_mul(end.pitch)
                .zip(slices.checked_mul(end.slice))
                .and_then(|(a, b)| a.checked_add(b)?.checked_add(params.WidthInBytes))
                .filter(|&bytes| isize::try_from(bytes).is_ok());
            check(end.place, bytes.ok_or(Code::INVALID_VALUE)?)?;
        }
        Ok(copy)
    }

    /// Where on the host it begins to read or write.
    pub(super) fn hosts(&self) -> impl Iterator<Item = *const u8> {
        let host = |end: End| match end.place {
            Place::Host(host) => Some(host.cast_const()),
            Place::Device(_) => None,
        };
        self.ends.into_iter().filter_map(host)
    }

    fn is_nothing(&self) -> bool {
        self.params.WidthInBytes == 0 || self.params.Height == 0 || self.params.Depth == 0
    }

    fn ends(c: &CUDA_MEMCPY3D) -> Answer<[End; 2]> {
        let end = |kind: c_uint, host: *mut c_void, device: u64, [x, y, z]: [usize; 3], pitch: usize, height: usize| {
            let place = match kind {
                // A device address is recognised, even where the caller declares it as the host's.
                memory_type::HOST if is_device(host.addr() as u64) => Place::Device(host.addr() as u64),
                memory_type::HOST => Place::Host(host.cast()),
                memory_type::DEVICE => Place::Device(device),
                memory_type::UNIFIED if is_device(device) => Place::Device(device),
                memory_type::UNIFIED => Place::Host(std::ptr::with_exposed_provenance_mut(device as usize)),
                memory_type::ARRAY => return Err(Code::NOT_SUPPORTED),
                _ => return Err(Code::INVALID_VALUE),
            };
            let one_slice = c.Depth <= 1 && z == 0;
            let one_row = one_slice && c.Height <= 1 && y == 0;
            let fits = |size: usize, at: usize, of: usize| at.checked_add(size).is_some_and(|end| end <= of);
            if !(one_row || fits(c.WidthInBytes, x, pitch)) || !(one_slice || fits(c.Height, y, height)) {
                return Err(Code::INVALID_VALUE);
            }
            // Where there is no second row or slice, their distance says nothing and may be anything.
            let pitch = if one_row { 0 } else { pitch };
            let slice = if one_slice { Some(0) } else { pitch.checked_mul(height) };
            let slice = slice.ok_or(Code::INVALID_VALUE)?;
            let start = z
                .checked_mul(slice)
                .zip(y.checked_mul(pitch))
                .and_then(|(a, b)| a.checked_add(b)?.checked_add(x))
                .ok_or(Code::INVALID_VALUE)?;
            let place = place.plus(start);
            Ok(End { place, pitch, slice })
        };
        if c.srcLOD != 0 || c.dstLOD != 0 || !c.reserved0.is_null() || !c.reserved1.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let (to, from) = ([c.dstXInBytes, c.dstY, c.dstZ], [c.srcXInBytes, c.srcY, c.srcZ]);
        let source = c.srcHost.cast_mut();
        Ok([
            end(c.dstMemoryType, c.dstHost, c.dstDevice, to, c.dstPitch, c.dstHeight)?,
            end(c.srcMemoryType, source, c.srcDevice, from, c.srcPitch, c.srcHeight)?,
        ])
    }

    /// Copies, row by row.
    pub(super) fn run(&self) -> Result<(), AccessError> {
        if self.is_nothing() {
            return Ok(());
        }
        let [to, from] = self.ends;
        for slice in 0..self.params.Depth {
            for row in 0..self.params.Height {
                let at = |end: End| end.place.plus(slice * end.slice + row * end.pitch);
                copy_row(at(to), at(from), self.params.WidthInBytes)?;
            }
        }
        Ok(())
    }
}

/// Copies bytes that follow each other.
fn copy_row(to: Place, from: Place, bytes: usize) -> Result<(), AccessError> {
    match (to, from) {
        // SAFETY: not null and not too large, so `bytes` bytes that can be read, the caller promises.
        (Place::Device(to), Place::Host(from)) => STATE
            .memory
            .write(to, unsafe { std::slice::from_raw_parts(from, bytes) }),
        // SAFETY: not null and not too large, so `bytes` bytes that can be written, the caller promises.
        (Place::Host(to), Place::Device(from)) => STATE
            .memory
            .read(from, unsafe { std::slice::from_raw_parts_mut(to, bytes) }),
        (Place::Device(to), Place::Device(from)) => STATE.memory.copy(to, from, bytes as u64),
        (Place::Host(to), Place::Host(from)) => {
            // SAFETY: neither is null; the caller promises `bytes` bytes to read at one and to write at the other, and
            // they may overlap.
            unsafe { std::ptr::copy(from, to, bytes) };
            Ok(())
        }
    }
}

/// Refuses host memory that cannot be, and device memory that does not lie in one allocation.
fn check(place: Place, bytes: usize) -> Answer {
    let fits = match place {
        // No system has memory in the first page: that is a null pointer and an offset.
        Place::Host(host) => host.addr() >= 4096,
        Place::Device(address) => fits(address, bytes as u64),
    };
    if fits { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Whether an address is of the device's, allocated or freed: neither is one of the host's.
fn is_device(address: u64) -> bool {
    STATE.memory.knows(address)
}

fn fits(address: u64, bytes: u64) -> bool {
    if room::will_be(address, bytes) {
        return true;
    }
    let range = STATE.memory.range(address);
    range.is_some_and(|(base, size)| bytes <= size - (address - base))
}

/// Rows of copies of a value.
#[derive(Clone, Copy)]
pub(super) struct Fill(pub(super) CUDA_MEMSET_NODE_PARAMS);

impl Fill {
    /// A fill that can be done now.
    pub(super) fn new(params: CUDA_MEMSET_NODE_PARAMS) -> Answer<Fill> {
        let size = u64::from(params.elementSize);
        let row = params.width.checked_mul(params.elementSize as usize);
        let (true, Some(row)) = (matches!(size, 1 | 2 | 4) && params.dst.is_multiple_of(size), row) else {
            return Err(Code::INVALID_VALUE);
        };
        let rows_fit = params.height <= 1 || (params.pitch >= row && (params.pitch as u64).is_multiple_of(size));
        if !rows_fit {
            return Err(Code::INVALID_VALUE);
        }
        let bytes = params.height.saturating_sub(1).checked_mul(params.pitch);
        let bytes = bytes.and_then(|before| before.checked_add(row));
        let nothing = row == 0 || params.height == 0;
        if nothing || bytes.is_some_and(|bytes| fits(params.dst, bytes as u64)) {
            Ok(Fill(params))
        } else {
            Err(Code::INVALID_VALUE)
        }
    }

    /// Fills, row by row.
    pub(super) fn run(&self) -> Result<(), AccessError> {
        let params = &self.0;
        let bytes = params.value.to_le_bytes();
        let pattern = &bytes[..params.elementSize as usize];
        if params.width == 0 {
            return Ok(());
        }
        (0..params.height).try_for_each(|row| {
            let at = params.dst + row as u64 * params.pitch as u64;
            STATE.memory.fill(at, pattern, params.width as u64)
        })
    }
}
