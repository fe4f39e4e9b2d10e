//! What every function of the driver answers to arguments that are nothing: zeros and nulls, handles of nobody's, no
//! context.
//!
//! A function is called with 16 words, of which it takes those that it has arguments for.

#[macro_use]
mod common;

use common::*;
use std::collections::BTreeMap;
use std::ptr::null_mut;

/// A number that is the handle of nothing.
const NOBODY: usize = 48;

/// Lists functions by the code that they answer.
macro_rules! answers {
    ($table:ident; $($code:literal: $($name:ident)*;)*) => {
        const $table: &[(u32, &[&str])] = &[$(($code, &[$(stringify!($name)),*])),*];
    };
}

answers! { TO_ZEROS;
    1:
        cuStreamEndCapture cuStreamIsCapturing cuStreamGetCaptureInfo cuStreamGetCaptureInfo_v2
        cuThreadExchangeStreamCaptureMode cuDevicePrimaryCtxRetain cuDevicePrimaryCtxGetState cuCtxCreate_v2
        cuCtxGetCurrent cuCtxGetDevice cuCtxGetFlags cuCtxGetApiVersion cuCtxGetLimit cuCtxGetCacheConfig
        cuCtxGetSharedMemConfig cuDriverGetVersion cuGetErrorName cuGetErrorString cuDeviceGet cuDeviceGetCount
        cuDeviceGetName cuDeviceGetUuid cuDeviceGetUuid_v2 cuDeviceTotalMem_v2 cuDeviceGetAttribute
        cuDeviceComputeCapability cuEventCreate cuGraphCreate cuGraphClone cuGraphDestroy cuGraphAddKernelNode
        cuGraphKernelNodeGetParams cuGraphKernelNodeSetParams cuGraphKernelNodeGetAttribute
        cuGraphKernelNodeSetAttribute cuGraphKernelNodeCopyAttributes cuGraphAddMemcpyNode cuGraphMemcpyNodeGetParams
        cuGraphMemcpyNodeSetParams cuGraphAddMemsetNode cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams
        cuGraphAddHostNode cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphAddEmptyNode
        cuGraphAddChildGraphNode cuGraphChildGraphNodeGetGraph cuGraphAddEventRecordNode
        cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeSetEvent cuGraphAddEventWaitNode
        cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent cuGraphNodeGetType cuGraphNodeFindInClone
        cuGraphDestroyNode cuGraphGetNodes cuGraphGetRootNodes cuGraphGetEdges cuGraphNodeGetDependencies
        cuGraphNodeGetDependentNodes cuGraphAddDependencies cuGraphRemoveDependencies cuGraphDebugDotPrint
        cuGraphInstantiate cuGraphInstantiate_v2 cuGraphInstantiateWithFlags cuGraphExecKernelNodeSetParams
        cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams cuGraphExecHostNodeSetParams
        cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent cuGraphExecUpdate cuGraphUpload
        cuGraphLaunch cuGraphExecDestroy cuGraphAddMemAllocNode cuGraphAddMemFreeNode cuMemGetInfo_v2 cuMemAlloc_v2
        cuMemAllocAsync cuMemFree_v2 cuMemFreeAsync cuMemAllocManaged cuMemPrefetchAsync cuMemAdvise cuMemAllocHost_v2
        cuMemHostAlloc cuMemFreeHost cuMemHostRegister_v2 cuMemHostGetFlags cuMemcpy2D_v2 cuModuleLoad
        cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuLinkCreate_v2 cuLaunchKernelEx
        cuTensorMapEncodeTiled cuTensorMapReplaceAddress cuDeviceGetPCIBusId cuDeviceGetByPCIBusId
        cuDeviceGetProperties cuDeviceCanAccessPeer cuDeviceGetP2PAttribute cuDeviceGetExecAffinitySupport
        cuCtxCreate_v3 cuCtxCreate_v4 cuCtxGetId cuCtxGetDevice_v2 cuCtxAttach cuStreamGetId cuStreamGetDevice
        cuStreamGetCtx_v2 cuStreamGetAttribute cuStreamSetAttribute cuStreamBeginCaptureToGraph
        cuStreamGetCaptureInfo_v3 cuGraphAddKernelNode_v2 cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams_v2
        cuGraphExecKernelNodeSetParams_v2 cuGraphGetEdges_v2 cuGraphNodeGetDependencies_v2
        cuGraphNodeGetDependentNodes_v2 cuGraphAddDependencies_v2 cuGraphRemoveDependencies_v2
        cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams cuDeviceGetGraphMemAttribute
        cuDeviceSetGraphMemAttribute cuGraphNodeSetEnabled cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject cuGraphReleaseUserObject
        cuGraphNodeGetEnabled cuGraphInstantiateWithParams
        cuGraphExecGetFlags cuGraphExecUpdate_v2 cuMemAllocPitch_v2 cuMemHostGetDevicePointer_v2
        cuStreamAttachMemAsync cuMemAdvise_v2 cuMemPrefetchAsync_v2 cuMemAllocFromPoolAsync cuDeviceGetDefaultMemPool
        cuDeviceGetMemPool cuDeviceSetMemPool cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolGetAttribute
        cuMemPoolSetAttribute cuMemPoolSetAccess cuMemPoolGetAccess cuPointerGetAttribute cuPointerGetAttributes
        cuPointerSetAttribute cuMemcpy2DUnaligned_v2 cuMemcpy2DAsync_v2 cuMemcpy3D_v2 cuMemcpy3DAsync_v2
        cuMemcpy3DPeer cuMemcpy3DPeerAsync cuModuleGetLoadingMode cuLibraryLoadData cuLibraryLoadFromFile
        cuMemHostRegister cuGetProcAddress cuGetProcAddress_v2 cuStreamCreate cuStreamCreateWithPriority
        cuStreamGetPriority cuStreamGetFlags cuStreamGetCtx cuStreamAddCallback cuLaunchHostFunc;
    201:
        cuDevicePrimaryCtxRelease_v2 cuCtxDestroy_v2 cuCtxPushCurrent_v2 cuCtxDetach cuCtxEnablePeerAccess
        cuCtxDisablePeerAccess cuDevicePrimaryCtxRelease cuCtxDestroy cuCtxPushCurrent;
    400:
        cuEventRecord cuEventRecordWithFlags cuEventQuery cuEventSynchronize cuEventElapsedTime cuEventDestroy_v2
        cuLaunchKernel cuModuleUnload cuModuleGetFunction cuModuleGetGlobal_v2 cuLinkAddData_v2 cuLinkComplete
        cuLinkDestroy cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig cuFuncSetSharedMemConfig
        cuFuncGetModule cuOccupancyMaxActiveBlocksPerMultiprocessor
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxPotentialBlockSize
        cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialClusterSize
        cuEventElapsedTime_v2 cuLinkAddFile_v2 cuModuleGetFunctionCount cuModuleEnumerateFunctions cuFuncGetName
        cuFuncGetParamCount cuFuncGetParamInfo cuFuncIsLoaded cuFuncLoad cuLaunchCooperativeKernel
        cuOccupancyMaxPotentialBlockSizeWithFlags cuLibraryUnload cuLibraryGetKernel cuLibraryGetKernelCount
        cuLibraryEnumerateKernels cuLibraryGetModule cuLibraryGetGlobal cuKernelGetFunction cuKernelGetLibrary
        cuKernelGetName cuKernelGetAttribute cuKernelSetAttribute cuKernelSetCacheConfig cuKernelGetParamCount
        cuKernelGetParamInfo cuStreamDestroy cuEventDestroy cuStreamWaitEvent cuStreamDestroy_v2;
    401:
        cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_v2;
    500:
        cuMemGetAddressRange_v2;
    713:
        cuMemHostUnregister;
    900:
        cuStreamBeginCapture_v2 cuStreamBeginCapture;
}

