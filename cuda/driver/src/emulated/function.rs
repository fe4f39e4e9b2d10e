//! Kernels and their attributes.

use super::context::current;
use super::device;
use super::library;
use super::module::Module;
use super::state::{STATE, lock, pointer, put, put_if_wanted};
use crate::codes::{Answer, Code};
use crate::types::{function_attribute as attribute, *};
use ptx_emulator::EntryInfo;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

/// sm_90, as `PTX_VERSION` and `BINARY_VERSION` have it.
const ARCHITECTURE: c_int = 90;

pub(super) struct Function {
    pub(super) handle: usize,
    /// The handle of its context.
    pub(super) context: usize,
    pub(super) module: Arc<Module>,
    pub(super) info: EntryInfo,
    /// Its name, for callers who get a pointer.
    name: CString,
    pub(super) settings: Mutex<Settings>,
}

/// What can be set of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    /// The most dynamic shared memory that a launch may ask for.
    pub(super) max_dynamic: u32,
    carveout: c_int,
    pub(super) cluster_must_be_set: bool,
    /// Blocks of the cluster it must be launched in; zeros where any will do.
    pub(super) required_cluster: [u32; 3],
    pub(super) non_portable_cluster: bool,
    scheduling: c_int,
}

impl Function {
    pub(super) fn new(handle: usize, module: Arc<Module>, info: EntryInfo) -> Function {
        let settings = Settings {
            max_dynamic: device::SHARED_DEFAULT.saturating_sub(info.static_shared),
            carveout: -1,
            cluster_must_be_set: info.required_cluster.is_some(),
            required_cluster: info.required_cluster.unwrap_or([0; 3]),
            non_portable_cluster: false,
            scheduling: 0,
        };
        Function {
            handle,
            context: module.context,
            module,
            // A name in PTX has no zero byte.
            name: CString::new(info.name.as_str()).unwrap_or_default(),
            info,
            settings: Mutex::new(settings),
        }
    }

    /// The most threads that a block may have.
    pub(super) fn max_threads(&self) -> u32 {
        let bound = self
            .info
            .max_threads
            .map_or(u32::MAX, |dims| dims.iter().copied().fold(1, u32::saturating_mul));
        bound.min(device::MAX_BLOCK_THREADS)
    }

    /// The most dynamic shared memory that it can be allowed.
    fn dynamic_limit(&self) -> u32 {
        device::SHARED_OPT_IN.saturating_sub(self.info.static_shared)
    }
}

/// A kernel of the current context.
pub(super) fn find(function: CUfunction) -> Answer<Arc<Function>> {
    let context = current()?;
    let function = match STATE.find::<Function>(function.addr()) {
        Ok(function) => function,
        // A kernel of a library stands for its function in the current context.
        Err(_) => library::function_of(function.addr(), &context)?,
    };
    if function.context == context.context {
        Ok(function)
    } else {
        Err(Code::INVALID_HANDLE)
    }
}

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
