//! Copies and fills of bytes that follow each other. On a stream, each is done in the stream's order.

use super::stream;
use crate::codes::Answer;
use crate::emulated::capture;
use crate::emulated::copy::{Copy, Fill, Place, linear};
use crate::emulated::host;
use crate::emulated::order::{self, DEFAULT};
use crate::emulated::submit::submit;
use crate::emulated::task::Task;
use crate::types::*;

/// Queues a copy of bytes that follow each other.
fn queue(to: Place, from: Place, bytes: usize, stream: CUstream) -> Answer {
    let target = order::here(stream)?;
    let task = if bytes == 0 {
        Task::Empty
    } else {
        Task::Copy(Box::new(Copy::new(linear(to, from, bytes))?))
    };
    let ticket = submit(target, task)?;
    let pageable = |place| matches!(place, Place::Host(host) if !host::is_page_locked(host));
    if let Some(ticket) = ticket
        && (pageable(to) || pageable(from))
    {
        // As on a device: only page-locked memory is read and written behind the caller's back.
        ticket.wait();
    }
    Ok(())
}

pub(crate) unsafe fn host_to_device_async(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    queue(Place::Device(to), Place::Host(from.cast_mut().cast()), bytes, stream)
}

pub(crate) unsafe fn device_to_host_async(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    queue(Place::Host(to.cast()), Place::Device(from), bytes, stream)
}

pub(crate) unsafe fn device_to_device_async(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    queue(Place::Device(to), Place::Device(from), bytes, stream)
}

/// Copies for which the host waits, from those that name a stream.
macro_rules! synchronous {
    ($($name:ident($($argument:ident: $type:ty),*) = $on_stream:ident;)*) => {
        $(pub(crate) unsafe fn $name($($argument: $type),*) -> Answer {
            capture::forbid_synchronous()?;
            // SAFETY: the caller keeps the same promises.
            unsafe {
                $on_stream($($argument,)* DEFAULT)?;
                stream::synchronize(DEFAULT)
            }
        })*
    };
}

/// Fills, one pair per size of value: on a stream, and on the default one.
macro_rules! fills {
    ($($on_stream:ident $name:ident $type:ty;)*) => {
        $(
            pub(crate) unsafe fn $on_stream(
                address: CUdeviceptr,
                value: $type,
                count: usize,
                stream: CUstream,
            ) -> Answer {
                let target = order::here(stream)?;
                let fill = Fill::new(CUDA_MEMSET_NODE_PARAMS {
                    dst: address,
                    pitch: 0,
                    value: value.into(),
                    elementSize: size_of::<$type>() as c_uint,
                    width: count,
                    height: 1,
                })?;
                submit(target, if count == 0 { Task::Empty } else { Task::Fill(fill) }).map(|_| ())
            }

            pub(crate) unsafe fn $name(address: CUdeviceptr, value: $type, count: usize) -> Answer {
                // SAFETY: the caller keeps the same promises.
                unsafe { $on_stream(address, value, count, DEFAULT) }
            }
        )*
    };
}

fills! {
    fill_8_async fill_8 c_uchar;
    fill_16_async fill_16 c_ushort;
    fill_32_async fill_32 c_uint;
}

synchronous! {
    host_to_device(to: CUdeviceptr, from: *const c_void, bytes: usize) = host_to_device_async;
    device_to_host(to: *mut c_void, from: CUdeviceptr, bytes: usize) = device_to_host_async;
    device_to_device(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) = device_to_device_async;
}
