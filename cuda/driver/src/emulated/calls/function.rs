//! Kernels: their attributes, names and parameters.

use crate::codes::{Answer, Code};
use crate::emulated::device;
use crate::emulated::library::function as find;
use crate::emulated::state::{lock, pointer, put, put_if_wanted};
use crate::types::{function_attribute as attribute, *};

/// sm_90, as `PTX_VERSION` and `BINARY_VERSION` have it.
const ARCHITECTURE: c_int = 90;

pub(crate) unsafe fn get_attribute(value: *mut c_int, which: c_uint, function: CUfunction) -> Answer {
    let function = find(function)?;
    let settings = *lock(&function.settings);
    let answer = match which {
        attribute::MAX_THREADS_PER_BLOCK => function.max_threads() as c_int,
        attribute::SHARED_SIZE_BYTES => function.info.static_shared as c_int,
        attribute::CONST_SIZE_BYTES | attribute::LOCAL_SIZE_BYTES | attribute::CACHE_MODE_CA => 0,
        attribute::NUM_REGS => function.info.registers as c_int,
        attribute::PTX_VERSION | attribute::BINARY_VERSION => ARCHITECTURE,
        attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => settings.max_dynamic as c_int,
        attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => settings.carveout,
        attribute::CLUSTER_SIZE_MUST_BE_SET => c_int::from(settings.cluster_must_be_set),
        attribute::REQUIRED_CLUSTER_WIDTH => settings.required_cluster[0] as c_int,
        attribute::REQUIRED_CLUSTER_HEIGHT => settings.required_cluster[1] as c_int,
        attribute::REQUIRED_CLUSTER_DEPTH => settings.required_cluster[2] as c_int,
        attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => c_int::from(settings.non_portable_cluster),
        attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE => settings.scheduling,
        _ => return Err(Code::INVALID_VALUE),
    };
    // SAFETY: the caller promises that `value` is valid for a write.
    unsafe { put(value, answer) }
}

/// The value, if it is one of those allowed.
fn within(value: c_int, allowed: std::ops::RangeInclusive<c_int>) -> Answer<c_int> {
    if allowed.contains(&value) {
        Ok(value)
    } else {
        Err(Code::INVALID_VALUE)
    }
}

pub(crate) unsafe fn set_attribute(function: CUfunction, which: c_uint, value: c_int) -> Answer {
    let function = find(function)?;
    let mut settings = lock(&function.settings);
    // What the kernel's own text requires of its clusters cannot be set.
    let free_cluster = || {
        if function.info.required_cluster.is_none() {
            Ok(())
        } else {
            Err(Code::NOT_PERMITTED)
        }
    };
    match which {
        attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            settings.max_dynamic = within(value, 0..=function.dynamic_limit() as c_int)? as u32;
        }
        attribute::PREFERRED_SHARED_MEMORY_CARVEOUT => settings.carveout = within(value, -1..=100)?,
        attribute::CLUSTER_SIZE_MUST_BE_SET => {
            free_cluster()?;
            settings.cluster_must_be_set = within(value, 0..=1)? == 1;
        }
        attribute::REQUIRED_CLUSTER_WIDTH | attribute::REQUIRED_CLUSTER_HEIGHT | attribute::REQUIRED_CLUSTER_DEPTH => {
            free_cluster()?;
            let axis = (which - attribute::REQUIRED_CLUSTER_WIDTH) as usize;
            settings.required_cluster[axis] = within(value, 0..=c_int::MAX)? as u32;
        }
        attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED => settings.non_portable_cluster = within(value, 0..=1)? == 1,
        attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE => settings.scheduling = within(value, 0..=2)?,
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn set_cache_config(function: CUfunction, config: c_uint) -> Answer {
    find(function)?;
    device::check_cache_config(config).map(|_| ())
}

pub(crate) unsafe fn set_shared_config(function: CUfunction, config: c_uint) -> Answer {
    find(function)?;
    device::check_shared_config(config).map(|_| ())
}

pub(crate) unsafe fn module(module: *mut CUmodule, function: CUfunction) -> Answer {
    let function = find(function)?;
    // SAFETY: the caller promises that `module` is valid for a write.
    unsafe { put(module, pointer(function.module.handle)) }
}

/// The name is good as long as the module.
pub(crate) unsafe fn name(name: *mut *const c_char, function: CUfunction) -> Answer {
    let function = find(function)?;
    // SAFETY: the caller promises that `name` is valid for a write.
    unsafe { put(name, function.name.as_ptr()) }
}

pub(crate) unsafe fn param_count(function: CUfunction, count: *mut usize) -> Answer {
    let function = find(function)?;
    // SAFETY: the caller promises that `count` is valid for a write.
    unsafe { put(count, function.info.params.len()) }
}

pub(crate) unsafe fn param_info(function: CUfunction, at: usize, offset: *mut usize, size: *mut usize) -> Answer {
    let function = find(function)?;
    let parameter = function.info.params.get(at).ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the caller promises that `offset` is valid for a write and `size` null or valid.
    unsafe {
        put(offset, parameter.offset as usize)?;
        put_if_wanted(size, parameter.size as usize);
    }
    Ok(())
}

/// `CU_FUNCTION_LOADING_STATE_LOADED`: a kernel is there once its module is.
pub(crate) unsafe fn is_loaded(state: *mut c_uint, function: CUfunction) -> Answer {
    find(function)?;
    // SAFETY: the caller promises that `state` is valid for a write.
    unsafe { put(state, 1) }
}

pub(crate) unsafe fn load(function: CUfunction) -> Answer {
    find(function).map(|_| ())
}
