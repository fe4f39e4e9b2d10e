//! The kernels of a context, loaded a family at a time.

use super::CUfunction;
use super::module::load_module;
use super::ptx::{self, Replacement};
use crate::device::{Result, check, cust_error};
use cust::module::Module;
use cust::sys::{CUfunction_attribute_enum as Attribute, cuFuncGetAttribute, cuFuncSetAttribute};
use hopper_cuda_driver::ffi;
use kernels_gpu::instances::{Entry, Family};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Families of kernels, each loaded when it is first asked for.
#[derive(Debug)]
pub(super) struct Families {
    replaced: &'static [Replacement],
    loaded: [OnceLock<Loaded>; Family::ALL.len()],
    /// Held while a family is loaded: each is compiled once, however many threads ask for it.
    loading: Mutex<()>,
}

/// A family in a context.
#[derive(Debug)]
pub(super) struct Loaded {
    /// In the order of the family's entries.
    functions: Vec<CUfunction>,
    /// Keeps the functions alive.
    _module: Module,
}

// SAFETY: a CUfunction is a handle that the driver lets any thread use, as `Module` shows by being Send and Sync
// itself.
unsafe impl Send for Loaded {}
// SAFETY: no method changes the handles after loading, and the driver synchronises their use.
unsafe impl Sync for Loaded {}

impl Families {
    /// None of them loaded. The text of a family that `replaced` names comes from there.
    pub(super) fn new(replaced: &'static [Replacement]) -> Self {
        Families {
            replaced,
            loaded: [const { OnceLock::new() }; Family::ALL.len()],
            loading: Mutex::default(),
        }
    }

    /// Loads a family into the current context, unless that has been done. `test` comes before any other thread can see
    /// its functions.
    pub(super) fn load(&self, family: Family, test: impl FnOnce(&Loaded) -> Result<()>) -> Result<()> {
        let place = &self.loaded[family as usize];
        if place.get().is_some() {
            return Ok(());
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if place.get().is_none() {
            let loaded = Loaded::new(family, ptx::text(family, self.replaced))?;
            test(&loaded)?;
            // No other thread is here, so the place is still empty.
            let _ = place.set(loaded);
        }
        Ok(())
    }

    /// The function of an entry, if its family is loaded.
    pub(super) fn function(&self, family: Family, index: usize) -> Option<CUfunction> {
        self.loaded[family as usize]
            .get()
            .and_then(|loaded| loaded.function(index))
    }

    pub(super) fn is_loaded(&self, family: Family) -> bool {
        self.loaded[family as usize].get().is_some()
    }
}

impl Loaded {
    fn new(family: Family, ptx: &str) -> Result<Self> {
        let module = load_module(ptx)?;
        let functions = family.entries().map(|entry| function(&module, &entry));
        Ok(Loaded {
            functions: functions.collect::<Result<_>>()?,
            _module: module,
        })
    }

    /// The function of the family's entry at this place.
    pub(super) fn function(&self, index: usize) -> Option<CUfunction> {
        self.functions.get(index).copied()
    }
}

/// Finds an entry, lets it have the shared memory that it needs, and makes sure that its code is on the device: CUDA
/// may put that off to the first launch, which may be one that is captured.
fn function(module: &Module, entry: &Entry) -> Result<CUfunction> {
    let found = module.get_function(entry.name);
    let function = found.map_err(|err| cust_error("find a kernel", err))?.to_raw();
    let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the function was found in the module just now.
    let code = unsafe { cuFuncSetAttribute(function, attribute, entry.shared_bytes as i32) };
    check("raise a kernel's shared memory", code as u32)?;
    // SAFETY: the same function.
    let loaded = unsafe { ffi::cuFuncLoad(function.cast()) };
    match loaded {
        // Drivers older than CUDA 12.4 lack the call; to answer a question about the code, they load it.
        NOT_FOUND | NOT_SUPPORTED => {
            let mut registers = 0;
            // SAFETY: writes one number.
            let code =
                unsafe { cuFuncGetAttribute(&raw mut registers, Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS, function) };
            check("load a kernel", code as u32)?;
        }
        code => check("load a kernel", code)?,
    }
    Ok(function)
}

/// What a driver answers to a call that it lacks.
const NOT_FOUND: u32 = 500;
const NOT_SUPPORTED: u32 = 801;