answers! { TO_NOBODY;
    1:
        cuGraphDestroy cuGraphKernelNodeGetParams cuGraphKernelNodeSetParams cuGraphKernelNodeGetAttribute
        cuGraphKernelNodeSetAttribute cuGraphKernelNodeCopyAttributes cuGraphMemcpyNodeGetParams
        cuGraphMemcpyNodeSetParams cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphHostNodeGetParams
        cuGraphHostNodeSetParams cuGraphChildGraphNodeGetGraph cuGraphEventRecordNodeGetEvent
        cuGraphEventRecordNodeSetEvent cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent cuGraphNodeGetType
        cuGraphDestroyNode cuGraphGetNodes cuGraphGetRootNodes cuGraphGetEdges cuGraphNodeGetDependencies
        cuGraphNodeGetDependentNodes cuGraphAddDependencies cuGraphRemoveDependencies cuGraphDebugDotPrint
        cuGraphExecKernelNodeSetParams cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams
        cuGraphExecHostNodeSetParams cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent
        cuGraphExecUpdate cuGraphUpload cuGraphLaunch cuGraphExecDestroy cuStreamBeginCaptureToGraph
        cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams_v2 cuGraphExecKernelNodeSetParams_v2
        cuGraphGetEdges_v2 cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes_v2 cuGraphAddDependencies_v2
        cuGraphRemoveDependencies_v2 cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams cuGraphNodeSetEnabled
        cuGraphNodeGetEnabled cuGraphExecGetFlags cuGraphExecUpdate_v2 cuMemPoolDestroy cuMemPoolTrimTo
        cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolSetAccess;
    201:
        cuCtxDestroy_v2 cuCtxPushCurrent_v2 cuCtxSetCurrent cuCtxGetApiVersion cuCtxGetId cuCtxSynchronize_v2
        cuCtxDetach cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuCtxDestroy cuCtxPushCurrent;
    400:
        cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamIsCapturing cuStreamGetCaptureInfo
        cuStreamGetCaptureInfo_v2 cuStreamUpdateCaptureDependencies cuEventRecord cuEventRecordWithFlags cuEventQuery
        cuEventSynchronize cuEventDestroy_v2 cuLaunchKernel cuModuleUnload cuLinkAddData_v2 cuLinkComplete
        cuLinkDestroy cuFuncSetAttribute cuFuncSetCacheConfig cuFuncSetSharedMemConfig cuStreamGetId cuStreamGetDevice
        cuStreamGetCtx_v2 cuStreamGetAttribute cuStreamSetAttribute cuStreamCopyAttributes cuStreamGetCaptureInfo_v3
        cuStreamUpdateCaptureDependencies_v2 cuStreamAttachMemAsync cuLinkAddFile_v2 cuFuncGetParamCount
        cuFuncGetParamInfo cuFuncLoad cuLaunchCooperativeKernel cuLibraryUnload cuKernelSetCacheConfig
        cuKernelGetParamCount cuKernelGetParamInfo cuStreamDestroy cuEventDestroy cuStreamGetPriority cuStreamGetFlags
        cuStreamGetCtx cuStreamWaitEvent cuStreamQuery cuStreamSynchronize cuStreamDestroy_v2;
}

