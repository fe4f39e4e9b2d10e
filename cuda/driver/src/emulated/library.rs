//! Libraries as objects: modules of no context, which are loaded into each context that uses one of their kernels.

use super::context::{Context, current, ready};
use super::function::{self, Function};
use super::jit::Refusal;
use super::module::{self, Module};
use super::state::{Kind, Owner, STATE, lock, pointer};
use crate::codes::{Answer, Code};
use crate::types::*;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, Weak};

pub(super) struct Library {
    pub(super) handle: usize,
    /// Libraries are of no context.
    pub(super) context: usize,
    text: String,
    /// The names of its kernels, in the order of the text.
    pub(super) names: Vec<String>,
    /// The module that it is in a context, by their handles.
    pub(super) modules: Mutex<HashMap<usize, usize>>,
    /// The handles of the kernels asked for so far.
    kernels: Mutex<HashMap<String, usize>>,
}

/// A kernel of a library: it stands for one function in each context.
pub(super) struct LibraryKernel {
    /// Kernels of libraries are of no context either.
    pub(super) context: usize,
    pub(super) name: CString,
    pub(super) owner: Weak<Library>,
}

impl Kind for Library {
    const WORDS: &'static str = "library";
    fn context(&self) -> usize {
        self.context
    }
}

impl Kind for LibraryKernel {
    const WORDS: &'static str = "kernel of a library";
    fn context(&self) -> usize {
        self.context
    }
    fn owner(&self) -> Owner {
        Owner::Object
    }
}

pub(super) fn find(library: CUlibrary) -> Answer<Arc<Library>> {
    ready()?;
    STATE.find(library.addr())
}

pub(super) fn find_kernel(kernel: CUkernel) -> Answer<(Arc<LibraryKernel>, Arc<Library>)> {
    ready()?;
    let kernel = STATE.find::<LibraryKernel>(kernel.addr())?;
    let library = kernel.owner.upgrade().ok_or(Code::INVALID_HANDLE)?;
    Ok((kernel, library))
}

impl Library {
    /// A library that can be found by this handle once it is in the table.
    pub(super) fn new(handle: usize, text: String, names: Vec<String>) -> Arc<Library> {
        Arc::new(Library {
            handle,
            context: 0,
            text,
            names,
            modules: Mutex::default(),
            kernels: Mutex::default(),
        })
    }

    /// The module that it is in a context, loaded if need be.
    pub(super) fn module(&self, context: &Context) -> Answer<Arc<Module>> {
        let mut modules = lock(&self.modules);
        if let Some(&handle) = modules.get(&context.context)
            && let Ok(module) = STATE.find::<Module>(handle)
        {
            return Ok(module);
        }
        let code = module::parse(&self.text).map_err(Refusal::told)?;
        let module = Module::new(context.context, code);
        modules.insert(context.context, module.handle);
        Ok(module)
    }

    pub(super) fn kernel(self: &Arc<Self>, name: &str) -> Answer<usize> {
        if !self.names.iter().any(|known| known == name) {
            return Err(Code::NOT_FOUND);
        }
        let mut kernels = lock(&self.kernels);
        if let Some(&handle) = kernels.get(name) {
            return Ok(handle);
        }
        let handle = STATE.fresh();
        let kernel = LibraryKernel {
            context: 0,
            name: CString::new(name).map_err(|_| Code::NOT_FOUND)?,
            owner: Arc::downgrade(self),
        };
        STATE.insert(handle, Arc::new(kernel));
        kernels.insert(name.to_owned(), handle);
        Ok(handle)
    }
}

/// The function that a kernel of a library is in a context.
pub(super) fn function_of(kernel: usize, context: &Context) -> Answer<Arc<Function>> {
    let (kernel, library) = find_kernel(pointer(kernel))?;
    let name = kernel.name.to_str().map_err(|_| Code::NOT_FOUND)?;
    STATE.find(function::of_module(&library.module(context)?, name)?)
}

/// A kernel of the current context, by the handle of its function or of a library's kernel.
pub(super) fn function(function: CUfunction) -> Answer<Arc<Function>> {
    let context = current()?;
    let function = match STATE.find::<Function>(function.addr()) {
        Ok(function) => function,
        // A kernel of a library stands for its function in the current context.
        Err(_) => function_of(function.addr(), &context)?,
    };
    if function.context == context.context {
        Ok(function)
    } else {
        Err(Code::INVALID_HANDLE)
    }
}
