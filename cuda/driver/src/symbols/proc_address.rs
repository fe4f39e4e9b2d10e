//! `cuGetProcAddress`: functions by name. Written by hand, because it answers with this crate's own symbols whichever
//! driver is in use, and asks NVIDIA's library only for functions that this crate does not define.

use crate::codes::{Answer, Code};
use crate::select::{Driver, driver_of_call};
use crate::symbols::exports;
use crate::symbols::since::since;
use crate::table::{Callers, Export, Way, told, way};
use crate::types::*;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{LazyLock, OnceLock};

/// `CUdriverProcAddressQueryResult`: found.
const FOUND: c_uint = 0;
/// `CUdriverProcAddressQueryResult`: no such function.
const SYMBOL_NOT_FOUND: c_uint = 1;
/// `CUdriverProcAddressQueryResult`: there is one, but not in the version asked for.
const VERSION_NOT_SUFFICIENT: c_uint = 2;
/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`, `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// Functions whose arguments changed: since which version of CUDA a name has meant which symbol. A symbol that this
/// crate does not define is NVIDIA's to give.
const CHANGED: &[(&str, c_int, &str)] = &[
    ("cuCtxCreate", 0, "cuCtxCreate_v2"),
    ("cuCtxCreate", 11040, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12050, "cuCtxCreate_v4"),
    ("cuCtxGetDevice", 0, "cuCtxGetDevice"),
    ("cuCtxGetDevice", 13000, "cuCtxGetDevice_v2"),
    ("cuCtxSynchronize", 0, "cuCtxSynchronize"),
    ("cuCtxSynchronize", 13000, "cuCtxSynchronize_v2"),
    ("cuGetProcAddress", 0, "cuGetProcAddress"),
    ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
    ("cuGraphAddDependencies", 0, "cuGraphAddDependencies"),
    ("cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"),
    ("cuGraphAddKernelNode", 0, "cuGraphAddKernelNode"),
    ("cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"),
    ("cuGraphAddNode", 12020, "cuGraphAddNode"),
    ("cuGraphAddNode", 12030, "cuGraphAddNode_v2"),
    ("cuGraphExecKernelNodeSetParams", 0, "cuGraphExecKernelNodeSetParams"),
    (
        "cuGraphExecKernelNodeSetParams",
        12000,
        "cuGraphExecKernelNodeSetParams_v2",
    ),
    ("cuGraphExecUpdate", 0, "cuGraphExecUpdate"),
    ("cuGraphExecUpdate", 12000, "cuGraphExecUpdate_v2"),
    ("cuGraphGetEdges", 0, "cuGraphGetEdges"),
    ("cuGraphGetEdges", 12030, "cuGraphGetEdges_v2"),
    ("cuGraphInstantiate", 0, "cuGraphInstantiate_v2"),
    ("cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"),
    ("cuGraphKernelNodeGetParams", 0, "cuGraphKernelNodeGetParams"),
    ("cuGraphKernelNodeGetParams", 12000, "cuGraphKernelNodeGetParams_v2"),
    ("cuGraphKernelNodeSetParams", 0, "cuGraphKernelNodeSetParams"),
    ("cuGraphKernelNodeSetParams", 12000, "cuGraphKernelNodeSetParams_v2"),
    ("cuGraphNodeGetDependencies", 0, "cuGraphNodeGetDependencies"),
    ("cuGraphNodeGetDependencies", 12030, "cuGraphNodeGetDependencies_v2"),
    ("cuGraphNodeGetDependentNodes", 0, "cuGraphNodeGetDependentNodes"),
    ("cuGraphNodeGetDependentNodes", 12030, "cuGraphNodeGetDependentNodes_v2"),
    ("cuGraphRemoveDependencies", 0, "cuGraphRemoveDependencies"),
    ("cuGraphRemoveDependencies", 12030, "cuGraphRemoveDependencies_v2"),
    ("cuMemAdvise", 0, "cuMemAdvise"),
    ("cuMemAdvise", 12020, "cuMemAdvise_v2"),
    ("cuMemcpy3DBatchAsync", 12080, "cuMemcpy3DBatchAsync"),
    ("cuMemcpy3DBatchAsync", 13000, "cuMemcpy3DBatchAsync_v2"),
    ("cuMemcpyBatchAsync", 12080, "cuMemcpyBatchAsync"),
    ("cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2"),
    ("cuMemPrefetchAsync", 0, "cuMemPrefetchAsync"),
    ("cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"),
    ("cuTexRefSetAddress2D", 0, "cuTexRefSetAddress2D_v3"),
    ("cuStreamGetCtx", 0, "cuStreamGetCtx"),
    ("cuStreamGetCtx", 12050, "cuStreamGetCtx_v2"),
    ("cuStreamGetCaptureInfo", 0, "cuStreamGetCaptureInfo"),
    ("cuStreamGetCaptureInfo", 11030, "cuStreamGetCaptureInfo_v2"),
    ("cuStreamGetCaptureInfo", 12030, "cuStreamGetCaptureInfo_v3"),
    (
        "cuStreamUpdateCaptureDependencies",
        0,
        "cuStreamUpdateCaptureDependencies",
    ),
    (
        "cuStreamUpdateCaptureDependencies",
        12030,
        "cuStreamUpdateCaptureDependencies_v2",
    ),
];

