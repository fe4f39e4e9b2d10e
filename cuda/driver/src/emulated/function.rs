//! Kernels as objects: each of one module, and of the module's context.

use super::device;
use super::module::Module;
use super::state::{Kind, Owner, STATE, lock};
use crate::codes::{Answer, Code};
use crate::types::c_int;
use ptx_emulator::EntryInfo;
use std::ffi::CString;
use std::sync::{Arc, Mutex};

pub(super) struct Function {
    pub(super) handle: usize,
    /// The handle of its context.
    pub(super) context: usize,
    pub(super) module: Arc<Module>,
    pub(super) info: EntryInfo,
    /// Its name, for callers who get a pointer.
    pub(super) name: CString,
    pub(super) settings: Mutex<Settings>,
}

/// What can be set of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    /// The most dynamic shared memory that a launch may ask for.
    pub(super) max_dynamic: u32,
    pub(super) carveout: c_int,
    pub(super) cluster_must_be_set: bool,
    /// Blocks of the cluster it must be launched in; zeros where any will do.
    pub(super) required_cluster: [u32; 3],
    pub(super) non_portable_cluster: bool,
    pub(super) scheduling: c_int,
}

impl Kind for Function {
    const WORDS: &'static str = "kernel";
    fn context(&self) -> usize {
        self.context
    }
    fn owner(&self) -> Owner {
        Owner::Object
    }
}

impl Function {
    fn new(handle: usize, module: Arc<Module>, info: EntryInfo) -> Function {
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

    /// The most dynamic shared memory that can be opted into.
    pub(super) fn dynamic_limit(&self) -> u32 {
        device::SHARED_OPT_IN.saturating_sub(self.info.static_shared)
    }
}

/// The handle of one of a module's kernels.
pub(super) fn of_module(module: &Arc<Module>, name: &str) -> Answer<usize> {
    let info = module.code.entry(name).ok_or(Code::NOT_FOUND)?.clone();
    let mut functions = lock(&module.functions);
    let handle = *functions.entry(name.to_owned()).or_insert_with(|| {
        let handle = STATE.fresh();
        STATE.insert(handle, Arc::new(Function::new(handle, module.clone(), info)));
        handle
    });
    Ok(handle)
}

/// Takes a module out of use, with its kernels.
pub(super) fn unload(module: &Module) -> Answer {
    STATE.remove::<Module>(module.handle)?;
    STATE.remove_kind(|function: &Function| function.module.handle == module.handle);
    Ok(())
}