/// Functions that zeros suit, with what does not suit them: the first words, whether a context is current, and the
/// code.
const UNSUITED: &[(&[&str], &[usize], bool, u32)] = &[
    (&["cuInit"], &[1], true, INVALID_VALUE),
    (
        &[
            "cuDevicePrimaryCtxReset_v2",
            "cuDevicePrimaryCtxReset",
            "cuDevicePrimaryCtxSetFlags_v2",
            "cuDevicePrimaryCtxSetFlags",
            "cuDeviceGraphMemTrim",
        ],
        &[1],
        true,
        INVALID_DEVICE,
    ),
    (
        &[
            "cuCtxPopCurrent_v2",
            "cuCtxPopCurrent",
            "cuCtxSynchronize",
            "cuCtxGetStreamPriorityRange",
            "cuProfilerStart",
            "cuProfilerStop",
            "cuCtxResetPersistingL2Cache",
        ],
        &[],
        false,
        INVALID_CONTEXT,
    ),
    (
        &["cuCtxSetCurrent", "cuCtxSynchronize_v2"],
        &[NOBODY],
        true,
        INVALID_CONTEXT,
    ),
    (&["cuCtxSetLimit"], &[99], true, UNSUPPORTED_LIMIT),
    (
        &["cuCtxSetCacheConfig", "cuCtxSetSharedMemConfig", "cuCtxSetFlags"],
        &[0x40],
        true,
        INVALID_VALUE,
    ),
    (
        &["cuStreamQuery", "cuStreamSynchronize", "cuStreamCopyAttributes"],
        &[NOBODY],
        true,
        INVALID_HANDLE,
    ),
    // One byte, from nowhere to nowhere.
    (
        &[
            "cuMemcpy",
            "cuMemcpyAsync",
            "cuMemcpyHtoD_v2",
            "cuMemcpyDtoH_v2",
            "cuMemcpyDtoD_v2",
            "cuMemcpyHtoDAsync_v2",
            "cuMemcpyDtoHAsync_v2",
            "cuMemcpyDtoDAsync_v2",
            "cuMemsetD8_v2",
            "cuMemsetD16_v2",
            "cuMemsetD32_v2",
            "cuMemsetD8Async",
            "cuMemsetD16Async",
            "cuMemsetD32Async",
        ],
        &[0, 0, 1],
        true,
        INVALID_VALUE,
    ),
    (
        &["cuMemcpyPeer", "cuMemcpyPeerAsync"],
        &[0, NOBODY],
        true,
        INVALID_CONTEXT,
    ),
    (
        &[
            "cuMemsetD2D8_v2",
            "cuMemsetD2D16_v2",
            "cuMemsetD2D32_v2",
            "cuMemsetD2D8Async",
            "cuMemsetD2D16Async",
            "cuMemsetD2D32Async",
        ],
        &[0, 0, 0, 1, 1],
        true,
        INVALID_VALUE,
    ),
];

