//! Copies and fills. Each is done within its call, in its stream's order.

use super::state::{STATE, lock};
use super::stream;
use crate::codes::{Answer, Code};
use crate::types::*;
use ptx_emulator::{AccessError, Memory};

/// The stream of the calls that name none.
const DEFAULT: CUstream = std::ptr::null_mut();

/// Does a piece of work on device memory in a stream's order.
fn in_order(stream: CUstream, work: impl FnOnce(&Memory) -> Result<(), AccessError>) -> Answer {
    let (context, stream) = stream::here(stream)?;
    let mut running = lock(&context.work);
    running.interrupt(&stream);
    work(&STATE.memory).map_err(|_| Code::INVALID_VALUE)
}

/// Refuses host memory that cannot be: null, or larger than an address space.
fn check_host(host: *const c_void, bytes: usize) -> Answer {
    if host.is_null() || bytes > isize::MAX as usize {
        Err(Code::INVALID_VALUE)
    } else {
        Ok(())
    }
}

pub(crate) unsafe fn host_to_device_async(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    if bytes == 0 {
        return in_order(stream, |_| Ok(()));
    }
    check_host(from, bytes)?;
    in_order(stream, |memory| {
        // SAFETY: not null and not too large, so `bytes` bytes that can be read, the caller promises.
        memory.write(to, unsafe { std::slice::from_raw_parts(from.cast(), bytes) })
    })
}

pub(crate) unsafe fn device_to_host_async(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    if bytes == 0 {
        return in_order(stream, |_| Ok(()));
    }
    check_host(to, bytes)?;
    in_order(stream, |memory| {
        // SAFETY: not null and not too large, so `bytes` bytes that can be written, the caller promises.
        memory.read(from, unsafe { std::slice::from_raw_parts_mut(to.cast(), bytes) })
    })
}

pub(crate) unsafe fn device_to_device_async(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    in_order(stream, |memory| {
        if bytes == 0 {
            Ok(())
        } else {
            memory.copy(to, from, bytes as u64)
        }
    })
}

/// Fills with copies of a value of `N` bytes, at an address that is a multiple of `N`.
fn fill<const N: usize>(address: CUdeviceptr, value: [u8; N], count: usize, stream: CUstream) -> Answer {
    if !address.is_multiple_of(N as u64) || count.checked_mul(N).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    in_order(stream, |memory| {
        if count == 0 {
            Ok(())
        } else {
            memory.fill(address, &value, count as u64)
        }
    })
}

/// The calls that name no stream, from those that do.
macro_rules! on_default_stream {
    ($($name:ident($($argument:ident: $type:ty),*) = $on_stream:ident;)*) => {
        $(pub(crate) unsafe fn $name($($argument: $type),*) -> Answer {
            // SAFETY: the caller keeps the same promises.
            unsafe { $on_stream($($argument,)* DEFAULT) }
        })*
    };
}

/// Fills, one per size of value.
macro_rules! fills {
    ($($name:ident $type:ty;)*) => {
        $(pub(crate) unsafe fn $name(address: CUdeviceptr, value: $type, count: usize, stream: CUstream) -> Answer {
            fill(address, value.to_ne_bytes(), count, stream)
        })*
    };
}

fills! {
    fill_8_async c_uchar;
    fill_16_async c_ushort;
    fill_32_async c_uint;
}

on_default_stream! {
    host_to_device(to: CUdeviceptr, from: *const c_void, bytes: usize) = host_to_device_async;
    device_to_host(to: *mut c_void, from: CUdeviceptr, bytes: usize) = device_to_host_async;
    device_to_device(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) = device_to_device_async;
    fill_8(address: CUdeviceptr, value: c_uchar, count: usize) = fill_8_async;
    fill_16(address: CUdeviceptr, value: c_ushort, count: usize) = fill_16_async;
    fill_32(address: CUdeviceptr, value: c_uint, count: usize) = fill_32_async;
}
