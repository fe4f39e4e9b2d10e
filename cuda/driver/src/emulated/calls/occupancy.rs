//! What callers ask about occupancy.

use super::launch::Request;
use crate::codes::{Answer, Code};
use crate::emulated::device::*;
use crate::emulated::library::function as find;
use crate::emulated::occupancy::{SHARED_UNIT, clusters_of, per_sm};
use crate::emulated::state::{lock, put};
use crate::types::*;

/// A number of threads as the API passes it.
fn threads(block_size: c_int) -> Answer<u32> {
    u32::try_from(block_size)
        .ok()
        .filter(|&threads| threads > 0)
        .ok_or(Code::INVALID_VALUE)
}

fn bytes(dynamic_shared: usize) -> u32 {
    u32::try_from(dynamic_shared).unwrap_or(u32::MAX)
}

pub(crate) unsafe fn blocks(
    blocks: *mut c_int,
    function: CUfunction,
    block_size: c_int,
    dynamic_shared: usize,
) -> Answer {
    let function = find(function)?;
    let answer = per_sm(&function, threads(block_size)?, bytes(dynamic_shared));
    // SAFETY: the caller promises that `blocks` is valid for a write.
    unsafe { put(blocks, answer as c_int) }
}

pub(crate) unsafe fn blocks_with_flags(
    blocks: *mut c_int,
    function: CUfunction,
    block_size: c_int,
    dynamic_shared: usize,
    flags: c_uint,
) -> Answer {
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller keeps the same promise.
    unsafe { self::blocks(blocks, function, block_size, dynamic_shared) }
}

pub(crate) unsafe fn potential_block_size(
    min_grid: *mut c_int,
    block_size: *mut c_int,
    function: CUfunction,
    dynamic_shared_of: CUoccupancyB2DSize,
    dynamic_shared: usize,
    limit: c_int,
) -> Answer {
    let function = find(function)?;
    let limit = match u32::try_from(limit).map_err(|_| Code::INVALID_VALUE)? {
        0 => function.max_threads(),
        limit => limit.min(function.max_threads()),
    };
    let sizes = (1..=limit.div_ceil(WARP)).map(|warps| (warps * WARP).min(limit));
    let fitting = sizes.map(|threads| {
        let dynamic = match dynamic_shared_of {
            // SAFETY: the caller promises a function of the block size.
            Some(of) => unsafe { of(threads as c_int) },
            None => dynamic_shared,
        };
        (threads, per_sm(&function, threads, bytes(dynamic)))
    });
    let (threads, blocks) = fitting
        .max_by_key(|&(threads, blocks)| threads * blocks)
        .unwrap_or((0, 0));
    // SAFETY: the caller promises that both are valid for a write.
    unsafe {
        put(min_grid, (blocks * sms()) as c_int)?;
        put(block_size, threads as c_int)
    }
}

pub(crate) unsafe fn potential_block_size_with_flags(
    min_grid: *mut c_int,
    block_size: *mut c_int,
    function: CUfunction,
    dynamic_shared_of: CUoccupancyB2DSize,
    dynamic_shared: usize,
    limit: c_int,
    flags: c_uint,
) -> Answer {
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller keeps the same promises.
    unsafe { potential_block_size(min_grid, block_size, function, dynamic_shared_of, dynamic_shared, limit) }
}

pub(crate) unsafe fn available_shared(
    bytes: *mut usize,
    function: CUfunction,
    blocks: c_int,
    block_size: c_int,
) -> Answer {
    let function = find(function)?;
    let (blocks, threads) = (threads(blocks)?, threads(block_size)?);
    if per_sm(&function, threads, 0) < blocks {
        return Err(Code::INVALID_VALUE);
    }
    let block = SHARED_SM / blocks / SHARED_UNIT * SHARED_UNIT;
    let most = block.saturating_sub(SHARED_RESERVED).min(SHARED_OPT_IN);
    // SAFETY: the caller promises that `bytes` is valid for a write.
    unsafe { put(bytes, most.saturating_sub(function.info.static_shared) as usize) }
}

pub(crate) unsafe fn clusters(clusters: *mut c_int, function: CUfunction, config: *const CUlaunchConfig) -> Answer {
    let function = find(function)?;
    // SAFETY: the caller promises that `config` is null or valid.
    let shape = unsafe { Request::read(config) }?.shape;
    // CUDA counts no clusters whose size neither the configuration nor the kernel says.
    if shape.cluster.is_none() && lock(&function.settings).required_cluster == [0; 3] {
        return Err(Code::INVALID_VALUE);
    }
    let size = shape.check(&function)?.iter().product();
    let per_sm = per_sm(&function, shape.block.iter().product(), shape.dynamic_shared);
    // SAFETY: the caller promises that `clusters` is valid for a write.
    unsafe { put(clusters, clusters_of(size, per_sm) as c_int) }
}

pub(crate) unsafe fn potential_cluster_size(
    size: *mut c_int,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> Answer {
    let function = find(function)?;
    // SAFETY: the caller promises that `config` is null or valid.
    let shape = unsafe { Request::read(config) }?.shape;
    let threads = shape.block.iter().copied().fold(1, u32::saturating_mul);
    let per_sm = per_sm(&function, threads, shape.dynamic_shared);
    let most = if lock(&function.settings).non_portable_cluster {
        CLUSTER_MAX
    } else {
        CLUSTER_PORTABLE
    };
    let answer = (1..=most)
        .rev()
        .find(|&size| size.is_power_of_two() && clusters_of(size, per_sm) > 0);
    // SAFETY: the caller promises that `size` is valid for a write.
    unsafe { put(size, answer.ok_or(Code::INVALID_VALUE)? as c_int) }
}