/// This crate's own symbol of a name.
fn export(name: &str) -> Option<&'static Export> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Export>> =
        LazyLock::new(|| exports().map(|export| (export.name, export)).collect());
    BY_NAME.get(name).copied()
}

/// The variant of a symbol for callers whose null stream is the thread's own, where it has one.
fn per_thread(symbol: &'static Export) -> &'static Export {
    let variant = |end| export(&format!("{}{end}", symbol.name));
    variant("_ptsz").or_else(|| variant("_ptds")).unwrap_or(symbol)
}

/// What is found under a name.
enum Found {
    Symbol(&'static Export),
    /// The name means something in later versions of CUDA alone.
    Later,
    Nothing,
}

/// This crate's own symbol for what a version of CUDA calls by a name.
fn own(name: &str, version: c_int) -> Found {
    let mut changed = CHANGED.iter().filter(|(changed, _, _)| *changed == name).peekable();
    if changed.peek().is_some() {
        let known: Vec<_> = changed
            .filter_map(|&(_, since, symbol)| Some((since, export(symbol)?)))
            .collect();
        let last = known.iter().rfind(|(since, _)| *since <= version);
        return match last {
            Some((_, symbol)) => Found::Symbol(symbol),
            None if known.is_empty() => Found::Nothing,
            None => Found::Later,
        };
    }
    // Of symbols that differ in nothing but the width of sizes, or in what they promise, the newest is meant.
    let known = [export(&format!("{name}_v2")), export(name)];
    let known: Vec<_> = known.into_iter().flatten().collect();
    match known.iter().find(|symbol| since(symbol.name) <= version) {
        Some(symbol) => Found::Symbol(symbol),
        None if known.is_empty() => Found::Nothing,
        None => Found::Later,
    }
}

/// # Safety
///
/// `symbol` must be null or a C string, `function` null or valid for a write.
unsafe fn find(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) -> Answer<Found> {
    if symbol.is_null() || function.is_null() || !matches!(flags, 0 | LEGACY | PER_THREAD) {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a C string, the caller promises.
    let name = unsafe { CStr::from_ptr(symbol) };
    let mut found = name.to_str().map_or(Found::Nothing, |name| own(name, version));
    if let (Found::Symbol(symbol), PER_THREAD) = (&found, flags) {
        found = Found::Symbol(per_thread(symbol));
    }
    if let (Found::Symbol(symbol), Ok(Driver::Cuda(real))) = (&found, driver_of_call()) {
        // What NVIDIA's driver lacks, it cannot serve.
        let there = CString::new(symbol.name).is_ok_and(|name| real.symbol(&name).is_some());
        if !there {
            found = Found::Nothing;
        }
    }
    let address = match found {
        Found::Symbol(symbol) => symbol.address.cast_mut().cast(),
        _ => std::ptr::null_mut(),
    };
    // SAFETY: not null, so valid for a write, the caller promises.
    unsafe { *function = address };
    Ok(found)
}

/// `cuGetProcAddress_v2` of the CUDA driver API: this crate's own symbol where it has one, else that of the driver in
/// use.
///
/// # Safety
///
/// As the CUDA driver API asks: every pointer must be null or valid for what the function reads or writes there.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
) -> CUresult {
    type Real = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_uint) -> CUresult;
    static SLOT: OnceLock<Option<usize>> = OnceLock::new();
    // SAFETY: the caller keeps these promises.
    let found = match unsafe { find(symbol, function, version, flags) } {
        Ok(found) => found,
        Err(code) => return told(Callers::Ours, code.0),
    };
    if !matches!(found, Found::Symbol(_))
        && let Ok(Driver::Cuda(_)) = driver_of_call()
        && let Way::Cuda(real) = way(c"cuGetProcAddress_v2", &SLOT)
    {
        // SAFETY: NVIDIA's function of this name has this C signature, and the caller keeps its promises.
        return unsafe {
            std::mem::transmute::<*mut c_void, Real>(real.as_ptr())(symbol, function, version, flags, status)
        };
    }
    if !status.is_null() {
        // SAFETY: not null, so valid for a write, the caller promises.
        unsafe {
            *status = match found {
                Found::Symbol(_) => FOUND,
                Found::Nothing => SYMBOL_NOT_FOUND,
                Found::Later => VERSION_NOT_SUFFICIENT,
            }
        };
    }
    let found = matches!(found, Found::Symbol(_));
    told(Callers::Ours, if found { 0 } else { Code::NOT_FOUND.0 })
}

/// `cuGetProcAddress` of the CUDA driver API, as it was before version 12.
///
/// # Safety
///
/// As the CUDA driver API asks: every pointer must be null or valid for what the function reads or writes there.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    // SAFETY: the caller keeps the same promises; a null status is allowed.
    told(Callers::Cust, unsafe {
        cuGetProcAddress_v2(symbol, function, version, flags, std::ptr::null_mut())
    })
}

