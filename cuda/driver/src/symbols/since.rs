//! Since when there are functions that came after CUDA 11.4, before which all others are taken to have been there.

use crate::types::c_int;

/// Lists symbols by the version of CUDA that brought them.
macro_rules! since {
    ($($version:literal: $($name:ident)*;)*) => {
        const SINCE: &[(c_int, &[&str])] = &[$(($version, &[$(stringify!($name)),*])),*];
    };
}

/// The version of CUDA that brought a symbol; 0 where all have it.
pub(crate) fn since(symbol: &str) -> c_int {
    let row = SINCE.iter().find(|(_, symbols)| symbols.contains(&symbol));
    row.map_or(0, |&(version, _)| version)
}

since! {
    11060:
        cuLaunchKernelEx
        cuArrayGetMemoryRequirements cuGraphNodeGetEnabled cuGraphNodeSetEnabled
        cuMipmappedArrayGetMemoryRequirements;
    11070:
        cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialClusterSize
        cuGraphAddBatchMemOpNode cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams
        cuGraphExecBatchMemOpNodeSetParams cuMemGetHandleForAddressRange cuModuleGetLoadingMode
        cuStreamBatchMemOp_v2 cuStreamWaitValue32_v2 cuStreamWaitValue64_v2 cuStreamWriteValue32_v2
        cuStreamWriteValue64_v2;
    12000:
        cuCtxGetId cuGetProcAddress_v2 cuGraphAddKernelNode_v2 cuGraphExecGetFlags cuGraphExecKernelNodeSetParams_v2
        cuGraphExecUpdate_v2 cuGraphInstantiateWithParams cuGraphKernelNodeGetParams_v2
        cuGraphKernelNodeSetParams_v2 cuKernelGetAttribute cuKernelGetFunction cuKernelSetAttribute
        cuKernelSetCacheConfig cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetManaged cuLibraryGetModule
        cuLibraryGetUnifiedFunction cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuStreamGetId
        cuTensorMapEncodeIm2col cuTensorMapEncodeTiled cuTensorMapReplaceAddress;
    12010:
        cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal
        cuCtxSetFlags cuMulticastAddDevice cuMulticastBindAddr cuMulticastBindMem cuMulticastCreate
        cuMulticastGetGranularity cuMulticastUnbind;
    12020:
        cuGraphAddNode cuGraphExecNodeSetParams cuGraphNodeSetParams cuMemAdvise_v2 cuMemPrefetchAsync_v2;
    12030:
        cuFuncGetName cuGraphAddDependencies_v2 cuGraphAddNode_v2 cuGraphConditionalHandleCreate cuGraphGetEdges_v2
        cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes_v2 cuGraphRemoveDependencies_v2 cuKernelGetName
        cuStreamBeginCaptureToGraph cuStreamGetCaptureInfo_v3 cuStreamUpdateCaptureDependencies_v2;
    12040:
        cuCtxFromGreenCtx cuCtxGetDevResource cuDevResourceGenerateDesc cuDevSmResourceSplitByCount
        cuDeviceGetDevResource cuDeviceRegisterAsyncNotification cuDeviceUnregisterAsyncNotification
        cuFuncGetParamInfo cuFuncIsLoaded cuFuncLoad cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxGetDevResource
        cuGreenCtxRecordEvent cuGreenCtxWaitEvent cuKernelGetParamInfo cuLibraryEnumerateKernels
        cuLibraryGetKernelCount cuModuleEnumerateFunctions cuModuleGetFunctionCount cuStreamGetGreenCtx;
    12050:
        cuCtxCreate_v4 cuCtxRecordEvent cuCtxWaitEvent cuGreenCtxStreamCreate cuKernelGetLibrary cuStreamGetCtx_v2;
    12060:
        cuMemBatchDecompressAsync;
    12080:
        cuCheckpointProcessCheckpoint cuCheckpointProcessGetRestoreThreadId cuCheckpointProcessGetState
        cuCheckpointProcessLock cuCheckpointProcessRestore cuCheckpointProcessUnlock
        cuEventElapsedTime_v2 cuMemcpy3DBatchAsync cuMemcpyBatchAsync cuStreamGetDevice
        cuTensorMapEncodeIm2colWide;
    12090:
        cuGreenCtxGetId cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory cuLogsRegisterCallback cuLogsUnregisterCallback;
    13000:
        cuCtxGetDevice_v2 cuCtxSynchronize_v2 cuDeviceGetHostAtomicCapabilities cuDeviceGetP2PAtomicCapabilities
        cuMemDiscardAndPrefetchBatchAsync cuMemDiscardBatchAsync cuMemGetDefaultMemPool
        cuMemGetMemPool cuMemPrefetchBatchAsync cuMemSetMemPool cuMemcpy3DBatchAsync_v2 cuMemcpyBatchAsync_v2;
    13020:
        cuFuncGetParamCount cuKernelGetParamCount;
}
