//! `cuGetProcAddress`: functions by name. Written by hand, because it answers with this crate's own symbols whichever driver is
//! in use, and asks NVIDIA's library only for functions that this crate does not define.

use crate::codes::{Answer, Code};
use crate::select::{Driver, driver};
use crate::symbols::exports;
use crate::table::{Callers, Export, Way, told, way};
use crate::types::*;
use std::ffi::CStr;
use std::sync::OnceLock;

/// `CUdriverProcAddressQueryResult`: found.
const FOUND: c_uint = 0;
/// `CUdriverProcAddressQueryResult`: no such function.
const SYMBOL_NOT_FOUND: c_uint = 1;

/// Functions whose arguments changed: since which version of CUDA a name has meant which symbol. A symbol that this crate does not
/// define is NVIDIA's to give.
const CHANGED: &[(&str, c_int, &str)] = &[
    ("cuCtxCreate", 0, "cuCtxCreate_v2"),
    ("cuCtxCreate", 11040, "cuCtxCreate_v3"),
    ("cuGetProcAddress", 0, "cuGetProcAddress"),
    ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
    ("cuGraphAddDependencies", 0, "cuGraphAddDependencies"),
    ("cuGraphAddDependencies", 12030, "cuGraphAddDependencies_v2"),
    ("cuGraphAddKernelNode", 0, "cuGraphAddKernelNode"),
    ("cuGraphAddKernelNode", 12000, "cuGraphAddKernelNode_v2"),
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
    ("cuMemAdvise", 12020, "cuMemAdvise_v2"),
    ("cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"),
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

/// This crate's own symbol for what a version of CUDA calls by a name.
fn own(name: &str, version: c_int) -> Option<*mut c_void> {
    let find = |name: &str| exports().find(|export| export.name == name);
    let changed = CHANGED
        .iter()
        .rfind(|&&(changed, since, _)| changed == name && since <= version);
    let export = match changed {
        Some((_, _, symbol)) => find(symbol),
        // Of symbols that differ in nothing but the width of sizes, the newest is meant.
        None => find(&format!("{name}_v2")).or_else(|| find(name)),
    };
    export.map(|export| export.address.cast_mut().cast())
}

/// # Safety
///
/// `symbol` must be null or a C string, `function` null or valid for a write.
unsafe fn find(symbol: *const c_char, function: *mut *mut c_void, version: c_int) -> Answer<bool> {
    if symbol.is_null() || function.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, so a C string, the caller promises.
    let name = unsafe { CStr::from_ptr(symbol) };
    let address = name.to_str().ok().and_then(|name| own(name, version));
    // SAFETY: not null, so valid for a write, the caller promises.
    unsafe { *function = address.unwrap_or(std::ptr::null_mut()) };
    Ok(address.is_some())
}

/// `cuGetProcAddress_v2` of the CUDA driver API: this crate's own symbol where it has one, else that of the driver in use.
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
    let found = match unsafe { find(symbol, function, version) } {
        Ok(found) => found,
        Err(code) => return told(Callers::Ours, code.0),
    };
    if !found
        && let Ok(Driver::Cuda(_)) = driver()
        && let Way::Cuda(real) = way(c"cuGetProcAddress_v2", &SLOT)
    {
        // SAFETY: NVIDIA's function of this name has this C signature, and the caller keeps its promises.
        return unsafe {
            std::mem::transmute::<*mut c_void, Real>(real.as_ptr())(symbol, function, version, flags, status)
        };
    }
    if !status.is_null() {
        // SAFETY: not null, so valid for a write, the caller promises.
        unsafe { *status = if found { FOUND } else { SYMBOL_NOT_FOUND } };
    }
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
];