/// The same for programs that are compiled to have a default stream per thread: where no flag says otherwise, theirs
/// are meant.
macro_rules! per_thread_default {
    ($($name:ident($($status:ident: $type:ty)?) = $legacy:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($legacy), "` for a default stream per thread.")]
            ///
            /// # Safety
            ///
            /// As the CUDA driver API asks: every pointer must be null or valid for what the function reads or writes
            /// there.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name(
                symbol: *const c_char,
                function: *mut *mut c_void,
                version: c_int,
                flags: u64,
                $($status: $type,)?
            ) -> CUresult {
                let flags = if flags == 0 { PER_THREAD } else { flags };
                // SAFETY: the caller keeps the same promises.
                unsafe { $legacy(symbol, function, version, flags, $($status)?) }
            }
        )*
    };
}

per_thread_default! {
    cuGetProcAddress_ptsz() = cuGetProcAddress;
    cuGetProcAddress_v2_ptsz(status: *mut c_uint) = cuGetProcAddress_v2;
}

/// The symbols of this file.
pub(crate) static EXPORTS: &[Export] = &[
    Export {
        name: "cuGetProcAddress",
        address: cuGetProcAddress as *const (),
    },
    Export {
        name: "cuGetProcAddress_v2",
        address: cuGetProcAddress_v2 as *const (),
    },
    Export {
        name: "cuGetProcAddress_ptsz",
        address: cuGetProcAddress_ptsz as *const (),
    },
    Export {
        name: "cuGetProcAddress_v2_ptsz",
        address: cuGetProcAddress_v2_ptsz as *const (),
    },
];
