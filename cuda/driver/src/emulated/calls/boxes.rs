//! Copies and fills of rows and boxes, copies between contexts, and copies whose addresses say what they are.

use super::stream;
use crate::codes::{Answer, Code};
use crate::emulated::capture;
use crate::emulated::context::named;
use crate::emulated::copy::{Copy, Fill};
use crate::emulated::host;
use crate::emulated::order::{self, DEFAULT};
use crate::emulated::submit::submit;
use crate::emulated::task::Task;
use crate::types::*;

impl From<&CUDA_MEMCPY2D> for CUDA_MEMCPY3D {
    fn from(rows: &CUDA_MEMCPY2D) -> Self {
        CUDA_MEMCPY3D {
            srcXInBytes: rows.srcXInBytes,
            srcY: rows.srcY,
            srcMemoryType: rows.srcMemoryType,
            srcHost: rows.srcHost,
            srcDevice: rows.srcDevice,
            srcArray: rows.srcArray,
            srcPitch: rows.srcPitch,
            dstXInBytes: rows.dstXInBytes,
            dstY: rows.dstY,
            dstMemoryType: rows.dstMemoryType,
            dstHost: rows.dstHost,
            dstDevice: rows.dstDevice,
            dstArray: rows.dstArray,
            dstPitch: rows.dstPitch,
            WidthInBytes: rows.WidthInBytes,
            Height: rows.Height,
            Depth: 1,
            ..CUDA_MEMCPY3D::default()
        }
    }
}

/// Queues a copy. Pitches of zero mean rows that follow each other.
fn queue(mut copy: CUDA_MEMCPY3D, stream: CUstream) -> Answer {
    let target = order::here(stream)?;
    for (pitch, height) in [
        (&mut copy.srcPitch, &mut copy.srcHeight),
        (&mut copy.dstPitch, &mut copy.dstHeight),
    ] {
        if *pitch == 0 {
            *pitch = copy.WidthInBytes;
        }
        if *height == 0 {
            *height = copy.Height;
        }
    }
    let new = Copy::new(copy)?;
    let pageable = new.hosts().any(|host| !host::is_page_locked(host));
    let nothing = copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0;
    let task = if nothing {
        Task::Empty
    } else {
        Task::Copy(Box::new(new))
    };
    if let Some(ticket) = submit(target, task)?
        && pageable
    {
        // As on a device: only page-locked memory is read and written behind the caller's back.
        ticket.wait();
    }
    Ok(())
}

/// Queues a copy on the default stream, and waits for it.
fn do_now(copy: CUDA_MEMCPY3D) -> Answer {
    capture::forbid_synchronous()?;
    queue(copy, DEFAULT)?;
    // SAFETY: asks nothing of the caller.
    unsafe { stream::synchronize(DEFAULT) }
}

/// # Safety
///
/// `copy` must be null or valid.
unsafe fn rows(copy: *const CUDA_MEMCPY2D) -> Answer<CUDA_MEMCPY3D> {
    // SAFETY: null or valid, the caller promises.
    unsafe { copy.as_ref() }
        .map(CUDA_MEMCPY3D::from)
        .ok_or(Code::INVALID_VALUE)
}

pub(crate) unsafe fn copy_rows(copy: *const CUDA_MEMCPY2D) -> Answer {
    // SAFETY: the caller keeps the same promise.
    do_now(unsafe { rows(copy) }?)
}

pub(crate) unsafe fn copy_rows_async(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Answer {
    // SAFETY: the caller keeps the same promise.
    queue(unsafe { rows(copy) }?, stream)
}

pub(crate) unsafe fn copy_box(copy: *const CUDA_MEMCPY3D) -> Answer {
    // SAFETY: null or valid, the caller promises.
    do_now(*unsafe { copy.as_ref() }.ok_or(Code::INVALID_VALUE)?)
}

pub(crate) unsafe fn copy_box_async(copy: *const CUDA_MEMCPY3D, stream: CUstream) -> Answer {
    // SAFETY: null or valid, the caller promises.
    queue(*unsafe { copy.as_ref() }.ok_or(Code::INVALID_VALUE)?, stream)
}

/// One device has all contexts, and an address is good in each: what is left of a copy between contexts is a copy.
///
/// # Safety
///
/// `copy` must be null or valid.
unsafe fn between(copy: *const CUDA_MEMCPY3D_PEER) -> Answer<CUDA_MEMCPY3D> {
    // SAFETY: null or valid, the caller promises.
    let peers = unsafe { copy.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    for context in peers.contexts() {
        named(context)?.check()?;
    }
    Ok(CUDA_MEMCPY3D {
        reserved0: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        ..peers.copy
    })
}

pub(crate) unsafe fn copy_box_between(copy: *const CUDA_MEMCPY3D_PEER) -> Answer {
    // SAFETY: the caller keeps the same promise.
    do_now(unsafe { between(copy) }?)
}

pub(crate) unsafe fn copy_box_between_async(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> Answer {
    // SAFETY: the caller keeps the same promise.
    queue(unsafe { between(copy) }?, stream)
}

/// Bytes that follow each other, at addresses that say what they are.
fn linear(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: memory_type::UNIFIED,
        srcDevice: from,
        dstMemoryType: memory_type::UNIFIED,
        dstDevice: to,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    }
}

pub(crate) unsafe fn copy_any(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Answer {
    do_now(linear(to, from, bytes))
}

pub(crate) unsafe fn copy_any_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Answer {
    queue(linear(to, from, bytes), stream)
}

pub(crate) unsafe fn copy_between(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> Answer {
    for context in [to_context, from_context] {
        named(context)?.check()?;
    }
    do_now(linear(to, from, bytes))
}

pub(crate) unsafe fn copy_between_async(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    for context in [to_context, from_context] {
        named(context)?.check()?;
    }
    queue(linear(to, from, bytes), stream)
}

/// Fills of rows, one pair per size of value: on a stream, and on the default one.
macro_rules! fills {
    ($($on_stream:ident $name:ident $type:ty;)*) => {
        $(
            pub(crate) unsafe fn $on_stream(
                address: CUdeviceptr,
                pitch: usize,
                value: $type,
                width: usize,
                height: usize,
                stream: CUstream,
            ) -> Answer {
                let target = order::here(stream)?;
                let fill = Fill::new(CUDA_MEMSET_NODE_PARAMS {
                    dst: address,
                    pitch,
                    value: value.into(),
                    elementSize: size_of::<$type>() as c_uint,
                    width,
                    height,
                })?;
                let nothing = width == 0 || height == 0;
                submit(target, if nothing { Task::Empty } else { Task::Fill(fill) }).map(|_| ())
            }

            pub(crate) unsafe fn $name(
                address: CUdeviceptr,
                pitch: usize,
                value: $type,
                width: usize,
                height: usize,
            ) -> Answer {
                // SAFETY: the caller keeps the same promises.
                unsafe { $on_stream(address, pitch, value, width, height, DEFAULT) }
            }
        )*
    };
}

fills! {
    fill_8_async fill_8 c_uchar;
    fill_16_async fill_16 c_ushort;
    fill_32_async fill_32 c_uint;
}