/// Every symbol; those for callers whose null stream is the thread's own are known by the name without that.
fn symbols() -> impl Iterator<Item = (&'static str, &'static str, *const ())> {
    hopper_cuda_driver::symbols().map(|(name, address)| {
        let base = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds"));
        (name, base.unwrap_or(name), address)
    })
}

fn listed(table: &'static [(u32, &[&str])]) -> BTreeMap<&'static str, u32> {
    let rows = table
        .iter()
        .flat_map(|&(code, names)| names.iter().map(move |&name| (name, code)));
    rows.collect()
}

#[test]
fn every_function_has_an_error_that_is_tested() {
    let zeros = listed(TO_ZEROS);
    let mut missing = Vec::new();
    for (name, base, address) in symbols() {
        let _context = Context::new();
        let unsuited = UNSUITED.iter().find(|(names, ..)| names.contains(&base));
        let (seen, expected) = match (unsuited, zeros.get(base)) {
            (Some((_, words, with_context, code)), None) => {
                if !with_context {
                    ok!(hopper_cuda_driver::ffi::cuCtxSetCurrent(null_mut()));
                }
                (call_with(address, words), *code)
            }
            // A null stream that is the thread's own can be captured, and has then to be given back.
            (None, Some(_)) if name == "cuStreamBeginCapture_v2_ptsz" => (call_with(address, &[0, 9]), INVALID_VALUE),
            (None, Some(_)) if name == "cuStreamBeginCapture_ptsz" => (call_with(address, &[NOBODY]), INVALID_HANDLE),
            (None, Some(&code)) => (call_with(address, &[]), code),
            // What is not emulated says so, whatever it is given.
            (None, None) => match call_with(address, &[]) {
                NOT_SUPPORTED => continue,
                code => {
                    missing.push((name, code));
                    continue;
                }
            },
            (Some(_), Some(_)) => panic!("{name} is listed twice"),
        };
        assert_eq!(seen, expected, "{name}");
    }
    assert!(missing.is_empty(), "these have no line in the tables: {missing:?}");
}

#[test]
fn handles_of_nobody_are_refused() {
    let expected = listed(TO_NOBODY);
    let mut seen = 0;
    for (name, base, address) in symbols() {
        let _context = Context::new();
        if let Some(&code) = expected.get(base) {
            seen += usize::from(name == base);
            assert_eq!(call_with(address, &[NOBODY]), code, "{name}");
        }
    }
    assert_eq!(seen, expected.len(), "a name in the table is that of no function");
}

#[test]
fn every_call_on_a_faulted_context_answers_with_the_fault() {
    let _context = Context::new();
    let kernel = kernel_of(CHAIN, "hasty");
    assert_eq!(launch_on(null_mut(), &[], kernel, 48), SUCCESS);
    for name in [
        "cuCtxSynchronize",
        "cuStreamSynchronize",
        "cuStreamQuery",
        "cuMemAlloc_v2",
        "cuEventCreate",
        "cuMemGetInfo_v2",
    ] {
        let (_, _, address) = symbols().find(|(known, ..)| *known == name).expect("a function");
        assert_eq!(call_with(address, &[]), ILLEGAL_ADDRESS, "{name}");
    }
}
